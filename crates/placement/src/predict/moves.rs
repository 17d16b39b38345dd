//! From a plan to moves: those that are worth their cost by now, as far as nodes have room.

use super::forecast::{Choice, Forecast, moved_bytes};
use super::search::Plan;
use super::segments::Segment;
use super::waiting::NotChosen;
use crate::action::{Action, AddressRange, Step};
use crate::batches::Limits;
use crate::costs::Costs;
use crate::observation::{Observation, Range};
use crate::reason::{Quantity, Reason, Rule};
use machine::{NodeId, NodeWeight, Pid};
use std::collections::{BTreeMap, BTreeSet};

/// Part of a segment on one node from which on it can be taken back there.
const CONCENTRATED: f64 = 0.8;

/// The part of what is wanted from which on it counts as all.
const COMPLETE: f64 = 0.99;

/// What moving is weighed by.
pub(super) struct Weighing<'a> {
    /// The part of the time that the plan saves, 0 to 1.
    pub gain: f64,
    /// Rate of moving, bytes/s.
    pub bytes_per_s: f64,
    /// How long each process has been busy since it began, or since its last moves, s.
    pub busy_s: &'a BTreeMap<Pid, f64>,
}

/// The moves of a round.
#[derive(Default)]
pub(super) struct Moves {
    pub steps: Vec<Step>,
    /// The processes that they are of.
    pub pids: BTreeSet<Pid>,
    /// Those of them whose moves are complete.
    pub complete: BTreeSet<Pid>,
    /// What would take them back.
    pub back: Vec<Action>,
    /// Their bytes, at most.
    pub bytes: f64,
}

impl Moves {
    /// The moves of each process that has been busy for long enough. Fails with the reason why nothing moves.
    pub fn new(
        plan: &Plan,
        forecast: &Forecast,
        mut limits: Limits,
        weighing: &Weighing,
        predicted: impl Fn(Rule) -> Reason,
    ) -> Result<Self, NotChosen> {
        let mut moves = Self::default();
        let mut refused = NotChosen::from(predicted(Rule::NothingFaster));
        for (pid, groups) in processes(forecast, plan) {
            let wanted: f64 = groups.iter().map(|(choice, segments)| moved_together(segments, *choice)).sum();
            let cost_s = wanted / weighing.bytes_per_s;
            let others =
                groups.iter().flat_map(|(_, segments)| segments).flat_map(|segment| segment.others.iter().copied());
            let sharers: BTreeSet<Pid> = others.chain([pid]).collect();
            let busy_s = sharers.iter().filter_map(|pid| weighing.busy_s.get(pid));
            let saved_s = weighing.gain * busy_s.copied().fold(0.0, f64::max);
            let weighed =
                |rule| predicted(rule).with(Quantity::MoveMs, cost_s * 1e3).with(Quantity::SavedMs, saved_s * 1e3);
            if saved_s < cost_s {
                let paid_in_s = (cost_s - saved_s) / weighing.gain;
                // The process whose moves are paid first says when to choose again.
                if refused.paid_in_s.is_none_or(|known| paid_in_s < known) {
                    refused = NotChosen { reason: weighed(Rule::MovingCostsMore), paid_in_s: Some(paid_in_s) };
                }
                continue;
            }
            let mut granted = 0.0;
            for (choice, segments) in groups {
                let bytes = moved_together(&segments, choice);
                // Moves take no longer than what they are paid with, also where moving is slower than was thought.
                let most_s = saved_s * bytes / wanted;
                let Some(action) = action(pid, choice, &segments, most_s, &mut limits, forecast) else { continue };
                granted += action.bytes() as f64;
                // A part would be another one in each process.
                let is_whole = action.bytes() as f64 >= COMPLETE * bytes;
                let others = if is_whole { by_others(&action, &segments) } else { Vec::new() };
                for segment in &segments {
                    let most_s = most_s * moved_bytes(segment, choice) / bytes;
                    let back: Vec<Action> = taken_back(segment, most_s, forecast.costs).into_iter().collect();
                    let by_others = back.iter().filter(|_| is_whole).flat_map(|back| by_others(back, &[segment]));
                    moves.back.extend(back.iter().cloned().chain(by_others));
                }
                let rule = if choice == Choice::Deal { Rule::FasterDealt } else { Rule::FasterAtUsers };
                let step = |action| Step { action, reason: weighed(rule) };
                moves.steps.extend(std::iter::once(action).chain(others).map(step));
            }
            if granted == 0.0 {
                // Without room, nothing is known of when there will be some.
                if refused.paid_in_s.is_none() {
                    refused = weighed(Rule::NoRoom).into();
                }
                continue;
            }
            moves.bytes += granted;
            if granted >= COMPLETE * wanted {
                moves.complete.extend(&sharers);
            }
            moves.pids.extend(sharers);
        }
        if moves.steps.is_empty() { Err(refused) } else { Ok(moves) }
    }
}

