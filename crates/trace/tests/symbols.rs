//! Symbols of this very program, looked up when a trace of it ends, and read from the trace alone.

use linux::{Pid, Process, Tid};
use machine::{CpuId, presets};
use object::Object;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::{
    About, AccessKind, AddressSpaces, Event, FileIdentity, Flush, Image, ImageState, Record, Sample, Source, Trace,
    What, Writer,
};

/// Long enough to lie behind the pages that the file has.
static COUNTERS: [AtomicU64; 8192] = [const { AtomicU64::new(0) }; 8192];

#[inline(never)]
fn landmark(number: usize) -> u64 {
    COUNTERS[number].fetch_add(1, Ordering::Relaxed)
}

/// The address of its first instruction.
fn landmark_address() -> u64 {
    landmark as *const () as u64
}

fn counter_address() -> u64 {
    std::ptr::from_ref(&COUNTERS[8000]) as u64
}

/// Events of everything that is mapped here.
fn mappings(change: impl Fn(&mut Arc<str>, &mut FileIdentity)) -> Vec<Event> {
    let pid = std::process::id();
    let mappings = Process::open(Pid(pid)).unwrap().mappings().unwrap();
    let event = |mapping: &linux::Mapping| {
        let mut name: Arc<str> = mapping.name.as_str().into();
        let file = mapping.name.starts_with('/').then(|| {
            let bytes = fs::read(&mapping.name).unwrap();
            let elf = object::File::parse(&*bytes).ok();
            let build_id = elf.and_then(|elf| elf.build_id().ok().flatten().map(Arc::from));
            let mut file = FileIdentity { build_id, inode: mapping.inode };
            change(&mut name, &mut file);
            file
        });
        let (start, bytes) = (mapping.range.start, mapping.range.end - mapping.range.start);
        let what = What::Mapped { start, bytes, offset: mapping.offset, name, file, executable: mapping.execute };
        Event { time_ns: 1, pid: Pid(pid), tid: Tid(pid), cpu: None, what }
    };
    mappings.iter().map(event).collect()
}

/// A trace in which the landmark, called from `caller`, touches a counter.
fn record(folder: &Path, began_unix_s: u64, events: Vec<Event>, caller: u64) {
    let about = About { began_unix_s, ..About::of_command(vec![]) };
    let machine = presets::find("small-2x2").unwrap();
    let mut writer = Writer::create(folder, about, &machine, Flush::default()).unwrap();
    let pid = std::process::id();
    for event in events {
        writer.event(event).unwrap();
    }
    let stack = Some(writer.stacks().id(&[caller]));
    let sample = Sample {
        time_ns: 2,
        cpu: CpuId(0),
        pid: Pid(pid),
        tid: Tid(pid),
        instruction: landmark_address(),
        address: counter_address(),
        physical: None,
        kind: AccessKind::Store,
        served: None,
        node: None,
        latency_ns: None,
        kernel: false,
        stack,
        weight: 1.0,
        source: Source::Perf,
    };
    writer.sample(sample).unwrap();
    writer.finish().unwrap();
}

/// The image of the landmark, and the addresses in it of the landmark, the counter and the caller.
fn look_up(folder: &Path, caller: u64) -> (Image, [Option<u64>; 3]) {
    let trace = Trace::open(folder).unwrap();
    let symbols = trace.symbols().unwrap();
    let mut spaces = AddressSpaces::default();
    for record in trace.records().unwrap() {
        if let Record::Event(event) = record.unwrap() {
            spaces.take(&event);
        }
    }
    let pid = Pid(std::process::id());
    let place = |address: u64| symbols.locate(spaces.find(pid, address)?, address).map(|(_, address)| address);
    let image = symbols.image(spaces.find(pid, landmark_address()).unwrap()).unwrap().clone();
    (image, [landmark_address(), counter_address(), caller].map(place))
}

#[test]
fn functions_lines_and_variables_are_in_the_trace() {
    landmark(1);
    let folder = tempfile::tempdir().unwrap();
    // The instruction after the landmark's first one belongs to the landmark, too.
    let caller = landmark_address() + 1;
    record(folder.path(), 0, mappings(|_, _| ()), caller);
    let (image, [landmark, counter, caller]) = look_up(folder.path(), caller);
    assert_eq!(image.state, ImageState::Read);
    for address in [landmark.unwrap(), caller.unwrap() - 1] {
        let line = &image.code(address)[0];
        assert_eq!(line.begins, landmark);
        assert!(line.function.as_ref().unwrap().contains("landmark"), "{line:?}");
        assert!(line.source.as_ref().unwrap().ends_with("symbols.rs") && line.line.is_some(), "{line:?}");
    }
    let variable = image.variable(counter.unwrap()).unwrap();
    assert!(variable.name.contains("COUNTERS") && variable.bytes == 65536, "{variable:?}");
    assert_eq!(&*image.section(counter.unwrap()).unwrap().name, ".bss");
    assert_eq!(&*image.section(landmark.unwrap()).unwrap().name, ".text");
}

#[test]
fn a_file_that_may_have_changed_is_not_trusted() {
    let state = |began, change: &dyn Fn(&mut Arc<str>, &mut FileIdentity)| {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), began, mappings(change), landmark_address() + 1);
        let (image, _) = look_up(folder.path(), landmark_address() + 1);
        assert_eq!(image.code.is_empty(), image.state != ImageState::Read);
        image.state
    };
    let without_id = |_: &mut Arc<str>, file: &mut FileIdentity| file.build_id = None;
    assert_eq!(state(0, &|_, file| file.build_id = Some(Arc::from([1; 20]))), ImageState::Changed);
    // Without a build id, its inode and its age have to do.
    assert_eq!(state(i64::MAX as u64, &without_id), ImageState::Read);
    assert_eq!(state(1, &without_id), ImageState::Changed);
    assert_eq!(
        state(i64::MAX as u64, &|_, file| *file = FileIdentity { build_id: None, inode: 1 }),
        ImageState::Changed
    );
    assert_eq!(state(0, &|name, _| *name = format!("{name}-gone").into()), ImageState::Missing);
}
