//! Carrefour: traffic decides whether pages move, samples decide which (Lepers, 2014, chapters 7 and 8).

mod gates;
mod history;
mod pages;
mod weighted_draw;

use crate::action::{Action, Sampling, Step};
use crate::batches::{Candidate, Limits, Operation, Telling, steps};
use crate::costs::Costs;
use crate::credit::Credit;
use crate::metrics::{Metrics, loads};
use crate::observation::{Observation, Page, Process};
use crate::outcome::{Outcome, PageOf};
use crate::physical_pages::{PhysicalPage, physical_pages};
use crate::reason::{Quantity, Reason, Rule};
use crate::settings::Settings;
use crate::thresholds::Thresholds;
use crate::trial::{Trial, Verdict};
use gates::{Gates, Techniques};
use history::History;
use machine::{NodeId, NodeSet, Pid};
use pages::{Choice, ProcessView, Rules, Views};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use weighted_draw::{Shares, WeightedDraw};

/// State kept between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Carrefour {
    history: History,
    /// Whether the low sampling rate is in effect.
    is_slow: bool,
    /// Whether the last decision achieved little although it requested more.
    was_idle: bool,
    /// Processes with replicated pages: their later rounds may request fewer pages at once.
    replicating: BTreeSet<Pid>,
    /// Pages whose copies are to be given up.
    reverts: BTreeSet<PageOf>,
    trial: Trial,
    credit: Credit,
}

/// The result of a round's rules.
struct Chosen {
    candidates: Vec<Candidate>,
    shared: FxHashMap<Pid, ReadShared>,
}

/// Pages of a process that several nodes read and none writes.
#[derive(Default)]
struct ReadShared {
    pages: u64,
    /// Whether each node reads them, by node index.
    readers: Vec<bool>,
}

impl ReadShared {
    fn add(&mut self, page: &Page, costs: &Costs) {
        self.pages += 1;
        self.readers.resize(costs.nodes().len(), false);
        for by in page.accesses.iter().filter(|by| by.accesses > 0) {
            if let Some(index) = costs.index_of(by.node) {
                self.readers[index] = true;
            }
        }
    }

    fn nodes(&self, costs: &Costs) -> NodeSet {
        costs.nodes().iter().zip(&self.readers).filter(|(_, reads)| **reads).map(|(node, _)| node.id).collect()
    }
}

impl Carrefour {
    /// The three steps.
    pub fn decide(
        &mut self,
        observation: &Observation,
        costs: &Costs,
        settings: &Settings,
        metrics: &Metrics,
    ) -> Vec<Step> {
        let (round, thresholds) = (observation.round, &settings.thresholds);
        let alive: BTreeSet<Pid> = observation.processes.iter().map(|process| process.pid).collect();
        self.forget(observation, thresholds);
        self.replicating.retain(|pid| alive.contains(pid));
        let mut done = self.revert(&alive);
        self.credit.learn(observation, metrics, costs, thresholds);
        let gates = Gates::new(observation, costs, thresholds, metrics);
        let moved = match (self.trial.judge(round, metrics, thresholds), &gates.processes) {
            (Verdict::Worse(back, reason), _) => {
                let (steps, count, rest) = take_back(back, &reason, observation, costs, settings);
                self.trial.owe(rest.into_iter());
                Ok((steps, count))
            }
            (Verdict::Rest(reason), _) => Err(reason),
            (Verdict::GoOn, Err(reason)) => Err(reason.clone()),
            (Verdict::GoOn, Ok(processes)) => {
                let steps = self.step_3(observation, costs, settings, metrics, &gates, processes);
                steps.map_err(|rule| gates.explain(Reason::new(rule), thresholds))
            }
        };
        let (moved, operations) = moved.unwrap_or_else(|reason| (vec![Step { action: Action::Nothing, reason }], 0));
        done.extend(moved);
        done.extend(self.set_rate(operations, thresholds));
        done
    }

    /// The sampling rate that was decided last.
    pub fn sampling(&self, thresholds: &Thresholds) -> Sampling {
        Sampling::at(self.is_slow, thresholds)
    }

    /// Drops page history that no longer affects decisions.
    pub fn forget(&mut self, observation: &Observation, thresholds: &Thresholds) {
        let alive: BTreeSet<Pid> = observation.processes.iter().map(|process| process.pid).collect();
        self.history.forget(observation.round, thresholds, |pid| alive.contains(&pid));
    }

