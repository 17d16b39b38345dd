//! What the loop is doing at this moment: filled every round, read by whoever asks.

use machine::Pid;
use placement::{Metrics, Rule};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Decisions that are kept of each process, the latest last.
const DECISIONS: usize = 16;

/// What the loop is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The policy, by its name.
    pub policy: String,
    /// Who observes accesses to memory, in words; none where nobody does.
    pub source: Option<String>,
    /// What should be known: which sources are missing and why, what could not be done.
    pub notes: Vec<String>,
    /// How long a round is, s.
    pub round_s: f64,
    /// How long it has been going on, s.
    pub time_s: f64,
    /// Its own CPU time since it began, s.
    pub cpu_time_s: f64,
    /// Rounds so far.
    pub rounds: u64,
    /// There is nothing to place on this machine: it waits to be asked, and does nothing else.
    #[serde(default)]
    pub sleeps: bool,
    /// It decides and acts no more until this is false again. Set by others, kept to by the loop.
    pub paused: bool,
    /// What the last round's traffic came to.
    pub metrics: Metrics,
    /// Samples that were taken of managed processes.
    pub samples: u64,
    /// Samples that were lost, and pages' that were not kept.
    pub samples_lost: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// The same, bytes.
    pub bytes_moved: u64,
    /// Pages of files that processes got copies of their own of, of 4 KiB each.
    pub pages_copied: u64,
    /// Pages that stayed although they were to move.
    pub pages_refused: u64,
    /// Threads that were given other CPUs.
    pub threads_moved: u64,
    /// Pages that were moved, by why.
    pub pages_moved_by_rule: BTreeMap<Rule, u64>,
    /// Who is managed.
    pub processes: BTreeMap<Pid, ManagedProcess>,
}

/// A process that is managed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedProcess {
    /// The name of its program.
    pub name: String,
    /// Its threads.
    pub threads: u64,
    /// CPU time over time in the last round: 1 is one CPU.
    pub cpu_share: f64,
    /// Pages of it that were moved.
    pub pages_moved: u64,
    /// The same, bytes.
    pub bytes_moved: u64,
    /// What was decided about it last, each with its round, the oldest first.
    pub decisions: VecDeque<(u64, String)>,
}

impl ManagedProcess {
    /// Keeps a decision, and forgets the oldest of too many.
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
