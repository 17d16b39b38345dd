//! Outcomes of decisions: fed back, so that policies do not repeat what cannot be done or does harm.

use machine::Pid;
use serde::{Deserialize, Serialize};

/// The outcome of a decision. Policies determine from the next observation whether accesses became faster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The decision's round.
    pub round: u64,
    /// Pages that were moved, interleaved or copied.
    #[serde(default)]
    pub operations: u64,
    /// How long moving them took, s; 0 if not measured.
    #[serde(default)]
    pub moving_s: f64,
    /// Bytes of pages and ranges that were moved or copied: less than was wanted where they were there already, or
    /// refused. In logs of earlier versions, of ranges only.
    #[serde(default)]
    pub bytes_moved: u64,
    /// Whether moves of ranges ended because they took longer than they may.
    #[serde(default)]
    pub out_of_time: bool,
    /// Pages that were requested but not moved: the kernel refused.
    #[serde(default)]
    pub refused: Vec<PageOf>,
    /// Pages that were requested but no longer exist: a later page at such an address is another one.
    #[serde(default)]
    pub gone: Vec<PageOf>,
    /// Pages that could not be copied, and were moved to the target of [`crate::Action::Replicate`]'s fallback.
    #[serde(default)]
    pub moved_instead: Vec<PageOf>,
    /// Copies that were written since the last outcome, one entry per write.
    #[serde(default)]
    pub copies_written: Vec<PageOf>,
}

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageOf {
    /// The process.
    pub pid: Pid,
    /// Its address.
    pub address: u64,
}
