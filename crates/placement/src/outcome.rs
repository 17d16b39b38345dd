//! What became of a decision: fed back, so that policies leave alone what cannot be done or does harm.

use machine::Pid;
use serde::{Deserialize, Serialize};

/// What became of a decision. Whether an access costs less since then, policies see for themselves in the next
/// observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The decision's round.
    pub round: u64,
    /// Pages that did move, were dealt to a node, or got copies.
    #[serde(default)]
    pub operations: u64,
    /// How long moving them took, s; 0 where nobody told.
    #[serde(default)]
    pub moving_s: f64,
    /// Pages that were asked for and stayed: the kernel refused, or they are gone.
    #[serde(default)]
    pub refused: Vec<PageOf>,
    /// Copies of pages that were written since the last outcome: one entry for each time.
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
