//! What a run of the agent did: how memory was used before it moved anything and since, what was moved, and why.

use serde::{Deserialize, Serialize};

/// All that `nearside place` tells in the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceReport {
    /// The policy.
    pub policy: String,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether the machine was the lab's.
    pub simulated: bool,
    /// The program's exit status, 128 + n where signal n ended it; nothing where none was started.
    pub exit_status: Option<i32>,
    /// How long it took, s.
    pub time_s: f64,
    /// How long a round was, s.
    pub round_s: f64,
    /// Rounds.
    pub rounds: u64,
    /// Who observed accesses; nothing where nobody did.
    pub source: Option<String>,
    /// Samples that were taken of what is managed.
    pub samples: u64,
    /// Samples that were lost, or whose pages were not kept.
    pub samples_lost: u64,
    /// Processes that were managed.
    pub processes: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// The same, bytes.
    pub bytes_moved: u64,
    /// Pages that were moved, by why.
    pub by_rule: Vec<PlaceRule>,
    /// Pages that stayed although they were to move, by why.
    pub pages_refused: Vec<PlaceRefusal>,
    /// Pages of files that processes got copies of their own of.
    pub pages_copied: u64,
    /// The same, bytes: the memory that copies take until their processes end.
    pub bytes_copied: u64,
    /// Huge pages that were split.
    pub pages_split: u64,
    /// Threads that were given other CPUs.
    pub threads_moved: u64,
    /// Until something was moved.
    pub before: PlaceMetrics,
    /// Since then.
    pub after: PlaceMetrics,
    /// The CPU time that placing itself took, s.
    pub cpu_time_s: f64,
    /// The same of one CPU.
    pub cpu_share: f64,
    /// What else to know.
    pub notes: Vec<String>,
}

/// What memory did in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceMetrics {
    /// How long, s.
    pub time_s: f64,
    /// Accesses that memory served, 1/µs.
    pub accesses_per_us: Option<f64>,
    /// Local accesses over all, 0 to 1.
    pub local_access_ratio: Option<f64>,
    /// Standard deviation (n - 1) of the controllers' loads over their mean.
    pub imbalance: Option<f64>,
    /// What an access cost, ns: measured, or estimated by the loads of controllers and links.
    pub access_ns: Option<f64>,
}

/// Pages that were moved for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRule {
    /// The rule, as the decision log has it.
    pub rule: String,
    /// The same in words.
    pub why: String,
    /// How many.
    pub pages: u64,
}

/// Pages that stayed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRefusal {
    /// Why: `gone`, `shared`, `busy`, `held`, `no_memory`, `write_back` or `other`.
    pub why: String,
    /// How many.
    pub pages: u64,
}
