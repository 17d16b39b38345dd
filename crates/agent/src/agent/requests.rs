//! Places processes by request. Policies treat them as if their owners had placed them.

use super::Agent;
use crate::error::AgentError;
use crate::managed_process::ManagedProcess;
use machine::{NodeId, Pid};
use placement::{Action, AddressRange, Decision, Reason, Rule, Step};

impl Agent {
    /// Runs the threads of a managed process on a node, and moves its memory there: in this round and, as far as the
    /// budget requires, in the next ones. The policy leaves it alone from now on if it respects owners. Settings of the
    /// process's owner are kept likewise. Does nothing for a process that is not managed.
    pub fn place(&mut self, pid: Pid, node: NodeId) -> Result<(), AgentError> {
        let Some(process) = self.managed.get_mut(pid) else { return Ok(()) };
        let of_node = self.machine.node(node).map(|node| node.cpus.clone()).unwrap_or_default();
        let cpus = of_node.intersection(&process.record.cpus);
        process.request(node, cpus.clone());
        if !cpus.is_empty() {
            self.carry_out_request(Action::MoveProcess { pid, cpus })?;
        }
        self.placing.insert(pid, node);
        self.move_requested()
    }

    /// Moves the memory of processes that requests have placed.
    pub(super) fn move_requested(&mut self) -> Result<(), AgentError> {
        let most_bytes = self.options.budget_bytes_per_s.map(|budget| budget as f64 * self.options.round.as_secs_f64());
        for (pid, node) in self.placing.clone() {
            let respects_owner = self.options.settings.respect_owner;
            let left = self.managed.get_mut(pid).map_or_else(Vec::new, |process| left(process, node, respects_owner));
            let has_moved = !left.is_empty() && {
                let bytes = most_bytes.map_or(u64::MAX, |bytes| bytes as u64);
                self.carry_out_request(Action::MoveRanges { pid, node, ranges: left, bytes })? > 0
            };
            // What stays now, stays: it is shared, locked, or the node is full.
            if !has_moved || most_bytes.is_none() {
                self.placing.remove(&pid);
            }
        }
        Ok(())
    }

    /// Returns how many pages were moved.
    fn carry_out_request(&mut self, action: Action) -> Result<u64, AgentError> {
        let step = Step { action, reason: Reason::new(Rule::Requested) };
        let before = self.ledger.pages_moved();
        self.act(&Decision { round: self.round, steps: vec![step], ..Decision::default() })?;
        Ok(self.ledger.pages_moved() - before)
    }
}

/// Mappings of a process with pages on other nodes.
fn left(process: &mut ManagedProcess, node: NodeId, respects_owner: bool) -> Vec<AddressRange> {
    let ranges = process.mappings.read_or_last(&process.process);
    let is_elsewhere = |range: &&placement::Range| {
        let is_free = range.memory_policy.is_none() || !respects_owner;
        is_free && range.bytes.iter().any(|of| of.node != node && of.bytes > 0)
    };
    ranges.iter().filter(is_elsewhere).map(|range| AddressRange { start: range.start, end: range.end }).collect()
}
