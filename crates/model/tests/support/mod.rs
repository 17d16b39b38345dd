//! A tiny machine of many CPUs that run access patterns, kept within a quantum of each other as the lab does with its
//! virtual CPUs.

use machine::{Machine, Random};
use model::{AccessKind, LINE_BYTES, Level, MAX_QUANTUM_PS, Mechanisms, MemoryRange, Model, Request};

/// Memory per node in [`model`], bytes.
pub const NODE_BYTES: u64 = 1 << 30;

/// A preset with [`NODE_BYTES`] on each node, one node after another.
pub fn model(preset: &str) -> Model {
    model_with(preset, &Mechanisms::full())
}

/// The same with only these parts.
pub fn model_with(preset: &str, mechanisms: &Mechanisms) -> Model {
    let machine = machine(preset);
    let memory: Vec<_> = (0..machine.nodes.len())
        .map(|node| MemoryRange { start: node as u64 * NODE_BYTES, end: (node as u64 + 1) * NODE_BYTES, node })
        .collect();
    Model::new(&machine, &memory, mechanisms).unwrap_or_else(|error| panic!("{error}"))
}

/// A preset.
pub fn machine(preset: &str) -> Machine {
    machine::presets::find(preset).unwrap_or_else(|error| panic!("{error}"))
}

/// A CPU's endless access pattern.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Dependent loads of random lines of one node.
    Chase { node: usize, random: Random },
    /// Independent loads of random lines of one node.
    Gather { node: usize, random: Random },
    /// Sequential loads, or stores, of the lines of one node.
    Scan { node: usize, line: u64, kind: AccessKind },
    /// Stores to random lines of one node.
    Scatter { node: usize, random: Random },
    /// Stores to the first lines of one node, over and over.
    Rewrite { node: usize, lines: u64, line: u64 },
    /// Stores to [`Pattern::WRITTEN`] lines of one node, then loads of [`Pattern::READ`] lines of another, which evict
    /// them, and again.
    WriteFar { far: usize, near: usize, begin: u64, step: u64 },
}

impl Pattern {
    /// The next access, with the time of the instructions before it, ps.
    fn next(&mut self) -> (u64, AccessKind) {
        let lines = NODE_BYTES / LINE_BYTES;
        let address = |node: usize, line: u64| node as u64 * NODE_BYTES + line * LINE_BYTES;
        match self {
            Self::Chase { node, random } | Self::Gather { node, random } => {
                (address(*node, random.bits() % lines), AccessKind::Load)
            }
            Self::Scatter { node, random } => (address(*node, random.bits() % lines), AccessKind::Store),
            Self::Scan { node, line, kind } => {
                *line = (*line + 1) % lines;
                (address(*node, *line), *kind)
            }
            Self::Rewrite { node, lines, line } => {
                *line = (*line + 1) % *lines;
                (address(*node, *line), AccessKind::Store)
            }
            Self::WriteFar { far, near, begin, step } => {
                *step = (*step + 1) % (Self::WRITTEN + Self::READ);
                match step.checked_sub(Self::WRITTEN) {
                    None => (address(*far, *begin + *step), AccessKind::Store),
                    Some(read) => (address(*near, *begin + read), AccessKind::Load),
                }
            }
        }
    }

    /// Lines that [`Pattern::WriteFar`] writes before it reads: with five others most of a cache of 5 MiB.
    pub const WRITTEN: u64 = 12_000;
    /// Lines that it reads then: all of that cache, and more.
    pub const READ: u64 = 32_000;
    /// The loaded value: the next address, if that depends on it.
    fn value(&self) -> u64 {
        match self {
            Self::Chase { .. } => self.clone().next().0,
            Self::Gather { .. }
            | Self::Scan { .. }
            | Self::Scatter { .. }
            | Self::Rewrite { .. }
            | Self::WriteFar { .. } => 0,
        }
    }
}

/// A CPU with a pattern.
#[derive(Clone, Debug)]
pub struct Runner {
    pub cpu: usize,
    pub time_ps: u64,
    pub pattern: Pattern,
    /// Lines that came from memory.
    pub lines: u64,
    /// Their latencies, ps.
    pub latency_ps: u64,
    /// Time of the instructions before each access, ps.
    pub work_ps: u64,
}

impl Runner {
    pub fn new(cpu: usize, pattern: Pattern) -> Self {
        Self { cpu, time_ps: 0, pattern, lines: 0, latency_ps: 0, work_ps: 400 }
    }

