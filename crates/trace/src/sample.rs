//! One observed access to memory.

use crate::StackId;
use linux::{Pid, Tid};
use machine::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

/// One observed access to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// Where the thread ran.
    pub cpu: CpuId,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The address of the instruction.
    pub instruction: u64,
    /// The virtual address of the data.
    pub address: u64,
    /// The physical address of the data, where the source tells (`perf` wants `CAP_PERFMON` or `CAP_SYS_ADMIN`).
    pub physical: Option<u64>,
    /// What the access does.
    pub kind: AccessKind,
    /// What served it.
    pub served: Option<Served>,
    /// The node that the line came from or went to, where the source tells or it follows from the physical address.
    pub node: Option<NodeId>,
    /// How long the access took, ns.
    pub latency_ns: Option<f32>,
    /// The access was the kernel's own.
    pub kernel: bool,
    /// How the code came there.
    pub stack: Option<StackId>,
    /// So many accesses of its kind this one stands for.
    pub weight: f32,
    /// Who observed it.
    pub source: Source,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// The source does not tell.
    Unknown,
}

/// What served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Served {
    /// The core's first-level cache, or a fill that was under way.
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

/// Who observed a sample. Each says what it cannot see in the manual of `nearside record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Instruction-based sampling of AMD's processors.
    Ibs,
    /// Precise sampling of Intel's processors: loads by latency, and stores.
    Pebs,
    /// The statistical profiling extension of Arm's processors.
    Spe,
    /// Another event of perf with data addresses.
    Perf,
    /// The virtual PMU of the lab.
    Lab,
    /// A page fault that the kernel provoked to see who uses a page.
    HintFault,
}
