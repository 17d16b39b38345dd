//! Time windows: the traffic of one window determines the queueing delays of a later one.
//!
//! Virtual CPUs are up to a quantum apart in simulated time, so a resource cannot keep the time at which it is free
//! next: a lagging CPU would wait for the future. Instead each CPU counts its lines by the window of its own time. When
//! every CPU has left a window, it is closed: its traffic is final, whatever the host's threads did meanwhile. This
//! determines the delays of the window [`LAG`] later, which no CPU can have reached. So results do not depend on the
//! host's scheduling.
//!
//! The state carried from one window to the next is not traffic, which falls when delays grow, but the number of lines
//! in flight (traffic times latency), which does not: the resulting delays (see [`crate::queues`]) are right at once,
//! and neither their lag nor the smoothing makes them oscillate.

use crate::cpu::Cpu;
use crate::own_counts::{SLOTS, WINDOW_PS};
use crate::queues::{Flow, Queues, Step};
use crate::resources::{Resources, columns};
use crate::siblings::{PathUse, Siblings};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far a CPU may be ahead of the slowest active one, ps.
pub const MAX_QUANTUM_PS: u64 = (LAG - 1) * WINDOW_PS;

/// A closed window determines the delays of the one this many later.
const LAG: u64 = 3;
/// Weight of the newest window in the average number of lines in flight.
const SMOOTHING: f64 = 0.25;
/// Above this multiple of the average it is a new load, not a fluctuation, and replaces the average at once.
const NEW_LOAD: f64 = 4.0;
/// Fewer lines in flight than this on average count as none.
const NEGLIGIBLE: f64 = 1e-3;

/// The windows.
pub(crate) struct Windows {
    resources: Resources,
    nodes: usize,
    first_open: AtomicU64,
    /// Queueing delay of a line, ps, by slot, accessing node and memory's node.
    delay_ps: Box<[AtomicU32]>,
    closing: Mutex<Closing>,
}

/// State for closing windows.
struct Closing {
    queues: Queues,
    siblings: Siblings,
    /// By slot and pair of nodes: line counts when the slot was last closed.
    seen: Box<[u64]>,
    /// Pairs of nodes with a non-negligible flow, ascending.
    pairs: Vec<usize>,
    /// In the order of `pairs`.
    flows: Vec<Flow>,
    /// By slot and resource: the delays that were in force, ps.
    applied_ps: Box<[f64]>,
    /// Number of consecutive closed windows with nothing in flight.
    quiet: usize,
    /// By resource, since the measurement began: lines in closed windows, and their total wait, ps.
    waited: Box<[Waited]>,
}

/// Lines of one resource and their wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    pub lines: f64,
    pub ps: f64,
}

impl Waited {
    pub(crate) fn mean_ns(self) -> f64 {
        if self.lines > 0.0 { self.ps / self.lines / 1000.0 } else { 0.0 }
    }
}

impl Windows {
    pub(crate) fn new(resources: Resources, siblings: Siblings, nodes: usize) -> Self {
        let count = resources.servers.len();
        let pairs = nodes * columns(nodes);
        Self {
            nodes,
            first_open: AtomicU64::new(0),
            delay_ps: (0..SLOTS * pairs).map(|_| AtomicU32::new(0)).collect(),
            closing: Mutex::new(Closing {
                queues: Queues::new(resources.servers.clone()),
                siblings,
                seen: vec![0; SLOTS * pairs].into(),
                pairs: Vec::new(),
                flows: Vec::new(),
                applied_ps: vec![0.0; SLOTS * count].into(),
                quiet: SLOTS,
                waited: vec![Waited::default(); count].into(),
            }),
            resources,
        }
    }

    /// The slot in which to count an access at this time: that of its window or, if that is closed, of the oldest open
    /// one.
    #[inline]
    pub(crate) fn slot(&self, time_ps: u64) -> usize {
        ((time_ps / WINDOW_PS).max(self.first_open.load(Relaxed)) % SLOTS as u64) as usize
    }

