//! Moving the pages of a process to other nodes: which ones, in large batches, no faster than allowed, with a tally of
//! what came of each.

use crate::memory_policy::Whose;
use crate::page_batch::{PageBatch, PageRefusal};
use crate::present::{Extent, PresentPages};
use crate::process::{Process, ProcessError};
use machine::{NodeId, NodeSet};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pages of one call. Each call has every CPU hand back pages that it holds, so calls should be few.
const MOST_PAGES: usize = 32 << 10;
/// Bytes of one call, where pages are huge.
const MOST_BYTES: u64 = 256 << 20;
/// How much of a second's budget one call may move.
const CALLS_PER_S: u64 = 20;
/// How long an interruption waits at most while the budget is used up.
const PATIENCE: Duration = Duration::from_millis(50);

/// From which nodes pages go to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    from: Option<NodeSet>,
    to: Vec<NodeId>,
    targets: NodeSet,
}

/// What a route says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It goes to this node.
    To(NodeId),
    /// It is where it should be.
    There,
    /// It is on a node that nothing is moved from.
    Elsewhere,
}

impl Route {
    /// From these nodes, or from all, to these. Nothing if there is no node to go to, or an empty set to come from.
    ///
    /// Pages of the first node to come from go to the first to go to, those of the second to the second and so on,
    /// beginning again with the first when there are fewer to go to. Without nodes to come from, pages that are on a
    /// node to go to stay, and all others are dealt to these nodes by their address.
    pub fn new(from: Option<NodeSet>, to: &NodeSet) -> Option<Self> {
        let nothing = to.is_empty() || from.as_ref().is_some_and(NodeSet::is_empty);
        (!nothing).then(|| Self { from, to: to.iter().collect(), targets: to.clone() })
    }

    /// The nodes that pages go to.
    pub fn targets(&self) -> &NodeSet {
        &self.targets
    }

    /// Where a page on this node goes; `page` is its address by its size.
    pub fn of(&self, node: NodeId, page: u64) -> Course {
        let dealt = |place: u64| self.to[(place % self.to.len() as u64) as usize];
        let target = match &self.from {
            None if self.targets.contains(node) => return Course::There,
            None => dealt(page),
            Some(from) => match from.iter().position(|source| source == node) {
                Some(place) => dealt(place as u64),
                None => return Course::Elsewhere,
            },
        };
        if target == node { Course::There } else { Course::To(target) }
    }
}

/// Pages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many; a huge page is one.
    pub pages: u64,
    /// How much.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, page_bytes: u64) {
        self.pages += 1;
        self.bytes += page_bytes;
    }
}

/// Pages that stayed for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// How many.
    pub amount: Amount,
    /// The address of the first that was found.
    pub first: u64,
}

/// What came of the pages that were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Moved, by the node that they went to.
    pub moved: BTreeMap<NodeId, Amount>,
    /// On the right node before.
    pub there: Amount,
    /// On a node that nothing was to be moved from.
    pub elsewhere: Amount,
    /// Gone before they could be moved: given back, or swapped out. Their process goes on, so that is no failure.
    pub gone: Amount,
    /// Not moved, by reason and by the node that they were to go to.
    pub stayed: BTreeMap<(PageRefusal, NodeId), Stayed>,
    /// Bytes of addresses that were gone through, present or not.
    pub passed_bytes: u64,
    /// The process ended before all was gone through.
    pub ended: bool,
    /// Something asked to stop before all was gone through.
    pub interrupted: bool,
}

impl Tally {
    /// All that was moved.
    pub fn moved(&self) -> Amount {
        let sum = |sum: Amount, part: &Amount| Amount { pages: sum.pages + part.pages, bytes: sum.bytes + part.bytes };
        self.moved.values().fold(Amount::default(), sum)
    }
}

/// Why no page of a process can be moved.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Its pages cannot be looked at.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The kernel refuses the call, whatever the page.
    #[error("cannot move pages (move_pages): {0}")]
    Move(io::Error),
    /// The kernel does not tell which pages are present.
    #[error("cannot find the pages that are in memory (/proc/PID/pagemap): {0}")]
    Find(io::Error),
}

/// What to move, and how.
#[derive(Clone, Debug)]
pub struct Migration {
    /// The addresses whose pages are moved.
    pub ranges: Vec<Range<u64>>,
    /// From which nodes to which.
    pub route: Route,
    /// Whether pages that other processes map are moved too.
    pub whose: Whose,
    /// Bytes moved in a second, at most.
    pub budget_bytes_per_s: Option<u64>,
}

