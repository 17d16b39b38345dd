//! How objects of one site are used: the shares that the rules of the advice look at.

use crate::distances::Distances;
use crate::facts::on_node_of_allocation;
use crate::flow::Flow;
use crate::groups::Cells;
use crate::ids::{ProcessId, ThreadId};
use crate::profile::Profile;
use crate::view::View;
use machine::NodeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use trace::AccessKind;

/// So many of so many.
pub(crate) type PartOf = (u64, u64);

/// From this share of writes on, what was written early counts as still being written.
pub(crate) const MOST_WRITES: f64 = 0.05;

/// Accesses of a process that show which threads use objects at the same time.
const STRETCH: usize = 100;

/// How objects are used. Samples are counted, not what they stand for: certainty rests on them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pattern {
    pub samples: u64,
    /// Remote ones, of those that reached memory.
    pub remote: PartOf,
    /// By the thread that allocated the object.
    pub own: PartOf,
    /// Remote ones of that thread on another node than it allocated on, of those whose node then is known.
    pub moved: PartOf,
    /// Successive accesses to one object that come from one node.
    pub same_node: PartOf,
    /// From the node that accesses the object most.
    pub leading: PartOf,
    /// Writes, of the accesses after each object was initialised.
    pub writes_after: PartOf,
    /// When the last object was initialised, ns.
    pub settled_ns: u64,
    pub from: BTreeMap<NodeId, u64>,
    pub homes: BTreeMap<NodeId, Home>,
    pub processes: BTreeMap<ProcessId, ProcessUse>,
    pub objects: u64,
    /// Bytes of the largest object.
    pub bytes: u64,
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

impl Home {
    /// Mean latency and that of an idle machine, ns.
    pub fn latency_ns(&self) -> Option<(f64, f64)> {
        let n = self.timed as f64;
        (self.timed > 0 && self.idle_ns > 0.0).then(|| (self.ns / n, self.idle_ns / n))
    }

    /// Whether the mean is more than so many times the idle latency: surely, if it is by twice its standard error.
    pub fn is_slower(&self, factor: f64, standard_errors: f64) -> bool {
        let n = self.timed as f64;
        let error = |mean: f64| ((self.squares / n - mean * mean).max(0.0) / n).sqrt();
        self.latency_ns().is_some_and(|(mean, idle)| mean - standard_errors * error(mean) > factor * idle)
    }
}

impl Pattern {
    /// What a site's accesses show.
    pub fn of(flow: &Flow, distances: &Distances) -> Self {
        let profile = flow.profile();
        let objects = &profile.samples().object;
        let mut pattern = Self::default();
        let mut cells = Cells::default();
        for positions in flow.by_object().chunk_by(|&a, &b| objects[a as usize] == objects[b as usize]) {
            pattern.add_object(profile, positions, &mut cells);
        }
        pattern.add_cells(profile, &cells, distances);
        pattern
    }

    /// What all accesses of a view show together: nothing of single objects.
    pub fn of_all(view: &View, distances: &Distances) -> Self {
        let mut pattern = Self::default();
        pattern.add_cells(view.profile(), &view.groups().cells, distances);
        pattern
    }

    fn add_cells(&mut self, profile: &Profile, cells: &Cells, distances: &Distances) {
        for ((thread, from, to), cell) in cells.in_order() {
            let samples = cell.tally.samples;
            self.samples += samples;
            let process = self.processes.entry(profile.threads()[thread.index()].process).or_default();
            process.samples += samples;
            let Some(from) = from else { continue };
            *process.from.entry(from).or_default() += samples;
            *self.from.entry(from).or_default() += samples;
            let Some(to) = to else { continue };
            self.remote.0 += if from == to { 0 } else { samples };
            self.remote.1 += samples;
            let home = self.homes.entry(to).or_default();
            home.samples += samples;
            if let Some(idle_ns) = distances.idle_ns(from, to) {
                home.timed += cell.timed;
                home.ns += cell.ns;
                home.squares += cell.squares;
                home.idle_ns += idle_ns * cell.timed as f64;
            }
        }
    }