/// Segments of a process that move alike, in order of address.
type Group<'a> = (Choice, Vec<&'a Segment>);

/// The segments of each process that move, by choice. The hottest come first: there may be room or time for a part.
fn processes<'a>(forecast: &'a Forecast, plan: &Plan) -> Vec<(Pid, Vec<Group<'a>>)> {
    let mut processes: BTreeMap<Pid, BTreeMap<Choice, Vec<&Segment>>> = BTreeMap::new();
    for (segment, &choice) in forecast.segments.iter().zip(&plan.choices) {
        if moved_bytes(segment, choice) >= 1.0 {
            processes.entry(segment.pid).or_default().entry(choice).or_default().push(segment);
        }
    }
    let hottest_first = |groups: BTreeMap<Choice, Vec<&'a Segment>>| {
        let mut groups: Vec<Group> = groups.into_iter().collect();
        groups.sort_by(|(_, a), (_, b)| heat(b).total_cmp(&heat(a)));
        groups
    };
    let mut processes: Vec<_> = processes.into_iter().map(|(pid, groups)| (pid, hottest_first(groups))).collect();
    let of_process =
        |groups: &[Group<'a>]| heat(&groups.iter().flat_map(|(_, segments)| segments).copied().collect::<Vec<_>>());
    processes.sort_by(|(_, a), (_, b)| of_process(b).total_cmp(&of_process(a)));
    processes
}

/// Samples per byte.
fn heat(segments: &[&Segment]) -> f64 {
    let (samples, bytes) = segments
        .iter()
        .fold((0.0, 0.0), |(samples, bytes), segment| (samples + segment.uses.all(), bytes + segment.all_bytes()));
    samples / f64::max(bytes, 1.0)
}

fn moved_together(segments: &[&Segment], choice: Choice) -> f64 {
    segments.iter().map(|segment| moved_bytes(segment, choice)).sum()
}

/// Their ranges, the hottest first; adjacent ones as one, unless only one of them is shared.
fn joined(segments: &[&Segment]) -> Vec<AddressRange> {
    let joins = |a: &&Segment, b: &&Segment| a.range.end == b.range.start && a.is_shared == b.is_shared;
    let mut runs: Vec<&[&Segment]> = segments.chunk_by(joins).collect();
    runs.sort_by(|a, b| heat(b).total_cmp(&heat(a)));
    let range = |run: &[&Segment]| Some(AddressRange { start: run.first()?.range.start, end: run.last()?.range.end });
    runs.into_iter().filter_map(range).collect()
}

/// The action that carries out a choice, as far as nodes have room.
fn action(
    pid: Pid,
    choice: Choice,
    segments: &[&Segment],
    most_s: f64,
    limits: &mut Limits,
    forecast: &Forecast,
) -> Option<Action> {
    let most_s = Some(most_s);
    let (costs, ranges) = (forecast.costs, joined(segments));
    match choice {
        Choice::Leave => None,
        Choice::Local(node) => {
            let node = costs.nodes()[node].id;
            let bytes = limits.take(node, moved_together(segments, choice) as u64, costs);
            (bytes > 0).then_some(Action::MoveRanges { pid, node, ranges, bytes, most_s })
        }
        Choice::Deal => {
            // What each node receives from others. Nodes without room for that receive nothing.
            let comes = |node: usize| -> u64 {
                let from_others =
                    |segment: &&Segment| segment.dealt[node] * (segment.all_bytes() - segment.bytes[node]);
                segments.iter().map(from_others).sum::<f64>() as u64
            };
            let dealt = segments.first()?.dealt.iter().enumerate().filter(|(_, part)| **part > 0.0);
            let nodes: Vec<(usize, NodeId)> = dealt.map(|(at, _)| (at, costs.nodes()[at].id)).collect();
            let has_room = |(at, node): &&(usize, NodeId)| limits.has_room(*node, comes(*at), costs);
            let roomy: Vec<(usize, NodeId)> = nodes.iter().filter(has_room).copied().collect();
            // On one node of several it would be the opposite.
            if roomy.len() < nodes.len().min(2) {
                return None;
            }
            let bytes: u64 = roomy.iter().map(|(at, node)| limits.take(*node, comes(*at), costs)).sum();
            let weights = costs.weights(&roomy.iter().map(|(_, node)| *node).collect()).into_iter();
            let weights = weights.map(|(node, weight)| NodeWeight { node, weight }).collect();
            (bytes > 0).then_some(Action::DealRanges { pid, weights, ranges, bytes, most_s })
        }
    }
}