    /// Whether a page must stay where it is, for any policy.
    pub fn keeps(&self, page: PageOf, round: u64, thresholds: &Thresholds) -> bool {
        self.history.keeps(page, round, thresholds)
    }

    /// Records the outcome of a decision.
    pub fn learn(&mut self, outcome: &Outcome, settings: &Settings) {
        let thresholds = &settings.thresholds;
        self.history.note_refusals(&outcome.refused, outcome.round, thresholds);
        self.history.note_gone(&outcome.gone);
        self.trial.leave_out(outcome.round, &outcome.refused);
        self.trial.leave_out(outcome.round, &outcome.gone);
        // After the refusals: these pages were refused as copies.
        let moved = self.trial.settle(outcome.round, &outcome.moved_instead);
        self.history.note_moves(moved.iter(), outcome.round, thresholds);
        self.credit.settle(outcome);
        self.was_idle = !self.is_slow && outcome.operations < thresholds.operations_min;
        for page in &outcome.copies_written {
            if self.history.note_write(*page, outcome.round, thresholds) {
                self.reverts.insert(*page);
            }
        }
    }

    /// Forgets the pages of a process: it has ended, or executes another program.
    pub fn forget_process(&mut self, pid: Pid) {
        self.history.forget_process(pid);
        self.trial.forget_process(pid);
        self.replicating.remove(&pid);
        self.reverts.retain(|page| page.pid != pid);
    }

    fn revert(&mut self, alive: &BTreeSet<Pid>) -> Vec<Step> {
        let mut pages: BTreeMap<Pid, Vec<u64>> = BTreeMap::new();
        for page in std::mem::take(&mut self.reverts).into_iter().filter(|page| alive.contains(&page.pid)) {
            pages.entry(page.pid).or_default().push(page.address);
        }
        let step = |(pid, pages): (Pid, Vec<u64>)| {
            let reason = Reason::new(Rule::CopiesAreWritten).with(Quantity::Pages, pages.len() as f64);
            Step { action: Action::Revert { pid, pages }, reason }
        };
        pages.into_iter().map(step).collect()
    }

    /// The steps and the number of operations, or why there are none.
    fn step_3(
        &mut self,
        observation: &Observation,
        costs: &Costs,
        settings: &Settings,
        metrics: &Metrics,
        gates: &Gates,
        processes: &FxHashMap<Pid, Techniques>,
    ) -> Result<(Vec<Step>, usize), Rule> {
        let (round, thresholds) = (observation.round, &settings.thresholds);
        let shares = Shares::new(&loads(observation, costs), costs);
        let views = views(observation, costs, settings, processes, &shares);
        let rules = Rules {
            costs,
            thresholds,
            shares: &shares,
            pages: &observation.pages,
            samples: OnceCell::new(),
            seed: settings.seed ^ round.rotate_left(32),
        };
        let Chosen { mut candidates, shared } = self.choose(observation, settings, &views, &rules);
        let Some(cheapest) = candidates.iter().map(Candidate::copied_bytes).min() else {
            return Err(Rule::NothingMisplaced);
        };
        let cap = if self.is_slow { thresholds.page_cap_low } else { thresholds.page_cap };
        let credit = self.credit.bytes(thresholds);
        Limits::new(observation, costs, thresholds, cap).at_most(credit).keep(&mut candidates, costs);
        if candidates.is_empty() {
            return Err(if cheapest > credit { Rule::SavedTooLittle } else { Rule::NoRoom });
        }
        self.credit.take(candidates.iter().map(Candidate::copied_bytes).sum(), round, metrics, thresholds);
        let is_moved = |page: &&Candidate| !page.is_copied();
        self.history.note_moves(candidates.iter().filter(is_moved), round, thresholds);
        self.trial.add(round, metrics, &candidates);
        let telling = Telling {
            batch_pages: thresholds.batch_pages,
            weights: &|pid| views.get(&pid).map(|view| view.weighted_draw.weights(costs)).unwrap_or_default(),
            readers: &|pid| shared.get(&pid).map(|shared| shared.nodes(costs)).unwrap_or_default(),
            reason: &|operation| gates.explain(Reason::new(rule(operation)), thresholds),
        };
        // Pages that can neither be copied nor have a fallback are reported, at no cost.
        let is_real = |page: &&Candidate| page.operation != Operation::Replicate { own: None } || page.to.is_some();
        Ok((steps(&candidates, &telling), candidates.iter().filter(is_real).count()))
    }

