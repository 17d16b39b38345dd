//! The sampling rate: as high as the policy wants, and within the CPU limit on average.

use std::time::Duration;

/// Samples per second at the full rate, of all CPUs together. Shorter rounds get a smaller share, but at least a few
/// thousand.
const PER_SECOND: f64 = 80_000.0;
const FEWEST: f64 = 2048.0;
/// The fraction taken while the CPU limit is exceeded or the policy wants fewer (Carrefour: a quarter). Counters show
/// when more samples are needed.
const FEWER: f64 = 1.0 / 32.0;
/// Fewest samples that estimate the access rate. With fewer, the true number may be higher by this many standard errors.
const TELLING: u64 = 64;
const ERRORS: f64 = 3.0;
/// The smallest part that is left of a period.
const LEAST_FACTOR: f64 = 1.0 / 16.0;
/// Rounds of unused allowance that may be saved, so that a new or changed program is observed quickly.
const SAVED_ROUNDS: f64 = 32.0;
const SHORTEST: u64 = 100;
const LONGEST: u64 = 1 << 32;
/// Maximum rate of hardware samples per CPU: each sample is an interrupt.
const MOST_HZ: u64 = 4000;

/// The sampling rate.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    /// Samples per round at the full rate.
    full: f64,
    round_s: f64,
    /// Accesses per round from which on memory may be contended.
    contended: f64,
    /// Whether the policy currently wants fewer samples.
    is_low: bool,
    /// Agent time that a round may cost, s.
    allowance_s: f64,
    /// Unused allowance of earlier rounds, or debt if negative, s.
    saved_s: f64,
    /// Current rate of hardware samples per CPU, Hz.
    hz: u64,
}

impl Rate {
    /// For rounds of this length, of which the policy uses at most `most` samples. Observing and deciding may use the part
    /// `cpu_limit` of one CPU on average. From `contended_per_s` accesses per second on memory may be contended, so that
    /// there may be something to decide.
    pub fn new(round: Duration, most: u64, cpu_limit: f64, contended_per_s: f64) -> Self {
        let full = (PER_SECOND * round.as_secs_f64()).max(FEWEST).min(most as f64);
        let allowance_s = round.as_secs_f64() * cpu_limit;
        let saved_s = allowance_s * SAVED_ROUNDS;
        let (round_s, contended) = (round.as_secs_f64(), round.as_secs_f64() * contended_per_s);
        Self { full, round_s, contended, is_low: false, allowance_s, saved_s, hz: 0 }
    }

    /// Sets how many times fewer samples the policy wants than at the full rate.
    pub fn set_divisor(&mut self, divisor: u64) {
        self.is_low = divisor > 1;
    }

    /// Accounts for the cost of a round of this length.
    pub fn learn(&mut self, cost: Duration, length_s: f64) {
        let most_s = self.allowance_s * SAVED_ROUNDS;
        let allowed_s = self.allowance_s * (length_s / self.round_s).max(1.0);
        self.saved_s = (self.saved_s + allowed_s - cost.as_secs_f64()).clamp(-most_s, most_s);
    }

    /// The period of the next round, given that the last period produced `taken` samples in this time. Programs change,
    /// so it grows at most 32-fold and shrinks at most 16-fold, or less where few samples leave it open how many there are.
    /// While there are few accesses it does not go below what contended memory would need: otherwise a burst of
    /// accesses would flood the agent.
    pub fn next_period(&self, period: u64, taken: u64, length_s: f64) -> u64 {
        let wanted = self.in_a_round() * (length_s / self.round_s).max(1.0);
        let taken_f = taken as f64;
        let due = if taken < TELLING && taken_f < wanted {
            (taken_f + ERRORS * (taken_f + 1.0).sqrt()).min(wanted)
        } else {
            taken_f
        };
        let factor = (due / wanted).clamp(LEAST_FACTOR, 1.0 / FEWER);
        let shortest = ((self.contended / self.in_a_round()).round() as u64).clamp(SHORTEST, LONGEST);
        ((period as f64 * factor).round() as u64).clamp(shortest, LONGEST)
    }