    fn add_object(&mut self, profile: &Profile, positions: &[u32], cells: &mut Cells) {
        let mut nodes: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut last = None;
        // Times and whether they write, of those that are known to read or write.
        let mut kinds: Vec<(u64, bool)> = Vec::new();
        self.objects += 1;
        for access in positions.iter().map(|&at| profile.at(at as usize)) {
            cells.add(&access);
            if let Some(on_own) = on_node_of_allocation(profile, &access) {
                let owner = profile.objects()[access.object.index()].allocated_by == Some(access.thread);
                count(&mut self.moved, owner && access.is_remote(), !on_own);
            }
            let object = &profile.objects()[access.object.index()];
            self.bytes = self.bytes.max(object.bytes);
            count(&mut self.own, object.allocated_by.is_some(), object.allocated_by == Some(access.thread));
            if access.kind != AccessKind::Unknown {
                kinds.push((access.time_ns, access.kind == AccessKind::Store));
            }
            let Some(from) = access.from else { continue };
            *nodes.entry(from).or_default() += 1;
            count(&mut self.same_node, last.is_some(), last == Some(from));
            last = Some(from);
        }
        let known: u64 = nodes.values().sum();
        // One access alone always comes from one node.
        if known > 1 {
            self.leading.0 += nodes.values().max().copied().unwrap_or(0);
            self.leading.1 += known;
        }
        let (settled_at, writes) = settled(&kinds);
        self.writes_after.0 += writes;
        self.writes_after.1 += (kinds.len() - settled_at) as u64;
        if let Some((settled_ns, _)) = kinds.get(settled_at) {
            self.settled_ns = self.settled_ns.max(*settled_ns);
        }
    }
}

/// How many threads of each process use objects at the same time: the median of stretches of accesses. So a thread that
/// only initialises them does not count, nor do threads that replace each other.
pub(crate) fn threads_at_once(flow: &Flow) -> BTreeMap<ProcessId, usize> {
    let mut stretches: BTreeMap<ProcessId, Vec<HashSet<ThreadId>>> = BTreeMap::new();
    let mut seen: HashMap<ProcessId, usize> = HashMap::new();
    for access in flow.accesses() {
        let process = flow.profile().threads()[access.thread.index()].process;
        let seen = seen.entry(process).or_default();
        let stretches = stretches.entry(process).or_default();
        if seen.is_multiple_of(STRETCH) {
            stretches.push(HashSet::new());
        }
        *seen += 1;
        if let Some(threads) = stretches.last_mut() {
            threads.insert(access.thread);
        }
    }
    let median = |stretches: Vec<HashSet<ThreadId>>| {
        let mut counts: Vec<usize> = stretches.iter().map(HashSet::len).collect();
        counts.sort_unstable();
        counts.get(counts.len() / 2).copied().unwrap_or(0)
    };
    stretches.into_iter().map(|(process, stretches)| (process, median(stretches))).collect()
}

fn count(share: &mut PartOf, counts: bool, part: bool) {
    share.0 += u64::from(counts && part);
    share.1 += u64::from(counts);
}

/// From which access on an object is settled, and how many writes there are from then on. That is after the last write
/// where at least half of the accesses follow it, and otherwise the first access from which on few write.
fn settled(kinds: &[(u64, bool)]) -> (usize, u64) {
    let after_last = kinds.iter().rposition(|&(_, write)| write).map_or(0, |last| last + 1);
    if 2 * (kinds.len() - after_last) >= kinds.len() {
        return (after_last, 0);
    }
    let (mut writes, mut first) = (0, (kinds.len(), 0));
    for (at, &(_, write)) in kinds.iter().enumerate().rev() {
        writes += u64::from(write);
        if writes as f64 <= MOST_WRITES * (kinds.len() - at) as f64 {
            first = (at, writes);
        }
    }
    // Where writes never become few, nothing is settled: all of it counts.
    if 2 * (kinds.len() - first.0) < kinds.len() { (0, writes) } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_once_is_settled_after_that() {
        let kinds = |text: &str| -> Vec<(u64, bool)> { text.chars().map(|kind| (0, kind == '*')).collect() };
        assert_eq!(settled(&kinds("****xxxxxxxx")), (4, 0));
        assert_eq!(settled(&kinds("")), (0, 0));
        assert_eq!(settled(&kinds("*x*x*x*x")), (0, 4));
        assert_eq!(settled(&kinds("*********x")), (0, 9));
        let late = "x".repeat(90) + "*" + &"x".repeat(9);
        assert_eq!(settled(&kinds(&late)), (0, 1));
    }
}
