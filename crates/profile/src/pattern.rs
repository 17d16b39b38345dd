//! Access patterns of one site's objects: the shares that the rules of the advice use.

use crate::flow::Flow;
use crate::groups::Cells;
use crate::ids::{ObjectId, ProcessId, ThreadId};
use crate::parts::{Parts, StackPages};
use crate::profile::{Access, Profile};
use crate::shared_memory::SharedMemory;
use crate::statistics::{Share, Weighed};
use crate::view::View;
use machine::NodeId;
use queueing::Distances;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use trace::AccessKind;

/// A part and its whole.
pub(crate) type PartOf = (u64, u64);

/// Share of remote accesses below which moving is not worthwhile. The study gained 7 % where 17 % were remote.
pub(crate) const FEW_REMOTE: f64 = 0.1;
/// Share of writes from which on an object counts as still being written.
pub(crate) const MOST_WRITES: f64 = 0.05;

/// Number of a process's accesses that show which threads use objects at the same time.
const STRETCH: usize = 100;

/// The access pattern of objects. Shares are of as many samples as tell them: see [`Weighed::part_of`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern {
    pub samples: u64,
    /// Remote samples, of those that reached memory.
    pub remote: PartOf,
    /// Samples that other cores' caches served, of those that left the core's.
    pub peers: PartOf,
    /// Samples by the thread that allocated the object.
    pub own: PartOf,
    /// Remote samples of that thread on another node than it allocated on, of those whose allocating node is known.
    pub moved: PartOf,
    /// Successive accesses to one object that come from one node.
    pub same_node: PartOf,
    /// Samples from the node that accesses the object most.
    pub leading: PartOf,
    /// Samples that reached memory from the node that accesses that part of the object most.
    pub in_parts: PartOf,
    /// Writes, of the accesses after each object was initialised.
    pub writes_after: PartOf,
    /// When the last object was initialised, ns; 0 if no write was seen.
    pub settled_ns: u64,
    pub from: BTreeMap<NodeId, u64>,
    pub homes: BTreeMap<NodeId, Home>,
    pub processes: BTreeMap<ProcessId, ProcessUse>,
    /// What several processes map is one object.
    pub objects: u64,
    /// Whether at least half of the accesses are to such objects.
    pub is_of_several_processes: bool,
    /// Bytes of the largest object.
    pub bytes: u64,
    /// Successive accesses to a page of a stack that are of one thread.
    pub of_own_stack: PartOf,
}

/// Shares that are still being added up.
#[derive(Default)]
struct Sums {
    own: Weighed,
    moved: Weighed,
    writes_after: Weighed,
}

/// Accesses to the memory of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Home {
    pub samples: u64,
    timed: u64,
    ns: f64,
    squares: f64,
    idle_ns: f64,
}

/// Accesses of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessUse {
    pub samples: u64,
    pub from: BTreeMap<NodeId, u64>,
}

/// The access pattern of one object.
struct ObjectUse {
    allocated_by: Option<ThreadId>,
    /// The node of the CPU that it was allocated on.
    allocated_from: Option<NodeId>,
    bytes: u64,
    /// Accesses from each node, and the last one's.
    nodes: BTreeMap<NodeId, u64>,
    last: Option<NodeId>,
    /// Accesses known to be reads or writes, by number.
    known: Vec<u32>,
    /// Number of these up to the last write.
    written: usize,
}

impl Home {
    /// Mean latency, and that on an idle machine, ns.
    pub fn latency_ns(&self) -> Option<(f64, f64)> {
        let n = self.timed as f64;
        (self.timed > 0 && self.idle_ns > 0.0).then(|| (self.ns / n, self.idle_ns / n))
    }

    /// Whether the mean exceeds the idle latency by this factor, with a margin of `standard_errors`.
    pub fn is_slower(&self, factor: f64, standard_errors: f64) -> bool {
        let n = self.timed as f64;
        let error = |mean: f64| ((self.squares / n - mean * mean).max(0.0) / n).sqrt();
        self.latency_ns().is_some_and(|(mean, idle)| mean - standard_errors * error(mean) > factor * idle)
    }
}