impl Migration {
    /// Moves the pages, until all are gone through or `interrupted` is set, and tells how far it is after each call. A
    /// process that ends, executes another program or forks meanwhile is no error. Needs to be the process's user, or
    /// `CAP_SYS_PTRACE`.
    pub fn run(
        &self,
        process: &Process,
        interrupted: &AtomicBool,
        mut progress: impl FnMut(&Tally),
    ) -> Result<Tally, MigrateError> {
        let mut present = PresentPages::of(process)?;
        let mut mover = Mover::new(self, process);
        let mut extents = Vec::new();
        'all: for range in &self.ranges {
            let mut from = range.start;
            while from < range.end {
                extents.clear();
                let to = match present.find(&(from..range.end), &mut extents) {
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break 'all,
                    looked => looked.map_err(MigrateError::Find)?,
                };
                for extent in &extents {
                    if !mover.extent(extent, interrupted, &mut progress)? {
                        break 'all;
                    }
                }
                mover.tally.passed_bytes += to - from;
                from = to;
            }
        }
        mover.call(interrupted, &mut progress)?;
        // What a process that has ended no longer has is found nowhere, and that looks like nothing to do.
        mover.tally.ended |= matches!(process.status(), Err(ProcessError::Gone(_)));
        Ok(mover.tally)
    }
}

/// A migration under way: the pages of the next call, and what came of the earlier ones.
struct Mover<'a> {
    migration: &'a Migration,
    process: &'a Process,
    /// Pages by their address, to be looked up, and then those of them that are to be moved.
    found: PageBatch,
    moving: PageBatch,
    /// Bytes of each page of `found`, and of `moving`.
    found_bytes: Vec<u64>,
    moving_bytes: Vec<u64>,
    found_sum: u64,
    most_bytes: u64,
    begin: Instant,
    tally: Tally,
}

impl<'a> Mover<'a> {
    fn new(migration: &'a Migration, process: &'a Process) -> Self {
        let budget = migration.budget_bytes_per_s.map_or(MOST_BYTES, |budget| budget / CALLS_PER_S);
        Self {
            migration,
            process,
            found: PageBatch::with_capacity(MOST_PAGES),
            moving: PageBatch::with_capacity(MOST_PAGES),
            found_bytes: Vec::with_capacity(MOST_PAGES),
            moving_bytes: Vec::with_capacity(MOST_PAGES),
            found_sum: 0,
            most_bytes: budget.clamp(1, MOST_BYTES),
            begin: Instant::now(),
            tally: Tally::default(),
        }
    }

