//! What one round saw: the input of a decision.

use crate::memory_policy::MemoryPolicy;
use machine::{CpuId, CpuSet, NodeId, NodeSet, Pid, Tid};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A small page, bytes.
pub const SMALL_PAGE: u64 = 4096;

/// What one round saw. Everything counts from the end of the round before: nothing is carried over.
///
/// What a source cannot tell is left out; policies then do without it, and never take it for 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The round's number; each round has a larger one than the round before.
    pub round: u64,
    /// How long the round was, s.
    pub length_s: f64,
    /// Accesses that memory served, by the nodes of CPU and memory; counted, or samples times what each stands for.
    /// Pairs without any may be left out.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// The part of the round that the counters of `traffic` ran for, 0 to 1, where they took turns.
    #[serde(default)]
    pub counters_running: Option<f64>,
    /// What each controller carried.
    #[serde(default)]
    pub controllers: Vec<ControllerLoad>,
    /// What each direction of a link carried.
    #[serde(default)]
    pub links: Vec<LinkLoad>,
    /// Mean latency of sampled accesses that memory served, ns.
    #[serde(default)]
    pub latency_mean_ns: Option<f64>,
    /// How full the memory of each node is.
    #[serde(default)]
    pub memory: Vec<NodeMemory>,
    /// All processes that are to be placed. One that is missing has ended.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// All their threads. One that is missing has ended.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Pages that were seen to be accessed, each once for each process that accessed it.
    #[serde(default)]
    pub pages: Vec<Page>,
    /// Samples of pages that were not kept, as there were too many: see [`crate::PageTally`].
    #[serde(default)]
    pub samples_missed: u64,
    /// Mappings of the processes: needed by `auto`, which moves whole ones.
    #[serde(default)]
    pub ranges: Vec<Range>,
    /// Most bytes that may be moved now; without it as many as policies like.
    #[serde(default)]
    pub budget_bytes: Option<u64>,
}

/// Accesses from CPUs of one node to memory of another, or the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// The CPUs' node.
    pub from: NodeId,
    /// The memory's node.
    pub to: NodeId,
    /// How many, of one line each.
    pub accesses: f64,
}

/// The load of a node's memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerLoad {
    /// The node.
    pub node: NodeId,
    /// What it carried over what it can carry, 0 to 1.
    pub utilisation: f64,
}

/// The load of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkLoad {
    /// The end whose CPUs' accesses it carries.
    pub from: NodeId,
    /// The end that they go to.
    pub to: NodeId,
    /// What it carried over what it can carry, 0 to 1.
    pub utilisation: f64,
}

/// How full the memory of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeMemory {
    /// The node.
    pub node: NodeId,
    /// All of it, bytes.
    pub total_bytes: u64,
    /// What is free or can be had at once (page cache without changes), bytes.
    pub free_bytes: u64,
}

/// A process that is to be placed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    /// CPUs that its cpuset allows.
    pub cpus: CpuSet,
    /// Nodes that its cpuset allows memory on.
    pub nodes: NodeSet,
    /// The memory policy that the program or its owner asked for; none where nobody did. Not what nearside gave it.
    #[serde(default)]
    pub memory_policy: Option<MemoryPolicy>,
    /// It ran before it was to be placed: what it has lies where others put it.
    #[serde(default)]
    pub adopted: bool,
    /// CPU time over the time of the round: 1 is one CPU, all the time.
    #[serde(default)]
    pub cpu_share: f64,
    /// Reads over all accesses that reach memory, 0 to 1.
    #[serde(default)]
    pub read_ratio: Option<f64>,
    /// Samples that were taken of its accesses.
    #[serde(default)]
    pub samples: u64,
}

