//! Homes: for each thread the node whose memory it uses, and for each part of memory the node of the threads that use
//! it.

use crate::ids::ThreadId;
use crate::pages::APART;
use crate::profile::Access;
use crate::view::View;
use machine::{HUGE_PAGE, NodeId, Pid, SMALL_PAGE, Tid};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// More than this many samples determine where a thread belongs: as in `MemProf`'s script (its specification, 6.3).
const MANY: u64 = 300;

/// The node that a thread belongs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHome {
    /// The thread.
    pub tid: Tid,
    /// The node whose memory it accessed most.
    pub node: NodeId,
    /// Its samples that reached memory.
    pub samples: u64,
    /// The last of them, ns.
    pub last_ns: u64,
}

impl ThreadHome {
    /// Whether there are enough samples to move the thread.
    pub fn is_sure(&self) -> bool {
        self.samples > MANY
    }
}

/// The node that [`HUGE_PAGE`] bytes of addresses belong on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryHome {
    /// The first address.
    pub start: u64,
    /// The node whose CPUs accessed them most.
    pub node: NodeId,
    /// Each accessed small page with the node of most of its accesses; empty if nine tenths of all accesses are from
    /// `node`. Pages without accesses belong where the others do.
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

    /// The node with the most accesses, the first of equal ones, and its share.
    fn most(&self) -> Option<(NodeId, f64)> {
        let most = self.accesses.iter().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.map(|(node, accesses)| (*node, accesses / self.accesses.values().sum::<f64>()))
    }
}

impl View<'_> {
    /// Homes of a process's threads by TID, among the nodes that have CPUs. Earlier processes with the same PID are
    /// ignored.
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
        // Threads are in chronological order: the last one with a TID wins.
        let homes: BTreeMap<Tid, ThreadHome> = threads.into_iter().filter_map(home).collect();
        homes.into_values().collect()
    }

    /// Homes of a process's accessed memory by address, among the nodes that have memory.
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

    /// Accesses by the process itself that memory served, as far as known. Lines from another core's cache come from
    /// there wherever their memory is: with them, two threads that exchange lines would keep changing places.
    fn own_accesses_of(&self, pid: Pid) -> impl Iterator<Item = Access> {
        self.accesses_of(pid).filter(|access| access.reaches_memory() && !access.kernel)
    }

    /// If several processes had this PID, the last one.
    fn accesses_of(&self, pid: Pid) -> impl Iterator<Item = Access> {
        let profile = self.profile();
        let process = profile.processes().iter().rposition(|process| process.pid == pid);
        self.accesses().filter(move |access| Some(profile.threads()[access.thread.index()].process.index()) == process)
    }
}