/// The same by the other processes that map some of these segments: each moves what it has in its page tables. Most of
/// that has been moved already.
fn by_others(action: &Action, segments: &[&Segment]) -> Vec<Action> {
    let others: BTreeSet<Pid> = segments.iter().flat_map(|segment| segment.others.iter().copied()).collect();
    let by_other = |pid: Pid| {
        let mapped: Vec<&Segment> = segments.iter().filter(|segment| segment.others.contains(&pid)).copied().collect();
        let ranges = joined(&mapped);
        match *action {
            Action::MoveRanges { node, bytes, most_s, .. } => {
                Some(Action::MoveRanges { pid, node, ranges, bytes, most_s })
            }
            Action::DealRanges { ref weights, bytes, most_s, .. } => {
                Some(Action::DealRanges { pid, weights: weights.clone(), ranges, bytes, most_s })
            }
            _ => None,
        }
    };
    others.into_iter().filter_map(by_other).collect()
}

/// What would take a segment's moves back, if one node has nearly all of it, or it is dealt.
fn taken_back(segment: &Segment, most_s: f64, costs: &Costs) -> Option<Action> {
    let all = segment.all_bytes();
    let (index, on) = segment.bytes.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    let (pid, ranges, bytes, most_s) = (segment.pid, vec![segment.range], all.ceil() as u64, Some(most_s));
    if segment.dealt[index] > 0.0 && *on >= CONCENTRATED * all {
        return Some(Action::MoveRanges { pid, node: costs.nodes()[index].id, ranges, bytes, most_s });
    }
    let parts = segment.bytes.iter().zip(&segment.dealt);
    let as_dealt: f64 = parts.map(|(on, part)| on.min(part * all)).sum();
    let nodes = segment.dealt.iter().zip(costs.nodes()).filter(|(part, _)| **part > 0.0).map(|(_, node)| node.id);
    let weights = costs.weights(&nodes.collect()).into_iter();
    let weights = weights.map(|(node, weight)| NodeWeight { node, weight }).collect();
    (as_dealt >= CONCENTRATED * all).then_some(Action::DealRanges { pid, weights, ranges, bytes, most_s })
}

/// Moves back, as far as processes and nodes still have room for them.
pub(super) fn limited(back: Vec<Action>, observation: &Observation, mut limits: Limits, costs: &Costs) -> Vec<Action> {
    // What several processes map takes room once.
    let mut granted: BTreeMap<(NodeId, u64, u64), u64> = BTreeMap::new();
    let limited = |action: Action| {
        let process = observation.processes.iter().find(|process| Some(process.pid) == action.pid())?;
        let Action::MoveRanges { pid, node, ranges, bytes, most_s } = action else {
            let Action::DealRanges { pid, mut weights, ranges, bytes, most_s } = action else { return Some(action) };
            let each = bytes / weights.len().max(1) as u64;
            weights.retain(|to| process.nodes.contains(to.node) && limits.has_room(to.node, each, costs));
            let granted: u64 = weights.iter().map(|to| limits.take(to.node, each, costs)).sum();
            let bytes = bytes.min(granted);
            return (weights.len() > 1 && bytes > 0).then_some(Action::DealRanges {
                pid,
                weights,
                ranges,
                bytes,
                most_s,
            });
        };
        let start = ranges.first()?.start;
        let has_it = |range: &&Range| range.pid == pid && (range.start..range.end).contains(&start);
        let shared = observation.ranges.iter().find(has_it).and_then(|range| {
            Some((node, range.shared?.inode, range.shared?.offset.wrapping_add(start - range.start)))
        });
        let mut take = || match shared {
            Some(part) => *granted.entry(part).or_insert_with(|| limits.take(node, bytes, costs)),
            None => limits.take(node, bytes, costs),
        };
        let bytes = if process.nodes.contains(node) { take() } else { 0 };
        (bytes > 0).then_some(Action::MoveRanges { pid, node, ranges, bytes, most_s })
    };
    back.into_iter().filter_map(limited).collect()
}
