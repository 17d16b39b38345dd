//! An access and its result.

use serde::{Deserialize, Serialize};

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// A data load.
    Load,
    /// A data store.
    Store,
    /// An instruction fetch.
    Instruction,
}

/// An access, as seen by its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of access.
    pub kind: AccessKind,
    /// Physical address. An access that crosses a line boundary counts for the first line.
    pub physical: u64,
    /// Virtual address.
    pub virtual_address: u64,
    /// Address of the instruction, or any other number that identifies it.
    pub instruction: u64,
}

impl Request {
    /// An access with equal virtual and physical addresses.
    pub fn to(physical: u64, kind: AccessKind) -> Self {
        Self { kind, physical, virtual_address: physical, instruction: 0 }
    }
}

/// The last entry that a page table walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry {
    /// Its physical address.
    pub address: u64,
    /// Whether its page is larger than 4 KiB.
    pub huge: bool,
}

/// The level that held the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Level {
    /// In the L1 cache.
    L1 = 1,
    /// In the L2 cache.
    L2 = 2,
    /// In the L3 cache.
    L3 = 3,
    /// In memory.
    Dram = 4,
    /// In the caches of another core, or of another node.
    Peer = 5,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Stall of the core beyond the time of the instruction, ps.
    pub stall_ps: u64,
    /// Latency of the line including queues, as a PMU reports it, ps. The stall is shorter for streams and stores.
    pub latency_ps: u32,
    /// The index in [`machine::Machine::nodes`] of the serving node: that of the memory, or of the cache.
    pub node: u16,
    /// The level that held the line.
    pub level: Level,
    /// Whether later addresses may depend on a value loaded from this line: the caller should pass it to
    /// [`crate::Model::loaded`].
    pub wants_value: bool,
    /// Whether this is the first write to a line that was clean in the CPU's L1: a PMU that samples stores sees it.
    pub first_write: bool,
    /// Whether the CPU's L1 keeps the line. False if other CPUs will want it back before it is used again.
    pub keep: bool,
}