impl Pattern {
    /// The pattern of a site's accesses.
    pub fn new(flow: &Flow, distances: &Distances) -> Self {
        let profile = flow.profile();
        let mut pattern = Self::default();
        let mut cells = Cells::new(profile);
        let mut objects: FxHashMap<ObjectId, ObjectUse> = FxHashMap::default();
        let shared = SharedMemory::new(flow);
        let (mut to_shared, mut to_all) = (0_u64, 0_u64);
        let mut sums = Sums::default();
        let (mut parts, mut stacks) = (Parts::default(), StackPages::default());
        for (at, access) in flow.numbered() {
            to_shared += u64::from(shared.has(access.object));
            to_all += 1;
            cells.add(&access);
            let object = shared.first_of(access.object);
            let used = objects.entry(object).or_insert_with(|| ObjectUse::new(profile, object));
            pattern.add(used, at, &access, &mut sums);
            let of = &profile.objects()[access.object.index()];
            parts.add(access.object, of, &access);
            stacks.add(access.object, of, &access);
        }
        pattern.in_parts = parts.held();
        pattern.of_own_stack = stacks.held();
        pattern.is_of_several_processes = to_shared > 0 && 2 * to_shared >= to_all;
        for used in objects.into_values() {
            pattern.add_object(profile, used, &mut sums);
        }
        pattern.own = sums.own.part_of();
        pattern.moved = sums.moved.part_of();
        pattern.writes_after = sums.writes_after.part_of();
        pattern.add_cells(profile, &cells, distances);
        pattern
    }

    /// Whether so few of the accesses are remote that bringing memory nearer is not worthwhile.
    pub fn is_mostly_local(&self) -> bool {
        let (part, of) = self.remote;
        !(Share { part, of, threshold: FEW_REMOTE }).is_reached()
    }

    /// The pattern of all accesses of a view together, without that of single objects.
    pub fn of_all(view: &View, distances: &Distances) -> Self {
        let mut pattern = Self::default();
        pattern.add_cells(view.profile(), &view.groups().cells, distances);
        pattern
    }

    fn add_cells(&mut self, profile: &Profile, cells: &Cells, distances: &Distances) {
        let (mut remote, mut peers) = (Weighed::default(), Weighed::default());
        for ((thread, from, to), cell) in cells.in_order(profile) {
            let samples = cell.tally.samples;
            self.samples += samples;
            let process = self.processes.entry(profile.threads()[thread.index()].process).or_default();
            process.samples += samples;
            let Some(from) = from else { continue };
            *process.from.entry(from).or_default() += samples;
            *self.from.entry(from).or_default() += samples;
            let Some(to) = to else { continue };
            peers.part += cell.tally.peer_accesses;
            peers.all += cell.tally.leaving_accesses();
            peers.squares += cell.tally.squared_accesses + cell.tally.squared_peer_accesses;
            remote.part += cell.tally.remote_accesses;
            remote.all += cell.tally.local_accesses + cell.tally.remote_accesses;
            remote.squares += cell.tally.squared_accesses;
            let of_memory = cell.tally.local_samples + cell.tally.remote_samples;
            if of_memory == 0 {
                continue;
            }
            let home = self.homes.entry(to).or_default();
            home.samples += of_memory;
            if let Some(idle_ns) = distances.idle_ns(from, to) {
                home.timed += cell.timed;
                home.ns += cell.ns;
                home.squares += cell.squares;
                home.idle_ns += idle_ns * cell.timed as f64;
            }
        }
        self.remote = remote.part_of();
        self.peers = peers.part_of();
    }

    fn add(&mut self, object: &mut ObjectUse, at: u32, access: &Access, sums: &mut Sums) {
        let by_owner = object.allocated_by == Some(access.thread);
        sums.own.add(access.weight, object.allocated_by.is_some(), by_owner);
        if let (Some(node), Some(from)) = (object.allocated_from, access.from) {
            sums.moved.add(access.weight, by_owner && access.is_remote(), node != from);
        }
        if access.kind != AccessKind::Unknown {
            object.known.push(at);
        }
        if access.kind == AccessKind::Store {
            object.written = object.known.len();
        }
        let Some(from) = access.from else { return };
        *object.nodes.entry(from).or_default() += 1;
        count(&mut self.same_node, object.last.is_some(), object.last == Some(from));
        object.last = Some(from);
    }