/// A thread of such a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Its process.
    pub pid: Pid,
    /// Its number.
    pub tid: Tid,
    /// Where it ran last.
    #[serde(default)]
    pub cpu: Option<CpuId>,
    /// CPUs that the program or its owner asked for; none where nobody did. Not those that nearside gave it.
    #[serde(default)]
    pub bound_to: Option<CpuSet>,
    /// CPU time over the time of the round, 0 to 1.
    #[serde(default)]
    pub cpu_share: f64,
    /// The part of the round that it could have run but waited for a CPU, 0 to 1.
    #[serde(default)]
    pub waiting_share: f64,
    /// Instructions that it executed.
    #[serde(default)]
    pub instructions: Option<u64>,
    /// Its accesses that missed the last cache.
    #[serde(default)]
    pub cache_misses: Option<u64>,
    /// Of lines that came into its core's data cache those that another core had modified, 0 to 1; or of its
    /// accesses that reach memory those that write.
    #[serde(default)]
    pub modified_share: Option<f64>,
    /// Its accesses that memory served, by the memory's node: counted, or samples times what each stands for.
    #[serde(default)]
    pub accesses: Vec<NodeAccesses>,
}

/// Accesses by, or to, a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAccesses {
    /// The node.
    pub node: NodeId,
    /// How many.
    pub accesses: u64,
}

/// A list that mostly has one: in a round there is hardly more than a sample of a page, and thousands of pages.
pub type Few<T> = SmallVec<[T; 1]>;

/// A page that was seen to be accessed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The process.
    pub pid: Pid,
    /// Where it begins.
    pub address: u64,
    /// Its size, bytes.
    #[serde(default = "small_page", skip_serializing_if = "is_small_page")]
    pub page_bytes: u64,
    /// The node that it lies on.
    pub node: NodeId,
    /// Samples, by the node of the CPU that accessed it.
    pub accesses: Few<NodeAccesses>,
    /// Samples that wrote.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub writes: u64,
    /// Samples, by thread; where known.
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    pub threads: Few<ThreadAccesses>,
    /// Of a huge page: samples in each of its small pages; where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartAccesses>,
    /// Of a page that other processes map as well: the number of its frame, or any other that all of them have for it
    /// and no other page has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// The program or its owner asked for where it lies (`mbind`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bound: bool,
    /// It is a small page of a file that other processes map as well, the process may only read it, and nobody writes
    /// the file: the process could have a copy of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replicable: bool,
}

/// Samples of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadAccesses {
    /// The thread.
    pub tid: Tid,
    /// How many.
    pub accesses: u64,
}

/// Samples in a small page of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartAccesses {
    /// Which small page, from 0.
    pub part: u32,
    /// The node of the CPU that accessed it.
    pub node: NodeId,
    /// How many.
    pub accesses: u64,
}

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The process.
    pub pid: Pid,
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// Memory that it has, by node.
    #[serde(default)]
    pub bytes: Vec<NodeBytes>,
    /// The memory policy that the program or its owner asked for it; none where nobody did.
    #[serde(default)]
    pub memory_policy: Option<MemoryPolicy>,
}

/// Memory on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeBytes {
    /// The node.
    pub node: NodeId,
    /// How much, bytes.
    pub bytes: u64,
}

impl Process {
    /// A process of which nothing else is known.
    pub fn new(pid: Pid, cpus: CpuSet, nodes: NodeSet) -> Self {
        Self { pid, cpus, nodes, memory_policy: None, adopted: false, cpu_share: 0.0, read_ratio: None, samples: 0 }
    }
}

impl Thread {
    /// A thread of which nothing else is known.
    pub fn new(pid: Pid, tid: Tid) -> Self {
        Self {
            pid,
            tid,
            cpu: None,
            bound_to: None,
            cpu_share: 0.0,
            waiting_share: 0.0,
            instructions: None,
            cache_misses: None,
            modified_share: None,
            accesses: Vec::new(),
        }
    }
}

impl Page {
    /// All samples of it.
    pub fn samples(&self) -> u64 {
        self.accesses.iter().fold(0, |sum, by| sum.saturating_add(by.accesses))
    }
}

fn small_page() -> u64 {
    SMALL_PAGE
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_small_page(bytes: &u64) -> bool {
    *bytes == SMALL_PAGE
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
