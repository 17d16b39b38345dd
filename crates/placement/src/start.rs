//! What a process or thread begins with.

use crate::memory_policy::MemoryPolicy;
use crate::reason::Reason;
use machine::CpuSet;
use serde::{Deserialize, Serialize};

/// What a process or thread begins with, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// CPUs for it; none where it may run where it is allowed.
    pub cpus: Option<CpuSet>,
    /// Why these CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_reason: Option<Reason>,
    /// The memory policy for it; none where it is to have its own. Set by the thread itself, before the program runs:
    /// another process's cannot be set.
    pub memory: Option<MemoryPolicy>,
}