    /// The rate per CPU for the next round, Hz, on hardware that samples at a given rate; none if it has not changed.
    pub fn next_hz(&mut self, cpus: usize) -> Option<u64> {
        let hz = ((self.in_a_round() / self.round_s / cpus.max(1) as f64) as u64).clamp(1, MOST_HZ);
        (std::mem::replace(&mut self.hz, hz) != hz).then_some(hz)
    }

    fn in_a_round(&self) -> f64 {
        if self.saved_s > 0.0 && !self.is_low { self.full } else { self.full * FEWER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_wanted_come_and_no_more_than_may_be_paid_for() {
        let second = Duration::from_secs(1);
        let mut rate = Rate::new(second, 30_000, 0.02, 0.0);
        let next = [30_000, 60_000, 3_000, 64, 0].map(|taken| rate.next_period(10_000, taken, 1.0));
        assert_eq!(next, [10_000, 20_000, 1000, 625, 625]);
        assert_eq!(rate.next_period(120, 0, 1.0), SHORTEST);
        assert_eq!(rate.next_period(1000, 60_000, 2.0), 1000, "moving pages made the round longer");
        rate.set_divisor(4);
        assert_eq!(rate.next_period(400, 938, 1.0), 400);
        rate.set_divisor(1);
        // Saved allowance lasts for some expensive rounds; then the rate drops to 1/32 until the debt is paid.
        (0..15).for_each(|_| rate.learn(Duration::from_millis(60), 1.0));
        assert_eq!(rate.next_period(1000, 30_000, 1.0), 1000);
        rate.learn(Duration::from_millis(80), 1.0);
        assert_eq!(rate.next_period(400, 938, 1.0), 400);
        rate.learn(second, 1.0);
        let rounds = (1..1000).find(|_| {
            rate.learn(Duration::ZERO, 1.0);
            rate.next_period(1000, 30_000, 1.0) == 1000
        });
        assert!(matches!(rounds, Some(32..=33)), "no debt is larger than what may be saved: {rounds:?}");
    }

    #[test]
    fn rounds_that_are_observed_as_one_have_the_allowance_of_all() {
        let mut rate = Rate::new(Duration::from_millis(20), 30_000, 0.01, 0.0);
        // 0.7 ms of 80 are 0.9 % of a CPU.
        (0..100).for_each(|_| rate.learn(Duration::from_micros(700), 0.08));
        assert_eq!(rate.next_period(1000, 2048, 0.02), 1000, "nothing is owed");
        (0..100).for_each(|_| rate.learn(Duration::from_micros(700), 0.02));
        assert_eq!(rate.next_period(1000, 64, 0.02), 1000, "3.5 % are too much");
    }

    #[test]
    fn what_begins_after_a_quiet_time_does_not_flood_us() {
        let mut rate = Rate::new(Duration::from_millis(20), 30_000, 0.02, 40e6);
        let quiet = |rate: &Rate| (0..20).fold(200_000, |period, _| rate.next_period(period, 30, 0.02));
        assert_eq!(quiet(&rate), 391, "2048 of the 800 thousand accesses of a round in which memory may be contended");
        rate.set_divisor(4);
        assert_eq!(quiet(&rate), 12_500, "and 64");
    }

    #[test]
    fn a_rate_is_returned_only_when_it_changes() {
        let mut rate = Rate::new(Duration::from_secs(1), 30_000, 0.02, 0.0);
        assert_eq!([rate.next_hz(48), rate.next_hz(48)], [Some(625), None]);
        rate.set_divisor(4);
        assert_eq!([rate.next_hz(48), rate.next_hz(2)], [Some(19), Some(468)]);
        rate.set_divisor(1);
        assert_eq!(rate.next_hz(2), Some(MOST_HZ));
    }

    #[test]
    fn short_rounds_have_fewer() {
        let wanted = |ms, most| Rate::new(Duration::from_millis(ms), most, 0.02, 0.0).full as u64;
        assert_eq!([10, 50, 1000, 5000].map(|ms| wanted(ms, 30_000)), [2048, 4000, 30_000, 30_000]);
        assert_eq!([10, 1000].map(|ms| wanted(ms, 2048)), [2048, 2048]);
    }
}