    fn choose(&mut self, observation: &Observation, settings: &Settings, views: &Views, rules: &Rules) -> Chosen {
        let thresholds = &settings.thresholds;
        let mut chosen =
            Chosen { candidates: Vec::with_capacity(observation.pages.len()), shared: FxHashMap::default() };
        let mut last: Option<(Pid, Option<&ProcessView>)> = None;
        for (first, physical) in physical_pages(observation) {
            let page = &*physical.page;
            let view = match last {
                Some((pid, view)) if pid == page.pid => view,
                _ => views.get(&page.pid),
            };
            last = Some((page.pid, view));
            let Some(view) = view else { continue };
            let id = PageOf { pid: page.pid, address: page.address };
            self.history.note_seen(id, page.node, observation.round);
            if page.is_bound && settings.respect_owner || self.history.keeps(id, observation.round, thresholds) {
                continue;
            }
            let choice = rules.choose(page, view, self.history.may_have_copies(id, thresholds));
            let Some((operation, to)) = operation(choice) else { continue };
            if to.is_some_and(|to| !may_lie(&physical, to, views)) {
                continue;
            }
            let candidate = Candidate {
                pid: page.pid,
                address: page.address,
                bytes: page.page_bytes,
                from: page.node,
                to: to.map(|index| rules.costs.nodes()[index].id),
                samples: page.samples(),
                operation,
            };
            let is_replicated = matches!(operation, Operation::Replicate { .. });
            let copies = self.copies(first, &physical, views, observation.round, rules);
            if !copies.is_empty() {
                // Only one process falls back to distributing the page itself, if copying fails.
                let to = candidate.to.filter(|_| is_replicated);
                let targets = std::iter::once(to).chain(std::iter::repeat(None));
                chosen.candidates.extend(copies.into_iter().zip(targets).map(|((mapped, node), to)| Candidate {
                    pid: mapped.pid,
                    address: mapped.address,
                    samples: mapped.samples(),
                    to,
                    operation: Operation::Replicate { own: Some(node) },
                    ..candidate
                }));
                continue;
            }
            chosen.candidates.push(candidate);
            if is_replicated {
                chosen.shared.entry(page.pid).or_default().add(page, rules.costs);
            }
        }
        self.begin_replicating(&mut chosen, thresholds);
        chosen
    }

    /// The processes that get a private copy of a page, and its node. A page that other processes map cannot be moved
    /// for one of them alone, so a single user gets a copy instead.
    fn copies<'a>(
        &self,
        first: &'a Page,
        physical: &'a PhysicalPage,
        views: &Views,
        round: u64,
        rules: &Rules,
    ) -> Vec<(&'a Page, NodeId)> {
        if !first.is_replicable || physical.page.writes > 0 {
            return Vec::new();
        }
        let may = |(page, node): &(&Page, NodeId)| {
            let id = PageOf { pid: page.pid, address: page.address };
            let index = rules.costs.index_of(*node);
            let view = views.get(&page.pid).filter(|view| view.techniques.replicate);
            view.zip(index).is_some_and(|(view, index)| view.allowed[index])
                && self.history.may_have_copies(id, rules.thresholds)
                && !self.history.keeps(id, round, rules.thresholds)
        };
        physical.copies(first).into_iter().filter(may).collect()
    }

    /// The first replication of a process by a kernel pays off only for many pages; fewer get the fallback.
    fn begin_replicating(&mut self, chosen: &mut Chosen, thresholds: &Thresholds) {
        if chosen.shared.is_empty() {
            return;
        }
        let enough = chosen.shared.iter().filter(|(_, shared)| shared.pages >= thresholds.first_replication_pages);
        self.replicating.extend(enough.map(|(pid, _)| *pid));
        chosen.candidates.retain_mut(|page| {
            let waits = page.operation == Operation::Replicate { own: None } && !self.replicating.contains(&page.pid);
            if waits {
                page.operation = Operation::Deal;
            }
            !waits || page.to.is_some()
        });
    }

    /// Lowers the sampling rate when samples lead to few operations: samples cost time.
    fn set_rate(&mut self, operations: usize, thresholds: &Thresholds) -> Option<Step> {
        let is_idle = std::mem::take(&mut self.was_idle) || (operations as u64) < thresholds.operations_min;
        let has_credit = self.credit.bytes(thresholds) > 0;
        let is_slow = is_idle || !has_credit;
        if std::mem::replace(&mut self.is_slow, is_slow) == is_slow {
            return None;
        }
        let least = thresholds.operations_min as f64;
        let counted = |rule| Reason::new(rule).against(Quantity::Operations, operations as f64, least);
        let reason = match (is_idle, has_credit) {
            (true, _) => counted(Rule::FewOperations),
            (false, false) => Reason::new(Rule::SavedTooLittle),
            (false, true) => counted(Rule::ManyOperations),
        };
        Some(Step { action: Action::SetSampling(Sampling::at(is_slow, thresholds)), reason })
    }
}

