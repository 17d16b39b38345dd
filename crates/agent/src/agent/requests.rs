//! Places processes by request and by their own hints. Policies treat them as if their owners had placed them.

use super::Agent;
use crate::error::AgentError;
use crate::hints::WantedPlace;
use crate::managed_process::ManagedProcess;
use machine::{MemoryMode, NodeId, Pid};
use placement::{Action, AddressRange, Decision, LogLine, Reason, Rule, Step};

impl Agent {
    /// Runs the threads of a managed process on a node, and moves its memory there: in this round and, as far as the
    /// budget requires, in the next ones. The policy leaves it alone from now on if it respects owners. Settings of the
    /// process's owner are kept likewise. A process that is not managed is noted.
    pub fn place(&mut self, pid: Pid, node: NodeId) -> Result<(), AgentError> {
        // An agent that has begun anew since the request was answered does not know yet that the process is busy.
        if let Some(candidate) = self.managed.take_candidate(pid) {
            self.begin_candidate(pid, candidate)?;
        }
        if self.managed.get(pid).is_none() {
            self.ledger.note_failure(Some(format!("process {pid} is not placed on node {node}: it is not managed")));
        }
        self.place_on(pid, node, true)
    }

    /// Does what processes have hinted since the last round. A request to the agent beats hints.
    pub(super) fn follow_hints(&mut self) -> Result<(), AgentError> {
        for pid in self.managed.iter().map(|(pid, _)| pid).collect::<Vec<_>>() {
            let Some(process) = self.managed.get_mut(pid) else { continue };
            let Some(change) = process.look_for_hints() else { continue };
            match change.place.filter(|_| !process.is_requested()) {
                Some(WantedPlace::On(node)) if self.machine.node(node).is_some() => {
                    self.place_on(pid, node, false)?;
                }
                Some(WantedPlace::Here) => process.stay(),
                Some(WantedPlace::Any | WantedPlace::On(_)) => process.free(),
                None => {}
            }
            if change.has_new_phase {
                self.policy.executed(pid);
                self.ledger.write(|| LogLine::Executed { pid })?;
            }
        }
        Ok(())
    }

    fn place_on(&mut self, pid: Pid, node: NodeId, is_requested: bool) -> Result<(), AgentError> {
        self.managed.read_cpuset(pid);
        let Some(process) = self.managed.get_mut(pid) else { return Ok(()) };
        let Some(on) = self.machine.node(node) else { return Ok(()) };
        process.read_policy();
        if let Some(why) = process.limits.forbid(on, self.options.settings.respect_owner) {
            // A hint that cannot be followed ends the one before, which the program no longer wants.
            if !is_requested {
                process.free();
            }
            self.ledger.note_failure(Some(format!("process {pid} is not placed on node {node}: {why}")));
            return Ok(());
        }
        let cpus = on.cpus.intersection(&process.record.cpus);
        process.choose_node(node, cpus.clone(), is_requested);
        let rule = rule(process);
        if !cpus.is_empty() {
            self.carry_out(Action::MoveProcess { pid, cpus }, rule)?;
        }
        self.placing.insert(pid, node);
        self.move_requested()
    }

    /// Moves the memory of processes that requests have placed.
    pub(super) fn move_requested(&mut self) -> Result<(), AgentError> {
        for (pid, node) in self.placing.clone() {
            let respects_owner = self.options.settings.respect_owner;
            let Some(process) = self.managed.get_mut(pid) else {
                self.placing.remove(&pid);
                continue;
            };
            if self.budget.is_used_up() {
                break;
            }
            let rule = rule(process);
            let (ranges, all_bytes) = left(process, node, respects_owner, self.policy.moves_shared());
            let has_moved = !ranges.is_empty() && {
                let bytes = self.budget.left().map_or(all_bytes, |left| all_bytes.min(left));
                self.carry_out(Action::MoveRanges { pid, node, ranges, bytes, most_s: None }, rule)? > 0
            };
            // What stays now, stays: it is shared, locked, or the node is full.
            if !has_moved || self.budget.left().is_none() {
                self.placing.remove(&pid);
            }
        }
        Ok(())
    }

    /// Returns how many pages were moved.
    fn carry_out(&mut self, action: Action, rule: Rule) -> Result<u64, AgentError> {
        let step = Step { action, reason: Reason::new(rule) };
        let before = self.ledger.pages_moved();
        self.act(&Decision { round: self.round, steps: vec![step], ..Decision::default() })?;
        Ok(self.ledger.pages_moved() - before)
    }
}

fn rule(process: &ManagedProcess) -> Rule {
    if process.is_requested() { Rule::Requested } else { Rule::Hinted }
}

/// Mappings of a process with pages on other nodes, and the bytes of these. Where the policy decides about shared mappings for
/// all processes, one of them has no say.
fn left(
    process: &mut ManagedProcess,
    node: NodeId,
    respects_owner: bool,
    decides_shared: bool,
) -> (Vec<AddressRange>, u64) {
    let (mut ranges, mut all_bytes) = (Vec::new(), 0);
    // What the owner has bound to this node, its policy puts there.
    let by_owner = process.limits.owners_policy.as_ref().filter(|policy| policy.mode != MemoryMode::Local);
    if respects_owner && by_owner.is_some() {
        return (ranges, all_bytes);
    }
    for range in process.mappings.read_or_last(&process.process) {
        let elsewhere = range.bytes.iter().filter(|of| of.node != node).map(|of| of.bytes).sum::<u64>();
        let is_own = range.shared.is_none() || !decides_shared;
        if elsewhere > 0 && is_own && (range.memory_policy.is_none() || !respects_owner) {
            ranges.push(AddressRange { start: range.start, end: range.end });
            all_bytes += elsewhere;
        }
    }
    (ranges, all_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::options::Options;
    use observe::{AccessSource, Target};
    use std::process::Command;

    #[test]
    fn a_process_is_placed_by_an_agent_that_has_just_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(folder.path(), "test").unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let options = Options {
            target: Target::System,
            source: AccessSource::None,
            dry_run: true,
            ..Options::new("carrefour".parse().unwrap())
        };
        let machine = machine::presets::find("small-2x2").unwrap();
        let mut agent = Agent::open(&machine, journal, options).unwrap();
        let pid = Pid(child.id());
        assert!(agent.managed.get(pid).is_none() && agent.managed.is_candidate(pid));
        agent.place(pid, NodeId(0)).unwrap();
        assert!(agent.managed.get(pid).is_some_and(ManagedProcess::is_requested));
        // This process is never a candidate.
        agent.place(Pid(std::process::id()), NodeId(0)).unwrap();
        let said = agent.take_news().pop().unwrap();
        assert!(said.ends_with("is not placed on node 0: it is not managed"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
