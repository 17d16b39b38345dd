//! `predict`: chooses a placement for whole segments of memory by what it would change, moves in bulk when that has
//! become worth its cost, and compares the gain with the prediction.
//!
//! 1. [`segments`]: mappings, halved while different nodes use their halves.
//! 2. [`forecast`]: the round's traffic through the machine's queues, under any placement of the segments.
//! 3. [`search`]: leave, deal by bandwidth, each segment to its users, and mixtures of these.
//!    [`homes`]: threads whose memory is on other nodes are kept there instead, where that is as fast.
//! 4. [`moves`]: the remaining time of a program is not known. Memory of a process moves once what would have been saved
//!    so far equals what moving costs: if the prediction holds, that is never worse than twice the optimum. After moves,
//!    time is counted anew.
//!    [`waiting`]: until then, or while a choice finds nothing, the next one is made later and later, unless the traffic
//!    changes: at most 0.5 % of the time is spent on them, unless one takes more than 16 % of a round. Between them few
//!    samples are taken.
//! 5. Two rounds later the cost of an access is compared with the one before, if the same nodes access. Moves that made
//!    accesses slower are taken back where one node had the memory, or it was spread. After these, and after moves that gained less than a
//!    quarter of what was predicted, the policy rests, twice as long after each further failure. It trusts predictions
//!    less where less was gained than predicted, and a little more again with each choice.
//! 6. [`Lesson`]: to spread all memory, or to have nearly all accesses local, is worth remembering where it gains. A later
//!    run of the same program can begin with it, and needs no moves.
//!
//! [`demand`] estimates what the source leaves open. With counters alone, mappings are segments, and the nodes that use
//! them are those that use the memory of the nodes where they are. With hint faults alone nothing says how much is gained:
//! predicted gains count a quarter, and after moves the policy rests, longer each time.
//!
//! Threads with a line or more under way count as always waiting for memory, so that gains of streams, which prefetch, are
//! overestimated; the trust corrects this after the first moves.
//!
//! The steps are those of several systems: Pandia's resource loop (3), BWAP's weights (2), ski rental (4).

mod demand;
mod forecast;
mod homes;
mod lesson;
mod matrix;
mod moves;
mod search;
mod segments;
mod sharing;
mod significance;
mod slices;
mod trial;
mod waiting;

use crate::action::{Action, Step};
use crate::batches::Limits;
use crate::costs::Costs;
use crate::metrics::Metrics;
use crate::move_rate::MoveRate;
use crate::observation::{Observation, Process, Tells};
use crate::outcome::Outcome;
use crate::reason::{Quantity, Reason, Rule};
use crate::settings::Settings;
use crate::thresholds::Thresholds;
use demand::{Demand, counted, is_assumed};
use forecast::{Effect, Forecast};
use homes::{Homes, Proposal};
pub use lesson::Lesson;
use machine::Pid;
use matrix::Matrix;
use moves::{Moves, Weighing, limited};
use search::Plan;
use segments::Sampled;
use serde::{Deserialize, Serialize};
pub use sharing::resident;
use slices::slices;
use std::collections::{BTreeMap, BTreeSet};
use trial::{Trial, is_unchanged, ranges_of};
pub use waiting::OWN_SHARE;
use waiting::{NotChosen, Shape, Waiting, samples};

/// Fewest samples of a round that a placement is chosen by.
const FEWEST_SAMPLES: u64 = 256;
/// Most samples of a round: enough for 32 segments with 64 samples each, which is what halving one needs.
pub(crate) const MOST_SAMPLES: u64 = 2048;
/// Least predicted speedup that is acted on: the model's errors are of a few percent.
const LEAST_SPEEDUP: f64 = 1.03;
/// Part of the samples in memory that several processes map from which on that memory is why nothing is chosen.
const MOSTLY_OF_SEVERAL: f64 = 0.5;
/// Largest part of the samples of processes whose mappings were not read: their pages stay.
const MOST_UNREAD: f64 = 0.5;
/// Least trust in predictions. Moves that gained a smaller part of what was predicted were a mistake.
const LEAST_TRUST: f64 = 0.25;
/// The part of lost trust that each choice gives back: a forecast may have been judged by another phase.
const TRUST_REGAINED: f64 = 0.05;
/// The part of planned moves from which on their effect is that of all.
const NEARLY_ALL: f64 = 0.9;
/// Least predicted speedup of keeping threads near their memory: the model is as exact as this.
const NOT_SLOWER: f64 = 0.995;
/// How often in succession moves may be followed by a choice without having been judged.
const MOST_UNJUDGED: u32 = 1;
/// How often the time of rest is doubled at most.
const MOST_DOUBLINGS: u32 = 8;

