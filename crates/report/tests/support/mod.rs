//! Profiles of a fictitious program: a matrix that is written once and read by all, an array whose node is saturated
//! for a while, and a table per thread.
#![allow(dead_code, reason = "each file of tests uses its part")]

pub mod html_reader;

use linux::{Pid, Tid};
use machine::{CpuId, Machine, NodeId};
use profile::{Data, File, Filter, Function, Profile, Recording, SourceLine, Symbols, View};
use report::{By, ProfileReport, TraceFacts, Wanted};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use trace::{About, AccessKind, Event, Loss, Sample, Served, Source, SourceNote, Stacks, What};

/// Parameters of the profile.
#[derive(Clone, Debug)]
pub struct Shape {
    pub nodes: u32,
    pub processes: u32,
    /// Per process.
    pub threads: u32,
    pub samples: u32,
    /// Name of functions, threads, programs, files and hosts.
    pub name: String,
    pub timed: bool,
    /// Whether samples have call chains.
    pub chains: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { nodes: 4, processes: 1, threads: 8, samples: 4000, name: "work".into(), timed: true, chains: true }
    }
}

const PROGRAM: u64 = 0x40_0000;
const MATRIX: u64 = 0x7f00_0000_0000;
const ARRAY: u64 = 0x7f10_0000_0000;
const TABLES: u64 = 0x5555_0000_0000;

struct Names(String);

impl Symbols for Names {
    fn functions(&self, _: &File, offset: u64) -> Vec<Function> {
        let function = ["main", "make_matrix", "transpose", "table_new", "scan"].get(offset as usize >> 12);
        let line = SourceLine { file: format!("/src/{}.c", self.0).into(), line: 7 };
        let named = |function| Function {
            name: format!("{}_{function}", self.0).into(),
            start: offset & !0xfff,
            line: Some(line),
        };
        function.map(named).into_iter().collect()
    }

    fn data(&self, _: &File, _: u64) -> Option<Data> {
        None
    }
}

/// A machine of this many nodes, two CPUs each.
fn machine(nodes: u32) -> Machine {
    if nodes == 4 {
        return machine::presets::find("small-4x2").unwrap();
    }
    let mut toml = format!("name = \"made-up-{nodes}x2\"\n[distances]\nmatrix = [\n");
    for row in 0..nodes {
        let distances: Vec<String> = (0..nodes).map(|column| if row == column { "10" } else { "21" }.into()).collect();
        let _ = writeln!(toml, "[{}],", distances.join(", "));
    }
    toml.push_str("]\n");
    for node in 0..nodes {
        let _ =
            writeln!(toml, "[[node]]\nid = {node}\ncpus = \"{}-{}\"\nmemory_bytes = \"1 GiB\"", 2 * node, 2 * node + 1);
    }
    Machine::from_toml(&toml, Path::new("made-up.toml")).unwrap()
}

/// The profile.
pub fn profile(shape: &Shape) -> Profile {
    let name: Arc<str> = shape.name.as_str().into();
    let mut stacks = Stacks::new();
    let mut recording = Recording::new(machine(shape.nodes));
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below.max(1)
    };
    let start = 1_000_000_000;
    for process in 0..shape.processes {
        let pid = 100 + 1000 * process;
        let event =
            |time_ns, tid, cpu, what| Event { time_ns, pid: Pid(pid), tid: Tid(tid), cpu: Some(CpuId(cpu)), what };
        let mapped = What::Mapped {
            start: PROGRAM,
            bytes: 0x10000,
            offset: 0,
            name: format!("/bin/{name}").into(),
            file: None,
            executable: true,
        };
        let mut chain = |function: u64| stacks.id(&[PROGRAM + function * 0x1000 + 0x59, PROGRAM + 0x59]);
        let (of_matrix, of_table, of_scan) = (chain(1), chain(3), chain(4));
        recording.add_events([
            event(start, pid, 0, What::ProcessStarted { parent: None }),
            event(start, pid, 0, What::Named { name: name.clone(), exec: true }),
            event(start, pid, 0, mapped),
            event(start + 1, pid, 0, What::Allocated { address: MATRIX, bytes: 15 << 20, stack: of_matrix }),
            event(start + 2, pid, 2, What::Allocated { address: ARRAY, bytes: 64 << 20, stack: of_scan }),
        ]);
        for thread in 0..shape.threads {
            let (tid, cpu) = (pid + thread, thread % (2 * shape.nodes));
            let address = TABLES + u64::from(thread) * 0x4000;
            recording.add_events([
                event(start + 3, tid, cpu, What::Named { name: name.clone(), exec: false }),
                event(start + 4, tid, cpu, What::Allocated { address, bytes: 0x3000, stack: of_table }),
            ]);
        }
        for number in 0..shape.samples / shape.processes {
            let part = f64::from(number) / f64::from(shape.samples / shape.processes);
            let thread = if part < 0.15 { 0 } else { random(u64::from(shape.threads)) as u32 };
            let cpu = thread % (2 * shape.nodes);
            let (address, node, function) = match random(10) {
                0 => (TABLES + u64::from(thread) * 0x4000 + random(0x3000), cpu / 2, 3),
                1..4 if part > 0.2 => (ARRAY + random(64 << 20), 1 % shape.nodes, 4),
                _ => (MATRIX + random(15 << 20), 0, 2),
            };
            let saturated = function == 4 && (0.4..0.6).contains(&part);
            let latency = if cpu / 2 == node { 100.0 } else { 150.0 } * if saturated { 4.5 } else { 1.0 };
            recording.add_samples([Sample {
                time_ns: start + 10 + u64::from(number) * 50_000,
                cpu: CpuId(cpu),
                pid: Pid(pid),
                tid: Tid(pid + thread),
                instruction: PROGRAM + function * 0x1000 + 0x20,
                address,
                physical: None,
                kind: if part < 0.15 || random(10) == 0 { AccessKind::Store } else { AccessKind::Load },
                served: Some(if random(30) == 0 { Served::L3 } else { Served::Dram }),
                node: Some(NodeId(node)),
                latency_ns: shape.timed.then(|| latency + random(20) as f32),
                kernel: false,
                stack: shape.chains.then(|| stacks.id(&[PROGRAM + 0x59])),
                weight: 50.0,
                source: Source::Lab,
            }]);
        }
    }
    recording.into_profile(&stacks, &Names(shape.name.clone()))
}

/// The whole profile.
pub fn view(profile: &Profile) -> View<'_> {
    profile.view(&Filter::default())
}

/// The report of a view.
pub fn report(view: &View, name: &str) -> ProfileReport {
    let mut about = About::of_command(vec![format!("./{name}"), "--size".into(), "15".into()]);
    about.complete = true;
    name.clone_into(&mut about.host);
    name.clone_into(&mut about.kernel);
    about.sources.push(SourceNote {
        source: Source::Lab,
        event: "accesses of the lab's machine".into(),
        cannot_see: vec!["Accesses of the kernel before the program began.".into(), name.into()],
    });
    let lost = vec![Loss { what: format!("samples that found the buffer of {name} full"), count: 12 }];
    let facts = TraceFacts::new(format!("{name}.trace"), &about, lost, view.profile(), "inside the trace".into());
    ProfileReport::new(view, facts, Wanted { top: 30, by: By::Cost, filter: Vec::new() })
}
