//! Small traces, written by hand or drawn from a seed.
#![allow(dead_code, reason = "each file of tests uses its part")]

use machine::{CpuId, Machine, NodeId, Pid, Tid};
use profile::{Data, File, Function, NoSymbols, Object, Profile, Recording, Symbols};
use std::sync::Arc;
use trace::{AccessKind, Event, Sample, Served, Source, StackId, Stacks, What};

/// Four nodes of two CPUs each: CPU `c` is on node `c / 2`.
pub fn machine() -> Machine {
    machine::presets::find("small-4x2").unwrap()
}

pub fn sample(time_ns: u64, pid: u32, tid: u32, address: u64) -> Sample {
    Sample {
        time_ns,
        cpu: CpuId(0),
        pid: Pid(pid),
        tid: Tid(tid),
        instruction: 0x40_1000,
        address,
        physical: None,
        kind: AccessKind::Load,
        served: Some(Served::Dram),
        node: Some(NodeId(0)),
        latency_ns: Some(103.0),
        kernel: false,
        stack: None,
        weight: 1.0,
        source: Source::Lab,
    }
}

pub fn event(time_ns: u64, pid: u32, tid: u32, what: What) -> Event {
    Event { time_ns, pid: Pid(pid), tid: Tid(tid), cpu: Some(CpuId(0)), what }
}

pub fn allocated(address: u64, bytes: u64, stack: StackId) -> What {
    What::Allocated { address, bytes, stack }
}

pub fn freed(address: u64) -> What {
    What::Freed { address }
}

pub fn mapped(start: u64, bytes: u64, name: &str, executable: bool) -> What {
    What::Mapped { start, bytes, offset: 0, name: name.into(), file: None, executable }
}

/// The profile of samples and events without call chains and symbols.
pub fn profile(events: Vec<Event>, samples: Vec<Sample>) -> Profile {
    let mut recording = Recording::new(machine());
    recording.add_events(events);
    recording.add_samples(samples);
    recording.into_profile(&Stacks::new(), &NoSymbols)
}

/// The objects of the accesses, in chronological order.
pub fn objects(profile: &Profile) -> Vec<&Object> {
    profile.accesses().map(|access| &profile.objects()[access.object.0 as usize]).collect()
}

/// A library with a function `work` at 0x1000, a variable `table` at 0x3000 and, after the end of its file, one called
/// `zeroed` at 0x4000, and a section `.plt` at 0x2000, each of 0x100 bytes.
pub struct Library;

impl Symbols for Library {
    fn functions(&self, file: &File, offset: u64) -> Vec<Function> {
        let name: Arc<str> =
            if *file.name == *"/lib/libwork.so" { "work".into() } else { format!("f{:x}", offset >> 12).into() };
        let named = file.name.starts_with('/').then_some(Function { name, start: offset & !0xfff, line: None });
        named.into_iter().collect()
    }

    fn data(&self, file: &File, offset: u64) -> Option<Data> {
        let of = |start, name: &str, variable| Data { name: name.into(), variable, start, bytes: 0x100 };
        let all = [of(0x2000, ".plt", false), of(0x3000, "table", true), of(0x4000, "zeroed", true)];
        let all = if *file.name == *"/lib/libwork.so" { all.to_vec() } else { Vec::new() };
        all.into_iter().find(|data| (data.start..data.start + data.bytes).contains(&offset))
    }
}

/// A program whose functions begin at multiples of 4 KiB of its file, which is mapped at [`App::START`].
pub struct App;

impl App {
    pub const START: u64 = 0x40_0000;
    pub const NAMES: [&str; 8] =
        ["main", "makeMatrix", "transpose", "apr_pool_create", "handle", "table_new", "malloc", "pthread_mutex_lock"];

    /// An address in a function.
    pub fn in_function(name: &str) -> u64 {
        let number = Self::NAMES.iter().position(|known| *known == name).unwrap() as u64;
        Self::START + number * 0x1000 + 0x59
    }
}

impl Symbols for App {
    fn functions(&self, file: &File, offset: u64) -> Vec<Function> {
        let name = Self::NAMES.get(offset as usize >> 12).filter(|_| *file.name == *"/bin/app");
        let function = |name: &&str| Function { name: (*name).into(), start: offset & !0xfff, line: None };
        name.map(function).into_iter().collect()
    }

    fn data(&self, _: &File, _: u64) -> Option<Data> {
        None
    }
}

/// A random trace from a seed: accesses to memory on machine small-4x2, 103 ns local and 145 ns remote.
pub struct Trace {
    pub events: Vec<Event>,
    pub samples: Vec<Sample>,
    pub stacks: Stacks,
    pub time_ns: u64,
    pub step_ns: u64,
    random: u64,
}