    fn add_object(&mut self, profile: &Profile, object: ObjectUse, sums: &mut Sums) {
        let ObjectUse { bytes, nodes, known, written, .. } = object;
        self.objects += 1;
        self.bytes = self.bytes.max(bytes);
        let from_known: u64 = nodes.values().sum();
        // A single access always comes from one node.
        if from_known > 1 {
            self.leading.0 += nodes.values().max().copied().unwrap_or(0);
            self.leading.1 += from_known;
        }
        let weight = |at: usize| {
            let access = profile.at(known[at] as usize);
            (access.weight, access.kind == AccessKind::Store)
        };
        let settled_at = settled(known.len(), written, weight);
        for at in settled_at..known.len() {
            let (weight, writes) = weight(at);
            sums.writes_after.add(weight, true, writes);
        }
        // What was not written needed no initialisation that is known of.
        if let Some(first) = known.get(settled_at).filter(|_| settled_at > 0) {
            self.settled_ns = self.settled_ns.max(profile.at(*first as usize).time_ns);
        }
    }
}

impl ObjectUse {
    fn new(profile: &Profile, object: ObjectId) -> Self {
        let object = &profile.objects()[object.index()];
        Self {
            allocated_by: object.allocated_by,
            allocated_from: object.allocated_on.and_then(|cpu| profile.node_of_cpu(cpu)),
            bytes: object.bytes,
            nodes: BTreeMap::new(),
            last: None,
            known: Vec::new(),
            written: 0,
        }
    }
}

/// Number of threads of each process that use objects at the same time: the median over stretches of accesses. This
/// ignores threads that only initialise objects, and threads that replace each other.
pub(crate) fn threads_at_once(flow: &Flow) -> BTreeMap<ProcessId, usize> {
    let profile = flow.profile();
    // For each process its number of accesses and the threads of each stretch; for each thread its last stretch.
    let mut processes: Vec<(usize, Vec<usize>)> = vec![Default::default(); profile.processes().len()];
    let mut last_stretch = vec![0; profile.threads().len()];
    for access in flow.accesses() {
        let (seen, stretches) = &mut processes[profile.threads()[access.thread.index()].process.index()];
        if seen.is_multiple_of(STRETCH) {
            stretches.push(0);
        }
        *seen += 1;
        let is_new = std::mem::replace(&mut last_stretch[access.thread.index()], stretches.len()) != stretches.len();
        if let Some(threads) = stretches.last_mut() {
            *threads += usize::from(is_new);
        }
    }
    let median = |(process, (_, mut stretches)): (u32, (usize, Vec<usize>))| {
        stretches.sort_unstable();
        Some((ProcessId(process), *stretches.get(stretches.len() / 2)?))
    };
    (0..).zip(processes).filter_map(median).collect()
}

fn count(share: &mut PartOf, counts: bool, part: bool) {
    share.0 += u64::from(counts && part);
    share.1 += u64::from(counts);
}

/// The access from which on an object is initialised. That is the one after the last write, if at least half of the samples
/// follow it; otherwise the first one after which few accesses are writes. `written` is the number of samples up to the last
/// write; `weight` is how many accesses a sample stands for, and whether they are writes.
fn settled(count: usize, written: usize, weight: impl Fn(usize) -> (f32, bool)) -> usize {
    if 2 * (count - written) >= count {
        return written;
    }
    let (mut writes, mut first) = (Weighed::default(), count);
    for at in (0..count).rev() {
        let (weight, is_write) = weight(at);
        writes.add(weight, true, is_write);
        if writes.part <= MOST_WRITES * writes.all {
            first = at;
        }
    }
    // If writes never become few, the object is never initialised, and all accesses count.
    if 2 * (count - first) < count { 0 } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_once_is_settled_after_that() {
        let settled = |text: &str| {
            settled(text.len(), text.rfind('*').map_or(0, |last| last + 1), |at| (1.0, text.as_bytes()[at] == b'*'))
        };
        assert_eq!(["****xxxxxxxx", "", "*x*x*x*x", "*********x"].map(settled), [4, 0, 0, 0]);
        let late = "x".repeat(90) + "*" + &"x".repeat(9);
        assert_eq!(settled(&late), 0);
        // Two of a hundred samples are writes. If the first stands for as many as the others together, it initialises.
        let first = |weight: f32| super::settled(100, 61, |at| if at == 30 { (weight, true) } else { (1.0, at == 60) });
        assert_eq!([first(1.0), first(99.0)], [0, 31]);
    }
}
