//! The data of Arm's SPE as samples, and the records about such data.

use super::decoder::Decoder;
use crate::{Loss, Sample, Source};
use perf_data::spe::SpeAccess;
use perf_data::{AuxRecord, Bytes, Sampler};

const MISC_SWITCH_OUT: u16 = 1 << 13;

impl Decoder {
    /// Takes all accesses sampled by Arm's SPE up to a time.
    pub(super) fn advance_spe(&mut self, limit: u64) {
        let timer = self.session.features.timer;
        self.advance_spe_by(limit, |ticks| timer?.ns(ticks));
    }

    /// Takes all accesses sampled by Arm's SPE so far in a live recording, whose clock converts counts of the timer to
    /// ns.
    pub fn take_live_spe(&mut self, clock: impl Fn(u64) -> Option<u64>) {
        self.advance_spe_by(u64::MAX, clock);
    }

    fn advance_spe_by(&mut self, limit: u64, clock: impl Fn(u64) -> Option<u64>) {
        let Some(mut spe) = self.spe.take() else { return };
        let mut lost = std::mem::take(&mut self.lost);
        let count_loss = |what, count| Loss::add(&mut lost, what, count);
        spe.advance(limit, clock, count_loss, |access| self.spe_sample(&access));
        (self.spe, self.lost) = (Some(spe), lost);
    }

    /// Takes an access sampled by Arm's SPE.
    fn spe_sample(&mut self, access: &SpeAccess) {
        let SpeAccess { time_ns, cpu, thread: (pid, tid), ref record } = *access;
        let core = self.session.features.core(cpu);
        let (Some(observed), Some(address)) = (record.observed(core.processor), record.address) else {
            return;
        };
        let mut events = self.session.attributes().iter();
        let period = events.find(|event| event.sampler == Sampler::Spe).map_or(1, |spe| spe.period);
        let sample = Sample {
            time_ns,
            cpu,
            pid,
            tid,
            instruction: record.instruction,
            address,
            physical: record.physical,
            kind: observed.kind.into(),
            served: observed.served.map(Into::into),
            node: self.node(cpu, record.physical, observed),
            latency_ns: core.nanoseconds(record.access_cycles().unwrap_or(0)),
            kernel: record.privileged,
            stack: None,
            weight: period.max(1) as f32,
            source: Source::Spe,
        };
        self.push(sample);
    }

    /// Takes a context switch record: the thread that starts or stops running on its CPU.
    pub(super) fn switch(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        self.turn(body, misc & MISC_SWITCH_OUT == 0)
    }

    /// Notes whether the thread of a record runs on its CPU from now on.
    pub(super) fn turn(&mut self, body: Bytes<'_>, runs: bool) -> Option<()> {
        let Some(spe) = &mut self.spe else {
            self.session.attribute_of(false, body)?;
            return Some(());
        };
        if let Some(turn) = self.session.turn(body)? {
            spe.switch(turn.time, turn.cpu, runs.then_some((turn.pid, turn.tid)));
        }
        Some(())
    }