impl Trace {
    pub fn new(pids: &[u32]) -> Self {
        let mut trace = Self {
            events: Vec::new(),
            samples: Vec::new(),
            stacks: Stacks::new(),
            time_ns: 1000,
            step_ns: 1000,
            random: 1,
        };
        for &pid in pids {
            trace.event(pid, pid, 0, What::ProcessStarted { parent: None });
            trace.event(pid, pid, 0, What::Named { name: "app".into(), exec: true });
            trace.event(pid, pid, 0, mapped(App::START, 0x10000, "/bin/app", true));
        }
        trace
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    pub fn event(&mut self, pid: u32, tid: u32, cpu: u32, what: What) {
        self.events.push(Event { cpu: Some(CpuId(cpu)), ..event(self.time_ns, pid, tid, what) });
        self.time_ns += 1;
    }

    /// An object that this function allocated with `malloc`.
    pub fn allocate(&mut self, (pid, tid, cpu): (u32, u32, u32), address: u64, bytes: u64, function: &str) {
        let stack = self.stacks.id(&["malloc", function, "main"].map(App::in_function));
        self.event(pid, tid, cpu, allocated(address, bytes, stack));
    }

    /// An access by a CPU to memory of a node.
    pub fn access(
        &mut self,
        (pid, tid, cpu): (u32, u32, u32),
        address: u64,
        node: u32,
        kind: AccessKind,
    ) -> &mut Sample {
        self.time_ns += self.step_ns;
        let latency_ns = if cpu / 2 == node { 103.0 } else { 145.0 };
        let instruction = App::in_function("transpose");
        self.samples.push(Sample {
            cpu: CpuId(cpu),
            node: Some(NodeId(node)),
            latency_ns: Some(latency_ns),
            kind,
            instruction,
            ..sample(self.time_ns, pid, tid, address)
        });
        self.samples.last_mut().unwrap()
    }

    pub fn profile(self) -> Profile {
        let mut recording = Recording::new(machine());
        recording.add_events(self.events);
        recording.add_samples(self.samples);
        recording.into_profile(&self.stacks, &App)
    }
}

/// One thread writes a matrix on its node, then all threads read it; other matrices are local.
pub fn face_recognition() -> Trace {
    let mut trace = Trace::new(&[1]);
    let matrix = 0x7f00_0000_0000;
    trace.allocate((1, 1, 0), matrix, 15 << 20, "makeMatrix");
    for _ in 0..300 {
        let address = matrix + trace.random(15 << 20);
        trace.access((1, 1, 0), address, 0, AccessKind::Store);
    }
    for thread in 0..8 {
        trace.allocate((1, 1 + thread, thread), 0x6000_0000 + u64::from(thread) * 0x10000, 4096, "table_new");
    }
    for _ in 0..4000 {
        let thread = trace.random(8) as u32;
        let own = trace.random(20) == 0;
        let address = if own { 0x6000_0000 + u64::from(thread) * 0x10000 } else { matrix + trace.random(15 << 20) };
        let node = if own { thread / 2 } else { 0 };
        trace.access((1, 1 + thread, thread), address, node, AccessKind::Load).weight = 50.0;
    }
    trace
}

/// All threads read and write one array, whose node is saturated: 412 ns are 700 cycles of machine B.
pub fn stream_clustering() -> Trace {
    let mut trace = Trace::new(&[1]);
    let block = 0x7f00_0000_0000;
    trace.allocate((1, 1, 0), block, 100 << 20, "makeMatrix");
    trace.allocate((1, 1, 0), 0x6000_0000, 4096, "table_new");
    for number in 0..4000 {
        let thread = trace.random(8) as u32;
        let kind = if trace.random(5) == 0 { AccessKind::Store } else { AccessKind::Load };
        let address = if number % 20 == 0 { 0x6000_0000 + trace.random(4096) } else { block + trace.random(100 << 20) };
        let sample = trace.access((1, 1 + thread, thread), address, 0, kind);
        // About 90 lines in a microsecond: the bandwidth of one controller.
        sample.weight = 90.0;
        sample.latency_ns = Some(380.0 + (number % 64) as f32);
    }
    trace
}

/// Each thread uses the objects that it allocated, all of them on the pages of one node.
pub fn indexing() -> Trace {
    let mut trace = Trace::new(&[1]);
    for object in 0..400 {
        let thread = object % 8;
        trace.allocate((1, 1 + thread, thread), 0x6000_0000 + u64::from(object) * 256, 256, "table_new");
    }
    for _ in 0..4000 {
        let object = trace.random(400) as u32;
        let (thread, address) = (object % 8, 0x6000_0000 + u64::from(object) * 256 + trace.random(256));
        let kind = if trace.random(3) == 0 { AccessKind::Store } else { AccessKind::Load };
        trace.access((1, 1 + thread, thread), address, 0, kind).weight = 50.0;
    }
    trace
}

/// Four processes with a thread on each of two nodes, which share their process's pools.
pub fn web_server() -> Trace {
    let mut trace = Trace::new(&[10, 20, 30, 40]);
    for pid in [10, 20, 30, 40] {
        for pool in 0..10 {
            let (main, address) = ((pid, pid, pid / 10), 0x6000_0000 + pool * 0x4000);
            trace.allocate(main, address, 0x4000, "apr_pool_create");
            // The thread that fills them then waits for the two that use them.
            for line in 0..20 {
                trace.access(main, address + 64 * line, pid / 20, AccessKind::Store).weight = 50.0;
            }
        }
    }
    for _ in 0..6000 {
        let pid = 10 * (1 + trace.random(4)) as u32;
        let worker = trace.random(2) as u32;
        let cpu = (pid / 10 + 4 * worker) % 8;
        let address = 0x6000_0000 + trace.random(0x28000);
        let node = trace.random(4) as u32;
        let kind = if trace.random(2) == 0 { AccessKind::Store } else { AccessKind::Load };
        trace.access((pid, pid + 1 + worker, cpu), address, node, kind).weight = 50.0;
    }
    trace
}