    /// Chases one node's memory.
    pub fn chase(cpu: usize, node: usize) -> Self {
        Self::new(cpu, Pattern::Chase { node, random: Random(cpu as u64) })
    }

    /// Reads one node's memory, from its own starting point.
    pub fn scan(cpu: usize, node: usize) -> Self {
        Self::new(cpu, Pattern::Scan { node, line: cpu as u64 * 262_144, kind: AccessKind::Load })
    }

    fn step(&mut self, model: &Model) {
        let (address, kind) = self.pattern.next();
        self.time_ps += self.work_ps;
        let access = model.access(self.cpu, self.time_ps, Request::to(address, kind), || None);
        self.time_ps += access.stall_ps;
        if access.wants_value {
            model.loaded(self.cpu, self.pattern.value());
        }
        if access.level == Level::Dram {
            self.lines += 1;
            self.latency_ps += u64::from(access.latency_ps);
        }
    }
}

/// Which CPU the host runs next, of those that are not too far ahead.
#[derive(Clone, Debug)]
pub enum Order {
    /// The slowest.
    Slowest,
    /// Each in turn, as far as allowed.
    FarAhead,
    /// Any.
    Any(Random),
}

/// Runs all until their times are past `end_ps`.
pub fn run(model: &Model, runners: &mut [Runner], order: &mut Order, end_ps: u64) {
    loop {
        let slowest = runners.iter().map(|runner| runner.time_ps).min().unwrap_or(end_ps);
        model.advance(slowest);
        if slowest >= end_ps {
            return;
        }
        // The model's limit, minus the longest access.
        let limit = (slowest + MAX_QUANTUM_PS - 5_000_000).min(end_ps);
        match order {
            Order::Slowest => {
                if let Some(runner) = runners.iter_mut().min_by_key(|runner| runner.time_ps) {
                    runner.step(model);
                }
            }
            Order::FarAhead => {
                for runner in &mut *runners {
                    while runner.time_ps < limit {
                        runner.step(model);
                    }
                }
            }
            Order::Any(random) => {
                for _ in 0..runners.len() {
                    let chosen = (random.bits() % runners.len() as u64) as usize;
                    let steps = random.bits() % 200;
                    for _ in 0..steps {
                        if runners[chosen].time_ps < limit {
                            runners[chosen].step(model);
                        }
                    }
                }
            }
        }
    }
}

/// The results of a run: rates after its first part, in which queues settle.
#[derive(Clone, Debug)]
pub struct Rates {
    /// Data from memory by runner, bytes/s.
    pub bytes_per_s: Vec<f64>,
    /// Mean latency of an access to memory by runner, ns.
    pub latency_ns: Vec<f64>,
}

impl Rates {
    pub fn total(&self) -> f64 {
        self.bytes_per_s.iter().sum()
    }

    /// The mean latency over all runners' accesses, ns.
    pub fn mean_latency_ns(&self) -> f64 {
        let weighted: f64 = self.latency_ns.iter().zip(&self.bytes_per_s).map(|(latency, rate)| latency * rate).sum();
        weighted / self.total()
    }
}

/// Lets all run for `settle_ps`, then measures for `measure_ps`.
pub fn rates(model: &Model, runners: &mut [Runner], settle_ps: u64, measure_ps: u64) -> Rates {
    let mut order = Order::FarAhead;
    let begin = runners.iter().map(|runner| runner.time_ps).max().unwrap_or(0) + settle_ps;
    run(model, runners, &mut order, begin);
    let before = runners.to_vec();
    run(model, runners, &mut order, begin + measure_ps);
    let pairs = || runners.iter().zip(&before);
    let lines = |(now, before): (&Runner, &Runner)| (now.lines - before.lines) as f64;
    Rates {
        bytes_per_s: pairs()
            .map(|pair| lines(pair) * LINE_BYTES as f64 * 1e12 / (pair.0.time_ps - pair.1.time_ps) as f64)
            .collect(),
        latency_ns: pairs().map(|pair| (pair.0.latency_ps - pair.1.latency_ps) as f64 / lines(pair) / 1000.0).collect(),
    }
}

pub fn assert_within(what: &str, measured: f64, expected: f64, tolerance: f64) {
    let off = measured / expected - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {measured:.4e} is {:.1} % off {expected:.4e}", off * 100.0);
}
