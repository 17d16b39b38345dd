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
}
