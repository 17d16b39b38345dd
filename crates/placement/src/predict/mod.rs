//! `predict`: chooses a placement for whole segments of memory by what it would change, moves in bulk when that has
//! become worth its cost, and compares the gain with the prediction.
//!
//! 1. [`segments`]: mappings, halved while different nodes use their halves.
//! 2. [`forecast`]: the round's traffic through the machine's queues, under any placement of the segments.
//! 3. [`search`]: leave, deal by bandwidth, each segment to its users, and mixtures of these.
//! 4. The remaining time of a program is not known. As it is as likely to run for as long again as not, memory moves
//!    once what would have been saved so far equals what moving costs: that is never worse than twice the optimum.
//! 5. Two rounds later the cost of an access is compared with the one before. Moves that made accesses slower are taken
//!    back where one node had the memory, and the policy then rests.
//!
//! The steps are those of several systems: Pandia's resource loop (3), BWAP's weights (2), ski rental (4).

mod forecast;
mod matrix;
mod search;
mod segments;

use crate::action::{Action, AddressRange, Step};
use crate::batches::Limits;
use crate::costs::Costs;
use crate::metrics::{AccessCost, Metrics};
use crate::observation::Observation;
use crate::outcome::Outcome;
use crate::reason::{Quantity, Reason, Rule};
use crate::settings::Settings;
use forecast::{Choice, Forecast};
use machine::{NodeId, NodeWeight, Pid};
use matrix::Matrix;
use search::Plan;
use segments::{Sampled, Segment, lacks_mappings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fewest samples of a round that a placement is chosen by.
const FEWEST_SAMPLES: u64 = 256;
/// Least predicted speedup that is acted on: the model's errors are of a few percent.
const LEAST_SPEEDUP: f64 = 1.03;
/// Rounds after moves until accesses are compared: the first is disturbed by the moves.
const SETTLING_ROUNDS: u64 = 2;
/// Part of a segment on one node from which on it can be taken back there.
const CONCENTRATED: f64 = 0.8;
/// Largest factor by which the measured rate of moving may differ from the threshold.
const RATE_RANGE: f64 = 64.0;

/// State kept between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Predict {
    /// How long each process has been busy, s.
    busy_s: BTreeMap<Pid, f64>,
    /// Time spent on moves, s.
    spent_s: f64,
    /// Rate of moving, bytes/s; none before the first move.
    bytes_per_s: Option<f64>,
    /// Moves whose effect is not known yet.
    trial: Option<Trial>,
    /// No moves before this round.
    rests_until: u64,
}

/// Moves, what was predicted of them, and what would take them back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trial {
    round: u64,
    predicted: f64,
    before: Option<AccessCost>,
    bytes: f64,
    back: Vec<Action>,
}

impl Predict {
    /// What to do after this round.
    pub fn decide(
        &mut self,
        observation: &Observation,
        costs: &Costs,
        settings: &Settings,
        metrics: &Metrics,
    ) -> Vec<Step> {
        self.count_time(observation, settings);
        if let Some(steps) = self.judge(observation, costs, settings, metrics) {
            return steps;
        }
        let steps = self.choose(observation, costs, settings, metrics);
        steps.unwrap_or_else(|reason| vec![Step { action: Action::Nothing, reason }])
    }

    /// Records how long moves took.
    pub fn learn(&mut self, outcome: &Outcome, settings: &Settings) {
        let trial = self.trial.as_ref().filter(|trial| trial.round == outcome.round);
        let Some(bytes) = trial.map(|trial| trial.bytes).filter(|_| outcome.moving_s > 0.0) else { return };
        self.spent_s += outcome.moving_s;
        let usual = settings.thresholds.move_bytes_per_s;
        let measured = (bytes / outcome.moving_s).clamp(usual / RATE_RANGE, usual * RATE_RANGE);
        self.bytes_per_s = Some(self.bytes_per_s.map_or(measured, |known| f64::midpoint(known, measured)));
    }

    /// Removes a process that has ended, or executes another program.
    pub fn forget(&mut self, pid: Pid) {
        self.busy_s.remove(&pid);
    }

