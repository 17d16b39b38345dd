//! Why an agent cannot start or continue.

use crate::decision_log::LogError;
use crate::journal::JournalError;
use linux::Pid;
use observe::AccessError;
use placement::PolicyError;

/// Why an agent cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The policy is not available on this machine.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The chosen source is not available.
    #[error(transparent)]
    Source(#[from] AccessError),
    /// The policy decides by samples, or by counters as well, and no source is available.
    #[error("{policy} needs {what} of memory accesses, and no source is available: {}", tried.join("; "))]
    NoSource {
        /// The policy.
        policy: String,
        /// What it decides by.
        what: &'static str,
        /// The sources that were tried, and why each is unavailable.
        tried: Vec<String>,
    },
    /// Shared memory is to be moved, and cannot be.
    #[error("memory that several processes map cannot be moved: {0}")]
    Shared(&'static str),
    /// The process belongs to another user.
    #[error("cannot place process {pid}: {why}")]
    NotPermitted {
        /// The process.
        pid: Pid,
        /// Why, and what to do.
        why: String,
    },
    /// The change cannot be recorded in the journal first.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The decision log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
}
