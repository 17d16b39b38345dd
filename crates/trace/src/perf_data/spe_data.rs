//! The data of Arm's SPE, which lie between the records of a perf.data file, and the records about such data, also in
//! live recordings.

use super::attribute::{self as has, ID, TIME};
use super::aux_record::AuxRecord;
use super::bytes::Bytes;
use super::decoder::Decoder;
use super::input::Input;
use super::stream::{AUXTRACE, TRACING_DATA};
use crate::spe::{Buffer, Held, SpeAccess, SpeQueues};
use crate::{Sample, Source};
use linux::{Pid, Tid};
use machine::CpuId;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

// From the kernel's tools/lib/perf/include/perf/event.h and tools/perf/util/auxtrace.h.
const AUXTRACE_INFO: u32 = 70;
const ARM_SPE: u32 = 4;
const MISC_SWITCH_OUT: u16 = 1 << 13;

/// Finds the data among the records of a file, from `start` on. `None` if there are none of SPE.
pub(super) fn find(path: &Path, start: u64, bytes: u64) -> io::Result<Option<SpeQueues>> {
    let mut opened = File::open(path)?;
    opened.seek(SeekFrom::Start(start))?;
    let file = Arc::new(opened.try_clone()?);
    let mut input = Input::new(opened, bytes);
    let mut queues = SpeQueues::default();
    let mut is_spe = false;
    while let Some((header, record)) = input.next()? {
        let body = header.body(record).unwrap_or(Bytes(&[]));
        let after = match header.kind {
            AUXTRACE_INFO => {
                is_spe |= { body }.u32() == Some(ARM_SPE);
                0
            }
            AUXTRACE => {
                let told = told_data(body);
                let place = start + (bytes - input.left());
                if let Some((cpu, offset, bytes)) = told {
                    queues.add(cpu, Buffer { offset, held: Held::InFile(file.clone(), place, bytes) });
                }
                told.map_or(0, |(_, _, bytes)| bytes)
            }
            TRACING_DATA => { body }.u32().map_or(0, |bytes| u64::from(bytes).next_multiple_of(8)),
            _ => 0,
        };
        input.skip(after)?;
    }
    Ok(is_spe.then_some(queues))
}

/// Parses an `AUXTRACE` record: the CPU of the data that follow, their offset in memory, and their length.
fn told_data(body: Bytes<'_>) -> Option<(CpuId, u64, u64)> {
    let mut from = body;
    let (bytes, offset, _reference) = (from.u64()?, from.u64()?, from.u64()?);
    let (_index, _tid, cpu) = (from.u32()?, from.u32()?, from.u32()?);
    Some((CpuId(cpu), offset, bytes))
}

impl Decoder {
    /// Takes all accesses sampled by Arm's SPE up to a time.
    pub(super) fn advance_spe(&mut self, limit: u64) {
        let Some(mut spe) = self.spe.take() else { return };
        let (timer, mut lost) = (self.features.timer, std::mem::take(&mut self.lost));
        spe.advance(limit, timer, &mut lost, |access| self.spe_sample(&access));
        (self.spe, self.lost) = (Some(spe), lost);
    }

    /// Takes an access sampled by Arm's SPE.
    fn spe_sample(&mut self, access: &SpeAccess) {
        let SpeAccess { time_ns, cpu, thread: (pid, tid), ref record } = *access;
        let core = self.features.core(cpu);
        let (Some(observed), Some(address)) = (record.observed(core.processor), record.address) else {
            return;
        };
        let period =
            self.attributes.iter().find(|attribute| attribute.source == Source::Spe).map_or(1, |spe| spe.period);
        let sample = Sample {
            time_ns,
            cpu,
            pid,
            tid,
            instruction: record.instruction,
            address,
            physical: record.physical,
            kind: observed.kind,
            served: observed.served,
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
        let attribute = self.attribute_of(false, body)?;
        let (needed, sample_type) = (has::TID | TIME | has::CPU, attribute.sample_type);
        if self.spe.is_none() || attribute.trailer() == 0 || sample_type & needed != needed {
            return Some(());
        }
        let mut trailer = body;
        trailer.take((body.0.len() as u64).checked_sub(attribute.trailer())?)?;
        let (pid, tid, time) = (Pid(trailer.u32()?), Tid(trailer.u32()?), trailer.u64()?);
        trailer.take_u64s((sample_type & (ID | has::STREAM_ID)).count_ones().into())?;
        let cpu = CpuId(trailer.u32()?);
        if let Some(spe) = &mut self.spe {
            spe.switch(time, cpu, runs.then_some((pid, tid)));
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
    use super::super::aux_record::AUX;
    use super::super::{Attribute, Core};
    use super::*;
    use crate::{AccessKind, Served};
    use linux::{monotonic_ns, tsc};
    use std::collections::HashMap;

    const COMM: u32 = 3;
    const ITRACE_START: u32 = 12;
    const SWITCH: u32 = 14;
    const SWITCH_CPU_WIDE: u32 = 15;
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
            decoder.add_attribute(Attribute::live(name, SAMPLE_TYPE, period, vec![id]));
        }
        let core = Core { processor: 0x413f_d0c1, cycles_per_ns: Some(3.0) };
        decoder.features.cores = HashMap::from([(CpuId(CPU), core)]);
        decoder.spe = Some(SpeQueues::live(true));
        decoder
    }

    fn samples(decoder: &mut Decoder, data: Vec<u8>) -> Vec<Sample> {
        let spe = decoder.spe.as_mut().unwrap();
        spe.add(CpuId(CPU), Buffer { offset: 0, held: Held::InMemory(data) });
        spe.look();
        decoder.finish().samples
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
            let before = monotonic_ns();
            let begins = record(&body, 8, before);
            decoder.take(kind, misc, Bytes(&begins));
            let sampled = samples(&mut decoder, load(tsc()));
            let [sample] = sampled.as_slice() else { panic!("{kind}: {sampled:?} {:?}", decoder.lost) };
            assert_eq!((sample.pid, sample.tid, sample.cpu), (Pid(7), Tid(8), CpuId(CPU)));
            assert!((before..=monotonic_ns()).contains(&sample.time_ns));
            assert_eq!(
                (sample.kind, sample.served, sample.source),
                (AccessKind::Load, Some(Served::Peer), Source::Spe)
            );
            assert_eq!((sample.latency_ns, sample.weight), (Some(100.0), 4096.0));
            // Samples after a thread has left the CPU are not its own.
            let goes = record(&[], 8, monotonic_ns());
            decoder.take(SWITCH, MISC_SWITCH_OUT, Bytes(&goes));
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert_eq!(samples(&mut decoder, load(tsc())), []);
            assert_eq!(decoder.lost.first().map(|loss| loss.count), Some(1));
        }
        // A name without an exec may be set by another thread.
        let mut decoder = live();
        let named = record(&words(&[7 | 8 << 32, 0x61]), 8, monotonic_ns());
        decoder.take(COMM, 0, Bytes(&named));
        assert_eq!(samples(&mut decoder, load(tsc())), []);
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
