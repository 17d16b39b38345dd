//! The agent's live status: updated every round, read by clients.

use crate::huge_page_service::HugePageStatus;
use crate::place_report::{NodeMoves, WorkShares};
use machine::{CpuSet, MemoryMode, MemoryPolicy, Node, NodeSet, Pid};
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
    /// Where it may run and have memory.
    #[serde(default)]
    pub limits: Limits,
    /// The last decisions about it, each with its round, oldest first.
    pub decisions: VecDeque<(u64, String)>,
}

/// Where a process may run and have memory: what its cpuset allows, and what its owner has chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// CPUs that its cpuset allows.
    pub cpus: CpuSet,
    /// Nodes that its cpuset allows memory on.
    pub nodes: NodeSet,
    /// CPUs that its owner has chosen for its threads; none if one of them has no such choice.
    pub owners_cpus: Option<CpuSet>,
    /// The memory policy that its owner has chosen.
    pub owners_policy: Option<MemoryPolicy>,
}

impl Limits {
    /// Why the process cannot be placed on a node with threads and memory, if it cannot: one without the other would make
    /// its memory remote.
    pub fn forbid(&self, node: &Node, respects_owner: bool) -> Option<String> {
        let id = node.id;
        // Threads stay where they are for a node without CPUs.
        let leave_out = |cpus: &CpuSet| !node.cpus.is_empty() && cpus.intersection(&node.cpus).is_empty();
        // A process without CPUs or nodes has not been looked at yet.
        if !self.cpus.is_empty() && leave_out(&self.cpus) {
            return Some(format!("its cpuset allows CPUs {}, and none of node {id}", self.cpus));
        }
        if !self.nodes.is_empty() && !self.nodes.contains(id) {
            return Some(format!("its cpuset allows memory on nodes {}, and not on node {id}", self.nodes));
        }
        let owners = |what: String| {
            format!("its owner has chosen {what}, which respect_owner = false (place --override) overrides")
        };
        let cpus = self.owners_cpus.as_ref().filter(|cpus| respects_owner && leave_out(cpus));
        let policy = self.owners_policy.as_ref().filter(|policy| respects_owner && policy.mode != MemoryMode::Local);
        let policy = policy.filter(|policy| policy.nodes != [id].into_iter().collect());
        cpus.map(|cpus| format!("CPUs {cpus}")).or(policy.map(|policy| format!("memory policy {policy}"))).map(owners)
    }
}

impl Status {
    /// Begins anew, and stays paused: clients may pause at any moment, also between one agent and the next.
    pub fn begin(&mut self, new: Self) {
        *self = Self { paused: self.paused, ..new };
    }
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
    use machine::NodeId;

    #[test]
    fn the_last_decisions_are_kept() {
        let mut process = ManagedProcess::default();
        (0..20).for_each(|round| process.decided(round, format!("step {round}")));
        assert_eq!(process.decisions.len(), DECISIONS);
        assert_eq!(process.decisions.front(), Some(&(4, "step 4".to_owned())));
    }

    #[test]
    fn a_node_is_forbidden_by_cpusets_and_owners() {
        let node = Node {
            id: NodeId(3),
            cpus: "6-7".parse().unwrap(),
            memory_bytes: 1 << 30,
            bandwidth_bytes_per_s: None,
            write_cost: None,
            source: None,
        };
        let free = Limits { cpus: "0-7".parse().unwrap(), nodes: "0-3".parse().unwrap(), ..Limits::default() };
        assert_eq!(free.forbid(&node, true), None);
        let (memory, bound) = (Node { cpus: CpuSet::new(), ..node.clone() }, Some("0-1".parse().unwrap()));
        assert_eq!(Limits { owners_cpus: bound, ..free.clone() }.forbid(&memory, true), None, "threads may stay there");
        let by_cpuset = [
            (Limits { cpus: "0-3".parse().unwrap(), ..free.clone() }, "its cpuset allows CPUs 0-3, and none of node 3"),
            (
                Limits { nodes: "0".parse().unwrap(), ..free.clone() },
                "its cpuset allows memory on nodes 0, and not on node 3",
            ),
        ];
        for (limits, why) in by_cpuset {
            assert_eq!(
                [true, false].map(|respects| limits.forbid(&node, respects)),
                [Some(why.to_owned()), Some(why.to_owned())]
            );
        }
        let policy = |mode, nodes: &str| Some(MemoryPolicy::new(mode, nodes.parse().unwrap()));
        let by_owner = [
            (Limits { owners_cpus: Some("0-1".parse().unwrap()), ..free.clone() }, Some("CPUs 0-1")),
            (Limits { owners_cpus: Some("1,6".parse().unwrap()), ..free.clone() }, None),
            (Limits { owners_policy: policy(MemoryMode::Bind, "0"), ..free.clone() }, Some("memory policy bind: 0")),
            (Limits { owners_policy: policy(MemoryMode::Bind, "3"), ..free.clone() }, None),
            (Limits { owners_policy: policy(MemoryMode::Local, ""), ..free.clone() }, None),
        ];
        for (limits, chosen) in by_owner {
            let why = chosen.map(|what| {
                format!("its owner has chosen {what}, which respect_owner = false (place --override) overrides")
            });
            assert_eq!((limits.forbid(&node, true), limits.forbid(&node, false)), (why, None));
        }
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