    fn count_time(&mut self, observation: &Observation, settings: &Settings) {
        let processes = &observation.processes;
        self.busy_s.retain(|pid, _| processes.iter().any(|process| process.pid == *pid));
        for process in processes.iter().filter(|process| process.cpu_share > settings.thresholds.cpu_share_min) {
            *self.busy_s.entry(process.pid).or_default() += observation.length_s;
        }
        if self.busy_s.is_empty() {
            // Other programs have their own time.
            (self.spent_s, self.trial) = (0.0, None);
        }
    }

    /// The step of a round in which earlier moves are judged or waited for; none if a placement may be chosen.
    fn judge(
        &mut self,
        observation: &Observation,
        costs: &Costs,
        settings: &Settings,
        metrics: &Metrics,
    ) -> Option<Vec<Step>> {
        let nothing = |reason| vec![Step { action: Action::Nothing, reason }];
        let round = observation.round;
        if let Some(trial) = &self.trial {
            if round < trial.round.saturating_add(SETTLING_ROUNDS) {
                return Some(nothing(Reason::new(Rule::MovesSettle)));
            }
            let trial = self.trial.take()?;
            let (before, after) = trial.before.zip(metrics.access_cost())?;
            let reason = |rule| {
                Reason::new(rule)
                    .with(Quantity::PredictedSpeedup, trial.predicted)
                    .with(Quantity::AccessNsBefore, before.access_ns)
                    .with(Quantity::AccessNs, after.access_ns)
            };
            if after.above_ns(settings.thresholds.worse_cost_min, before).is_none() {
                return Some(nothing(reason(Rule::MovesCompared)));
            }
            self.rests_until = round + settings.thresholds.rest_rounds;
            let mut limits = Limits::new(observation, costs, &settings.thresholds, u64::MAX);
            let back = trial.back.into_iter().filter_map(|action| limited(action, observation, &mut limits, costs));
            let back: Vec<Step> = back.map(|action| Step { action, reason: reason(Rule::MadeWorse) }).collect();
            return Some(if back.is_empty() { nothing(reason(Rule::MadeWorse)) } else { back });
        }
        let left = self.rests_until.saturating_sub(round);
        (left > 0).then(|| nothing(Reason::new(Rule::Resting).with(Quantity::Rounds, left as f64)))
    }

    /// The moves that are worth their cost by now.
    fn choose(
        &mut self,
        observation: &Observation,
        costs: &Costs,
        settings: &Settings,
        metrics: &Metrics,
    ) -> Result<Vec<Step>, Reason> {
        if observation.traffic.is_empty() {
            return Err(Reason::new(Rule::NoTraffic));
        }
        let samples: u64 = observation.pages.iter().map(crate::Page::samples).sum();
        if samples < FEWEST_SAMPLES {
            let few = Reason::new(Rule::FewSamples);
            return Err(few.against(Quantity::Samples, samples as f64, FEWEST_SAMPLES as f64));
        }
        if lacks_mappings(observation) {
            return Err(Reason::new(Rule::MappingsNotRead));
        }
        let sampled = Sampled::new(observation, costs, settings);
        let forecast = Forecast::new(observation, sampled, costs).ok_or_else(|| Reason::new(Rule::NoLatencies))?;
        let plan = Plan::search(&forecast);
        let predicted = |rule| Reason::new(rule).against(Quantity::PredictedSpeedup, plan.speedup, LEAST_SPEEDUP);
        if plan.speedup < LEAST_SPEEDUP || plan.bytes < 1.0 {
            return Err(predicted(Rule::NothingFaster));
        }
        let age_s = self.busy_s.values().copied().fold(0.0, f64::max);
        let saved_s = (1.0 - 1.0 / plan.speedup) * age_s - self.spent_s;
        let cost_s = plan.bytes / self.bytes_per_s.unwrap_or(settings.thresholds.move_bytes_per_s);
        let weighed =
            |rule| predicted(rule).with(Quantity::MoveMs, cost_s * 1e3).with(Quantity::SavedMs, saved_s * 1e3);
        if saved_s < cost_s {
            return Err(weighed(Rule::MovingCostsMore));
        }
        let mut limits = Limits::new(observation, costs, &settings.thresholds, u64::MAX);
        let (mut steps, mut back, mut bytes) = (Vec::new(), Vec::new(), 0.0);
        for ((pid, choice), segments) in groups(&forecast, &plan) {
            let wanted = segments.iter().map(|segment| forecast.moved_bytes(segment, choice)).sum();
            let ranges = joined(&segments);
            let dealt = segments.first().map_or(&[][..], |segment| &segment.dealt);
            let Some(action) = action((pid, choice), (ranges, wanted), dealt, &mut limits, costs) else { continue };
            bytes += wanted;
            back.extend(segments.iter().filter_map(|segment| taken_back(segment, costs)));
            let rule = if choice == Choice::Deal { Rule::FasterDealt } else { Rule::FasterAtUsers };
            steps.push(Step { action, reason: weighed(rule) });
        }
        if steps.is_empty() {
            return Err(Reason::new(Rule::NoRoom));
        }
        let (round, before) = (observation.round, metrics.access_cost());
        self.trial = Some(Trial { round, predicted: plan.speedup, before, bytes, back });
        Ok(steps)
    }
}

