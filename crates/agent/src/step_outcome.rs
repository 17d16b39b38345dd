//! The outcome of a step.

use linux::{Amount, Moves, PageRefusal};
use std::collections::BTreeMap;

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Pages that were moved to their target node.
    pub moved: Moves,
    /// Pages that were not moved, by reason.
    pub pages_refused: BTreeMap<PageRefusal, u64>,
    /// Pages of which a process now has a private copy.
    pub pages_copied: u64,
    /// Threads whose CPUs were changed.
    pub threads_moved: u64,
    /// First addresses of the huge pages that were split.
    pub split_at: Vec<u64>,
    /// How many of these the kernel does not join again.
    pub kept_small: u64,
    /// Whether not all of it was moved in the time that it had.
    pub out_of_time: bool,
    /// Why less was done than requested.
    pub note: Option<String>,
}

impl StepOutcome {
    /// All that were moved.
    pub fn all_moved(&self) -> Amount {
        self.moved.values().copied().sum()
    }

    /// Nothing was done, for this reason.
    pub fn because(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..Self::default() }
    }
}
