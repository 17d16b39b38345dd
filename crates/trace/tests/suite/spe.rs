//! perf.data files with data of Arm's SPE, made according to the architecture's manual and perf's source: no such
//! machine was available.

use crate::perf_file::{FINISHED_ROUND, comm, file, record};
#[allow(dead_code, reason = "it makes files of other processors as well")]
use linux::{Pid, Tid};
use machine::{CpuId, NodeId};
use proptest::prelude::*;
use proptest::sample::Index;
use std::fs;
use trace::{AccessKind, Loss, Record, Sample, Served, Source, Trace};

const SWITCH: u32 = 14;
const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
const TIME_CONV: u32 = 79;

const EVENT: &str = "arm_spe_0/ts_enable=1,pa_enable=1,load_filter=1,store_filter=1/";
/// `PERF_SAMPLE_IP`, `TID`, `TIME`, `CPU`.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 7;
/// Rate of the generic timer.
const NS_PER_TICK: u64 = 40;

/// Data sources of loads on Neoverse N1.
const L2: u8 = 0x8;
const DRAM: u8 = 0xe;
const LLC_MISS: u32 = 1 << 9;
const REMOTE: u32 = 1 << 10;

/// A sampled operation, as the processor writes it.
#[derive(Clone, Copy)]
struct Operation {
    tick: u64,
    thread: Option<u32>,
    store: bool,
    address: u64,
    physical: Option<u64>,
    events: u32,
    source: Option<u8>,
}

const LOAD: Operation = Operation {
    tick: 0,
    thread: Some(8),
    store: false,
    address: 0x7f00_0000_1000,
    physical: None,
    events: 0,
    source: Some(DRAM),
};

impl Operation {
    fn packets(self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut put = |header: u8, bytes: &[u8]| {
            data.push(header);
            data.extend(bytes);
        };
        put(0xb0, &(0x40_1000_u64 | 1 << 63).to_le_bytes());
        if let Some(thread) = self.thread {
            put(0x65, &thread.to_le_bytes());
        }
        put(0x49, &[self.store.into()]);
        put(0x99, &20_u16.to_le_bytes());
        put(0x98, &320_u16.to_le_bytes());
        put(0xb2, &self.address.to_le_bytes());
        if let Some(physical) = self.physical {
            put(0xb3, &(physical | 1 << 63).to_le_bytes());
        }
        put(0x62, &self.events.to_le_bytes());
        if let Some(source) = self.source {
            put(0x43, &[source]);
        }
        put(0x71, &self.tick.to_le_bytes());
        data
    }
}

/// A branch has no data address.
const BRANCH: &[u8] = &[0x4a, 1, 0x52, 0x02, 0x00, 0x71, 12, 0, 0, 0, 0, 0, 0, 0];

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What the kernel hands over at once for a CPU: the record, followed by the data.
fn data(cpu: u32, offset: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    let data = parts.concat();
    let whose = [0_u32, u32::MAX, cpu, 0].map(u32::to_le_bytes).concat();
    let body = [words(&[data.len() as u64, offset, 0]), whose].concat();
    [record(AUXTRACE, 0, &body), data].concat()
}

/// A thread is switched in or out on a CPU.
fn switch(time: u64, cpu: u32, (pid, tid): (u32, u32), goes: bool) -> Vec<u8> {
    record(SWITCH, u16::from(goes) << 13, &words(&[u64::from(pid) | u64::from(tid) << 32, time, cpu.into()]))
}

fn info() -> Vec<u8> {
    record(AUXTRACE_INFO, 0, &words(&[4, 0, 0]))
}

fn time_conversion() -> Vec<u8> {
    record(TIME_CONV, 0, &words(&[0, NS_PER_TICK, 0, 0, 0, 0]))
}

fn round() -> Vec<u8> {
    record(FINISHED_ROUND, 0, &[])
}

fn open(bytes: &[u8]) -> (tempfile::TempDir, Option<Trace>) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    fs::write(&path, bytes).unwrap();
    (scratch, Trace::open(&path).ok())
}

/// All samples, and the losses. Records are in time order.
fn read(trace: &Trace) -> (Vec<Sample>, Vec<Loss>) {
    let mut records = trace.records().unwrap();
    let all: Vec<Record> = records.by_ref().map(Result::unwrap).collect();
    let time = |record: &Record| match record {
        Record::Sample(sample) => sample.time_ns,
        Record::Event(event) => event.time_ns,
    };
    assert!(all.is_sorted_by_key(time), "{all:?}");
    let sample = |record| if let Record::Sample(sample) = record { Some(sample) } else { None };
    (all.into_iter().filter_map(sample).collect(), records.lost().to_vec())
}

