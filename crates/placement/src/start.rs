//! The initial placement of a process or thread.

use crate::reason::Reason;
use machine::{CpuSet, MemoryPolicy};
use serde::{Deserialize, Serialize};

/// The initial placement of a process or thread, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Its CPUs; none to leave them unrestricted.
    pub cpus: Option<CpuSet>,
    /// Why these CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_reason: Option<Reason>,
    /// Its memory policy; none to leave its own. Must be set by the thread itself before the program runs: it cannot be
    /// set for another process.
    pub memory: Option<MemoryPolicy>,
}
