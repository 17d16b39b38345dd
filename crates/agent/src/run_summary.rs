//! Summary of a run's rounds, before and after the first move.

use crate::place_report::{NodeMoves, PlaceGain, PlaceMetrics, PlaceRefusal, PlaceRule};
use crate::step_outcome::StepOutcome;
use linux::{Amount, Moves};
use placement::{Costs, Decision, Metrics, Observation, Reason, Rule, Traffic};
use std::collections::BTreeMap;

/// Most predictions that are kept, the first ones: a service makes them without end.
const MOST_GAINS: usize = 1000;

/// Totals of some rounds.
#[derive(Clone, Debug, Default)]
struct Sum {
    time_s: f64,
    traffic: BTreeMap<(machine::NodeId, machine::NodeId), f64>,
    /// Sum of cost times accesses, and accesses whose cost is known.
    access_ns: (f64, f64),
}

impl Sum {
    fn add(&mut self, observation: &Observation, metrics: &Metrics) {
        self.time_s += observation.length_s;
        let mut accesses = 0.0;
        for pair in &observation.traffic {
            *self.traffic.entry((pair.from, pair.to)).or_default() += pair.accesses;
            accesses += pair.accesses;
        }
        if let Some(ns) = metrics.access_ns {
            self.access_ns = (self.access_ns.0 + ns * accesses, self.access_ns.1 + accesses);
        }
    }

    fn metrics(&self, costs: &Costs) -> PlaceMetrics {
        let pair = |(&(from, to), &accesses): (&(_, _), &f64)| Traffic { from, to, accesses };
        let traffic = self.traffic.iter().map(pair).collect();
        let all = Observation { length_s: self.time_s, traffic, ..Observation::default() };
        let Metrics { accesses_per_us, local_access_ratio, imbalance, .. } = Metrics::new(&all, costs);
        let access_ns = (self.access_ns.1 > 0.0).then(|| self.access_ns.0 / self.access_ns.1);
        PlaceMetrics { time_s: self.time_s, accesses_per_us, local_access_ratio, imbalance, access_ns }
    }
}

/// Summary of a run's rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSummary {
    before: Sum,
    after: Sum,
    moved: Moves,
    pages_refused: BTreeMap<&'static str, u64>,
    /// Of those, pages of which processes now have private copies.
    pub pages_copied: u64,
    pub pages_split: u64,
    /// How many of these the kernel does not join again.
    pub pages_kept_small: u64,
    pub threads_moved: u64,
    pages_by_rule: BTreeMap<Rule, u64>,
    /// What became of predictions, once a round.
    gains: Vec<PlaceGain>,
    /// Rounds in which nothing was done, by reason, with the last reason of each rule.
    idle: BTreeMap<Rule, (u64, String)>,
}

impl RunSummary {
    /// Adds a round; its observation precedes its own moves.
    pub fn add_round(&mut self, observation: &Observation, decision: &Decision) {
        let has_moved = self.all_moved().pages + self.pages_copied + self.threads_moved + self.pages_split > 0;
        let sum = if has_moved { &mut self.after } else { &mut self.before };
        sum.add(observation, &decision.metrics);
    }

    /// Adds a step.
    pub fn add_step(&mut self, rule: Rule, done: &StepOutcome) {
        for (nodes, moved) in &done.moved {
            *self.moved.entry(*nodes).or_default() += *moved;
        }
        self.pages_copied += done.pages_copied;
        self.pages_split += done.split_at.len() as u64;
        self.pages_kept_small += done.kept_small;
        self.threads_moved += done.threads_moved;
        for (refusal, pages) in &done.pages_refused {
            *self.pages_refused.entry(refusal.word()).or_default() += pages;
        }
        let pages = done.all_moved().pages + done.pages_copied + done.split_at.len() as u64;
        if pages > 0 {
            *self.pages_by_rule.entry(rule).or_default() += pages;
        }
    }

    /// Adds what became of a prediction, if this decision compares one.
    pub fn add_gain(&mut self, round: u64, reason: &Reason) {
        let is_known = self.gains.last().is_some_and(|last| last.round == round);
        let has_room = self.gains.len() < MOST_GAINS;
        self.gains.extend(PlaceGain::of(round, reason).filter(|_| !is_known && has_room));
    }

    /// All that were moved.
    pub fn all_moved(&self) -> Amount {
        self.moved.values().copied().sum()
    }

    /// What was moved from a node to another.
    pub fn moves(&self) -> Vec<NodeMoves> {
        let others = self.moved.iter().filter(|((from, to), _)| from != to);
        others.map(|(&(from, to), &Amount { pages, bytes })| NodeMoves { from, to, pages, bytes }).collect()
    }

    pub fn gains(&self) -> &[PlaceGain] {
        &self.gains
    }

    /// Adds a round in which nothing was done.
    pub fn add_idle(&mut self, reason: &Reason) {
        let (rounds, last) = self.idle.entry(reason.rule).or_default();
        *rounds += 1;
        *last = reason.to_string();
    }

    /// Why nothing was done in most of the rounds without action, or in those of them with a choice.
    pub fn idle_reason(&self) -> Option<String> {
        // What a choice said counts more than that there was none yet.
        let is_choice = |rule: Rule| !matches!(rule, Rule::FewSamples | Rule::MappingsNotRead);
        let most = self.idle.iter().max_by_key(|(rule, (rounds, _))| (is_choice(**rule), *rounds));
        most.map(|(_, (_, reason))| reason.clone())
    }

    pub fn by_rule(&self) -> Vec<PlaceRule> {
        let row = |(rule, pages): (&Rule, &u64)| PlaceRule {
            rule: <&str>::from(rule).to_owned(),
            why: rule.to_string(),
            pages: *pages,
        };
        self.pages_by_rule.iter().map(row).collect()
    }

    pub fn all_refused(&self) -> u64 {
        self.pages_refused.values().sum()
    }

    pub fn refused(&self) -> Vec<PlaceRefusal> {
        let row = |(why, pages): (&&str, &u64)| PlaceRefusal { why: (*why).to_owned(), pages: *pages };
        self.pages_refused.iter().map(row).collect()
    }

    pub fn pages_by_rule(&self) -> &BTreeMap<Rule, u64> {
        &self.pages_by_rule
    }

    pub fn before(&self, costs: &Costs) -> PlaceMetrics {
        self.before.metrics(costs)
    }

    pub fn after(&self, costs: &Costs) -> PlaceMetrics {
        self.after.metrics(costs)
    }
}
