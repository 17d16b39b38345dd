//! Turns single pages into actions: limits them to the budget and to free memory, and groups them into batches per
//! process.

use crate::action::{Action, PageTarget, Step};
use crate::costs::Costs;
use crate::observation::Observation;
use crate::outcome::PageOf;
use crate::reason::{Quantity, Reason};
use crate::thresholds::Thresholds;
use machine::{NodeId, NodeSet, NodeWeight, Pid};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// An operation on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operation {
    /// Move it.
    Move,
    /// Distribute it to one of several nodes.
    Deal,
    /// Replicate it: as a private copy of its process on this node, or otherwise as only a kernel could. If it has a
    /// target, the fallback is to move it there.
    Replicate { own: Option<NodeId> },
    /// Split it, because each part is used by one node.
    SplitShared,
    /// Split it, because it is too hot.
    SplitHot,
}

/// A page and the operation on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub pid: Pid,
    pub address: u64,
    pub bytes: u64,
    pub from: NodeId,
    /// The target, for pages that move.
    pub to: Option<NodeId>,
    pub samples: u64,
    pub operation: Operation,
}

impl Candidate {
    /// The page.
    pub fn id(&self) -> PageOf {
        PageOf { pid: self.pid, address: self.address }
    }

    /// Whether its process gets a private copy.
    pub fn is_copied(&self) -> bool {
        matches!(self.operation, Operation::Replicate { own: Some(_) })
    }

    /// The node on which it, or its copy, uses memory.
    fn lands_on(&self) -> Option<NodeId> {
        if let Operation::Replicate { own: Some(node) } = self.operation { Some(node) } else { self.to }
    }

    /// Bytes that the operation copies.
    pub fn copied_bytes(&self) -> u64 {
        if self.lands_on().is_some() { self.bytes } else { 0 }
    }
}

/// What may be done in a round.
pub(crate) struct Limits {
    bytes: u64,
    operations: usize,
    /// Bytes that each node can still take, by node index; none if not known.
    room: Vec<Option<u64>>,
}

impl Limits {
    pub fn new(observation: &Observation, costs: &Costs, thresholds: &Thresholds, operations: u64) -> Self {
        let mut room = vec![None; costs.nodes().len()];
        for memory in &observation.memory {
            if let Some(index) = costs.index_of(memory.node) {
                let kept = (memory.total_bytes as f64 * thresholds.memory_free_min) as u64;
                room[index] = Some(memory.free_bytes.saturating_sub(kept));
            }
        }
        let operations = usize::try_from(operations).unwrap_or(usize::MAX);
        Self { bytes: observation.budget_bytes.unwrap_or(u64::MAX), operations, room }
    }

    /// Limits the total to these bytes.
    #[must_use]
    pub fn at_most(self, bytes: u64) -> Self {
        Self { bytes: self.bytes.min(bytes), ..self }
    }

    /// Keeps the candidates that fit, those with the most samples first if not all do. Returns the others.
    pub fn keep(&mut self, candidates: &mut Vec<Candidate>, costs: &Costs) -> Vec<Candidate> {
        if candidates.len() <= self.operations && self.have_room_for(candidates, costs) {
            return Vec::new();
        }
        candidates.sort_unstable_by_key(|page| (Reverse(page.samples), page.pid, page.address));
        candidates.extract_if(.., |page| !self.take_page(page, costs)).collect()
    }

    /// Reserves room for a page; returns whether there is any.
    fn take_page(&mut self, page: &Candidate, costs: &Costs) -> bool {
        let bytes = page.copied_bytes();
        if self.operations == 0 || bytes > self.bytes {
            return false;
        }
        let room = page.lands_on().and_then(|to| costs.index_of(to)).and_then(|index| self.room[index].as_mut());
        if let Some(room) = room {
            if *room < page.bytes {
                return false;
            }
            *room -= page.bytes;
        }
        self.operations -= 1;
        self.bytes -= bytes;
        true
    }

    /// Whether all of them fit.
    fn have_room_for(&self, candidates: &[Candidate], costs: &Costs) -> bool {
        let mut wanted = vec![0_u64; self.room.len()];
        let mut copied = 0_u64;
        for page in candidates {
            copied = copied.saturating_add(page.copied_bytes());
            if let Some(index) = page.lands_on().and_then(|to| costs.index_of(to)) {
                wanted[index] = wanted[index].saturating_add(page.bytes);
            }
        }
        let fits = |(room, wanted): (&Option<u64>, u64)| room.is_none_or(|room| wanted <= room);
        copied <= self.bytes && self.room.iter().zip(wanted).all(fits)
    }