    /// Queueing delay of a line in the window of this slot, ps.
    #[inline]
    pub(crate) fn delay_ps(&self, slot: usize, pair: usize) -> u32 {
        self.delay_ps[slot * self.nodes * columns(self.nodes) + pair].load(Relaxed)
    }

    /// Closes the windows that end by `now_ps`.
    pub(crate) fn advance(&self, now_ps: u64, cpus: &[Cpu]) {
        let now = now_ps / WINDOW_PS;
        if now <= self.first_open.load(Relaxed) {
            return;
        }
        let mut closing = self.lock();
        // Only the holder of the lock advances it; another thread may have since the read above.
        let mut window = self.first_open.load(Relaxed);
        while window < now {
            if closing.quiet >= SLOTS {
                // No slot has counts, and neither a delay nor a stretch is left: a gap of any length is closed at once.
                // Counts that another thread adds from here on belong to windows that are still open.
                if !closing.siblings.has_news(path_use(cpus)) && !closing.has_news(cpus, self.nodes) {
                    closing.queues.pass((now - window) as f64 * WINDOW_PS as f64);
                    window = now;
                    break;
                }
            }
            closing.close(self, window, cpus);
            window += 1;
        }
        self.first_open.store(window, Relaxed);
    }

    /// Begins a measurement at this time, which may be before the current one: queues and [`Windows::waited`] are
    /// emptied.
    pub(crate) fn begin(&self, now_ps: u64, cpus: &[Cpu]) {
        let mut closing = self.lock();
        for slot in 0..SLOTS {
            let counted = counted(cpus, self.nodes, slot);
            closing.seen[slot * counted.len()..][..counted.len()].copy_from_slice(&counted);
        }
        closing.siblings.begin(path_use(cpus));
        closing.queues.clear();
        closing.pairs.clear();
        closing.flows.clear();
        closing.applied_ps.fill(0.0);
        closing.waited.fill(Waited::default());
        closing.quiet = SLOTS;
        self.delay_ps.iter().for_each(|delay| delay.store(0, Relaxed));
        self.first_open.store(now_ps / WINDOW_PS, Relaxed);
    }

    /// The wait at each resource since the measurement began, in closed windows.
    pub(crate) fn waited(&self) -> Box<[Waited]> {
        self.lock().waited.clone()
    }

    /// The resources and the paths to them.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    fn lock(&self) -> MutexGuard<'_, Closing> {
        // After a panic while closing a window the delays are still usable: the next window corrects them.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use of its core's path by each CPU.
fn path_use<'a>(cpus: &'a [Cpu]) -> impl Fn(usize) -> &'a PathUse {
    |cpu| &cpus[cpu].path_use
}

impl Closing {
    /// Whether any slot has new lines.
    fn has_news(&self, cpus: &[Cpu], nodes: usize) -> bool {
        let pairs = nodes * columns(nodes);
        (0..SLOTS).any(|slot| counted(cpus, nodes, slot) != self.seen[slot * pairs..][..pairs])
    }

    fn close(&mut self, windows: &Windows, window: u64, cpus: &[Cpu]) {
        let slot = (window % SLOTS as u64) as usize;
        let lines = self.take(windows.nodes, slot, cpus);
        self.note(windows, slot, &lines);
        self.queues.pass(WINDOW_PS as f64);
        let was_quiet = self.flows.is_empty();
        self.average(windows, slot, &lines);
        self.queues.settle(&self.flows);
        let decided = ((window + LAG) % SLOTS as u64) as usize;
        self.siblings.close(slot, decided, path_use(cpus));
        self.quiet = if was_quiet && self.flows.is_empty() { self.quiet + 1 } else { 0 };
        if self.quiet < SLOTS {
            self.decide(windows, decided);
        }
    }

