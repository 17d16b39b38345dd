//! What was observed in a round: the input of a decision.

use machine::{CpuId, CpuSet, MemoryPolicy, NodeId, NodeSet, Pid, SMALL_PAGE, Tid};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// What was observed in a round. All counts start at the end of the round before: nothing is carried over.
///
/// Values that a source does not provide are absent; policies do without them, and never treat them as 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The round's number, larger than that of the round before.
    pub round: u64,
    /// Length of the round, s.
    pub length_s: f64,
    /// Accesses that memory served, by the nodes of CPU and memory: counted, or samples times their weight. Pairs
    /// without any may be omitted.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// Samples of accesses that memory served, by the node of the memory, in parts of the round: equally long, in the
    /// order of time. None where the source does not say when, or what served them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Vec<NodeAccesses>>,
    /// The part of the round that the counters of `traffic` ran for, 0 to 1, if they were multiplexed.
    #[serde(default)]
    pub counters_running: Option<f64>,
    /// The load of each controller.
    #[serde(default)]
    pub controllers: Vec<ControllerLoad>,
    /// The load of each direction of a link.
    #[serde(default)]
    pub links: Vec<LinkLoad>,
    /// Mean latency of sampled accesses that memory served, ns.
    #[serde(default)]
    pub latency_mean_ns: Option<f64>,
    /// Standard error of that mean, ns; none if not known, which counts as none at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_error_ns: Option<f64>,
    /// Memory usage of each node.
    #[serde(default)]
    pub memory: Vec<NodeMemory>,
    /// All processes to be placed. One that is missing has ended.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// All their threads. One that is missing has ended.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// Pages with sampled accesses, once for each process that accessed them.
    #[serde(default)]
    pub pages: Vec<Page>,
    /// What the source tells.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tells: Tells,
    /// Samples of pages beyond the limit: see [`crate::PageTally`].
    #[serde(default)]
    pub samples_missed: u64,
    /// Mappings of the processes: needed by `auto`, which moves whole mappings.
    #[serde(default)]
    pub ranges: Vec<Range>,
    /// Most bytes that may be moved now; none for no limit.
    #[serde(default)]
    pub budget_bytes: Option<u64>,
    /// How long observing and deciding took at the end of the round before, s; 0 if not known.
    #[serde(default)]
    pub own_s: f64,
}

/// What a source tells, besides what its counters do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tells {
    /// Accesses: those that memory served are known from others.
    #[default]
    Accesses,
    /// Who uses which page, and not how often, or from where it is served: hint faults.
    Uses,
    /// Nothing else: it is not known who uses which page.
    Counts,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Accesses from CPUs of one node to memory of another, or the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// The CPUs' node.
    pub from: NodeId,
    /// The memory's node.
    pub to: NodeId,
    /// Number of accesses, one cache line each.
    pub accesses: f64,
}

/// The load of a node's memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerLoad {
    /// The node.
    pub node: NodeId,
    /// Bandwidth used over its maximum, 0 to 1.
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
    /// Bandwidth used over its maximum, 0 to 1.
    pub utilisation: f64,
}

/// Memory usage of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeMemory {
    /// The node.
    pub node: NodeId,
    /// Total memory, bytes.
    pub total_bytes: u64,
    /// Memory that is free or quickly reclaimable (clean page cache), bytes.
    pub free_bytes: u64,
}

/// A process to be placed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its PID.
    pub pid: Pid,
    /// CPUs that its cpuset allows.
    pub cpus: CpuSet,
    /// Nodes that its cpuset allows memory on.
    pub nodes: NodeSet,
    /// The memory policy set by the program or its owner; none if there is none. Excludes policies that nearside set.
    #[serde(default)]
    pub memory_policy: Option<MemoryPolicy>,
    /// Whether it ran before nearside began to manage it: its existing memory was placed by others.
    #[serde(default)]
    pub adopted: bool,
    /// CPU time over the length of the round: 1 is one CPU, all the time.
    #[serde(default)]
    pub cpu_share: f64,
    /// Reads over all accesses that reach memory, 0 to 1.
    #[serde(default)]
    pub read_ratio: Option<f64>,
    /// Samples of its accesses.
    #[serde(default)]
    pub samples: u64,
}

