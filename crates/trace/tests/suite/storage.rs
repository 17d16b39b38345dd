//! What is written is read back, in order; damaged files are rejected by name.

use linux::{Pid, Tid};
use machine::{CpuId, Machine, NodeId, presets};
use parquet::basic::Encoding;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use trace::{
    About, AccessKind, Count, Counter, Event, FileIdentity, Flush, ReadError, Record, Sample, Served, Source, StackId,
    Stacks, Trace, What, WriteError, Writer, create_private_file, create_private_folder,
};

fn machine() -> Machine {
    presets::find("small-4x2").unwrap()
}

/// At most `rows` rows per file.
fn flush(rows: usize) -> Flush {
    Flush { rows, after: Duration::ZERO }
}

pub fn writer(folder: &Path, rows: usize) -> Writer {
    let mut about = About::of_command(vec!["cat".into(), "a \"b\"\n".into()]);
    about.lose("samples that the kernel dropped", 3);
    about.lose("samples that the kernel dropped", 4);
    Writer::create(folder, about, &machine(), flush(rows)).unwrap()
}

fn read(folder: &Path) -> Result<(Vec<Record>, Stacks), ReadError> {
    let mut records = Trace::open(folder)?.records()?;
    let all: Vec<Record> = records.by_ref().collect::<Result<_, _>>()?;
    // Reading ahead gives the same result.
    let mut taken = Vec::new();
    Trace::open(folder)?.records()?.read_all(|record| {
        taken.push(record);
        Ok::<_, ReadError>(())
    })?;
    assert_eq!(taken, all);
    Ok((all, records.stacks().clone()))
}

pub fn sample(time_ns: u64) -> Sample {
    Sample {
        time_ns,
        cpu: CpuId(3),
        pid: Pid(10),
        tid: Tid(11),
        instruction: 0x40_1000,
        address: u64::MAX - time_ns,
        physical: None,
        kind: AccessKind::Load,
        served: Some(Served::Dram),
        node: Some(NodeId(1)),
        latency_ns: Some(140.5),
        kernel: false,
        stack: None,
        weight: 1.0,
        source: Source::Ibs,
    }
}

const SERVED: &[Served] = &[Served::L1, Served::L2, Served::L3, Served::Peer, Served::Dram];
const SOURCES: &[Source] = &[Source::Ibs, Source::Pebs, Source::Spe, Source::Perf, Source::Lab, Source::HintFault];

