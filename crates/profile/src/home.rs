//! The node that each thread belongs to by the memory that it uses, and each part of memory by the threads that use it.

use crate::ids::ThreadId;
use crate::pages::{APART, HUGE_PAGE, SMALL_PAGE};
use crate::profile::Access;
use crate::view::View;
use linux::{Pid, Tid};
use machine::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use trace::Served;

/// So many samples, and one more, say where a thread belongs: as `MemProf`'s script has it (its specification, 6.3).
const MANY: u64 = 300;

/// Where a thread belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHome {
    /// The thread.
    pub tid: Tid,
    /// The node whose memory it accessed most.
    pub node: NodeId,
    /// Its observed accesses that reached memory.
    pub samples: u64,
    /// The last of them, ns.
    pub last_ns: u64,
}

impl ThreadHome {
    /// Whether the samples are enough to move a thread by.
    pub fn is_sure(&self) -> bool {
        self.samples > MANY
    }
}

/// Where [`HUGE_PAGE`] bytes of addresses belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryHome {
    /// The first of them.
    pub start: u64,
    /// The node whose CPUs accessed them most.
    pub node: NodeId,
    /// Where nine of ten accesses are not that node's: each small page with accesses, and the node of most of these.
    /// Otherwise none: those without accesses belong where the others do, too.
    pub pages: Vec<(u64, NodeId)>,
}

/// Accesses by node.
#[derive(Clone, Debug, Default)]
struct Nodes {
    accesses: BTreeMap<NodeId, f64>,
    samples: u64,
    last_ns: u64,
}

impl Nodes {
    fn add(&mut self, node: NodeId, access: &Access) {
        *self.accesses.entry(node).or_default() += f64::from(access.weight);
        self.samples += 1;
        self.last_ns = self.last_ns.max(access.time_ns);
    }

    fn merge(&mut self, other: Self) {
        for (node, accesses) in other.accesses {
            *self.accesses.entry(node).or_default() += accesses;
        }
        self.samples += other.samples;
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// The node with most accesses, of equal ones the first, and its share of them.
    fn most(&self) -> Option<(NodeId, f64)> {
        let most = self.accesses.iter().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.map(|(node, accesses)| (*node, accesses / self.accesses.values().sum::<f64>()))
    }
}

impl View<'_> {
    /// Where the threads of a process belong, by number, among the nodes that have CPUs. Of what had the same number
    /// before, nothing.
    pub fn thread_homes(&self, pid: Pid) -> Vec<ThreadHome> {
        let runs = |node: &NodeId| self.profile().machine().node(*node).is_some_and(|node| !node.cpus.is_empty());
        let mut threads: BTreeMap<ThreadId, Nodes> = BTreeMap::new();
        for access in self.own_accesses_of(pid) {
            if let Some(to) = access.to.filter(runs) {
                threads.entry(access.thread).or_default().add(to, &access);
            }
        }
        let home = |(thread, nodes): (ThreadId, Nodes)| {
            let (node, _) = nodes.most()?;
            let tid = self.profile().threads()[thread.index()].tid;
            Some((tid, ThreadHome { tid, node, samples: nodes.samples, last_ns: nodes.last_ns }))
        };
        // Later threads come later: of one number the last counts.
        let homes: BTreeMap<Tid, ThreadHome> = threads.into_iter().filter_map(home).collect();
        homes.into_values().collect()
    }

    /// Where the memory of a process that was accessed belongs, by address, among the nodes that have memory.
    pub fn memory_homes(&self, pid: Pid) -> Vec<MemoryHome> {
        let stores = |node: &NodeId| self.profile().machine().node(*node).is_some_and(|node| node.memory_bytes > 0);
        let mut pages: FxHashMap<u64, Nodes> = FxHashMap::default();
        for access in self.own_accesses_of(pid) {
            if let Some(from) = access.from.filter(stores) {
                pages.entry(access.address & !(SMALL_PAGE - 1)).or_default().add(from, &access);
            }
        }
        let mut parts: BTreeMap<u64, (Nodes, Vec<(u64, NodeId)>)> = BTreeMap::new();
        for (page, nodes) in pages {
            let (of_all, homes) = parts.entry(page & !(HUGE_PAGE - 1)).or_default();
            homes.extend(nodes.most().map(|(node, _)| (page, node)));
            of_all.merge(nodes);
        }
        let home = |(start, (nodes, mut pages)): (u64, (Nodes, Vec<(u64, NodeId)>))| {
            let (node, share) = nodes.most()?;
            pages.sort_unstable();
            Some(MemoryHome { start, node, pages: if share < APART { pages } else { Vec::new() } })
        };
        parts.into_iter().filter_map(home).collect()
    }

    /// The last access of a process, ns; none without any.
    pub fn last_access_ns(&self, pid: Pid) -> Option<u64> {
        self.accesses_of(pid).map(|access| access.time_ns).max()
    }

    /// What a process itself did that memory served, as far as that is told. Lines that come from another core's cache do
    /// so wherever their memory is, and two threads that exchange lines would change places for good.
    fn own_accesses_of(&self, pid: Pid) -> impl Iterator<Item = Access> {
        let is_memory = |access: &Access| access.reaches_memory() && access.served != Some(Served::Peer);
        self.accesses_of(pid).filter(move |access| is_memory(access) && !access.kernel)
    }

    /// Of processes that had this number, the last is meant.
    fn accesses_of(&self, pid: Pid) -> impl Iterator<Item = Access> {
        let profile = self.profile();
        let process = profile.processes().iter().rposition(|process| process.pid == pid);
        self.accesses().filter(move |access| Some(profile.threads()[access.thread.index()].process.index()) == process)
    }
}
