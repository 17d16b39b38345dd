//! The agent's live status: updated every round, read by clients.

use crate::huge_page_service::HugePageStatus;
use crate::place_report::{NodeMoves, WorkShares};
use machine::Pid;
use placement::{Metrics, Rule};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Decisions kept per process.
const DECISIONS: usize = 16;

/// The agent's live status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The policy's name.
    pub policy: String,
    /// The source of memory accesses, for display; none if accesses are not observed.
    pub source: Option<String>,
    /// Notes for the user: missing sources with reasons, and actions that failed.
    pub notes: Vec<String>,
    /// Length of a round, s.
    pub round_s: f64,
    /// Time since the agent began, s.
    pub time_s: f64,
    /// The agent's CPU time since it began, s.
    pub cpu_time_s: f64,
    /// What its working time was spent on.
    #[serde(default)]
    pub cpu_time_of: WorkShares,
    /// Rounds so far.
    pub rounds: u64,
    /// Whether there is nothing to place on this machine: the agent only answers requests.
    #[serde(default)]
    pub sleeps: bool,
    /// While set, the agent does not decide or act. Set by clients, read by the loop.
    pub paused: bool,
    /// Metrics of the last round's traffic.
    pub metrics: Metrics,
    /// Samples of managed processes.
    pub samples: u64,
    /// Samples that were lost, or whose pages exceeded the limit.
    pub samples_lost: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Bytes of those pages.
    pub bytes_moved: u64,
    /// Moved pages by node before and since; without those that were already on their target.
    #[serde(default)]
    pub moves: Vec<NodeMoves>,
    /// Pages of files that processes got private copies of, in units of 4 KiB.
    pub pages_copied: u64,
    /// Pages that could not be moved.
    pub pages_refused: u64,
    /// Threads whose CPUs were changed.
    pub threads_moved: u64,
    /// Pages that were moved, by rule.
    pub pages_moved_by_rule: BTreeMap<Rule, u64>,
    /// Huge pages that nodes share falsely, if they are looked for.
    #[serde(default)]
    pub huge_pages: Option<HugePageStatus>,
    /// The managed processes.
    pub processes: BTreeMap<Pid, ManagedProcess>,
}

/// A managed process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedProcess {
    /// The name of its program.
    pub name: String,
    /// Its threads.
    pub threads: u64,
    /// CPU time over time in the last round: 1 is one CPU.
    pub cpu_share: f64,
    /// Misses of the last-level cache per thousand instructions (MPKI) in the last round, where they are counted.
    #[serde(default)]
    pub misses_per_thousand_instructions: Option<f64>,
    /// Accesses to other nodes over all that memory served in the last round, 0 to 1, where they are observed.
    #[serde(default)]
    pub remote_ratio: Option<f64>,
    /// Pages of it that were moved.
    pub pages_moved: u64,
    /// Bytes of those pages.
    pub bytes_moved: u64,
    /// The last decisions about it, each with its round, oldest first.
    pub decisions: VecDeque<(u64, String)>,
}

impl ManagedProcess {
    /// Adds a decision and drops the oldest beyond the limit.
    pub fn decided(&mut self, round: u64, step: String) {
        if self.decisions.len() >= DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back((round, step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_decisions_are_kept() {
        let mut process = ManagedProcess::default();
        (0..20).for_each(|round| process.decided(round, format!("step {round}")));
        assert_eq!(process.decisions.len(), DECISIONS);
        assert_eq!(process.decisions.front(), Some(&(4, "step 4".to_owned())));
    }

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let mut status = Status { policy: "carrefour".to_owned(), rounds: 7, ..Status::default() };
        status.pages_moved_by_rule.insert(Rule::OneNodeUses, 5);
        status.processes.insert(Pid(7), ManagedProcess { name: "a".to_owned(), ..ManagedProcess::default() });
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }
}