fn samples() -> impl Strategy<Value = Sample> {
    let kind = prop_oneof![Just(AccessKind::Load), Just(AccessKind::Store), Just(AccessKind::Unknown)];
    let who = (0..1000_u64, any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
    let what = (option::of(any::<u64>()), kind, option::of(prop::sample::select(SERVED)), option::of(any::<u32>()));
    let more = (option::of(0.0..1e9_f32), any::<bool>(), option::of(vec(any::<u64>(), 0..4)), 0.0..1e9_f32);
    (who, what, more, prop::sample::select(SOURCES)).prop_map(|(who, what, more, source)| Sample {
        time_ns: who.0,
        cpu: CpuId(who.1),
        pid: Pid(who.2),
        tid: Tid(who.3),
        instruction: who.4,
        address: who.5,
        physical: what.0,
        kind: what.1,
        served: what.2,
        node: what.3.map(NodeId),
        latency_ns: more.0,
        kernel: more.1,
        // The ID of the call chain is assigned when it is written: until then, this is its number of frames.
        stack: more.2.map(|chain| StackId(chain.len() as u32)),
        weight: more.3,
        source,
    })
}

fn whats() -> impl Strategy<Value = What> {
    let text = || "\\PC{0,20}".prop_map(Arc::<str>::from);
    let range = || (any::<u64>(), any::<u64>());
    let file = (option::of(vec(any::<u8>(), 1..21)), any::<u64>())
        .prop_map(|(build_id, inode)| FileIdentity { build_id: build_id.map(Arc::from), inode });
    prop_oneof![
        option::of(any::<u32>()).prop_map(|parent| What::ProcessStarted { parent: parent.map(Pid) }),
        Just(What::ThreadStarted),
        Just(What::ThreadEnded),
        (text(), any::<bool>()).prop_map(|(name, exec)| What::Named { name, exec }),
        (range(), any::<u64>(), text(), option::of(file), any::<bool>()).prop_map(
            |((start, bytes), offset, name, file, executable)| What::Mapped {
                start,
                bytes,
                offset,
                name,
                file,
                executable
            }
        ),
        range().prop_map(|(start, bytes)| What::Unmapped { start, bytes }),
        (range(), range()).prop_map(|((old, old_bytes), (start, bytes))| What::Remapped {
            old,
            old_bytes,
            start,
            bytes
        }),
        range().prop_map(|(start, bytes)| What::Invalidated { start, bytes }),
        (range(), 0..4_u32).prop_map(|((address, bytes), stack)| What::Allocated {
            address,
            bytes,
            stack: StackId(stack)
        }),
        (range(), 0..4_u32).prop_map(|((objects, bytes), stack)| What::Counted {
            objects,
            bytes,
            stack: StackId(stack)
        }),
        range().prop_map(|(address, bytes)| What::Resized { address, bytes }),
        any::<u64>().prop_map(|address| What::Freed { address }),
        (range(), 0..4_u32, option::of(text())).prop_map(|((address, bytes), stack, name)| What::Announced {
            address,
            bytes,
            stack: StackId(stack),
            name
        }),
        any::<u64>().prop_map(|address| What::Withdrawn { address }),
        (range(), any::<u32>(), option::of(any::<u32>())).prop_map(|((address, bytes), node, from)| {
            What::PagePlaced { address, bytes, node: NodeId(node), from: from.map(NodeId) }
        }),
        range().prop_map(|(physical, bytes)| What::FramesAllocated { physical, bytes }),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    (0..1000_u64, any::<u32>(), any::<u32>(), option::of(any::<u32>()), whats()).prop_map(
        |(time_ns, pid, tid, cpu, what)| Event { time_ns, pid: Pid(pid), tid: Tid(tid), cpu: cpu.map(CpuId), what },
    )
}

const COUNTERS: &[Counter] = &[
    Counter::Instructions,
    Counter::CpuTime,
    Counter::MemoryWait,
    Counter::MemoryAccesses,
    Counter::ControllerBytes,
    Counter::LinkBytes,
    Counter::LocalDram,
    Counter::Peer,
];

fn counts() -> impl Strategy<Value = Count> {
    let node = || option::of(any::<u32>().prop_map(NodeId));
    let cpu = option::of(any::<u32>().prop_map(CpuId));
    let counter = prop::sample::select(COUNTERS);
    let fields = (0..1000_u64, counter, node(), node(), cpu, any::<u64>());
    fields.prop_map(|(time_ns, counter, from, to, cpu, value)| Count { time_ns, counter, from, to, cpu, value })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_in_the_order_of_time(
        samples in vec(samples(), 0..60),
        events in vec(events(), 0..60),
        counts in vec(counts(), 0..60),
        rows in 1..30_usize,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path(), rows);
        // The IDs in samples and events refer to these.
        let chains: [&[u64]; 4] = [&[], &[1], &[1, 2], &[7, 7, 7]];
        for (number, chain) in chains.iter().enumerate() {
            prop_assert_eq!(writer.stacks().id(chain), StackId(number as u32));
        }
        for event in &events {
            writer.event(event.clone()).unwrap();
        }
        for sample in &samples {
            writer.sample(*sample).unwrap();
        }
        for count in &counts {
            writer.count(*count).unwrap();
        }
        writer.finish().unwrap();
        let mut expected = counts;
        expected.sort_by_key(|count| count.time_ns);
        prop_assert_eq!(Trace::open(folder.path()).unwrap().counts().unwrap(), expected);
        let (found, stacks) = read(folder.path()).unwrap();
        let mut expected: Vec<Record> = events.into_iter().map(Record::Event).collect();
        expected.extend(samples.into_iter().map(Record::Sample));
        // Events come before samples of the same time; otherwise the order is kept.
        expected.sort_by_key(time);
        prop_assert_eq!(found, expected);
        let found: Vec<_> = stacks.iter().map(|(_, chain)| chain.to_vec()).collect();
        prop_assert_eq!(found, chains.map(<[u64]>::to_vec));
    }

    #[test]
    fn a_damaged_file_is_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), 100);
        let path = folder.path().join("samples/000001.parquet");
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        fs::write(&path, &bytes).unwrap();
        let found = read(folder.path());
        prop_assert!(!cut || found.is_err());
    }
}

fn time(record: &Record) -> u64 {
    match record {
        Record::Sample(sample) => sample.time_ns,
        Record::Event(event) => event.time_ns,
    }
}

/// A trace with `count` samples, in files of 10.
fn written(folder: &Path, count: u64) {
    let mut writer = writer(folder, 10);
    (0..count).for_each(|time_ns| writer.sample(sample(time_ns)).unwrap());
    writer.finish().unwrap();
}