fn both_cpus() -> Vec<Vec<u8>> {
    let at = |tick| Operation { tick, ..LOAD };
    let without = Operation { thread: None, ..LOAD };
    vec![
        info(),
        time_conversion(),
        comm(0, 7, 7, "app", true),
        comm(0, 7, 8, "app", false),
        switch(700, 5, (7, 7), false),
        comm(800, 7, 7, "main", false),
        round(),
        // These data are from long before.
        data(
            0,
            4096,
            &[
                at(10).packets(),
                BRANCH.to_vec(),
                Operation { source: Some(L2), physical: Some(3 << 29), ..at(30) }.packets(),
                vec![0; 5],
                Operation { store: true, events: LLC_MISS | REMOTE, ..at(40) }.packets(),
            ],
        ),
        comm(1200, 7, 7, "late", false),
        round(),
        // An alignment packet extends to the next multiple of 16 in memory, not in the file.
        data(
            5,
            4096 + 7,
            &[vec![0x23, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Operation { tick: 20, ..without }.packets()],
        ),
        switch(1400, 5, (7, 7), true),
        data(5, 9000, &[Operation { tick: 33, ..without }.packets()]),
        round(),
        data(0, 9000, &[Operation { address: 0xe0ff_8000_0000_1000, ..at(50) }.packets()]),
    ]
}

#[test]
fn accesses_are_reported_in_the_order_of_time() {
    let (_folder, trace) = open(&file(EVENT, SAMPLE_TYPE, &both_cpus()));
    let trace = trace.unwrap();
    assert_eq!(trace.about().sources.first().unwrap().source, Source::Spe);
    let (samples, lost) = read(&trace);
    assert_eq!(lost, []);
    let first = samples.first().unwrap();
    let expected = Sample {
        time_ns: 400,
        cpu: CpuId(0),
        pid: Pid(7),
        tid: Tid(8),
        instruction: 0x40_1000,
        address: 0x7f00_0000_1000,
        physical: None,
        kind: AccessKind::Load,
        served: Some(Served::Dram),
        node: Some(NodeId(0)),
        latency_ns: None,
        kernel: false,
        stack: None,
        weight: 1000.0,
        source: Source::Spe,
    };
    assert_eq!(*first, expected);
    let told = samples.iter().map(|s| (s.time_ns, s.cpu.0, s.tid.0, s.kind, s.served, s.node.map(|node| node.0)));
    let all = [
        (400, 0, 8, AccessKind::Load, Some(Served::Dram), Some(0)),
        // On the second CPU, the thread is known from context switches.
        (800, 5, 7, AccessKind::Load, Some(Served::Dram), Some(1)),
        (1200, 0, 8, AccessKind::Load, Some(Served::L2), Some(1)),
        (1320, 5, 7, AccessKind::Load, Some(Served::Dram), Some(1)),
        (1600, 0, 8, AccessKind::Store, Some(Served::Dram), Some(1)),
        (2000, 0, 8, AccessKind::Load, Some(Served::Dram), Some(0)),
    ];
    assert_eq!(told.collect::<Vec<_>>(), all);
    assert_eq!(samples.last().unwrap().address, 0xffff_8000_0000_1000);
    // With a known core frequency, latencies are known: 300 cycles at 3 GHz.
    let (samples, _) = read(&trace.with_core_clock_hz(3e9));
    assert!(samples.iter().all(|sample| sample.latency_ns == Some(100.0)), "{samples:?}");
}

#[test]
fn what_cannot_be_reported_is_counted() {
    let lost = |records: &[Vec<u8>]| {
        let all = [&[info(), comm(0, 7, 8, "app", true)][..], records].concat();
        let (_folder, trace) = open(&file(EVENT, SAMPLE_TYPE, &all));
        let (samples, lost) = read(&trace.unwrap());
        assert_eq!(samples, []);
        lost.into_iter().map(|loss| (loss.count, loss.what)).collect::<Vec<_>>()
    };
    let load = LOAD.packets();
    for (operation, what) in [
        (Operation { thread: Some(99), ..LOAD }, "samples of Arm's SPE from unknown threads"),
        (Operation { thread: None, ..LOAD }, "samples of Arm's SPE from unknown threads"),
    ] {
        assert_eq!(lost(&[time_conversion(), data(0, 0, &[operation.packets()])]), [(1, what.to_owned())]);
    }
    let timeless = "samples of Arm's SPE without a time (`ts_enable=1` adds it)".to_owned();
    assert_eq!(lost(&[data(0, 0, std::slice::from_ref(&load))]), [(1, timeless.clone())]);
    let ended = [&load[..load.len() - 9], &[1]].concat();
    assert_eq!(lost(&[time_conversion(), data(0, 0, &[ended])]), [(1, timeless)]);
    let no_cpu = "samples of Arm's SPE without a CPU".to_owned();
    assert_eq!(lost(&[time_conversion(), data(u32::MAX, 0, std::slice::from_ref(&load))]), [(1, no_cpu)]);
    // A buffer ends at an invalid packet, and the next one is read.
    let junk = [vec![0xff], load.clone()].concat();
    let nonsense = (junk.len() as u64, "bytes of Arm's SPE data that are not a valid record".to_owned());
    assert_eq!(lost(&[time_conversion(), data(0, 0, &[junk]), data(0, 0, &[])]), [nonsense]);
    // AUX data of another type (1, Intel's) are skipped.
    let other = record(AUXTRACE_INFO, 0, &words(&[1, 0]));
    let (_folder, trace) = open(&file(EVENT, SAMPLE_TYPE, &[other, data(0, 0, &[load])]));
    let (samples, lost) = read(&trace.unwrap());
    let what = lost.first().map(|loss| loss.what.as_str());
    assert_eq!((samples.len(), what), (0, Some("bytes of processors' own trace formats, which are not read")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damage_never_panics(cut: Index, hits in prop::collection::vec((any::<Index>(), any::<u8>()), 0..20)) {
        let mut bytes = file(EVENT, SAMPLE_TYPE, &both_cpus());
        let length = bytes.len();
        for (place, value) in hits {
            bytes[place.index(length)] = value;
        }
        bytes.truncate(cut.index(length + 1));
        let (_folder, trace) = open(&bytes);
        if let Some(Ok(records)) = trace.map(|trace| trace.records()) {
            records.take_while(Result::is_ok).count();
        }
    }
}