/// A thread of such a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Its process.
    pub pid: Pid,
    /// Its TID.
    pub tid: Tid,
    /// The CPU where it last ran.
    #[serde(default)]
    pub cpu: Option<CpuId>,
    /// The affinity set by the program or its owner; none if there is none. Excludes CPUs that nearside set.
    #[serde(default)]
    pub bound_to: Option<CpuSet>,
    /// CPU time over the length of the round, 0 to 1.
    #[serde(default)]
    pub cpu_share: f64,
    /// The part of the round that it was runnable but waited for a CPU, 0 to 1.
    #[serde(default)]
    pub waiting_share: f64,
    /// Instructions that it executed.
    #[serde(default)]
    pub instructions: Option<u64>,
    /// Its misses of the last-level cache.
    #[serde(default)]
    pub cache_misses: Option<u64>,
    /// Of cache lines filled into its core's data cache, the part that another core had modified, 0 to 1. No source of
    /// nearside's tells it: samples have the share of writes, which is the process's `read_ratio`.
    #[serde(default)]
    pub modified_share: Option<f64>,
    /// Its accesses that memory served, by the memory's node: counted, or samples times their weight.
    #[serde(default)]
    pub accesses: Vec<NodeAccesses>,
}

/// Accesses by, or to, a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAccesses {
    /// The node.
    pub node: NodeId,
    /// Number of accesses.
    pub accesses: u64,
}

/// A list that mostly has one element: a round has thousands of pages with hardly more than one sample each.
pub type Few<T> = SmallVec<[T; 1]>;

/// A page with sampled accesses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The process.
    pub pid: Pid,
    /// Its first address.
    pub address: u64,
    /// Its size, bytes.
    #[serde(default = "small_page", skip_serializing_if = "is_small_page")]
    pub page_bytes: u64,
    /// The node that it is on.
    pub node: NodeId,
    /// Samples, by the node of the CPU.
    pub accesses: Few<NodeAccesses>,
    /// Samples that are writes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub writes: u64,
    /// Samples by thread, if known.
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    pub threads: Few<ThreadAccesses>,
    /// For a huge page: whether the detector of `profile` found in earlier rounds that different nodes use different parts
    /// of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_falsely_shared: bool,
    /// For a page that other processes map too: its frame number, or another number that is the same in all these
    /// processes and unique to the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// Whether the program or its owner chose its node (`mbind`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bound: bool,
    /// Whether the process could have a private copy: it is a small page of a file that other processes map too, this
    /// process maps it read-only, and the file is not open for writing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replicable: bool,
}

/// Samples of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadAccesses {
    /// The thread.
    pub tid: Tid,
    /// Number of samples.
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
    /// Its resident memory, by node.
    #[serde(default)]
    pub bytes: Vec<NodeBytes>,
    /// The memory policy set for it by the program or its owner; none if there is none.
    #[serde(default)]
    pub memory_policy: Option<MemoryPolicy>,
    /// The memory behind a shared mapping (`MAP_SHARED`), which other processes may map too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedMemory>,
}

/// The part of a file, or of shared memory without one, that a mapping begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMemory {
    /// Its file system, by device number.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// Offset of the mapping's start, bytes.
    pub offset: u64,
}

/// Memory on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeBytes {
    /// The node.
    pub node: NodeId,
    /// Bytes of memory.
    pub bytes: u64,
}

impl Process {
    /// A process with only these properties known.
    pub fn new(pid: Pid, cpus: CpuSet, nodes: NodeSet) -> Self {
        Self { pid, cpus, nodes, memory_policy: None, adopted: false, cpu_share: 0.0, read_ratio: None, samples: 0 }
    }
}

impl Thread {
    /// A thread with only these properties known.
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
    /// Total number of samples.
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