#[test]
fn a_trace_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 3);
    let trace = Trace::open(folder.path()).unwrap();
    let about = trace.about();
    assert!(about.complete);
    assert_eq!((about.command[1].as_str(), about.lost[0].count, trace.machine()), ("a \"b\"\n", 7, Some(&machine())));
}

#[test]
fn a_recording_that_was_killed_is_read_up_to_the_last_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 10);
    let stack = writer.stacks().id(&[1, 2, 3]);
    (0..25).for_each(|time_ns| writer.sample(Sample { stack: Some(stack), ..sample(time_ns) }).unwrap());
    // As left by SIGKILL: nothing more is written, and the unfinished file has another name.
    drop(writer);
    fs::write(folder.path().join("samples/000003.part"), "PAR1").unwrap();
    let (found, stacks) = read(folder.path()).unwrap();
    assert_eq!(found.len(), 20);
    assert_eq!(stacks.chain(stack), [1, 2, 3]);
    assert!(!Trace::open(folder.path()).unwrap().about().complete);
    // After a power failure, the last file may be empty.
    fs::write(folder.path().join("samples/000002.parquet"), "").unwrap();
    assert_eq!(read(folder.path()).unwrap().0.len(), 10);
    fs::write(folder.path().join("samples/000001.parquet"), "").unwrap();
    assert!(read(folder.path()).unwrap_err().to_string().contains("000001.parquet is damaged"));
}

#[test]
fn what_waits_is_written_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 1000);
    writer.sample(sample(1)).unwrap();
    writer.tick().unwrap();
    assert_eq!(read(folder.path()).unwrap().0.len(), 1);
}

#[test]
fn sources_that_are_late_are_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 10);
    let times: Vec<u64> = (0..100).map(|number| number * 10 % 101).collect();
    for time_ns in times {
        writer.sample(sample(time_ns)).unwrap();
    }
    writer.finish().unwrap();
    assert!(read(folder.path()).unwrap().0.is_sorted_by_key(time));
}

#[test]
fn nothing_is_overwritten_and_nothing_foreign_is_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 3);
    let again = Writer::create(folder.path(), About::of_command(vec![]), &machine(), flush(10));
    assert!(matches!(again, Err(WriteError::Exists(_))));
    let refused = |path: &Path| Trace::open(path).unwrap_err().to_string();
    assert!(refused(&folder.path().join("samples")).contains("is not a trace"));
    assert!(refused(&folder.path().join("machine.toml")).contains("is not a trace"));
    assert!(refused(&folder.path().join("nothing")).contains("cannot read"));
    let about = folder.path().join("trace.toml");
    let text = fs::read_to_string(&about).unwrap();
    for format in [4, 7] {
        fs::write(&about, text.replace("format = 6", &format!("format = {format}"))).unwrap();
        let said = refused(folder.path());
        let what_to_do = "reads formats 5 to 6: record again with this one, or read it with the build that wrote it";
        assert!(said.contains(&format!("is of format {format}")) && said.contains(what_to_do), "{said}");
    }
    fs::write(&about, text.replace("format = 6", "format = 5")).unwrap();
    assert_eq!(read(folder.path()).unwrap().0.len(), 3);
    fs::write(&about, "format = 4").unwrap();
    assert!(refused(folder.path()).contains("trace.toml does not describe a trace"));
}

#[test]
fn a_table_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 10);
    let stack = writer.stacks().id(&[1]);
    writer.sample(Sample { stack: Some(stack), ..sample(1) }).unwrap();
    let what = What::ThreadStarted;
    writer.event(Event { time_ns: 1, pid: Pid(1), tid: Tid(1), cpu: None, what }).unwrap();
    writer.finish().unwrap();
    let table = |table: &str| folder.path().join(table).join("000001.parquet");
    for (from, to) in [("events", "samples"), ("stacks", "events"), ("samples", "stacks")] {
        let kept = fs::read(table(to)).unwrap();
        fs::copy(table(from), table(to)).unwrap();
        let error = machine::chain(&read(folder.path()).unwrap_err());
        assert!(error.contains(&format!("other columns than a table of {to}")), "{error}");
        fs::write(table(to), kept).unwrap();
    }
    assert_eq!(read(folder.path()).unwrap().0.len(), 2);
}

/// The folder in which the next test, run as a program of its own, writes until it fails.
const FILL: &str = "NEARSIDE_TEST_FILL";

