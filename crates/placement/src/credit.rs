//! How much is moved: as long as moving takes no longer than it has saved, or could have.

use crate::costs::Costs;
use crate::metrics::{Metrics, avoidable_ns};
use crate::observation::Observation;
use crate::outcome::Outcome;
use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// What an access costs is compared with what it cost so many rounds ago at most: programs change.
const COMPARED_ROUNDS: u64 = 16;
/// So many rounds of moving may be saved up.
const MOST_ROUNDS: f64 = 8.0;
/// Less than this part of a round of moving waits for more: each time, all CPUs are disturbed.
const LEAST_ROUNDS: f64 = 0.25;
/// Moving is at most so many times as fast, or as slow, as [`Thresholds::move_bytes_per_s`] says.
const RATE_RANGE: f64 = 64.0;

/// What may be moved. Moving takes the time of CPUs, which the program may want for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Credit {
    /// For how long, s; none as long as nobody has told what accesses cost.
    left_s: Option<f64>,
    /// From how long on anything is moved, s.
    least_s: f64,
    /// What is moved in a second, bytes; none before anything has been.
    bytes_per_s: Option<f64>,
    taken: Option<Taken>,
    before: Option<Before>,
}

/// What was taken last, until it is known how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taken {
    round: u64,
    bytes: f64,
    seconds: f64,
}

/// When pages began to move, and what an access cost until then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    round: u64,
    access_ns: f64,
}

impl Credit {
    /// Takes note of a round. There is credit for what accesses cost less than before earlier moves, and for what they
    /// cost more than they would if all nodes had their part of the memory: where that estimate is right, to wait until
    /// it is as much as moving costs is never worse than twice the best that could have been done.
    pub fn learn(&mut self, observation: &Observation, now: &Metrics, costs: &Costs, thresholds: &Thresholds) {
        let Some((access_ns, accesses_per_us)) = now.access_ns.zip(now.accesses_per_us) else { return };
        let Observation { round, length_s, .. } = *observation;
        self.before = self.before.filter(|before| before.round.saturating_add(COMPARED_ROUNDS) >= round);
        let faster = |before: Before| (before.access_ns / thresholds.worse_cost_min - access_ns).max(0.0);
        let faster_ns = self.before.map_or(0.0, faster);
        // All CPUs together wait for that, and all of them may have to wait while pages are moved.
        let cpus: f64 = observation.processes.iter().map(|process| process.cpu_share).sum();
        let share = |ns: f64| (ns * 1e-3 * accesses_per_us / cpus.max(1.0)).min(1.0);
        let share = share(faster_ns) + share(avoidable_ns(observation, costs)) + thresholds.credit_share;
        let whole = thresholds.credit_rounds * length_s;
        let left = self.left_s.unwrap_or(whole);
        // A short round takes nothing of what longer ones have saved.
        self.left_s = Some((left + share * length_s).min(left.max(MOST_ROUNDS * whole)));
        self.least_s = LEAST_ROUNDS * whole;
    }

    /// What may be moved now, bytes: any number where nobody has told what accesses cost.
    pub fn bytes(&self, thresholds: &Thresholds) -> u64 {
        let bytes = |left: f64| if left < self.least_s { 0 } else { (left * self.rate(thresholds)) as u64 };
        self.left_s.map_or(u64::MAX, bytes)
    }

    fn rate(&self, thresholds: &Thresholds) -> f64 {
        self.bytes_per_s.unwrap_or(thresholds.move_bytes_per_s)
    }

    /// So many bytes move after this round.
    pub fn take(&mut self, bytes: u64, round: u64, now: &Metrics, thresholds: &Thresholds) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as f64;
        let seconds = bytes / self.rate(thresholds);
        self.left_s = self.left_s.map(|left| left - seconds);
        self.taken = Some(Taken { round, bytes, seconds });
        if self.before.is_none() {
            self.before = now.access_ns.map(|access_ns| Before { round, access_ns });
        }
    }

    /// How long it took in truth.
    pub fn settle(&mut self, outcome: &Outcome, thresholds: &Thresholds) {
        let Some(Taken { bytes, seconds, .. }) = self.taken.take().filter(|taken| taken.round == outcome.round) else {
            return;
        };
        if outcome.moving_s > 0.0 {
            self.left_s = self.left_s.map(|left| left + seconds - outcome.moving_s);
            let usual = thresholds.move_bytes_per_s;
            let measured = (bytes / outcome.moving_s).clamp(usual / RATE_RANGE, usual * RATE_RANGE);
            self.bytes_per_s = Some(self.bytes_per_s.map_or(measured, |known| f64::midpoint(known, measured)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ControllerLoad, Process, Traffic};
    use machine::{NodeId, Pid, presets};

    /// What is moved in a round, as thresholds say.
    const ROUND: u64 = 600_000_000;

    fn costs() -> Costs {
        Costs::of(&presets::find("opteron-8380x4").unwrap())
    }

    fn metrics(access_ns: f64) -> Metrics {
        Metrics { access_ns: Some(access_ns), accesses_per_us: Some(40.0), ..Metrics::default() }
    }

    /// Of a second in which four CPUs were busy.
    fn round(round: u64) -> Observation {
        let mut process = Process::new(Pid(7), "0-7".parse().unwrap(), "0-1".parse().unwrap());
        process.cpu_share = 4.0;
        Observation { round, length_s: 1.0, processes: vec![process], ..Observation::default() }
    }

    /// All of the four nodes' accesses go to memory of so many, whose controllers are that busy.
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
            metrics.accesses_per_us = Metrics::of(observation, &costs()).accesses_per_us;
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
        // A quarter of a round of moving, whenever it has come together.
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
        // 200 ns and less up to 200 / 1.15 are alike. What is less by 24 ns than that is, of 40 accesses a microsecond,
        // nearly a second of all CPUs in one, a quarter of it of each.
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
        let outcome = |moving_s| Outcome { round: 1, moving_s, ..Outcome::default() };
        let mut other = credit.clone();
        other.settle(&Outcome { round: 2, ..outcome(9.0) }, &thresholds);
        other.settle(&outcome(9.0), &thresholds);
        assert_eq!(other.bytes(&thresholds), bytes - bytes / 2, "of another round");
        // 0.51 s were taken of 1.02, and 0.25 were enough: so fast is the rest as well.
        credit.settle(&outcome(0.25), &thresholds);
        let left = credit.bytes(&thresholds);
        assert!(left.abs_diff(ROUND * 77 * 2 * 102 / 10_000) < ROUND / 100, "{left}");
        credit.settle(&outcome(9.0), &thresholds);
        assert_eq!(credit.bytes(&thresholds), left, "once");
    }
}
