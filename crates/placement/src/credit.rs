//! Limits how much is moved: moving must take no longer than it has saved, or could have saved.

use crate::costs::Costs;
use crate::metrics::{AccessCost, Metrics, avoidable_ns};
use crate::move_rate::MoveRate;
use crate::observation::Observation;
use crate::outcome::Outcome;
use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// The cost of an access is compared with its cost up to this many rounds ago: programs change.
const COMPARED_ROUNDS: u64 = 16;
/// Upper bound of saved credit, in rounds of moving.
const MOST_ROUNDS: f64 = 8.0;
/// Smallest amount that is moved, in rounds of moving: each move disturbs all CPUs.
const LEAST_ROUNDS: f64 = 0.25;

/// How much may be moved. Moving uses CPU time that the program may need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Credit {
    /// Remaining credit, s; none until the cost of accesses is known.
    left_s: Option<f64>,
    /// Credit below which nothing is moved, s.
    least_s: f64,
    rate: MoveRate,
    taken: Option<Taken>,
    before: Option<Before>,
}

/// The last withdrawal, until its actual duration is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taken {
    round: u64,
    bytes: f64,
    seconds: f64,
}

/// When pages began to move, and the cost of an access until then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    round: u64,
    cost: AccessCost,
}

impl Credit {
    /// Records a round. Credit is earned by how much cheaper accesses are than before earlier moves, and by how much
    /// more they cost than if memory were spread over all nodes. If that estimate is right, waiting until the credit
    /// equals the cost of moving is never worse than twice the optimum.
    pub fn learn(&mut self, observation: &Observation, now: &Metrics, costs: &Costs, thresholds: &Thresholds) {
        let Some((cost, accesses_per_us)) = now.access_cost().zip(now.accesses_per_us) else { return };
        let Observation { round, length_s, .. } = *observation;
        self.before = self.before.filter(|before| before.round.saturating_add(COMPARED_ROUNDS) >= round);
        // Above the same bound as in a trial: a lucky round must not pay for moves.
        let faster = |before: Before| before.cost.above_ns(thresholds.worse_cost_min, cost);
        let faster_ns = self.before.and_then(faster).unwrap_or(0.0) / thresholds.worse_cost_min;
        // Accesses stall all CPUs together, and moving pages may stall all of them.
        let cpus: f64 = observation.processes.iter().map(|process| process.cpu_share).sum();
        let share = |ns: f64| (ns * 1e-3 * accesses_per_us / cpus.max(1.0)).min(1.0);
        let share = share(faster_ns) + share(avoidable_ns(observation, costs)) + thresholds.credit_share;
        let whole = thresholds.credit_rounds * length_s;
        let left = self.left_s.unwrap_or(whole);
        // A short round must not reduce what longer ones have saved.
        self.left_s = Some((left + share * length_s).min(left.max(MOST_ROUNDS * whole)));
        self.least_s = LEAST_ROUNDS * whole;
    }

    /// Bytes that may be moved now: unlimited if the cost of accesses is not known.
    pub fn bytes(&self, thresholds: &Thresholds) -> u64 {
        let bytes = |left: f64| if left < self.least_s { 0 } else { (left * self.rate.bytes_per_s(thresholds)) as u64 };
        self.left_s.map_or(u64::MAX, bytes)
    }

