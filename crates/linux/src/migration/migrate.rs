//! Moves the pages of a process to other nodes: selected pages, in large batches, within a bandwidth budget, with a
//! tally of the results.
//!
//! Two threads share the work: one finds pages and their nodes while the other moves pages found earlier. With a second
//! CPU, lookups cost no time.

use crate::memory::memory_policy::Whose;
use crate::migration::moved_whole::MovedWhole;
use crate::migration::page_batch::{PageBatch, PageRefusal};
use crate::migration::route::{Destination, Route};
use crate::migration::tally::{Amount, Stayed, Tally};
use crate::processes::process::{Process, ProcessError};
use crate::residence::present::{Extent, PresentPages};
use machine::{NodeId, SMALL_PAGE};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Builder, sleep};
use std::time::{Duration, Instant};

/// Pages per call. Each call makes every CPU drain its lists of pages, so calls should be few.
const MOST_PAGES: usize = 32 << 10;
/// Pages of the first call, which waits for them to be found; each later call has twice as many.
const FIRST_PAGES: usize = 2 << 10;
/// Bytes per call, for huge pages.
const MOST_BYTES: u64 = 256 << 20;
/// The fraction of a second's budget that one call may move, as its reciprocal.
const CALLS_PER_S: u64 = 20;
/// Longest delay of an interruption while the budget is exhausted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why no page of a process can be moved.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Its pages cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The kernel refuses the call for every page.
    #[error("cannot move pages (move_pages)")]
    Move(#[source] io::Error),
    /// The kernel does not report which pages are present.
    #[error("cannot find the pages that are in memory (/proc/PID/pagemap)")]
    Find(#[source] io::Error),
    /// The thread that finds pages could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A migration request.
#[derive(Clone, Debug)]
pub struct Migration {
    /// The address ranges whose pages are moved.
    pub ranges: Vec<Range<u64>>,
    /// Source and target nodes.
    pub route: Route,
    /// Whether pages that other processes map are moved too.
    pub whose: Whose,
    /// Maximum bytes moved per second.
    pub budget_bytes_per_s: Option<u64>,
    /// Maximum bytes moved in total.
    pub most_bytes: Option<u64>,
    /// Maximum time, as far as the rate so far tells what can be moved in it.
    pub most_time: Option<Duration>,
}

/// The pages of one call, and what was found while collecting them.
#[derive(Debug, Default)]
struct Load {
    pages: PageBatch,
    /// Size of each page in bytes.
    page_bytes: Vec<u64>,
    /// The node that each is on.
    sources: Vec<NodeId>,
    /// Pages that need no move, and whether the process still exists.
    found: Tally,
}

impl Migration {
    /// Moves the pages until all are processed or `interrupted` is set, and reports progress after each call. A process
    /// that exits, executes another program or forks meanwhile is not an error. Needs the process's user, or
    /// `CAP_SYS_PTRACE`.
    pub fn run(
        &self,
        process: &Process,
        interrupted: &AtomicBool,
        mut progress: impl FnMut(&Tally),
    ) -> Result<Tally, MigrateError> {
        let present = PresentPages::new(process)?;
        let (give_back, empty) = channel();
        let (ready, full) = channel();
        // One load per thread: one is filled while the other is moved.
        for _ in 0..2 {
            // The receiver is still alive.
            let _ = give_back.send(Load::default());
        }
        let mut finder = Finder::new(self, process, present, empty, ready);
        thread::scope(|scope| {
            let finder = move || finder.find();
            let finder = Builder::new().spawn_scoped(scope, finder).map_err(MigrateError::Thread)?;
            let mut tally = Tally::default();
            let moved = self.move_all(process, interrupted, (full, give_back), &mut tally, &mut progress);
            // The finder ends once its receiver is dropped.
            finder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            moved?;
            // Pages of an exited process are not found, which looks like nothing to do.
            tally.ended |= matches!(process.status(), Err(ProcessError::Gone(_)));
            Ok(tally)
        })
    }

    /// Moves loads until the finder has no more.
    fn move_all(
        &self,
        process: &Process,
        interrupted: &AtomicBool,
        (full, give_back): (Receiver<Load>, Sender<Load>),
        tally: &mut Tally,
        progress: &mut impl FnMut(&Tally),
    ) -> Result<(), MigrateError> {
        let begin = Instant::now();
        for mut load in full {
            if interrupted.load(Relaxed) {
                tally.interrupted = true;
                break;
            }
            tally.join(&load.found);
            let left = self.most_bytes.map_or(u64::MAX, |most| most.saturating_sub(tally.moved().bytes));
            let in_time = self.bytes_in_time(begin.elapsed(), tally.moved().bytes);
            let is_last = load.cut(left.min(in_time));
            tally.out_of_time |= is_last && in_time < left;
            if !load.pages.is_empty() {
                match load.pages.move_pages(process.pid(), self.whose) {
                    Err(error) if is_gone(&error) => tally.ended = true,
                    moved => drop(moved.map_err(MigrateError::Move)?),
                }
                load.count_into(tally);
            }
            progress(tally);
            self.wait(begin, tally, interrupted);
            if tally.ended || is_last {
                break;
            }
            // The finder may have ended: this was the last load.
            let _ = give_back.send(load);
        }
        Ok(())
    }

    /// Waits until the budget covers what has been moved.
    fn wait(&self, begin: Instant, tally: &Tally, interrupted: &AtomicBool) {
        let Some(budget) = self.budget_bytes_per_s else { return };
        let due = Duration::from_secs_f64(tally.moved().bytes as f64 / budget.max(1) as f64);
        while !interrupted.load(Relaxed) {
            match due.checked_sub(begin.elapsed()) {
                Some(rest) if !rest.is_zero() => sleep(rest.min(POLL_INTERVAL)),
                _ => break,
            }
        }
    }

    /// Bytes that can be moved in the time that is left, at the rate so far.
    fn bytes_in_time(&self, elapsed: Duration, moved_bytes: u64) -> u64 {
        let Some(most) = self.most_time else { return u64::MAX };
        match most.checked_sub(elapsed) {
            None => 0,
            // The first call shows the rate.
            Some(_) if moved_bytes == 0 => u64::MAX,
            Some(left) => {
                let bytes = u128::from(moved_bytes) * left.as_nanos() / elapsed.as_nanos().max(1);
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }

    /// Maximum bytes per call.
    fn most_bytes(&self) -> u64 {
        self.budget_bytes_per_s.map_or(MOST_BYTES, |budget| (budget / CALLS_PER_S).clamp(1, MOST_BYTES))
    }
}

/// An exiting process loses its memory before it disappears: then the kernel returns EINVAL (`find_mm_struct` in its
/// mm/migrate.c). No other cause of EINVAL applies to the calls here.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL))
}

impl Load {
    /// Adds the results of its pages to the tally, after the move.
    fn count_into(&self, tally: &mut Tally) {
        let of_pages = self.page_bytes.iter().zip(&self.sources);
        for ((address, target, status), (&bytes, &from)) in self.pages.outcomes().zip(of_pages) {
            match status.node() {
                Ok(node) if node == target => tally.moved.entry((from, node)).or_default().add(bytes),
                Err(PageRefusal::NotPresent | PageRefusal::ZeroOrUnmapped) => tally.gone.add(bytes),
                other => {
                    let reason = other.err().unwrap_or(PageRefusal::Stayed);
                    let nothing = Stayed { amount: Amount::default(), first: address };
                    tally.stayed.entry((reason, target)).or_insert(nothing).amount.add(bytes);
                }
            }
        }
    }

    /// Drops pages beyond `most_bytes`. Returns whether any were dropped.
    fn cut(&mut self, most_bytes: u64) -> bool {
        let mut bytes = 0;
        let fits = |page_bytes: &&u64| {
            bytes += **page_bytes;
            bytes <= most_bytes
        };
        let fitting = self.page_bytes.iter().take_while(fits).count();
        let is_more = fitting < self.page_bytes.len();
        self.pages.truncate(fitting);
        self.page_bytes.truncate(fitting);
        self.sources.truncate(fitting);
        is_more
    }

    fn clear(&mut self) {
        self.pages.clear();
        self.page_bytes.clear();
        self.sources.clear();
        self.found = Tally::default();
    }
}

/// Finds pages and their nodes.
struct Finder<'a> {
    migration: &'a Migration,
    process: &'a Process,
    present: PresentPages,
    whole: MovedWhole,
    /// Pages to look up, with the bytes of each and of all.
    pages: PageBatch,
    page_bytes: Vec<u64>,
    bytes: u64,
    /// Maximum pages of the next call.
    most_pages: usize,
    /// Address space scanned since the last load, in bytes.
    passed_bytes: u64,
    empty: Receiver<Load>,
    /// `None` once the receiver is dropped.
    ready: Option<Sender<Load>>,
}

impl<'a> Finder<'a> {
    fn new(
        migration: &'a Migration,
        process: &'a Process,
        present: PresentPages,
        empty: Receiver<Load>,
        ready: Sender<Load>,
    ) -> Self {
        Self {
            migration,
            process,
            present,
            whole: MovedWhole::of(process),
            pages: PageBatch::with_capacity(MOST_PAGES),
            page_bytes: Vec::with_capacity(MOST_PAGES),
            bytes: 0,
            most_pages: FIRST_PAGES,
            passed_bytes: 0,
            empty,
            ready: Some(ready),
        }
    }

    /// Scans all ranges.
    fn find(&mut self) -> Result<(), MigrateError> {
        let migration = self.migration;
        let mut extents = Vec::new();
        for range in &migration.ranges {
            let mut from = range.start;
            while from < range.end && self.ready.is_some() {
                extents.clear();
                let to = match self.present.find(&(from..range.end), &mut extents) {
                    Err(error) if is_gone(&error) => range.end,
                    looked => looked.map_err(MigrateError::Find)?,
                };
                for part in extents.iter().flat_map(|extent| self.whole.sized(extent)).collect::<Vec<_>>() {
                    self.extent(&part)?;
                }
                self.passed_bytes += to - from;
                from = to;
            }
        }
        self.look_up()
    }

    fn extent(&mut self, extent: &Extent) -> Result<(), MigrateError> {
        let mut address = extent.range.start;
        while address < extent.range.end && self.ready.is_some() {
            self.pages.push(address, None);
            self.page_bytes.push(extent.page_bytes);
            self.bytes += extent.page_bytes;
            address = address.saturating_add(extent.page_bytes);
            if self.pages.len() >= self.most_pages || self.bytes >= self.most_bytes() {
                self.look_up()?;
            }
        }
        Ok(())
    }

    /// Maximum bytes of the next call: few in the first of those whose time is limited, as it shows the rate.
    fn most_bytes(&self) -> u64 {
        let is_first = self.most_pages == FIRST_PAGES && self.migration.most_time.is_some();
        if is_first { FIRST_PAGES as u64 * SMALL_PAGE } else { self.migration.most_bytes() }
    }

    /// Looks up the nodes of the pages, and passes on those that the route sends elsewhere.
    fn look_up(&mut self) -> Result<(), MigrateError> {
        let Ok(mut load) = self.empty.recv() else {
            self.ready = None;
            return Ok(());
        };
        load.clear();
        if !self.pages.is_empty() {
            match self.pages.locate(self.process.pid()) {
                Err(error) if is_gone(&error) => load.found.ended = true,
                located => located.map_err(MigrateError::Move)?,
            }
        }
        let are_shown = self.present.shows_huge_pages();
        let mut moved = Vec::new();
        for ((address, status), &bytes) in self.pages.statuses().zip(&self.page_bytes) {
            let Ok(node) = status.node() else {
                load.found.gone.add(bytes);
                continue;
            };
            match self.migration.route.of(node, address / self.whole.bytes(bytes, are_shown)) {
                Destination::There => load.found.there.add(bytes),
                Destination::Elsewhere => load.found.elsewhere.add(bytes),
                Destination::To(target) => moved.push((target, address, bytes, node)),
            }
        }
        // The kernel moves pages together as long as they go to the same node.
        moved.sort_by_key(|(target, ..)| *target);
        for (target, address, bytes, node) in moved {
            load.pages.push(address, Some(target));
            load.page_bytes.push(bytes);
            load.sources.push(node);
        }
        load.found.passed_bytes = std::mem::take(&mut self.passed_bytes);
        self.pages.clear();
        self.page_bytes.clear();
        self.bytes = 0;
        // What is there already does not show how long moving takes.
        if self.migration.most_time.is_none() || !load.pages.is_empty() {
            self.most_pages = (self.most_pages * 2).min(MOST_PAGES);
        }
        if self.ready.as_ref().is_none_or(|ready| ready.send(load).is_err()) {
            self.ready = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::Pid;
    use crate::{allowed_memory_nodes, node_of};

    #[test]
    fn a_load_is_cut_to_what_may_be_moved() {
        let mut load = Load::default();
        for page in 0..3 {
            load.pages.push(page << 21, None);
            load.page_bytes.push(2 << 20);
            load.sources.push(NodeId(0));
        }
        assert!(!load.cut(6 << 20) && load.cut((6 << 20) - 1));
        assert_eq!((load.pages.len(), load.page_bytes.len(), load.sources.len()), (2, 2, 2));
        assert!(load.cut(0) && load.pages.is_empty());
    }

    #[test]
    fn no_more_is_moved_than_the_rest_of_the_time_has_room_for() {
        let within = |most_time: Option<u64>| Migration {
            ranges: Vec::new(),
            route: Route::new(None, &"0".parse().unwrap()).unwrap(),
            whose: Whose::Private,
            budget_bytes_per_s: None,
            most_bytes: None,
            most_time: most_time.map(Duration::from_millis),
        };
        let bytes = |most_time, elapsed, moved| within(most_time).bytes_in_time(Duration::from_millis(elapsed), moved);
        assert_eq!((bytes(None, 5, 0), bytes(Some(4), 1, 0)), (u64::MAX, u64::MAX));
        assert_eq!((bytes(Some(4), 1, 1000), bytes(Some(4), 4, 1000), bytes(Some(4), 5, 1000)), (3000, 0, 0));
    }

    /// On a system with one node nothing can move; on any other, pages that are already on the target do not.
    #[test]
    fn own_pages_are_found_where_they_are() {
        let Ok(nodes) = allowed_memory_nodes() else {
            return test_tools::skipped("memory policies may not be read here");
        };
        let mut memory = crate::Pages::reserve(1 << 20).unwrap();
        memory.advise_huge(false).unwrap();
        let range = memory.range();
        let words = memory.fill(|word| word as u64);
        let Ok(node) = node_of(&words[0]) else {
            return test_tools::skipped("the node of a page may not be read here");
        };
        let process = Process::open(Pid(std::process::id())).unwrap();
        let run = |from: Option<u32>, interrupted: bool| {
            let from = from.map(|node| [machine::NodeId(node)].into_iter().collect());
            let route = Route::new(from, &nodes).unwrap();
            let ranges = vec![range.clone()];
            let migration = Migration {
                ranges,
                route,
                whose: Whose::Private,
                budget_bytes_per_s: Some(1 << 40),
                most_bytes: None,
                most_time: None,
            };
            migration.run(&process, &AtomicBool::new(interrupted), |_| ()).unwrap()
        };
        let all = Amount { pages: 512, bytes: 2 << 20 };
        let tally = run(None, false);
        assert_eq!((tally.there, tally.passed_bytes, tally.ended), (all, 2 << 20, false));
        assert_eq!(run(Some(node.0 + 1), false).elsewhere, all);
        assert!(run(None, true).interrupted);
    }

    #[test]
    fn a_process_that_has_ended_is_no_error() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(Pid(child.id())).unwrap();
        let ranges = process.mappings().unwrap().into_iter().map(|mapping| mapping.range).collect();
        let route = Route::new(None, &"0".parse().unwrap()).unwrap();
        let migration = Migration {
            ranges,
            route,
            whose: Whose::Private,
            budget_bytes_per_s: None,
            most_bytes: None,
            most_time: None,
        };
        let present = PresentPages::new(&process).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(present);
        match migration.run(&process, &AtomicBool::new(false), |_| ()) {
            Err(MigrateError::Process(ProcessError::Gone(_))) => {}
            result => assert!(result.unwrap().ended),
        }
    }
}