/// The segments that move, by process and choice, in order of address.
fn groups<'a>(forecast: &'a Forecast, plan: &Plan) -> BTreeMap<(Pid, Choice), Vec<&'a Segment>> {
    let mut groups: BTreeMap<(Pid, Choice), Vec<&Segment>> = BTreeMap::new();
    for (segment, &choice) in forecast.segments.iter().zip(&plan.choices) {
        if forecast.moved_bytes(segment, choice) >= 1.0 {
            groups.entry((segment.pid, choice)).or_default().push(segment);
        }
    }
    groups
}

/// Their ranges; adjacent ones as one.
fn joined(segments: &[&Segment]) -> Vec<AddressRange> {
    let mut ranges: Vec<AddressRange> = Vec::new();
    for Segment { range, .. } in segments {
        match ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => ranges.push(*range),
        }
    }
    ranges
}

/// The action that carries out a choice, as far as nodes have room.
fn action(
    (pid, choice): (Pid, Choice),
    (ranges, wanted): (Vec<AddressRange>, f64),
    dealt: &[f64],
    limits: &mut Limits,
    costs: &Costs,
) -> Option<Action> {
    match choice {
        Choice::Leave => None,
        Choice::Local(node) => {
            let node = costs.nodes()[node].id;
            let bytes = limits.take(node, wanted as u64, costs);
            (bytes > 0).then_some(Action::MoveRanges { pid, node, ranges, bytes })
        }
        Choice::Deal => {
            let nodes = || costs.nodes().iter().zip(dealt).filter(|(_, part)| **part > 0.0);
            let taken = nodes().map(|(node, part)| limits.take(node.id, (wanted * part) as u64, costs));
            let bytes: u64 = taken.sum();
            let weights = costs.weights(&nodes().map(|(node, _)| node.id).collect()).into_iter();
            let weights = weights.map(|(node, weight)| NodeWeight { node, weight }).collect();
            (bytes > 0).then_some(Action::DealRanges { pid, weights, ranges, bytes })
        }
    }
}

/// A move back, as far as its process and node still have room for it.
fn limited(action: Action, observation: &Observation, limits: &mut Limits, costs: &Costs) -> Option<Action> {
    let Action::MoveRanges { pid, node, ranges, bytes } = action else { return None };
    let process = observation.processes.iter().find(|process| process.pid == pid)?;
    let bytes = if process.nodes.contains(node) { limits.take(node, bytes, costs) } else { 0 };
    (bytes > 0).then_some(Action::MoveRanges { pid, node, ranges, bytes })
}

/// What would take a segment's moves back, if one node has nearly all of it.
fn taken_back(segment: &Segment, costs: &Costs) -> Option<Action> {
    let all = segment.all_bytes();
    let (node_index, on) = segment.bytes.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    let node: NodeId = costs.nodes()[node_index].id;
    let ranges: Vec<AddressRange> = vec![segment.range];
    let is_allowed = segment.dealt[node_index] > 0.0;
    (is_allowed && *on >= CONCENTRATED * all).then_some(Action::MoveRanges {
        pid: segment.pid,
        node,
        ranges,
        bytes: all.ceil() as u64,
    })
}
