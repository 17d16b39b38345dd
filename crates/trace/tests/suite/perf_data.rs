//! perf.data files, recorded and made up: their samples are those printed by `perf script`, and damage is handled.

use crate::perf_file::{
    LOCAL, MemorySample, REMOTE, SAMPLE_TYPE, comm, exit, file, fork, mmap, record, time_conversion,
};
use linux::{Pid, Tid};
use machine::{CpuId, NodeId};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use trace::{AccessKind, Clock, Event, Loss, ReadError, Record, Sample, Served, Source, Stacks, Trace, What};

struct Read {
    samples: Vec<Sample>,
    events: Vec<Event>,
    stacks: Stacks,
    lost: Vec<Loss>,
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perf_data").join(name)
}

fn read(path: &Path) -> Result<Read, ReadError> {
    let mut records = Trace::open(path)?.records()?;
    let (mut samples, mut events) = (Vec::new(), Vec::new());
    for record in records.by_ref() {
        match record? {
            Record::Sample(sample) => samples.push(sample),
            Record::Event(event) => events.push(event),
        }
    }
    // Reading ahead gives the same result.
    let mut all = Vec::new();
    let (stacks, lost) = Trace::open(path)?.records()?.read_all(|record| {
        all.push(record);
        Ok::<_, ReadError>(())
    })?;
    let (of_samples, of_events): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|record| matches!(record, Record::Sample(_)));
    assert!(of_samples.into_iter().eq(samples.iter().copied().map(Record::Sample)));
    assert!(of_events.into_iter().eq(events.iter().cloned().map(Record::Event)));
    assert!(stacks.iter().eq(records.stacks().iter()) && lost == records.lost());
    Ok(Read { samples, events, stacks, lost })
}

fn read_bytes(bytes: &[u8]) -> Result<Read, ReadError> {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    fs::write(&path, bytes).unwrap();
    read(&path)
}

#[test]
fn samples_are_those_that_perf_script_prints() {
    for name in ["plain", "zstd", "pipe", "two"] {
        let read = read(&recorded(&format!("{name}.data"))).unwrap();
        let line = |s: &Sample| format!("{} {} {} {:x} {:x}\n", s.tid, s.cpu, s.time_ns, s.instruction, s.address);
        let lines: String = read.samples.iter().map(line).collect();
        assert_eq!(lines, fs::read_to_string(recorded(&format!("{name}.samples"))).unwrap(), "{name}");
        assert_eq!(read.lost, [], "{name}");
        assert!(read.samples.iter().all(|sample| sample.source == Source::Perf && sample.kind == AccessKind::Unknown));
    }
}

#[test]
fn the_file_says_where_it_is_from() {
    for (name, clock) in [("plain", Clock::Perf), ("pipe", Clock::Perf), ("two", Clock::Monotonic)] {
        let trace = Trace::open(&recorded(&format!("{name}.data"))).unwrap();
        let about = trace.about();
        assert_eq!((about.clock, about.written_by.as_str()), (clock, "perf 6.1.192"));
        assert_eq!((about.host.as_str(), about.architecture.as_str()), ("vm", "x86_64"));
        assert_eq!(about.command.last().unwrap(), "/bin/true");
        assert!(about.sources.first().unwrap().event.starts_with("page-faults"), "{about:?}");
    }
}

#[test]
fn the_machine_is_what_perf_wrote_down_of_it() {
    let own = Trace::open(&recorded("plain.data")).unwrap();
    let machine = own.machine().unwrap();
    assert_eq!((machine.nodes.len(), machine.cpus().len(), machine.latency.is_none()), (1, 2, true));
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    fs::write(&path, file("cpu/mem-loads/P", SAMPLE_TYPE, &[comm(1, 7, 7, "program", true)])).unwrap();
    let made = Trace::open(&path).unwrap();
    let nodes: Vec<String> = made.machine().unwrap().nodes.iter().map(|node| node.cpus.to_string()).collect();
    assert_eq!(nodes, ["0-3", "4-7"]);
    assert_eq!(made.memory(), [(0..1 << 30, NodeId(0)), (1 << 30..2 << 30, NodeId(1))]);
    assert!(!made.is_folder());
}

#[test]
fn lifecycles_of_processes_and_mappings_are_read() {
    let read = read(&recorded("chain.data")).unwrap();
    let named = |event: &&Event| matches!(&event.what, What::Named { name, exec: true } if &**name == "true");
    let pid = read.events.iter().find(named).unwrap().pid;
    let library = read.events.iter().find_map(|event| match &event.what {
        What::Mapped { name, file: Some(file), executable: true, .. } if name.ends_with("libc.so.6") => Some(file),
        _ => None,
    });
    assert_eq!(library.unwrap().build_id.as_ref().unwrap().len(), 20);
    assert!(read.events.iter().any(|event| event.pid == pid && event.what == What::ThreadEnded));
    // For the first fault, perf prints the instruction, six callers in the kernel, and one in the program.
    let callers = read.stacks.chain(read.samples[0].stack.unwrap());
    assert_eq!((callers.len(), callers[0], callers[6]), (7, 0xffff_ffff_8175_3a0a, 0x7fb1_03cf_2ad7));
    assert!(read.samples[0].kernel && read.samples.iter().any(|sample| !sample.kernel));
    assert!(read.samples.iter().any(|sample| sample.physical.is_some()));
}