#[test]
fn a_disk_that_is_full_is_reported_and_leaves_what_was_written() {
    let Some(folder) = std::env::var_os(FILL).map(PathBuf::from) else {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("trace");
        // A file size limit looks like a full disk to the writer.
        let script = "trap '' XFSZ; ulimit -f 32; \
                      exec \"$0\" --exact storage::a_disk_that_is_full_is_reported_and_leaves_what_was_written";
        let mut test = Command::new("sh");
        test.args(["-c", script]).arg(std::env::current_exe().unwrap()).env(FILL, &folder);
        let output = test.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(read(&folder).unwrap().0.len(), 10);
        assert!(!folder.join("events/000001.part").exists());
        return;
    };
    let mut writer = writer(&folder, 10);
    (0..10).for_each(|time_ns| writer.sample(sample(time_ns)).unwrap());
    // Text that does not compress.
    let text = |number: u64| {
        (0..200).map(move |word| format!("{:x}", (number * 200 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    };
    let event = |number: u64| {
        let what = What::Named { name: text(number).collect::<String>().into(), exec: false };
        Event { time_ns: number, pid: Pid(1), tid: Tid(1), cpu: None, what }
    };
    let error = (0..10).map(|number| writer.event(event(number))).find_map(Result::err).unwrap().to_string();
    assert!(error.contains("events/000001.parquet") && error.contains("can be read"), "{error}");
}

/// Names that exceed the dictionary are stored plain from then on: both encodings are in one column.
#[test]
fn a_dictionary_that_is_full_is_read_with_what_did_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let name = |number: u64| {
        Arc::<str>::from(format!("/a/path/that/is/longer/than/most/{}", "x".repeat(50) + &number.to_string()))
    };
    let event = |number: u64| {
        // The first names are repeated at the end.
        let what = What::Named { name: name(number % 30_000), exec: false };
        Event { time_ns: number, pid: Pid(1), tid: Tid(1), cpu: None, what }
    };
    let mut writer = writer(folder.path(), 40_000);
    (0..40_000).for_each(|number| writer.event(event(number)).unwrap());
    writer.finish().unwrap();
    let files = fs::read_dir(folder.path().join("events")).unwrap().map(|entry| entry.unwrap().path());
    let file = SerializedFileReader::new(fs::File::open(files.last().unwrap()).unwrap()).unwrap();
    let names = file.metadata().row_group(0).columns().iter().find(|column| column.column_path().string() == "name");
    let names = names.unwrap();
    let pages: Vec<Encoding> = names.page_encoding_stats_mask().unwrap().encodings().collect();
    assert_eq!((pages.len(), pages.contains(&Encoding::PLAIN)), (2, true), "pages are {pages:?}");
    let (records, _) = read(folder.path()).unwrap();
    assert!(records.into_iter().eq((0..40_000).map(|number| Record::Event(event(number)))));
}

#[test]
fn names_of_any_length_can_be_read_and_equal_ones_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let long: Arc<str> = "x".repeat(1 << 20).into();
    let mut writer = writer(folder.path(), 10);
    for time_ns in 0..4 {
        let what = What::Named { name: long.clone(), exec: false };
        writer.event(Event { time_ns, pid: Pid(1), tid: Tid(1), cpu: None, what }).unwrap();
    }
    writer.finish().unwrap();
    let name = |record: &Record| match record {
        Record::Event(Event { what: What::Named { name, .. }, .. }) => name.clone(),
        other => panic!("{other:?}"),
    };
    let names: Vec<Arc<str>> = read(folder.path()).unwrap().0.iter().map(name).collect();
    assert!(names.len() == 4 && names.iter().all(|name| Arc::ptr_eq(name, &names[0])));
    assert!(long.starts_with(&*names[0]) && names[0].len() == 64 << 10);
}

/// Set in the process of this test that has another umask.
const AGAIN: &str = "NEARSIDE_TEST_AGAIN";

#[test]
fn a_trace_is_its_owners_only_under_any_umask() {
    if std::env::var_os(AGAIN).is_none() {
        for umask in ["0000", "0777"] {
            let mut again = Command::new("sh");
            again.args(["-c", "umask $1; shift; exec \"$@\"", "sh", umask]).arg(std::env::current_exe().unwrap());
            again.args(["--exact", "storage::a_trace_is_its_owners_only_under_any_umask"]).env(AGAIN, "1");
            let output = again.output().unwrap();
            assert!(output.status.success(), "{umask}: {}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let trace = folder.path().join("trace");
    written(&trace, 3);
    let mut folders = vec![trace.clone()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 2, "{files} files");
    // What was there keeps its mode: its owner chose it.
    let kept = folder.path().join("kept");
    fs::write(&kept, "x").unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).unwrap();
    create_private_file(&kept).unwrap();
    create_private_folder(folder.path()).unwrap();
    assert_eq!((mode(&kept), mode(folder.path()), fs::metadata(&kept).unwrap().len()), (0o644, 0o755, 0));
}
