//! What a run of the agent did: how memory was used before it moved anything and since, what was moved, and why.

use machine::NodeId;
use placement::{Lesson, Quantity, Reason, Rule};
use serde::{Deserialize, Serialize};

/// The final output of `nearside place`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceReport {
    /// The policy.
    pub policy: String,
    /// Whether it was a dry run, in which nothing was changed.
    pub dry_run: bool,
    /// Whether the machine was the lab's.
    pub simulated: bool,
    /// The program's exit status, 128 + n if signal n ended it; none if no program was started.
    pub exit_status: Option<i32>,
    /// Duration, s.
    pub time_s: f64,
    /// Length of a round, s.
    pub round_s: f64,
    /// Rounds.
    pub rounds: u64,
    /// The source of accesses; none if they were not observed.
    pub source: Option<String>,
    /// Samples of managed processes.
    pub samples: u64,
    /// Samples that were lost, or whose pages exceeded the limit.
    pub samples_lost: u64,
    /// Processes that were managed.
    pub processes: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Bytes of those pages.
    pub bytes_moved: u64,
    /// Moved pages by node before and since; without those that were already on their target.
    pub moves: Vec<NodeMoves>,
    /// Moved pages by reason.
    pub by_rule: Vec<PlaceRule>,
    /// What was predicted of moves, and what was measured: the first 1,000; only of
    /// `predict`.
    pub gains: Vec<PlaceGain>,
    /// Why nothing was done, in most of the rounds in which nothing was; none if something was done in all of them.
    pub idle_reason: Option<String>,
    /// Pages that could not be moved, by reason.
    pub pages_refused: Vec<PlaceRefusal>,
    /// Pages of files that processes got private copies of.
    pub pages_copied: u64,
    /// Bytes of those pages: memory that the copies use until their processes end.
    pub bytes_copied: u64,
    /// Huge pages that were split.
    pub pages_split: u64,
    /// How many of these the kernel does not join again.
    pub pages_kept_small: u64,
    /// Threads whose CPUs were changed.
    pub threads_moved: u64,
    /// Whether the program spread over the nodes what it touched before it made threads; only of `predict`.
    pub spreads_start: bool,
    /// What earlier runs of the program taught, as far as it began with that; only of `predict`.
    pub began_with: Option<Lesson>,
    /// What its next run is to begin with; none if that was not kept, as in a dry run.
    pub lesson: Option<Lesson>,
    /// Until the first move.
    pub before: PlaceMetrics,
    /// After the first move.
    pub after: PlaceMetrics,
    /// CPU time of placing itself, s.
    pub cpu_time_s: f64,
    /// That, as a share of one CPU.
    pub cpu_share: f64,
    /// What it was spent on, in rounds.
    pub cpu_time_of: WorkShares,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// What the agent's working time was spent on: shares, 0 to 1. Helper threads that move pages are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkShares {
    /// Reading samples, counters and mappings.
    pub observing: f64,
    /// The policy's decisions.
    pub deciding: f64,
    /// Carrying them out.
    pub moving: f64,
}

/// Memory metrics over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceMetrics {
    /// Duration, s.
    pub time_s: f64,
    /// Accesses that memory served, 1/µs.
    pub accesses_per_us: Option<f64>,
    /// Local accesses over all, 0 to 1.
    pub local_access_ratio: Option<f64>,
    /// Standard deviation (n - 1) of the controllers' loads over their mean.
    pub imbalance: Option<f64>,
    /// Mean cost of an access, ns: measured, or estimated from the load of controllers and links.
    pub access_ns: Option<f64>,
}

/// Pages that were moved from a node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeMoves {
    /// The node that they were on.
    pub from: NodeId,
    /// The node that they were moved to.
    pub to: NodeId,
    /// Number of pages; a huge page is one.
    pub pages: u64,
    /// Bytes of those pages.
    pub bytes: u64,
}

/// Moved pages for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRule {
    /// The rule's name in the decision log.
    pub rule: String,
    /// The rule as text.
    pub why: String,
    /// Number of pages.
    pub pages: u64,
}

/// The gain that was predicted of a round's moves, and the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceGain {
    /// The round in which it was measured.
    pub round: u64,
    /// How many times as fast the program was to run.
    pub predicted_speedup: f64,
    /// The same as measured: from what accesses took before and since, and the predicted part of the time in which
    /// threads wait for them. None if that part is not known.
    pub measured_speedup: Option<f64>,
    /// Mean cost of an access before, ns.
    pub access_ns_before: f64,
    /// Mean cost of an access since, ns.
    pub access_ns: f64,
    /// Whether the moves made accesses slower, and were taken back as far as possible.
    pub taken_back: bool,
}

impl PlaceGain {
    /// Of a decision that compares moves with their prediction; none if this is another.
    pub(crate) fn of(round: u64, reason: &Reason) -> Option<Self> {
        Some(Self {
            round,
            predicted_speedup: reason.value(Quantity::PredictedSpeedup)?,
            measured_speedup: reason.value(Quantity::MeasuredSpeedup),
            access_ns_before: reason.value(Quantity::AccessNsBefore)?,
            access_ns: reason.value(Quantity::AccessNs)?,
            taken_back: reason.rule == Rule::MadeWorse,
        })
    }
}

/// Pages that could not be moved for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRefusal {
    /// The reason: `gone`, `shared`, `busy`, `held`, `no_memory`, `write_back` or `other`.
    pub why: String,
    /// Number of pages.
    pub pages: u64,
}