impl Sampling {
    /// The full or the low rate.
    pub(crate) fn at(is_slow: bool, thresholds: &Thresholds) -> Self {
        let divisor = if is_slow { thresholds.sampling_divisor } else { 1 };
        let page_cap = if is_slow { thresholds.page_cap_low } else { thresholds.page_cap };
        Self { interval_cycles: thresholds.sampling_interval_cycles.saturating_mul(divisor), divisor, page_cap }
    }
}

/// Moves pages back to where they were before accesses became slower, including those still waiting.
fn take_back(
    mut back: Vec<Candidate>,
    reason: &Reason,
    observation: &Observation,
    costs: &Costs,
    settings: &Settings,
) -> (Vec<Step>, usize, Vec<Candidate>) {
    let thresholds = &settings.thresholds;
    let views: FxHashMap<Pid, &Process> = observation.processes.iter().map(|process| (process.pid, process)).collect();
    back.retain(|page| {
        let node_is_allowed = |process: &&Process| page.to.is_some_and(|to| process.nodes.contains(to));
        views.get(&page.pid).is_some_and(node_is_allowed)
    });
    let rest = Limits::new(observation, costs, thresholds, thresholds.page_cap).keep(&mut back, costs);
    let telling = Telling {
        batch_pages: thresholds.batch_pages,
        weights: &|_| Vec::new(),
        readers: &|_| NodeSet::new(),
        reason: &|_| reason.clone(),
    };
    (steps(&back, &telling), back.len(), rest)
}

fn memory_places(costs: &Costs) -> Vec<bool> {
    costs.nodes().iter().map(|node| node.memory_bytes > 0).collect()
}

/// Processes whose pages may be moved, and their allowed nodes.
fn views(
    observation: &Observation,
    costs: &Costs,
    settings: &Settings,
    processes: &FxHashMap<Pid, Techniques>,
    shares: &Shares,
) -> Views {
    let is_free = |process: &&Process| process.memory_policy.is_none() || !settings.respect_owner;
    let view = |process: &Process| {
        let techniques = *processes.get(&process.pid)?;
        let has_memory = memory_places(costs);
        let nodes = costs.nodes().iter().zip(has_memory);
        let allowed: Vec<bool> = nodes.map(|(node, memory)| memory && process.nodes.contains(node.id)).collect();
        let weighted_draw = WeightedDraw::new(shares, &allowed, costs);
        Some((process.pid, ProcessView { techniques, allowed, weighted_draw }))
    };
    observation.processes.iter().filter(is_free).filter_map(view).collect()
}

/// Whether all processes that map the page allow it on the node.
fn may_lie(physical: &PhysicalPage, index: usize, views: &Views) -> bool {
    physical.others.iter().all(|other| views.get(&other.pid).is_some_and(|view| view.allowed[index]))
}

fn operation(choice: Choice) -> Option<(Operation, Option<usize>)> {
    match choice {
        Choice::Stay => None,
        Choice::Move(to) => Some((Operation::Move, Some(to))),
        Choice::Deal(to) => Some((Operation::Deal, Some(to))),
        Choice::Replicate(to) => Some((Operation::Replicate { own: None }, to)),
        Choice::SplitShared => Some((Operation::SplitShared, None)),
        Choice::SplitHot => Some((Operation::SplitHot, None)),
    }
}

fn rule(operation: Operation) -> Rule {
    match operation {
        Operation::Move => Rule::OneNodeUses,
        Operation::Deal => Rule::SeveralNodesUse,
        Operation::Replicate { .. } => Rule::SeveralNodesRead,
        Operation::SplitShared => Rule::FalselyShared,
        Operation::SplitHot => Rule::TooHotToBalance,
    }
}