fn load(time: u64, data_source: u64) -> MemorySample {
    let physical = if data_source == REMOTE { 1 << 30 } else { 4096 };
    MemorySample {
        time,
        pid: 7,
        tid: 8,
        cpu: 1,
        instruction: 0x40_1000,
        address: 0x7000,
        physical,
        data_source,
        cycles: 420,
    }
}

#[test]
fn what_served_a_sample_and_how_long_it_took() {
    let records = [
        time_conversion(6),
        crate::perf_file::sample(&load(30, LOCAL)),
        crate::perf_file::sample(&load(20, REMOTE)),
        crate::perf_file::sample(&MemorySample { address: 0, ..load(25, LOCAL) }),
        crate::perf_file::sample(&MemorySample { physical: 0, ..load(26, REMOTE) }),
    ];
    let read = read_bytes(&file("cpu/mem-loads,ldlat=30/P", SAMPLE_TYPE, &records)).unwrap();
    let expected = Sample {
        time_ns: 20,
        cpu: CpuId(1),
        pid: Pid(7),
        tid: Tid(8),
        instruction: 0x40_1000,
        address: 0x7000,
        physical: Some(1 << 30),
        kind: AccessKind::Load,
        served: Some(Served::Dram),
        node: Some(NodeId(1)),
        latency_ns: Some(140.0),
        kernel: false,
        stack: None,
        weight: 1000.0,
        source: Source::Pebs,
    };
    let other = Sample { time_ns: 26, physical: None, ..expected };
    let local = Sample { time_ns: 30, physical: Some(4096), node: Some(NodeId(0)), ..expected };
    assert_eq!(read.samples, [expected, other, local]);
    assert_eq!((read.lost[0].count, read.lost[0].what.contains("without a data address")), (1, true));
}

/// The node is where the line came from, and not where its memory is. The CPU is of node 0.
#[test]
fn lines_of_other_caches_are_of_their_nodes() {
    const ONE_HOP: u64 = 0x6890_8042; // |OP LOAD|LVL Remote Cache (1 hop) hit|SNP HitM|
    const CORE_NEAR_BY: u64 = 0x36_0000_8042 | 1 << 43; // of the same node
    const LOCAL_MEMORY: u64 = 4096;
    const OTHER_MEMORY: u64 = 1 << 30;
    let cases = [
        (ONE_HOP, LOCAL_MEMORY, 1),
        (ONE_HOP, OTHER_MEMORY, 1),
        (CORE_NEAR_BY, LOCAL_MEMORY, 0),
        (CORE_NEAR_BY, OTHER_MEMORY, 0),
    ];
    for (data_source, physical, node) in cases {
        let sample = crate::perf_file::sample(&MemorySample { physical, ..load(20, data_source) });
        let read = read_bytes(&file("cpu/mem-loads,ldlat=30/P", SAMPLE_TYPE, &[sample])).unwrap();
        let served = (read.samples[0].served, read.samples[0].node);
        assert_eq!(served, (Some(Served::Peer), Some(NodeId(node))), "{data_source:#x} {physical:#x}");
    }
}

/// Feature F33 and claim C5.
#[test]
fn samples_at_addresses_that_are_no_memory_are_lost() {
    // The machine has 2 GiB.
    let samples =
        [0, 4096, (2 << 30) - 1, 2 << 30, u64::MAX].map(|physical| MemorySample { physical, ..load(10, LOCAL) });
    let bytes = file("mem-loads", SAMPLE_TYPE, &samples.map(|sample| crate::perf_file::sample(&sample)));
    let read = read_bytes(&bytes).unwrap();
    let kept: Vec<Option<u64>> = read.samples.iter().map(|sample| sample.physical).collect();
    assert_eq!(kept, [None, Some(4096), Some((2 << 30) - 1)]);
    assert_eq!(read.lost, [Loss { what: "samples whose physical address is no memory".into(), count: 2 }]);
}

#[test]
fn what_virtual_machines_do_is_not_told_of_the_process_that_they_run_in() {
    // Kernel, program, hypervisor, guest kernel and guest program.
    let sample = |mode: u16| {
        let mut bytes = crate::perf_file::sample(&load(mode.into(), LOCAL));
        bytes[4..6].copy_from_slice(&mode.to_le_bytes());
        bytes
    };
    let read = read_bytes(&file("mem-loads", SAMPLE_TYPE, &[1, 2, 3, 4, 5].map(sample))).unwrap();
    let kept: Vec<(u64, bool)> = read.samples.iter().map(|sample| (sample.time_ns, sample.kernel)).collect();
    assert_eq!(kept, [(1, true), (2, false), (3, false)]);
    assert_eq!(read.lost, [Loss { what: "samples of virtual machine guests".into(), count: 2 }]);
}