/// State kept between rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Predict {
    /// How long each process has been busy since it began, or since its last moves, s.
    busy_s: BTreeMap<Pid, f64>,
    rate: MoveRate,
    /// Moves whose effect is not known yet.
    trial: Option<Trial>,
    /// Threads that are kept near their memory.
    homes: Homes,
    /// When the next placement is chosen.
    waiting: Waiting,
    /// The round that was decided last.
    round: u64,
    /// No moves before this round.
    rests_until: u64,
    /// How often in succession moves made accesses slower, or their gain was not known.
    failures: u32,
    /// How often in succession moves could not be judged.
    unjudged: u32,
    /// What became of predicted gains, 0 to 1: later predictions are as much smaller.
    trust: f64,
    /// What the program began with.
    began_with: Option<Lesson>,
    /// What a later run is to begin with.
    lesson: Option<Lesson>,
}

impl Default for Predict {
    fn default() -> Self {
        Self {
            busy_s: BTreeMap::new(),
            rate: MoveRate::default(),
            trial: None,
            homes: Homes::default(),
            waiting: Waiting::default(),
            round: 0,
            rests_until: 0,
            failures: 0,
            unjudged: 0,
            trust: 1.0,
            began_with: None,
            lesson: None,
        }
    }
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
        self.round = observation.round;
        self.count_time(observation, settings);
        let released = self.homes.released(observation);
        if !released.is_empty() {
            let pids: BTreeSet<Pid> = released.iter().filter_map(|step| step.action.pid()).collect();
            self.trial.take_if(|trial| !trial.pids.is_disjoint(&pids));
            return released;
        }
        if let Some(steps) = self.judge(observation, costs, settings, metrics) {
            return steps;
        }
        if let Some(reason) = self.waiting.reason(observation) {
            return vec![Step { action: Action::Nothing, reason }];
        }
        match self.choose(observation, costs, settings, metrics) {
            Ok(steps) => {
                self.waiting.end();
                steps
            }
            Err(why) => {
                self.waiting.begin(&why, observation);
                vec![Step { action: Action::Nothing, reason: why.reason }]
            }
        }
    }

    /// Whether a placement may be chosen after this round, which has this number of samples, so that mappings are needed.
    pub fn may_choose(&self, round: u64, samples: u64) -> bool {
        // Moves that cannot be judged are followed by a choice at once.
        let is_free = self.trial.as_ref().is_none_or(|trial| trial.is_due(round));
        is_free && round >= self.rests_until && self.waiting.is_over(round, samples)
    }

    /// Whether the next round needs many samples: for a choice, or to compare what accesses cost since moves.
    pub fn needs_samples(&self) -> bool {
        let next = self.round.saturating_add(1);
        let is_judged = |trial: &Trial| trial.is_due(next);
        let may_choose =
            || next >= self.rests_until && (self.waiting.is_for_samples() || self.waiting.is_over(next, 0));
        self.trial.as_ref().map_or_else(may_choose, is_judged)
    }

    /// Rounds after the last one in which nothing will be decided, unless the traffic changes.
    pub fn idle_rounds(&self) -> u64 {
        let judged = self.trial.as_ref().map(Trial::due);
        let next = judged.unwrap_or_else(|| self.rests_until.max(self.waiting.until()));
        next.saturating_sub(self.round).saturating_sub(1)
    }

    /// Records how long moves took.
    pub fn learn(&mut self, outcome: &Outcome) {
        let is_undone = outcome.bytes_moved == 0 && !outcome.out_of_time;
        // What nothing was moved for, such as a process whose owner has just placed it, has no effect to judge, and no rate.
        self.trial.take_if(|trial| trial.round == outcome.round && trial.bytes > 0.0 && is_undone);
        let trial = self.trial.as_ref().filter(|trial| trial.round == outcome.round);
        let Some(planned) = trial.map(|trial| trial.bytes).filter(|_| outcome.moving_s > 0.0) else { return };
        let bytes = outcome.bytes_moved as f64;
        self.rate.learn(outcome);
        // A part of the moves shows no effect of the whole; the rest is weighed anew, at this rate.
        if let Some(trial) = self.trial.as_mut().filter(|_| outcome.out_of_time && bytes < NEARLY_ALL * planned) {
            trial.forecast = None;
            self.busy_s.extend(trial.pids.iter().map(|pid| (*pid, 0.0)));
        }
        self.trial.take_if(|trial| trial.round == outcome.round && trial.bytes > 0.0 && outcome.bytes_moved == 0);
    }

    /// Begins with what an earlier run taught.
    pub fn begin_with(&mut self, lesson: Lesson) {
        (self.began_with, self.lesson) = (Some(lesson), Some(lesson));
    }

    /// What the program began with.
    pub fn began_with(&self) -> Option<Lesson> {
        self.began_with
    }

    /// What this run teaches, and those before it.
    pub fn lesson(&self) -> Option<Lesson> {
        self.lesson
    }

    /// Removes a process that has ended.
    pub fn forget(&mut self, pid: Pid) {
        self.changed(pid);
        self.homes.forget(pid);
    }

    /// A process executes another program, or has another phase.
    pub fn changed(&mut self, pid: Pid) {
        self.busy_s.remove(&pid);
        self.homes.changed(pid);
        self.trial.take_if(|trial| trial.pids.contains(&pid));
    }

    /// Whether threads are kept near their memory: new ones inherit their CPUs, and their waiting is to be read.
    pub fn keeps_threads(&self) -> bool {
        self.homes.are_kept(self.round)
    }

    /// Threads have moved, so that the effect of earlier moves of memory is not known.
    pub fn threads_moved(&mut self) {
        self.trial = None;
        self.waiting.end();
    }

    fn count_time(&mut self, observation: &Observation, settings: &Settings) {
        let alive: BTreeSet<Pid> = observation.processes.iter().map(|process| process.pid).collect();
        self.busy_s.retain(|pid, _| alive.contains(pid));
        self.trial.take_if(|trial| !trial.pids.is_subset(&alive));
        let is_busy = |process: &&Process| process.cpu_share > settings.thresholds.cpu_share_min;
        // A replayed log may say anything.
        let length_s = Some(observation.length_s).filter(|length_s| (0.0..f64::INFINITY).contains(length_s));
        for process in observation.processes.iter().filter(is_busy) {
            *self.busy_s.entry(process.pid).or_default() += length_s.unwrap_or(0.0);
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
        let (round, thresholds) = (observation.round, &settings.thresholds);
        if self.trial.as_ref().is_some_and(|trial| !trial.is_due(round)) {
            return Some(nothing(Reason::new(Rule::MovesSettle)));
        }
        let Some(trial) = self.trial.take() else {
            let left = self.rests_until.saturating_sub(round);
            return (left > 0).then(|| nothing(Reason::new(Rule::Resting).with(Quantity::Rounds, left as f64)));
        };
        let Some((before, after)) = trial.costs(observation, metrics) else {
            self.unjudged = self.unjudged.saturating_add(1);
            // A phase may have ended. Where that is so each time, moves would go on without end.
            if trial.before.is_some() && self.unjudged <= MOST_UNJUDGED {
                return None;
            }
            self.unjudged = 0;
            self.rest(thresholds);
            return Some(nothing(Reason::new(Rule::GainUnknown)));
        };
        self.unjudged = 0;
        let gain_at = |access_ns: f64| {
            let forecast = trial.forecast?;
            let speedup = forecast.speedup_at(access_ns / before.access_ns)?;
            Some((speedup, (speedup - 1.0) / (forecast.speedup - 1.0))).filter(|(_, gained)| gained.is_finite())
        };
        let measured = gain_at(after.access_ns);
        let at_most = gain_at(after.access_ns - after.left_open_ns(1.0, before));
        let reason = |rule| {
            let predicted = Reason::new(rule).with(Quantity::PredictedSpeedup, trial.predicted);
            let both = match measured {
                Some((speedup, _)) => predicted.with(Quantity::MeasuredSpeedup, speedup),
                None => predicted,
            };
            both.with(Quantity::AccessNsBefore, before.access_ns).with(Quantity::AccessNs, after.access_ns)
        };
        if let Some((_, gained)) = measured {
            self.trust = f64::midpoint(self.trust, gained.clamp(LEAST_TRUST, 1.0));
        }
        if after.above_ns(thresholds.worse_cost_min, before).is_none() {
            // Where threads do not stay on their nodes, each forecast holds for a few rounds only.
            if at_most.is_some_and(|(_, gained)| gained < LEAST_TRUST) {
                self.unlearn(&trial);
                self.rest(thresholds);
                return Some(nothing(reason(Rule::GainedLittle)));
            }
            // Of a part of a plan nothing was predicted.
            if measured.is_some() {
                self.failures = 0;
            }
            return Some(nothing(reason(Rule::MovesCompared)));
        }
        // The opposite was predicted, and is wrong.
        self.unlearn(&trial);
        self.rest(thresholds);
        let back = self.homes.give_back(trial.back, round);
        let back = back.into_iter().filter(|action| is_unchanged(action, observation, settings)).collect();
        let back = limited(back, observation, Limits::new(observation, costs, thresholds, u64::MAX), costs).into_iter();
        let back: Vec<Step> = back.map(|action| Step { action, reason: reason(Rule::MadeWorse) }).collect();
        Some(if back.is_empty() { nothing(reason(Rule::MadeWorse)) } else { back })
    }

    /// Forgets what was learned from a forecast that was wrong.
    fn unlearn(&mut self, trial: &Trial) {
        if trial.bytes > 0.0 {
            self.lesson = self.began_with;
        }
    }

    /// Nothing moves for some rounds, twice as many as the last time.
    fn rest(&mut self, thresholds: &Thresholds) {
        let rest = thresholds.rest_rounds.saturating_mul(1 << self.failures.min(MOST_DOUBLINGS));
        let rest = rest.min(thresholds.rest_rounds_max.max(thresholds.rest_rounds));
        self.rests_until = self.round.saturating_add(rest);
        self.failures = self.failures.saturating_add(1);
    }

    /// The moves that are worth their cost by now.
    fn choose(
        &mut self,
        observation: &Observation,
        costs: &Costs,
        settings: &Settings,
        metrics: &Metrics,
    ) -> Result<Vec<Step>, NotChosen> {
        let sampled = sampled(observation, costs, settings)?;
        if sampled.unread > MOST_UNREAD {
            return Err(Reason::new(Rule::MappingsNotRead).into());
        }
        let demand =
            Demand::new(observation, &sampled, costs, metrics).ok_or_else(|| Reason::new(Rule::NoLatencies))?;
        let (is_assumed, accesses_per_ns) = (demand.is_assumed, demand.accesses_per_ns());
        let of_several = sampled.of_several;
        let trust = if is_assumed { LEAST_TRUST } else { self.trust };
        let slices = slices(observation, costs);
        let forecast = Forecast::new(demand, sampled, slices, costs).ok_or_else(|| Reason::new(Rule::NoLatencies))?;
        self.trust += (1.0 - self.trust) * TRUST_REGAINED;
        let plan = Plan::search(&forecast);
        let trusted = |effect: Effect| 1.0 + (effect.speedup - 1.0) * trust;
        let keeps = settings.thresholds.keep_threads > 0;
        let near = keeps.then(|| self.homes.propose(observation, costs, settings)).flatten();
        if let Some(near) = near.filter(|near| near.is_worth_it(accesses_per_ns, costs)) {
            let effect = forecast.effect_between(&near.now, &near.kept);
            // Nothing is copied for it, and it is easily taken back. Where all queues are full the model sees no gain.
            if effect.speedup >= NOT_SLOWER && effect.speedup * LEAST_SPEEDUP >= plan.effect.speedup {
                return Ok(self.keep_near((observation, metrics), near, (trusted(effect), effect), costs));
            }
        }
        let speedup = trusted(plan.effect);
        let predicted = |rule| Reason::new(rule).against(Quantity::PredictedSpeedup, speedup, LEAST_SPEEDUP);
        // Where memory was spread already and that was wrong, forecasts of the opposite are not believed again.
        if self.began_with != Some(Lesson::FirstTouch) && !is_assumed && self.failures == 0 {
            let trusted = |effect| trusted(effect).max(0.0);
            self.lesson = Lesson::of(&forecast, &plan, trusted).or(self.lesson);
        }
        if speedup < LEAST_SPEEDUP && of_several > MOSTLY_OF_SEVERAL {
            let why = Reason::new(Rule::OfSeveralProcesses);
            let why = why.against(Quantity::OfSeveralProcesses, of_several, MOSTLY_OF_SEVERAL);
            return Err(why.against(Quantity::PredictedSpeedup, speedup, LEAST_SPEEDUP).into());
        }
        if speedup < LEAST_SPEEDUP {
            return Err(predicted(Rule::NothingFaster).into());
        }
        let weighing = Weighing {
            gain: 1.0 - 1.0 / speedup,
            bytes_per_s: self.rate.bytes_per_s(&settings.thresholds),
            busy_s: &self.busy_s,
        };
        let limits = Limits::new(observation, costs, &settings.thresholds, u64::MAX);
        let moves = Moves::new(&plan, &forecast, limits, &weighing, predicted)?;
        for pid in &moves.complete {
            self.busy_s.insert(*pid, 0.0);
        }
        let Moves { steps, pids, back, bytes, .. } = moves;
        // Other processes may not have paid for theirs yet, and nodes or the budget may have room for a part only.
        let plan = plan.of(&pids, &forecast);
        let is_whole = |effect: &Effect| bytes >= NEARLY_ALL * plan.bytes && effect.speedup >= LEAST_SPEEDUP;
        let effect = Some(plan.effect).filter(is_whole);
        self.begin_trial((observation, metrics), pids, (trusted(plan.effect), effect), back, bytes);
        if let Some(trial) = &mut self.trial {
            trial.moved = steps.iter().flat_map(|step| ranges_of(&step.action)).collect();
        }
        Ok(steps)
    }

    /// Keeps threads near their memory.
    fn keep_near(
        &mut self,
        (observation, metrics): (&Observation, &Metrics),
        near: Proposal,
        (predicted, effect): (f64, Effect),
        costs: &Costs,
    ) -> Vec<Step> {
        let [now, then] = near.local();
        let reason = Reason::new(Rule::KeptNear).with(Quantity::PredictedSpeedup, predicted);
        let reason = reason.with(Quantity::LocalAccessRatio, now).with(Quantity::LocalAccessRatioNear, then);
        let (steps, back) = self.homes.keep(near, observation, costs, &reason);
        let pids = steps.iter().filter_map(|step| step.action.pid()).collect();
        self.begin_trial((observation, metrics), pids, (predicted, Some(effect)), back, 0.0);
        if let Some(trial) = &mut self.trial {
            // Threads that move have their accesses on other nodes, as they should.
            trial.users = Shape::default();
            trial.forecast.take_if(|effect| effect.speedup < LEAST_SPEEDUP);
        }
        steps
    }

    /// What moves is compared with what was predicted of it.
    fn begin_trial(
        &mut self,
        (observation, metrics): (&Observation, &Metrics),
        pids: BTreeSet<Pid>,
        (predicted, forecast): (f64, Option<Effect>),
        back: Vec<Action>,
        bytes: f64,
    ) {
        let (round, before, users) = (observation.round, metrics.access_cost(), Shape::of_users(observation));
        let (accesses_per_us, moved) = (metrics.accesses_per_us, Vec::new());
        self.trial =
            Some(Trial { round, pids, predicted, forecast, before, accesses_per_us, moved, users, bytes, back });
    }
}

/// Who uses what, or why that is not known.
fn sampled(observation: &Observation, costs: &Costs, settings: &Settings) -> Result<Sampled, Reason> {
    let is_counted = observation.traffic.iter().any(|pair| pair.accesses > 0.0);
    if !is_counted && !is_assumed(observation) {
        return Err(Reason::new(Rule::NoTraffic));
    }
    if observation.tells == Tells::Counts {
        return Ok(Sampled::by_residence(observation, &counted(observation, costs), costs, settings));
    }
    let count = samples(observation);
    if count < FEWEST_SAMPLES {
        let few = Reason::new(Rule::FewSamples);
        return Err(few.against(Quantity::Samples, count as f64, FEWEST_SAMPLES as f64));
    }
    Ok(Sampled::new(observation, costs, settings))
}
