//! Moves named ranges to the places that the options give them.

use super::Agent;
use crate::error::AgentError;
use crate::regions::{OrderedRange, RegionPlace};
use machine::{NodeSet, NodeWeight, Pid};
use placement::{Action, AddressRange, Outcome, Reason, Rule, Step};
use std::time::Instant;

/// Ranges are looked at again after this multiple of the time that it took: the kernel is asked for each page.
const PAUSE_FACTOR: u32 = 50;

impl Agent {
    /// Reads which ranges of processes have places of their own, of those that are due.
    pub(super) fn look_for_regions(&mut self) {
        if self.options.regions.is_empty() {
            return;
        }
        for pid in self.managed.iter().map(|(pid, _)| pid).collect::<Vec<_>>() {
            if let Some(process) = self.managed.get_mut(pid) {
                process.look_for_regions(&mut self.options.regions);
            }
        }
    }

    /// Moves what is not at its place, of the processes that were just looked at.
    pub(super) fn move_regions(&mut self) -> Result<(), AgentError> {
        for pid in self.managed.iter().map(|(pid, _)| pid).collect::<Vec<_>>() {
            let Some(process) = self.managed.get_mut(pid) else { continue };
            let Some(is_new) = process.owners.take_ordered() else { continue };
            let began = Instant::now();
            for action in actions(pid, process.owners.ordered()) {
                if !self.budget.is_used_up() {
                    self.place_region(at_most(action, self.budget.left()), is_new)?;
                }
            }
            let Some(process) = self.managed.get_mut(pid) else { continue };
            if self.budget.is_used_up() {
                process.owners.go_on();
            } else {
                process.owners.look_again_after(began.elapsed() * PAUSE_FACTOR);
            }
        }
        Ok(())
    }

    /// Reports what was moved; where nothing is, only the first time.
    fn place_region(&mut self, action: Action, is_new: bool) -> Result<(), AgentError> {
        let step = Step { action, reason: Reason::new(Rule::Region) };
        if self.options.dry_run {
            if is_new {
                self.ledger.add_step(self.round, &step, None);
            }
            return Ok(());
        }
        let mut outcome = Outcome { round: self.round, ..Outcome::default() };
        let done = self.actor.carry_out(std::slice::from_ref(&step), &mut self.managed, &mut outcome, None)?;
        let bytes_moved = done.first().map_or(0, |done| done.all_moved().bytes);
        self.budget.spend(bytes_moved);
        let has_moved = bytes_moved > 0;
        if has_moved || is_new {
            self.ledger.add_step(self.round, &step, done.first());
        }
        if has_moved {
            self.observer.memory_changed(self.round, &step.action.fills());
        }
        Ok(())
    }
}

/// An action that moves no more than what is left of the budget.
fn at_most(action: Action, left: Option<u64>) -> Action {
    let least = |bytes: u64| left.map_or(bytes, |left| left.min(bytes));
    match action {
        Action::MoveRanges { pid, node, ranges, bytes, most_s } => {
            Action::MoveRanges { pid, node, ranges, bytes: least(bytes), most_s }
        }
        Action::DealRanges { pid, weights, ranges, bytes, most_s } => {
            Action::DealRanges { pid, weights, ranges, bytes: least(bytes), most_s }
        }
        other => other,
    }
}

/// One action a place.
fn actions(pid: Pid, ordered: &[OrderedRange]) -> Vec<Action> {
    let mut by_place: Vec<(&NodeSet, Vec<AddressRange>)> = Vec::new();
    for OrderedRange { range, place } in ordered {
        let RegionPlace::On(nodes) = place else { continue };
        let range = AddressRange { start: range.start, end: range.end };
        match by_place.iter_mut().find(|(of, _)| *of == nodes) {
            Some((_, ranges)) => ranges.push(range),
            None => by_place.push((nodes, vec![range])),
        }
    }
    let action = |(nodes, ranges): (&NodeSet, Vec<AddressRange>)| {
        let bytes = ranges.iter().map(|range| range.end - range.start).sum();
        if let (Some(node), 1) = (nodes.first(), nodes.len()) {
            return Action::MoveRanges { pid, node, ranges, bytes, most_s: None };
        }
        let weights = nodes.iter().map(|node| NodeWeight { node, weight: 1 }).collect();
        Action::DealRanges { pid, weights, ranges, bytes, most_s: None }
    };
    by_place.into_iter().map(action).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_place_move_together() {
        let ordered = |start: u64, nodes: &str| OrderedRange {
            range: start..start + 0x1000,
            place: nodes.parse().map_or(RegionPlace::Here, RegionPlace::On),
        };
        let all = [ordered(0x1000, "1"), ordered(0x2000, "0-1"), ordered(0x3000, "here"), ordered(0x4000, "1")];
        let found: Vec<Action> =
            actions(Pid(7), &all).into_iter().map(|action| at_most(action, Some(0x1800))).collect();
        let [
            Action::MoveRanges { node, ranges, bytes, .. },
            Action::DealRanges { weights, ranges: dealt, bytes: few, .. },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((node.0, ranges.len(), *bytes), (1, 2, 0x1800));
        assert_eq!((weights.len(), dealt.len(), *few), (2, 1, 0x1000));
    }
}