#[test]
fn rounds_put_processors_in_order_and_late_records_stay_in_theirs() {
    let round = record(crate::perf_file::FINISHED_ROUND, 0, &[]);
    let sample = |time| crate::perf_file::sample(&load(time, LOCAL));
    let records =
        [sample(10), sample(30), sample(20), round.clone(), sample(25), sample(50), round.clone(), sample(40), round];
    let read = read_bytes(&file("mem-loads", SAMPLE_TYPE, &records)).unwrap();
    let times: Vec<u64> = read.samples.iter().map(|sample| sample.time_ns).collect();
    assert_eq!(times, [10, 20, 25, 30, 40, 50]);
}

#[test]
fn events_of_processes() {
    let records = [
        comm(0, 7, 7, "shell", false),
        fork(10, 8, 7, 8),
        comm(11, 8, 8, "program", true),
        mmap(12, 8, 0x40_0000, 0x1000, "/usr/bin/program"),
        mmap(12, 8, 0x50_0000, 0x1000, "//anon"),
        fork(13, 8, 8, 9),
        exit(14, 8, 9),
    ];
    let read = read_bytes(&file("mem-loads", SAMPLE_TYPE, &records)).unwrap();
    let whats: Vec<_> =
        read.events.iter().map(|event| (event.time_ns, event.pid.0, event.tid.0, &event.what)).collect();
    assert_eq!(whats[0], (0, 7, 7, &What::ProcessStarted { parent: None }));
    assert_eq!(whats[1], (0, 7, 7, &What::Named { name: "shell".into(), exec: false }));
    assert_eq!(whats[2], (10, 8, 8, &What::ProcessStarted { parent: Some(Pid(7)) }));
    assert_eq!(whats[3], (11, 8, 8, &What::Named { name: "program".into(), exec: true }));
    let What::Mapped { start, bytes, name, file: Some(file), executable: true, .. } = whats[4].3 else {
        panic!("{whats:?}")
    };
    assert_eq!((*start, *bytes, &**name), (0x40_0000, 0x1000, "/usr/bin/program"));
    assert_eq!(file.build_id.as_deref(), Some(&[7; 20][..]));
    assert!(matches!(whats[5].3, What::Mapped { name, file: None, .. } if name.is_empty()));
    assert_eq!((whats[6], whats[7]), ((13, 8, 9, &What::ThreadStarted), (14, 8, 9, &What::ThreadEnded)));
    assert_eq!(whats.len(), 8);
}

#[test]
fn a_recording_that_was_killed_and_one_that_was_cut_are_read_as_far_as_they_go() {
    let records: Vec<_> = (0..10).map(|time| crate::perf_file::sample(&load(time, LOCAL))).collect();
    let bytes = file("mem-loads", SAMPLE_TYPE, &records);
    // perf writes the size of its data at the end.
    let data = 104 + 112 + 16;
    let mut killed = bytes[..data + 5 * records[0].len() + 20].to_vec();
    killed[48..56].fill(0);
    let read = read_bytes(&killed).unwrap();
    assert_eq!((read.samples.len(), read.lost[0].count), (5, 20));
    let cut = read_bytes(&bytes[..data + 3 * records[0].len()]).unwrap();
    assert_eq!(cut.samples.len(), 3);
    let lost = |lost: &[Loss]| lost.iter().map(|loss| (loss.what.clone(), loss.count)).collect::<Vec<_>>();
    let gone = "bytes of records missing at the end of the file";
    let length = records[0].len();
    assert_eq!(lost(&cut.lost), [(gone.to_owned(), 7 * length as u64)]);
    let within = read_bytes(&bytes[..data + 3 * length + 18]).unwrap();
    let half = "bytes at the end that are not a complete record";
    assert_eq!(lost(&within.lost), [(gone.to_owned(), 7 * length as u64 - 18), (half.to_owned(), 18)]);
    // The names of events are stored behind the records.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    fs::write(&path, &bytes[..data + 3 * length]).unwrap();
    let about = Trace::open(&path).unwrap().about().clone();
    assert_eq!((about.complete, about.written_by.as_str()), (false, "perf"));
    assert_eq!(about.sources[0].event, "an unnamed event");
}

#[test]
fn what_cannot_be_read_is_reported() {
    let refused = |bytes: &[u8]| read_bytes(bytes).err().unwrap().to_string();
    let good = file("mem-loads", SAMPLE_TYPE, &[]);
    assert!(refused(b"").contains("is not a trace"));
    assert!(refused(b"hello, world").contains("is not a trace"));
    assert!(refused(&good[..16]).contains("its header ends early"));
    assert!(refused(&[b"2ELIFREP", &good[8..]].concat()).contains("big-endian"));
    assert!(refused(&good[..104]).contains("names no event"));
    let with_time = SAMPLE_TYPE & !(1 << 2);
    assert!(refused(&file("mem-loads", with_time, &[])).contains("have no times"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_damaged_file_is_read_in_order_or_refused(
        which in prop::sample::select(&["plain", "zstd", "pipe", "two", "chain"][..]),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = fs::read(recorded(&format!("{which}.data"))).unwrap();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(if cut { length.index(bytes.len()) } else { bytes.len() });
        let _ = read_bytes(&bytes);
    }
}
