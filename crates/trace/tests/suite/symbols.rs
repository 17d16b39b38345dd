//! Symbols of a running program, looked up when its trace ends, and read back from the trace alone.

use linux::{Pid, Process, Tid};
use machine::{CpuId, presets};
use object::{CompressionFormat, Object, ObjectSection};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use trace::{
    About, AccessKind, AddressSpaces, Event, FileIdentity, Flush, Image, ImageState, Record, Sample, Source, Trace,
    What, Writer,
};

/// A C program with line tables, which prints the addresses of its landmark and a counter, and then waits.
struct Program {
    /// Removed together with the program.
    folder: TempDir,
    child: Child,
    landmark: u64,
    counter: u64,
}

impl Program {
    /// The counters are large enough to extend beyond the pages backed by the file.
    const SOURCE: &str = r#"
        #include <stdio.h>
        static long counters[8192];
        __attribute__((noinline)) long landmark(int number) { return counters[number]++; }
        int main(void) {
            printf("%lu %lu\n", (unsigned long)landmark, (unsigned long)&counters[8000]);
            fflush(stdout);
            return getchar() == 'x' && landmark(1);
        }
    "#;

    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [source, program] = ["landmark.c", "landmark"].map(|name| folder.path().join(name));
        fs::write(&source, Self::SOURCE).unwrap();
        let built = Command::new("cc")
            .args(["-g", "-gz=zlib", "-Wl,--build-id", "-o"])
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(built.success());
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (landmark, counter) = line.trim().split_once(' ').unwrap();
        Self { folder, child, landmark: landmark.parse().unwrap(), counter: counter.parse().unwrap() }
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// The instruction after the landmark's first one, which also belongs to the landmark.
    fn caller(&self) -> u64 {
        self.landmark + 1
    }

    /// Events of all its mappings.
    fn mappings(&self, change: impl Fn(&mut Arc<str>, &mut FileIdentity)) -> Vec<Event> {
        let pid = self.pid();
        let mappings = Process::open(pid).unwrap().mappings().unwrap();
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
            Event { time_ns: 1, pid, tid: Tid(pid.0), cpu: None, what }
        };
        mappings.iter().map(event).collect()
    }

    /// A trace in which the landmark, called from itself, accesses a counter.
    fn record(&self, folder: &Path, began_unix_s: u64, mappings: Vec<Event>) {
        let about = About { began_unix_s, ..About::of_command(vec![]) };
        let machine = presets::find("small-2x2").unwrap();
        let mut writer = Writer::create(folder, about, &machine, Flush::default()).unwrap();
        for event in mappings {
            writer.event(event).unwrap();
        }
        let stack = Some(writer.stacks().id(&[self.caller()]));
        let sample = Sample {
            time_ns: 2,
            cpu: CpuId(0),
            pid: self.pid(),
            tid: Tid(self.pid().0),
            instruction: self.landmark,
            address: self.counter,
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

    /// Its image, and the addresses of the landmark, the counter and the caller in it.
    fn look_up(&self, folder: &Path) -> (Image, [Option<u64>; 3]) {
        let trace = Trace::open(folder).unwrap();
        let symbols = trace.symbols().unwrap();
        let mut spaces = AddressSpaces::default();
        for record in trace.records().unwrap() {
            if let Record::Event(event) = record.unwrap() {
                spaces.take(&event);
            }
        }
        let find = |address| spaces.find(self.pid(), address);
        let place = |address: u64| symbols.locate(find(address)?, address).map(|(_, address)| address);
        let image = symbols.image(find(self.landmark).unwrap()).unwrap().clone();
        (image, [self.landmark, self.counter, self.caller()].map(place))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn functions_lines_and_variables_are_in_the_trace() {
    let program = Program::start();
    let folder = tempfile::tempdir().unwrap();
    program.record(folder.path(), 0, program.mappings(|_, _| ()));
    let (image, [landmark, counter, caller]) = program.look_up(folder.path());
    assert_eq!(image.state, ImageState::Read);
    for address in [landmark.unwrap(), caller.unwrap() - 1] {
        let line = &image.code(address)[0];
        assert_eq!(line.begins, landmark);
        assert_eq!(line.function.as_deref(), Some("landmark"));
        assert!(line.source.as_ref().unwrap().ends_with("landmark.c") && line.line == Some(4), "{line:?}");
    }
    let variable = image.variable(counter.unwrap()).unwrap();
    assert!(&*variable.name == "counters" && variable.bytes == 65536, "{variable:?}");
    assert_eq!(&*image.section(counter.unwrap()).unwrap().name, ".bss");
    assert_eq!(&*image.section(landmark.unwrap()).unwrap().name, ".text");
}

#[test]
fn a_file_that_may_have_changed_is_not_trusted() {
    let program = Program::start();
    let state = |began, change: &dyn Fn(&mut Arc<str>, &mut FileIdentity)| {
        let folder = tempfile::tempdir().unwrap();
        program.record(folder.path(), began, program.mappings(change));
        let (image, _) = program.look_up(folder.path());
        assert_eq!(image.code.is_empty(), image.state != ImageState::Read);
        image.state
    };
    let without_id = |_: &mut Arc<str>, file: &mut FileIdentity| file.build_id = None;
    assert_eq!(state(0, &|_, file| file.build_id = Some(Arc::from([1; 20]))), ImageState::Changed);
    // Without a build ID, the inode and the modification time decide.
    assert_eq!(state(i64::MAX as u64, &without_id), ImageState::Read);
    assert_eq!(state(1, &without_id), ImageState::Changed);
    assert_eq!(
        state(i64::MAX as u64, &|_, file| *file = FileIdentity { build_id: None, inode: 1 }),
        ImageState::Changed
    );
    assert_eq!(state(0, &|name, _| *name = format!("{name}-gone").into()), ImageState::Missing);
}

/// The header of a compressed section says how long it is decompressed, and memory of that size is reserved.
#[test]
fn debug_sections_that_expand_beyond_their_bound_are_not_decompressed() {
    let program = Program::start();
    let mappings = program.mappings(|_, _| ());
    let path = program.folder.path().join("landmark");
    let mut bytes = fs::read(&path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let ranges = elf.sections().map(|section| section.compressed_file_range().unwrap());
    let range = ranges.into_iter().find(|range| range.format != CompressionFormat::None).unwrap();
    let length_end = range.offset as usize - size_of::<u64>();
    bytes[length_end - size_of::<u64>()..length_end].copy_from_slice(&(1_u64 << 30).to_le_bytes());
    // The running program cannot be written to, but replaced.
    let changed = path.with_extension("changed");
    fs::write(&changed, bytes).unwrap();
    fs::rename(changed, path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    program.record(folder.path(), 0, mappings);
    let (image, [landmark, ..]) = program.look_up(folder.path());
    assert_eq!(image.state, ImageState::TooCompressed);
    let line = &image.code(landmark.unwrap())[0];
    assert!(line.function.as_deref() == Some("landmark") && line.source.is_none(), "{line:?}");
}

#[test]
fn what_is_no_file_of_symbols_is_neither_waited_for_nor_read() {
    let program = Program::start();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.to_str().unwrap(), "/dev/zero"] {
        let trace = tempfile::tempdir().unwrap();
        program.record(trace.path(), 0, program.mappings(|name, _| *name = path.into()));
        let (image, _) = program.look_up(trace.path());
        assert_eq!((image.state, &*image.path), (ImageState::Unreadable, path));
    }
}
