//! Decides when the pages of a process should follow its threads. Pure: observations in, moves out.

use crate::processes::process::Tid;
use machine::NodeId;
use std::collections::BTreeMap;

/// The node of each thread. A thread has moved when two consecutive observations see it on the same other node. A
/// thread that returns at once has not moved, and triggers nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Follower {
    threads: BTreeMap<Tid, Settled>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    node: NodeId,
    seen_on: NodeId,
}

/// A node that no thread of the process runs on any more, and the new node of the thread that left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The thread.
    pub thread: Tid,
    /// The node that the thread left.
    pub from: NodeId,
    /// The node that the thread is on.
    pub to: NodeId,
}

impl Follower {
    /// Takes an observation: the node on which each thread last ran. Returns the nodes that have been left since the
    /// previous one. Nodes that other threads still run on are not returned, as their pages may belong to those
    /// threads.
    pub fn look(&mut self, now: &BTreeMap<Tid, NodeId>) -> Vec<Departure> {
        self.threads.retain(|thread, _| now.contains_key(thread));
        let mut moved = Vec::new();
        for (&thread, &node) in now {
            let settled = self.threads.entry(thread).or_insert(Settled { node, seen_on: node });
            if node != settled.node && node == settled.seen_on {
                moved.push(Departure { thread, from: settled.node, to: node });
                settled.node = node;
            }
            settled.seen_on = node;
        }
        let mut left: Vec<Departure> = Vec::new();
        for departure in moved {
            let stays = self.threads.values().any(|settled| settled.node == departure.from);
            if !stays && left.iter().all(|other| other.from != departure.from) {
                left.push(departure);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(nodes: &[u32]) -> BTreeMap<Tid, NodeId> {
        (1..).map(Tid).zip(nodes.iter().map(|node| NodeId(*node))).collect()
    }

    #[test]
    fn pages_follow_a_thread_that_stays_away() {
        let mut follower = Follower::default();
        assert_eq!(follower.look(&seen(&[0])), []);
        assert_eq!(follower.look(&seen(&[1])), []);
        let departure = Departure { thread: Tid(1), from: NodeId(0), to: NodeId(1) };
        assert_eq!(follower.look(&seen(&[1])), [departure]);
        assert_eq!(follower.look(&seen(&[1])), []);
    }

    /// Claim 11 and section 2.7 of the specification: a return to the original node cancels the move.
    #[test]
    fn nothing_moves_for_a_thread_that_comes_back() {
        let mut follower = Follower::default();
        for node in [0, 1, 0, 1, 2, 1, 0] {
            assert_eq!(follower.look(&seen(&[node])), []);
        }
    }

    #[test]
    fn nothing_moves_while_others_run_on_the_node() {
        let mut follower = Follower::default();
        for nodes in [[0, 0], [1, 0], [1, 0], [1, 2]] {
            assert_eq!(follower.look(&seen(&nodes)), []);
        }
        let departure = Departure { thread: Tid(2), from: NodeId(0), to: NodeId(2) };
        assert_eq!(follower.look(&seen(&[1, 2])), [departure]);
    }

    #[test]
    fn threads_that_end_are_forgotten() {
        let mut follower = Follower::default();
        follower.look(&seen(&[0, 0]));
        follower.look(&seen(&[1]));
        assert_eq!(follower.look(&seen(&[1])).len(), 1);
        assert_eq!(follower.threads.len(), 1);
    }
}