    /// Counts what is missing from AUX data.
    pub(super) fn aux(&mut self, body: Bytes<'_>) -> Option<()> {
        let record = AuxRecord::parse(body)?;
        for (happened, what) in [
            (record.is_truncated(), "times that the processor stopped sampling because its buffer was full"),
            (record.is_partial(), "records that the processor left incomplete"),
            (record.has_collisions(), "periods in which the processor skipped samples that came too fast"),
        ] {
            self.lose(what, u64::from(happened));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, Served};
    use machine::{CpuId, Pid, Tid};
    use perf_data::attribute::{self as has, TIME};
    use perf_data::kind::{AUX, COMM, ITRACE_START, SWITCH, SWITCH_CPU_WIDE};
    use perf_data::spe::{Buffer, Held, SpeQueues};
    use perf_data::{Attribute, Core};
    use std::collections::HashMap;

    const COMM_EXEC: u16 = 1 << 13;
    const CPU: u32 = 5;
    const SAMPLE_TYPE: u64 = has::IDENTIFIER | has::TID | TIME | has::CPU;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A record as the kernel writes it: with the running thread, the time, the CPU, and the ID of the second event.
    fn record(body: &[u8], tid: u64, time: u64) -> Vec<u8> {
        [body, &words(&[7 | tid << 32, time, CPU.into(), 2])].concat()
    }

    /// A load of another core's line, 320 cycles after dispatch, of which it waited 20.
    fn load(ticks: u64) -> Vec<u8> {
        let parts: [&[u8]; 7] = [
            &[0xb0, 0, 0x10, 0x40, 0, 0, 0, 0, 0],
            &[0x49, 0],
            &[0x99, 20, 0],
            &[0x98, 64, 1],
            &[0xb2, 0, 0x10, 0, 0, 0, 0x7f, 0, 0],
            &[0x43, 0xd],
            &[0x71],
        ];
        [&parts.concat()[..], &ticks.to_le_bytes()].concat()
    }

    /// A decoder of two open events: the SPE unit, and context switches.
    fn live() -> Decoder {
        let mut decoder = Decoder::default();
        for (name, period, id) in [("arm_spe_0/ts_enable=1/", 4096, 1), ("dummy", 1, 2)] {
            decoder.session.add_attribute(Attribute::live(name, SAMPLE_TYPE, period, vec![id]));
        }
        let core = Core { processor: 0x413f_d0c1, cycles_per_ns: Some(3.0) };
        decoder.session.features.cores = HashMap::from([(CpuId(CPU), core)]);
        decoder.spe = Some(SpeQueues::live(true));
        decoder
    }

    fn samples(decoder: &mut Decoder, data: Vec<u8>) -> Vec<Sample> {
        let spe = decoder.spe.as_mut().unwrap();
        spe.add(CpuId(CPU), Buffer { offset: 0, held: Held::InMemory(data) });
        // The timer counts ns.
        decoder.take_live_spe(Some);
        decoder.finish().0
    }

    #[test]
    fn threads_of_samples_come_from_records() {
        for (kind, misc, body) in [
            (ITRACE_START, 0, words(&[7 | 8 << 32])),
            (SWITCH, 0, vec![]),
            (SWITCH_CPU_WIDE, 0, words(&[9 | 9 << 32])),
            (COMM, COMM_EXEC, words(&[7 | 8 << 32, 0x61])),
        ] {
            let mut decoder = live();
            let begins = record(&body, 8, 1000);
            decoder.take(kind, misc, Bytes(&begins));
            let sampled = samples(&mut decoder, load(1001));
            let [sample] = sampled.as_slice() else { panic!("{kind}: {sampled:?} {:?}", decoder.lost) };
            assert_eq!((sample.pid, sample.tid, sample.cpu), (Pid(7), Tid(8), CpuId(CPU)));
            assert_eq!(sample.time_ns, 1001);
            assert_eq!(
                (sample.kind, sample.served, sample.source),
                (AccessKind::Load, Some(Served::Peer), Source::Spe)
            );
            assert_eq!((sample.latency_ns, sample.weight), (Some(100.0), 4096.0));
            // Samples after a thread has left the CPU are not its own.
            let goes = record(&[], 8, 1002);
            decoder.take(SWITCH, MISC_SWITCH_OUT, Bytes(&goes));
            assert_eq!(samples(&mut decoder, load(1003)), []);
            assert_eq!(decoder.lost.first().map(|loss| loss.count), Some(1));
        }
        // A name without an exec may be set by another thread.
        let mut decoder = live();
        let named = record(&words(&[7 | 8 << 32, 0x61]), 8, 1000);
        decoder.take(COMM, 0, Bytes(&named));
        assert_eq!(samples(&mut decoder, load(1001)), []);
    }

    #[test]
    fn what_the_processor_could_not_write_is_counted() {
        let mut decoder = live();
        for flags in [0, 1, 1 | 4, 8, 2 | 0xff00] {
            decoder.take(AUX, 0, Bytes(&record(&words(&[4096, 0, flags]), 8, 1)));
        }
        decoder.take(AUX, 0, Bytes(&[0; 23]));
        let counts: Vec<_> = decoder.lost.iter().map(|loss| (loss.count, loss.what.as_str())).collect();
        let expected = [
            (2, "times that the processor stopped sampling because its buffer was full"),
            (1, "records that the processor left incomplete"),
            (1, "periods in which the processor skipped samples that came too fast"),
            (1, "records that are too short, or of an unknown event"),
        ];
        assert_eq!(counts, expected);
    }
}
