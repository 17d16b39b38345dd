//! One access and what comes of it.

use serde::{Deserialize, Serialize};

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// Reads data.
    Load,
    /// Writes data.
    Store,
    /// Fetches an instruction.
    Instruction,
}

/// An access, as the instruction that makes it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub kind: AccessKind,
    /// The address in memory. An access that spans two lines counts for the first.
    pub physical: u64,
    /// The address in the program.
    pub virtual_address: u64,
    /// Where the instruction is, or any number that tells it from others.
    pub instruction: u64,
}

impl Request {
    /// An access of a program whose addresses are those of memory.
    pub fn to(physical: u64, kind: AccessKind) -> Self {
        Self { kind, physical, virtual_address: physical, instruction: 0 }
    }
}

/// What a walk of the page table ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry {
    /// Its physical address.
    pub address: u64,
    /// Whether its page is larger than 4 KiB.
    pub huge: bool,
}

/// Where the line was.
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

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// How long the core waits, beyond the time of the instruction, ps.
    pub stall_ps: u64,
    /// How long the line takes to come, queues included, as a PMU reports it, ps. A core waits less for streams and
    /// stores.
    pub latency_ps: u32,
    /// The index in [`machine::Machine::nodes`] of the node that served it: where the memory is, or the cache.
    pub node: u16,
    /// Where the line was.
    pub level: Level,
    /// Later addresses may depend on what is loaded from this line: [`crate::Model::loaded`] wants to know it.
    pub wants_value: bool,
    /// It is the first write to a line that the CPU's L1 had clean: a PMU that samples stores sees it.
    pub first_write: bool,
    /// The CPU's L1 has the line now. Not where others will want it back before it is used again.
    pub keep: bool,
}
