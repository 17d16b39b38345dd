//! The outcome of a step.

use linux::PageRefusal;
use std::collections::BTreeMap;

/// The outcome of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Pages that are now on their target node.
    pub pages_moved: u64,
    /// Bytes of those pages.
    pub bytes_moved: u64,
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
    /// Why less was done than requested.
    pub note: Option<String>,
}

impl StepOutcome {
    /// Nothing was done, for this reason.
    pub fn because(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..Self::default() }
    }
}
