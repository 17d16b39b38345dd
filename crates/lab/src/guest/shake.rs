//! Carries out what `lab run --shake` decides: moves threads of the command to other nodes and back, and pages.

use super::{GuestError, Tried};
use crate::protocol::Shaken;
use crate::shake::{Decisions, pages_from};
use linux::{
    CpuSet, Mapping, NodeState, PageBatch, Pid, PresentPages, Process, ProcessError, Tid, Whose, affinity,
    parse_numa_maps, set_affinity,
};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Simulated time between two rounds: some time slices of the kernel's scheduler, so that a moved thread runs there.
const PERIOD: Duration = Duration::from_millis(10);
/// All programs of the guest descend from its first process, which adopts those whose parent has ended. The kernel's
/// own threads do not.
const FIRST: Pid = Pid(1);

/// A thread that shakes the guest's programs until it is ended.
pub(crate) struct Shaking {
    end: Sender<()>,
    thread: JoinHandle<Shaken>,
}

impl Shaking {
    /// Starts a thread that shakes by this seed. Needs root.
    pub(crate) fn start(seed: u64) -> Result<Self, GuestError> {
        let nodes = NodeState::read(Path::new("/sys")).map_err(io::Error::other).tried("read the nodes")?;
        let mut shaker = Shaker::new(seed, nodes);
        let (end, ended) = channel();
        let shake = move || {
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                shaker.round();
            }
            shaker.shaken
        };
        Ok(Self { end, thread: thread::Builder::new().spawn(shake).tried("start a thread")? })
    }

    /// Ends it, and returns what it did.
    pub(crate) fn end(self) -> Result<Shaken, GuestError> {
        drop(self.end);
        self.thread.join().map_err(|_| io::Error::other("it panicked")).tried("shake the command")
    }
}

/// A thread that is confined for a round.
struct Held {
    thread: Tid,
    /// The CPUs that it may use otherwise.
    before: CpuSet,
    during: CpuSet,
}

struct Shaker {
    decisions: Decisions,
    nodes: NodeState,
    /// The number of each thread that was ever seen.
    numbers: BTreeMap<Tid, u64>,
    held: Vec<Held>,
    shaken: Shaken,
}

impl Shaker {
    fn new(seed: u64, nodes: NodeState) -> Self {
        let decisions = Decisions::new(seed, &nodes);
        Self { decisions, nodes, numbers: BTreeMap::new(), held: Vec::new(), shaken: Shaken::default() }
    }

    /// Gives back what the last round took, and moves other threads and pages. Processes and threads may end at any
    /// time, so what fails for one is skipped.
    fn round(&mut self) {
        let processes = descendants();
        let all = processes.iter().filter_map(|process| process.threads().ok());
        let mut threads: Vec<Tid> = all.flat_map(|threads| threads.iter().collect::<Vec<_>>()).collect();
        threads.sort_unstable();
        self.give_back(&threads);
        for &thread in &threads {
            let next = self.numbers.len() as u64;
            let number = *self.numbers.entry(thread).or_insert(next);
            let _ = self.hold(thread, number);
        }
        for process in &processes {
            let number = self.numbers.get(&Tid(process.pid().0)).copied();
            self.shaken.pages_moved += number.and_then(|number| self.move_pages(process, number).ok()).unwrap_or(0);
        }
        self.shaken.rounds += 1;
    }

    /// Undoes the last round's confinement, unless the program itself has chosen other CPUs meanwhile. Threads that a
    /// confined one started have inherited it.
    fn give_back(&mut self, threads: &[Tid]) {
        let held = std::mem::take(&mut self.held);
        let give = |thread: Tid, held: &Held| {
            if affinity(thread).is_ok_and(|cpus| cpus == held.during) {
                let _ = set_affinity(thread, &held.before);
            }
        };
        for one in &held {
            give(one.thread, one);
        }
        for &thread in threads.iter().filter(|thread| !self.numbers.contains_key(thread)) {
            let parent = affinity(thread).ok().and_then(|cpus| held.iter().find(|held| held.during == cpus));
            if let Some(held) = parent {
                give(thread, held);
            }
        }
    }

    /// Confines a thread to the CPUs that it may use of the node that was drawn for it, if any.
    fn hold(&mut self, thread: Tid, number: u64) -> io::Result<()> {
        let node = self.decisions.node_of_thread(self.shaken.rounds, number);
        let Some(own) = node.and_then(|node| self.nodes.cpus.get(&node)) else { return Ok(()) };
        let before = affinity(thread)?;
        let during = before.intersection(own);
        if during.is_empty() || during == before {
            return Ok(());
        }
        set_affinity(thread, &during)?;
        self.shaken.thread_moves += 1;
        self.held.push(Held { thread, before, during });
        Ok(())
    }

    /// Moves some pages of a process, and returns how many. Memory for which the program has chosen nodes stays there.
    fn move_pages(&self, process: &Process, number: u64) -> Result<u64, ProcessError> {
        let Some(mut chosen) = self.decisions.pages(self.shaken.rounds, number) else { return Ok(0) };
        let Ok(mut uses) = parse_numa_maps(&process.text("numa_maps")?) else { return Ok(0) };
        uses.retain(|mapping| mapping.policy == "default" && !mapping.hugetlb && mapping.anonymous_pages > 0);
        let mut first = chosen.first(uses.iter().map(|mapping| mapping.anonymous_pages).sum());
        let found = uses.iter().find(|mapping| {
            let is_here = first < mapping.anonymous_pages;
            first -= if is_here { 0 } else { mapping.anonymous_pages };
            is_here
        });
        let mappings = process.mappings()?;
        let range = |start: u64| mappings.iter().map(|Mapping { range, .. }| range).find(|range| range.start == start);
        let Some((mapping, range)) = found.and_then(|mapping| Some((mapping, range(mapping.start)?))) else {
            return Ok(0);
        };
        let mut present = PresentPages::new(process)?;
        let (mut extents, mut from) = (Vec::new(), range.start);
        while from < range.end {
            let Ok(end) = present.find(&(from..range.end), &mut extents) else { return Ok(0) };
            from = end;
        }
        let mut batch = PageBatch::default();
        for page in pages_from(&extents, first * mapping.page_bytes) {
            batch.push(page, None);
        }
        if batch.locate(process.pid()).is_err() {
            return Ok(0);
        }
        let elsewhere = |(page, status): (u64, linux::PageStatus)| {
            status.node().is_ok_and(|node| node != chosen.to).then_some(page)
        };
        let pages: Vec<u64> = batch.statuses().filter_map(elsewhere).collect();
        batch.clear();
        for &page in &pages {
            batch.push(page, Some(chosen.to));
        }
        if batch.is_empty() || batch.move_pages(process.pid(), Whose::Private).is_err() {
            return Ok(0);
        }
        Ok(batch.outcomes().filter(|(_, to, status)| status.node() == Ok(*to)).count() as u64)
    }
}

/// The programs that run now, in the order in which a tree of them is walked.
fn descendants() -> Vec<Process> {
    let children = |of: &Process| of.children().map(|all| all.iter().collect::<Vec<_>>()).unwrap_or_default();
    let mut left = Process::open(FIRST).map(|first| children(&first)).unwrap_or_default();
    let mut found = Vec::new();
    while let Some(pid) = left.pop() {
        let Ok(process) = Process::open(pid) else { continue };
        left.extend(children(&process));
        found.push(process);
    }
    found
}
