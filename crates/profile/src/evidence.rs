//! What may be advised, and the numbers that it rests on.

use serde::{Deserialize, Serialize};

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Place each object on the node of the thread that allocates it: with `numa_alloc_local`, or by first touch from
    /// that thread in pages that hold no other object.
    AllocateLocally,
    /// Interleave the pages of these objects, and of no others, over all nodes.
    Interleave,
    /// Make a copy on each node once it is initialised; each thread reads the nearest.
    Replicate,
    /// Move the pages to the node that uses them, again whenever that changes.
    Migrate,
    /// Keep threads in place: all of a process on one node, or each where it allocates.
    PinThreads,
    /// Use small pages: different nodes use parts of one huge page.
    SplitHugePages,
    /// Give each thread's part of a cache line a line of its own: threads that use different parts of one take it from
    /// each other, wherever its page is.
    Pad,
    /// Do nothing.
    LeaveAlone,
}

/// A number that a decision rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Its name.
    pub what: &'static str,
    /// The value; shares are 0 to 1.
    pub value: f64,
    /// The threshold, in the same unit.
    pub threshold: f64,
    /// Number of samples behind it.
    pub samples: u64,
    /// As text, with its numbers.
    pub text: String,
}

/// An action that would not help, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuledOut {
    /// The action.
    pub action: Action,
    /// Why.
    pub because: Evidence,
}
