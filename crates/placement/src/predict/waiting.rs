//! When to choose again. A choice needs many samples, the mappings and a forecast, which take the program's CPUs some
//! time: while the traffic is as it was, there is nothing new to be found.

use super::FEWEST_SAMPLES;
use crate::observation::{Observation, Tells};
use crate::reason::{Reason, Rule};
use machine::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most doublings of the time between two choices that found nothing: 32 rounds.
const MOST_DOUBLINGS: u32 = 5;
/// Most rounds until the next choice.
const MOST_ROUNDS: f64 = 32.0;
/// Most of the time that observing and choosing take where nothing is found, as far as [`MOST_ROUNDS`] allow.
pub const OWN_SHARE: f64 = 0.005;
/// The part of the traffic that must be elsewhere for it to have changed.
const CHANGED: f64 = 0.1;
/// What chance may add to that: this times the square root of the number of pairs of nodes over that of samples.
const BY_CHANCE: f64 = 0.5;
/// How many times as much traffic there must be for it to have changed.
const MORE: f64 = 1.5;

/// Why nothing was chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NotChosen {
    pub reason: Reason,
    /// When the same choice would be worth its cost, s.
    pub paid_in_s: Option<f64>,
}

impl From<Reason> for NotChosen {
    fn from(reason: Reason) -> Self {
        Self { reason, paid_in_s: None }
    }
}

/// The rounds without a choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Waiting {
    /// No choice before this round.
    until: u64,
    /// Choices in succession that found nothing.
    in_vain: u32,
    /// The round of the last one, if it found nothing and what it took is not known yet.
    unpaid: Option<u64>,
    /// Why the last one moved nothing, and the traffic then.
    last: Option<(Reason, Shape)>,
}

/// Traffic, by nodes of CPU and memory, in accesses per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Shape(Vec<((NodeId, NodeId), f64)>);

impl Waiting {
    /// Whether a placement may be chosen after this round, which has this number of samples. A wait for samples is over when there are
    /// enough: hint faults come in bursts.
    pub fn is_over(&self, round: u64, samples: u64) -> bool {
        round >= self.until || self.is_for_samples() && samples >= FEWEST_SAMPLES
    }

    /// Whether there were too few samples. Then each round needs as many as may be taken: they are few, and cost little,
    /// where there are few accesses, as of one thread that follows pointers.
    pub fn is_for_samples(&self) -> bool {
        self.last.as_ref().is_some_and(|(reason, _)| reason.rule == Rule::FewSamples)
    }

    /// The round of the next choice, unless the traffic changes.
    pub fn until(&self) -> u64 {
        self.until
    }

    /// The reason of the last choice while it still holds. Traffic that has changed ends the wait: samples of the next
    /// round are dense enough for a choice.
    pub fn reason(&mut self, observation: &Observation) -> Option<Reason> {
        if let Some(then) = self.unpaid.take() {
            let unit_s = observation.length_s / observation.round.saturating_sub(then).max(1) as f64;
            let rounds = (observation.own_s / OWN_SHARE / unit_s).clamp(0.0, MOST_ROUNDS) as u64;
            self.until = self.until.max(then.saturating_add(rounds));
        }
        let (reason, then) = self.last.as_ref().filter(|_| !self.is_over(observation.round, samples(observation)))?;
        let reason = reason.clone();
        if then.has_changed(&Shape::new(observation), known_by(observation)) {
            *self = Self { until: observation.round.saturating_add(1), ..Self::default() };
        }
        Some(reason)
    }

    /// A choice has moved nothing.
    pub fn begin(&mut self, why: &NotChosen, observation: &Observation) {
        let rounds = match why.paid_in_s {
            Some(seconds) => (seconds / observation.length_s).ceil().clamp(1.0, MOST_ROUNDS) as u64,
            None => 1 << self.in_vain.min(MOST_DOUBLINGS),
        };
        // Without samples nothing was searched, and the program may only have begun.
        let has_searched = matches!(why.reason.rule, Rule::NothingFaster | Rule::OfSeveralProcesses);
        self.unpaid = has_searched.then_some(observation.round);
        self.in_vain = if why.paid_in_s.is_some() { 0 } else { self.in_vain.saturating_add(1) };
        self.until = observation.round.saturating_add(rounds);
        self.last = Some((why.reason.clone(), Shape::new(observation)));
    }

    /// Memory moves: what was found before holds no more.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

/// Samples that a round's traffic is known by: counted traffic has no error of sampling.
pub(super) fn known_by(observation: &Observation) -> u64 {
    if observation.tells == Tells::Counts { u64::MAX } else { samples(observation) }
}

/// Samples of a round.
pub(super) fn samples(observation: &Observation) -> u64 {
    observation.pages.iter().fold(0_u64, |sum, page| sum.saturating_add(page.samples()))
}

impl Shape {
    fn new(observation: &Observation) -> Self {
        let rate = |accesses: f64| accesses / observation.length_s;
        let rates = observation.traffic.iter().map(|pair| ((pair.from, pair.to), rate(pair.accesses)));
        Self(rates.filter(|(_, rate)| rate.is_finite()).collect())
    }

    /// By nodes of CPUs alone, which moves of memory leave as they are.
    pub fn of_users(observation: &Observation) -> Self {
        let mut users: BTreeMap<NodeId, f64> = BTreeMap::new();
        for ((from, _), rate) in Self::new(observation).0 {
            *users.entry(from).or_default() += rate;
        }
        Self(users.into_iter().map(|(node, rate)| ((node, node), rate)).collect())
    }

    fn sum(&self) -> f64 {
        self.0.iter().map(|(_, rate)| rate).sum()
    }

    /// Whether there is much more traffic now, or it goes elsewhere.
    fn has_changed(&self, now: &Self, samples: u64) -> bool {
        now.sum() > self.sum() * MORE || self.is_elsewhere(now, samples)
    }

    /// Whether traffic now goes elsewhere than this many samples show by chance, however much there is.
    pub fn is_elsewhere(&self, now: &Self, samples: u64) -> bool {
        let sums = [self.sum(), now.sum()];
        if sums.iter().any(|sum| *sum <= 0.0) {
            return false;
        }
        let mut parts: BTreeMap<(NodeId, NodeId), f64> = BTreeMap::new();
        for (shape, factor) in [(self, 1.0 / sums[0]), (now, -1.0 / sums[1])] {
            for (pair, rate) in &shape.0 {
                *parts.entry(*pair).or_default() += rate * factor;
            }
        }
        let elsewhere = parts.values().map(|part| part.abs()).sum::<f64>() / 2.0;
        elsewhere > CHANGED + BY_CHANCE * (parts.len() as f64 / samples.max(1) as f64).sqrt()
    }
}