    /// Whether a node has room for these bytes.
    pub fn has_room(&self, to: NodeId, bytes: u64, costs: &Costs) -> bool {
        costs.index_of(to).and_then(|index| self.room[index]).is_none_or(|room| bytes <= room)
    }

    /// Reserves and returns the bytes that may still be moved to a node.
    pub fn take(&mut self, to: NodeId, bytes: u64, costs: &Costs) -> u64 {
        let room = costs.index_of(to).and_then(|index| self.room[index].as_mut());
        let bytes = bytes.min(self.bytes).min(room.as_ref().map_or(u64::MAX, |room| **room));
        self.bytes -= bytes;
        if let Some(room) = room {
            *room -= bytes;
        }
        bytes
    }
}

/// Pages of one action, before they are split into batches.
#[derive(Default)]
struct Group {
    pages: Vec<(u64, Option<NodeId>, u64)>,
    samples: u64,
}

/// Properties of a round's actions, besides their pages.
pub(crate) struct Telling<'a> {
    /// Pages per action.
    pub batch_pages: u64,
    /// The weights that nodes were drawn with for a process.
    pub weights: &'a dyn Fn(Pid) -> Vec<NodeWeight>,
    /// The nodes that read a process's pages, for pages that several nodes read.
    pub readers: &'a dyn Fn(Pid) -> NodeSet,
    /// The reason of an operation.
    pub reason: &'a dyn Fn(Operation) -> Reason,
}

/// Groups pages into steps: by process, operation and target, in ascending order of address, in batches.
pub(crate) fn steps(candidates: &[Candidate], telling: &Telling) -> Vec<Step> {
    let mut groups: FxHashMap<(Operation, Pid, Option<NodeId>), Group> = FxHashMap::default();
    for page in candidates {
        let node = page.to.filter(|_| page.operation == Operation::Move);
        let group = groups.entry((page.operation, page.pid, node)).or_default();
        group.pages.push((page.address, page.to, page.bytes));
        group.samples += page.samples;
    }
    let batch = usize::try_from(telling.batch_pages).unwrap_or(usize::MAX).max(1);
    let mut steps = Vec::new();
    let groups: BTreeMap<_, _> = groups.into_iter().collect();
    for ((operation, pid, node), mut group) in groups {
        group.pages.sort_unstable();
        let mut reason = (telling.reason)(operation).with(Quantity::Pages, group.pages.len() as f64);
        if group.samples > 0 {
            reason = reason.with(Quantity::Samples, group.samples as f64);
        }
        for pages in group.pages.chunks(batch) {
            let addresses = || pages.iter().map(|(address, ..)| *address).collect::<Vec<_>>();
            let bytes = || pages.iter().filter(|(_, to, _)| to.is_some()).map(|(_, _, bytes)| bytes).sum();
            let deal = || {
                let target = |&(address, to, _): &(u64, Option<NodeId>, u64)| Some(PageTarget { address, node: to? });
                let pages = pages.iter().filter_map(target).collect();
                Action::InterleavePages { pid, weights: (telling.weights)(pid), pages, bytes: bytes() }
            };
            let action = match (operation, node) {
                (Operation::Move, Some(node)) => Action::MovePages { pid, node, pages: addresses(), bytes: bytes() },
                (Operation::Move, None) => continue,
                (Operation::Deal, _) => deal(),
                (Operation::Replicate { own }, _) => {
                    let has_targets = pages.iter().any(|(_, to, _)| to.is_some());
                    Action::Replicate {
                        pid,
                        pages: addresses(),
                        nodes: own.map_or_else(|| (telling.readers)(pid), |node| [node].into_iter().collect()),
                        is_possible: own.is_some(),
                        instead: has_targets.then(|| Box::new(deal())),
                    }
                }
                (Operation::SplitShared | Operation::SplitHot, _) => Action::SplitHugePages { pid, pages: addresses() },
            };
            steps.push(Step { action, reason: reason.clone() });
        }
    }
    steps
}