    /// The lines of the window in this slot: (pair, lines) for each pair with any, in ascending order.
    fn take(&mut self, nodes: usize, slot: usize, cpus: &[Cpu]) -> Vec<(usize, u64)> {
        let counted = counted(cpus, nodes, slot);
        let seen = &mut self.seen[slot * counted.len()..][..counted.len()];
        let mut lines = Vec::new();
        for (pair, (now, before)) in counted.iter().zip(seen).enumerate() {
            if now != before {
                lines.push((pair, now.wrapping_sub(*before)));
                *before = *now;
            }
        }
        lines
    }

    /// Counts the traffic of the resources and its wait.
    fn note(&mut self, windows: &Windows, slot: usize, lines: &[(usize, u64)]) {
        let count = self.waited.len();
        for &(pair, lines) in lines {
            for &Step { resource, cost, .. } in windows.resources.path(pair) {
                self.queues.carry(resource, lines as f64 * cost);
                let waited = &mut self.waited[resource as usize];
                waited.lines += lines as f64;
                waited.ps += lines as f64 * self.applied_ps[slot * count + resource as usize];
            }
        }
    }

    /// Updates the average number of lines in flight, by Little's law.
    fn average(&mut self, windows: &Windows, slot: usize, lines: &[(usize, u64)]) {
        let mut newest = vec![0.0; self.flows.len()];
        for &(pair, lines) in lines {
            let at = self.pairs.binary_search(&pair).unwrap_or_else(|at| {
                let idle_ps = f64::from(windows.resources.idle_ps[pair]);
                let path = windows.resources.path(pair).into();
                self.pairs.insert(at, pair);
                self.flows.insert(at, Flow { outstanding: 0.0, idle_ps, path });
                newest.insert(at, 0.0);
                at
            });
            let latency_ps = self.flows[at].idle_ps + f64::from(windows.delay_ps(slot, pair));
            newest[at] = lines as f64 * latency_ps / WINDOW_PS as f64;
        }
        for (flow, newest) in self.flows.iter_mut().zip(newest) {
            let weight = if newest > NEW_LOAD * flow.outstanding { 1.0 } else { SMOOTHING };
            flow.outstanding += weight * (newest - flow.outstanding);
        }
        let mut kept = self.flows.iter().map(|flow| flow.outstanding >= NEGLIGIBLE);
        self.pairs.retain(|_| kept.next().unwrap_or(false));
        self.flows.retain(|flow| flow.outstanding >= NEGLIGIBLE);
    }

    /// Writes the delays of the window in this slot.
    fn decide(&mut self, windows: &Windows, slot: usize) {
        let pairs = windows.nodes * columns(windows.nodes);
        let delays = &windows.delay_ps[slot * pairs..][..pairs];
        // Every pair, not only those with a flow: a pair without one passes the same queues.
        for (pair, delay) in delays.iter().enumerate() {
            delay.store(self.queues.delay_on(windows.resources.path(pair)).round() as u32, Relaxed);
        }
        let count = self.waited.len();
        self.applied_ps[slot * count..][..count].copy_from_slice(self.queues.delays_ps());
    }
}

/// Lines counted in a slot so far, by pair of nodes.
fn counted(cpus: &[Cpu], nodes: usize, slot: usize) -> Vec<u64> {
    let columns = columns(nodes);
    let mut lines = vec![0_u64; nodes * columns];
    for cpu in cpus {
        let row = &mut lines[usize::from(cpu.node) * columns..][..columns];
        for (sum, count) in row.iter_mut().zip(cpu.lines.of_slot(slot)) {
            *sum = sum.wrapping_add(count);
        }
    }
    lines
}

/// Lines since the model was created, by pair of nodes.
pub(crate) fn lines_so_far(cpus: &[Cpu], nodes: usize) -> Vec<u64> {
    let mut lines = vec![0_u64; nodes * columns(nodes)];
    for slot in 0..SLOTS {
        for (sum, count) in lines.iter_mut().zip(counted(cpus, nodes, slot)) {
            *sum = sum.wrapping_add(count);
        }
    }
    lines
}
