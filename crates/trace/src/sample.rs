//! Samples of memory accesses.

use crate::StackId;
use machine::{CpuId, NodeId, Pid, Tid};
use serde::{Deserialize, Serialize};
use strum::{VariantArray, VariantNames};

/// A sampled memory access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time, `CLOCK_MONOTONIC`, in ns.
    pub time_ns: u64,
    /// The CPU of the thread.
    pub cpu: CpuId,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Address of the instruction.
    pub instruction: u64,
    /// Virtual address of the data.
    pub address: u64,
    /// Physical address of the data, if the source reports it (`perf` needs `CAP_PERFMON` or `CAP_SYS_ADMIN`).
    pub physical: Option<u64>,
    /// Load or store.
    pub kind: AccessKind,
    /// The level that served it.
    pub served: Option<Served>,
    /// The node that the line came from or went to, if the source reports it or it follows from the physical address.
    pub node: Option<NodeId>,
    /// Latency, in ns.
    pub latency_ns: Option<f32>,
    /// Whether the kernel made the access itself.
    pub kernel: bool,
    /// Call chain of the instruction.
    pub stack: Option<StackId>,
    /// Number of accesses of its kind that this sample stands for.
    pub weight: f32,
    /// The source.
    pub source: Source,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, VariantArray, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AccessKind {
    /// A read.
    Load,
    /// A write.
    Store,
    /// The source does not report it.
    Unknown,
}

/// The level that served an access.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Served {
    /// The core's first-level cache, or a fill in progress.
    L1,
    /// The core's second-level cache.
    L2,
    /// The last-level cache near the core.
    L3,
    /// The cache of another core or node.
    Peer,
    /// Memory.
    Dram,
}

/// The source of a sample. The manual of `nearside record` says what each cannot see.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, VariantArray, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Source {
    /// AMD's instruction-based sampling.
    Ibs,
    /// Intel's precise event-based sampling: loads by latency, and stores.
    Pebs,
    /// Arm's statistical profiling extension.
    Spe,
    /// Another perf event with data addresses.
    Perf,
    /// The lab's virtual PMU.
    Lab,
    /// A page fault that the kernel provoked to see which thread uses a page.
    HintFault,
}

impl Source {
    /// Whether its samples stand for a number of accesses to memory. A page fault says who uses a page, not how often, and
    /// other events of perf may be faults, too.
    pub fn counts_accesses(self) -> bool {
        !matches!(self, Self::HintFault | Self::Perf)
    }
}