    /// Goes through neighbouring pages. Whether to go on.
    fn extent(
        &mut self,
        extent: &Extent,
        interrupted: &AtomicBool,
        progress: &mut impl FnMut(&Tally),
    ) -> Result<bool, MigrateError> {
        let mut address = extent.range.start;
        while address < extent.range.end {
            self.found.push(address, None);
            self.found_bytes.push(extent.page_bytes);
            self.found_sum += extent.page_bytes;
            address = address.saturating_add(extent.page_bytes);
            if (self.found.len() == MOST_PAGES || self.found_sum >= self.most_bytes)
                && !self.call(interrupted, progress)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves those of the found pages that are to be moved. Whether to go on.
    fn call(&mut self, interrupted: &AtomicBool, progress: &mut impl FnMut(&Tally)) -> Result<bool, MigrateError> {
        if interrupted.load(Relaxed) {
            self.tally.interrupted = true;
            return Ok(false);
        }
        let pid = self.process.pid();
        if !self.found.is_empty() && !self.there_to(|mover| mover.found.locate(pid))? {
            return Ok(false);
        }
        self.choose();
        if !self.moving.is_empty() {
            let whose = self.migration.whose;
            if !self.there_to(|mover| mover.moving.move_pages(pid, whose))? {
                return Ok(false);
            }
            self.count();
        }
        progress(&self.tally);
        self.wait(interrupted);
        Ok(true)
    }

    /// Does what a process that has ended makes impossible. Whether it was there.
    fn there_to(&mut self, act: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<bool, MigrateError> {
        match act(self) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                self.tally.ended = true;
                Ok(false)
            }
            Err(error) => Err(MigrateError::Move(error)),
        }
    }

    /// Puts the found pages that the route leads elsewhere into the batch that is moved.
    fn choose(&mut self) {
        self.moving.clear();
        self.moving_bytes.clear();
        self.found_sum = 0;
        for ((address, status), &bytes) in self.found.statuses().zip(&self.found_bytes) {
            let Ok(node) = status.node() else {
                self.tally.gone.add(bytes);
                continue;
            };
            match self.migration.route.of(node, address / bytes) {
                Course::There => self.tally.there.add(bytes),
                Course::Elsewhere => self.tally.elsewhere.add(bytes),
                Course::To(target) => {
                    self.moving.push(address, Some(target));
                    self.moving_bytes.push(bytes);
                }
            }
        }
        self.found.clear();
        self.found_bytes.clear();
    }

    fn count(&mut self) {
        for ((address, target, status), &bytes) in self.moving.outcomes().zip(&self.moving_bytes) {
            match status.node() {
                Ok(node) if node == target => self.tally.moved.entry(node).or_default().add(bytes),
                Err(PageRefusal::NotPresent | PageRefusal::ZeroOrUnmapped) => self.tally.gone.add(bytes),
                other => {
                    let reason = other.err().unwrap_or(PageRefusal::Stayed);
                    let nothing = Stayed { amount: Amount::default(), first: address };
                    self.tally.stayed.entry((reason, target)).or_insert(nothing).amount.add(bytes);
                }
            }
        }
    }

    /// Waits until the budget allows what has been moved.
    fn wait(&self, interrupted: &AtomicBool) {
        let Some(budget) = self.migration.budget_bytes_per_s else { return };
        let due = Duration::from_secs_f64(self.tally.moved().bytes as f64 / budget.max(1) as f64);
        while !interrupted.load(Relaxed) {
            match due.checked_sub(self.begin.elapsed()) {
                Some(rest) if !rest.is_zero() => sleep(rest.min(PATIENCE)),
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    fn route(from: Option<&str>, to: &str) -> Route {
        Route::new(from.map(nodes), &nodes(to)).unwrap()
    }

    /// Claim 9 of the specification: from A to B moves pages on A only, and pages on C stay.
    #[test]
    fn only_pages_of_the_nodes_to_come_from_move() {
        let route = route(Some("0"), "1");
        let courses = [0, 1, 2].map(|node| route.of(NodeId(node), 7));
        assert_eq!(courses, [Course::To(NodeId(1)), Course::Elsewhere, Course::Elsewhere]);
    }

    #[test]
    fn nodes_are_paired_in_order() {
        let three = route(Some("0,2,4"), "1,4");
        let courses = [0, 2, 4].map(|node| three.of(NodeId(node), 7));
        assert_eq!(courses, [Course::To(NodeId(1)), Course::To(NodeId(4)), Course::To(NodeId(1))]);
        assert_eq!(route(Some("0,4"), "1,4").of(NodeId(4), 0), Course::There);
    }

    #[test]
    fn without_nodes_to_come_from_pages_are_dealt_evenly() {
        let route = route(None, "1,3");
        assert_eq!(route.of(NodeId(3), 0), Course::There);
        assert_eq!([0, 1, 2].map(|page| route.of(NodeId(0), page)), [1, 3, 1].map(|node| Course::To(NodeId(node))));
    }

    #[test]
    fn a_route_from_or_to_nowhere_is_none() {
        assert_eq!(Route::new(None, &NodeSet::new()), None);
        assert_eq!(Route::new(Some(NodeSet::new()), &nodes("0")), None);
    }

    proptest! {
        #[test]
        fn pages_only_go_where_they_are_sent(
            from in proptest::option::of(proptest::collection::btree_set(0..64_u32, 1..8)),
            to in proptest::collection::btree_set(0..64_u32, 1..8),
            node in 0..64_u32,
            page: u64,
        ) {
            let set = |ids: &std::collections::BTreeSet<u32>| ids.iter().copied().map(NodeId).collect::<NodeSet>();
            let route = Route::new(from.as_ref().map(set), &set(&to)).unwrap();
            match route.of(NodeId(node), page) {
                Course::To(target) => prop_assert!(to.contains(&target.0) && target.0 != node),
                Course::There => prop_assert!(to.contains(&node)),
                Course::Elsewhere => prop_assert!(from.is_some_and(|from| !from.contains(&node))),
            }
        }
    }
}