    /// Withdraws credit for bytes that are moved after this round.
    pub fn take(&mut self, bytes: u64, round: u64, now: &Metrics, thresholds: &Thresholds) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as f64;
        let seconds = bytes / self.rate.bytes_per_s(thresholds);
        self.left_s = self.left_s.map(|left| left - seconds);
        self.taken = Some(Taken { round, bytes, seconds });
        if self.before.is_none() {
            self.before = now.access_cost().map(|cost| Before { round, cost });
        }
    }

    /// Replaces the estimated duration of the last move by the actual one.
    pub fn settle(&mut self, outcome: &Outcome) {
        let Some(Taken { seconds, .. }) = self.taken.take().filter(|taken| taken.round == outcome.round) else {
            return;
        };
        if outcome.moving_s > 0.0 {
            self.left_s = self.left_s.map(|left| left + seconds - outcome.moving_s);
        }
        self.rate.learn(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ControllerLoad, Process, Traffic};
    use machine::{NodeId, Pid, presets};

    /// Bytes moved per round at the thresholds' rate.
    const ROUND: u64 = 600_000_000;

    fn costs() -> Costs {
        Costs::new(&presets::find("opteron-8380x4").unwrap())
    }

    fn metrics(access_ns: f64) -> Metrics {
        Metrics { access_ns: Some(access_ns), accesses_per_us: Some(40.0), ..Metrics::default() }
    }

    /// One second in which four CPUs were busy.
    fn round(round: u64) -> Observation {
        let mut process = Process::new(Pid(7), "0-7".parse().unwrap(), "0-1".parse().unwrap());
        process.cpu_share = 4.0;
        Observation { round, length_s: 1.0, processes: vec![process], ..Observation::default() }
    }

    /// Accesses of four nodes, all to the memory of the first `nodes` nodes, whose controllers have this utilisation.
    fn traffic(number: u64, nodes: u32, utilisation: f64) -> Observation {
        let pairs = (0..4).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let accesses = 40e6 * utilisation / f64::from(4 * nodes);
        let traffic = |(from, to)| Traffic { from: NodeId(from), to: NodeId(to), accesses };
        let load =
            |node| ControllerLoad { node: NodeId(node), utilisation: if node < nodes { utilisation } else { 0.0 } };
        Observation { traffic: pairs.map(traffic).collect(), controllers: (0..4).map(load).collect(), ..round(number) }
    }

    fn learn(credit: &mut Credit, observation: &Observation, access_ns: f64) -> u64 {
        let thresholds = Thresholds::default();
        let mut metrics = metrics(access_ns);
        if !observation.traffic.is_empty() {
            metrics.accesses_per_us = Metrics::new(observation, &costs()).accesses_per_us;
        }
        credit.learn(observation, &metrics, &costs(), &thresholds);
        credit.bytes(&thresholds)
    }

    fn may(credit: &mut Credit, number: u64, access_ns: f64) -> u64 {
        learn(credit, &round(number), access_ns)
    }

    fn take(credit: &mut Credit, bytes: u64, number: u64, access_ns: f64) {
        credit.take(bytes, number, &metrics(access_ns), &Thresholds::default());
    }

    #[test]
    fn what_does_not_help_is_soon_over() {
        let mut credit = Credit::default();
        let mut moved = Vec::new();
        for number in 1..100 {
            let bytes = may(&mut credit, number, 100.0).min(ROUND / 2);
            take(&mut credit, bytes, number, 100.0);
            moved.push(bytes);
        }
        assert_eq!(moved[..2], [ROUND / 2; 2]);
        // Moves happen whenever a quarter of a round of moving has accumulated.
        assert!(moved[3..].iter().all(|&bytes| bytes == 0 || (ROUND / 4..ROUND / 2).contains(&bytes)), "{moved:?}");
        let all: u64 = moved.iter().sum();
        assert!((ROUND * 5 / 2..=ROUND * 3).contains(&all), "one round's, and 2 % of 99 others': {all}");
    }

    #[test]
    fn what_helps_pays_for_more() {
        let mut credit = Credit::default();
        assert_eq!(credit.bytes(&Thresholds::default()), u64::MAX);
        let bytes = may(&mut credit, 1, 200.0);
        take(&mut credit, bytes, 1, 200.0);
        assert_eq!(credit.bytes(&Thresholds::default()), 0);
        // From 200 ns, anything above 200 / 1.15 counts as equal. The 24 ns below that, at 40 accesses a microsecond,
        // are nearly one CPU second per second, a quarter of it on each CPU.
        let bytes = may(&mut credit, 2, 150.0);
        assert!(bytes.abs_diff(ROUND * 259 / 1000) < ROUND / 1000, "{bytes}");
        take(&mut credit, bytes, 2, 150.0);
        let bytes = may(&mut credit, 3, 120.0);
        assert!(bytes.abs_diff(ROUND * 559 / 1000) < ROUND / 1000, "compared with what it was at first: {bytes}");
        let saved: Vec<u64> = (4..18).map(|number| may(&mut credit, number, 100.0)).collect();
        assert_eq!(saved.last(), Some(&(8 * ROUND)), "and no more is saved up");
        let mut after_a_short_round = credit.clone();
        let short = Observation { length_s: 0.1, ..round(18) };
        assert_eq!(learn(&mut after_a_short_round, &short, 100.0), 8 * ROUND);
        take(&mut credit, 8 * ROUND, 17, 100.0);
        assert_eq!(may(&mut credit, 18, 100.0), 0, "what was long ago is not compared with");
        let left = credit.clone();
        credit.learn(&round(19), &Metrics::default(), &costs(), &Thresholds::default());
        assert_eq!(credit, left, "where nothing was accessed");
    }

    #[test]
    fn what_few_samples_leave_open_pays_for_nothing() {
        let earned = |access_error_ns| {
            let mut credit = Credit::default();
            let metrics = |access_ns| Metrics { access_error_ns, ..metrics(access_ns) };
            let learn = |credit: &mut Credit, number, access_ns| {
                credit.learn(&round(number), &metrics(access_ns), &costs(), &Thresholds::default());
                credit.bytes(&Thresholds::default())
            };
            let bytes = learn(&mut credit, 1, 200.0);
            credit.take(bytes, 1, &metrics(200.0), &Thresholds::default());
            (2..20).map(|number| learn(&mut credit, number, 150.0)).max().unwrap()
        };
        assert!(earned(Some(20.0)) < ROUND / 2, "the credit of rounds without savings");
        assert!(earned(Some(2.0)) > 3 * ROUND);
    }

    #[test]
    fn so_does_what_waits_for_one_controller() {
        let moved = |observed: &dyn Fn(u64) -> Observation| {
            let mut credit = Credit::default();
            let moved = (1..20).map(|number| {
                let bytes = learn(&mut credit, &observed(number), 100.0);
                take(&mut credit, bytes, number, 100.0);
                bytes
            });
            moved.skip(1).sum::<u64>()
        };
        let share = moved(&round);
        assert!(moved(&|number| traffic(number, 4, 0.95)) <= share, "all of them are as busy");
        assert!(moved(&|number| traffic(number, 1, 0.1)) < 4 * share, "it is near enough, and nothing waits for it");
        assert!(moved(&|number| traffic(number, 1, 0.95)) > 15 * ROUND, "nearly all of the time");
    }

    #[test]
    fn what_moving_took_counts() {
        let mut credit = Credit::default();
        let bytes = may(&mut credit, 1, 100.0);
        take(&mut credit, bytes / 2, 1, 100.0);
        let thresholds = Thresholds::default();
        let outcome = |moving_s| Outcome { round: 1, moving_s, bytes_moved: bytes / 2, ..Outcome::default() };
        let mut other = credit.clone();
        other.settle(&Outcome { round: 2, ..outcome(9.0) });
        other.settle(&outcome(9.0));
        assert_eq!(other.bytes(&thresholds), bytes - bytes / 2, "of another round");
        // The kernel refused all: that shows no rate.
        let (mut refused, before) = (credit.clone(), credit.rate);
        refused.settle(&Outcome { bytes_moved: 0, ..outcome(0.001) });
        assert_eq!(refused.rate, before);
        // 1.02 s were withdrawn, of which 0.51 s were used, and 0.25 s sufficed: the rest is scaled by the same rate.
        credit.settle(&outcome(0.25));
        let left = credit.bytes(&thresholds);
        assert!(left.abs_diff(ROUND * 77 * 2 * 102 / 10_000) < ROUND / 100, "{left}");
        credit.settle(&outcome(9.0));
        assert_eq!(credit.bytes(&thresholds), left, "once");
    }
}
