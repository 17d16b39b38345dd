//! How many samples to take: as many as are wanted, and over some time no more than may be paid for.

use std::time::Duration;

/// Samples of a second's round at the full rate, of all CPUs together. Shorter rounds have fewer, but some thousands.
const PER_SECOND: f64 = 80_000.0;
const FEWEST: f64 = 2048.0;
const MOST: f64 = 30_000.0;
/// What is taken of them while nothing more may be paid for, and while the policy wants fewer (Carrefour: a quarter):
/// counters say when it is time for more.
const FEWER: f64 = 1.0 / 32.0;
/// So many samples tell how many come.
const TELLING: u64 = 64;
/// So many rounds' allowance may be saved up, so that a program that begins, or changes, is soon understood.
const SAVED_ROUNDS: f64 = 32.0;
const SHORTEST: u64 = 100;
const LONGEST: u64 = 1 << 32;
/// Of the processor's own samples, on a CPU: each is an interrupt.
const MOST_HZ: u64 = 4000;

/// How many samples to take.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    /// Samples in a round, at the full rate.
    full: f64,
    round_s: f64,
    /// Accesses in a round from which on memory may be contended.
    contended: f64,
    /// The policy wants fewer at the moment.
    is_low: bool,
    /// Time of ours that a round may cost, s.
    allowance_s: f64,
    /// What is left of it from earlier rounds, or owed, s.
    saved_s: f64,
    /// Samples in a second on each CPU, as the processor was told last.
    hz: u64,
}

impl Rate {
    /// Of rounds of this length; observing and deciding may take this part of one CPU, over some time. From so many
    /// accesses in a second on memory may be contended, so that there may be something to decide.
    pub fn new(round: Duration, cpu_limit: f64, contended_per_s: f64) -> Self {
        let full = (PER_SECOND * round.as_secs_f64()).clamp(FEWEST, MOST);
        let allowance_s = round.as_secs_f64() * cpu_limit;
        let saved_s = allowance_s * SAVED_ROUNDS;
        let (round_s, contended) = (round.as_secs_f64(), round.as_secs_f64() * contended_per_s);
        Self { full, round_s, contended, is_low: false, allowance_s, saved_s, hz: 0 }
    }

    /// The policy wants so many times fewer than at the full rate.
    pub fn set_divisor(&mut self, divisor: u64) {
        self.is_low = divisor > 1;
    }

    /// Takes note of what a round cost.
    pub fn learn(&mut self, cost: Duration) {
        let most_s = self.allowance_s * SAVED_ROUNDS;
        self.saved_s = (self.saved_s + self.allowance_s - cost.as_secs_f64()).clamp(-most_s, most_s);
    }

    /// The period of the next round, where the last one's gave so many samples in this time. Programs change, so that it
    /// is at most 32 times as long, and no less than a sixteenth: a quarter, where few samples tell little. While little
    /// goes on it does not become shorter than memory that may be contended wants: what begins then would flood us.
    pub fn next_period(&self, period: u64, taken: u64, length_s: f64) -> u64 {
        let wanted = self.in_a_round() * (length_s / self.round_s).max(1.0);
        let least = if taken < TELLING { 0.25 } else { 0.0625 };
        let factor = (taken as f64 / wanted).clamp(least, 1.0 / FEWER);
        let shortest = ((self.contended / self.in_a_round()).round() as u64).clamp(SHORTEST, LONGEST);
        ((period as f64 * factor).round() as u64).clamp(shortest, LONGEST)
    }

    /// Samples in a second on each of so many CPUs, of a processor that keeps to such a rate; nothing where that is what
    /// it was last.
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
        let mut rate = Rate::new(second, 0.02, 0.0);
        let next = [30_000, 60_000, 3_000, 64, 0].map(|taken| rate.next_period(10_000, taken, 1.0));
        assert_eq!(next, [10_000, 20_000, 1000, 625, 2500]);
        assert_eq!(rate.next_period(120, 0, 1.0), SHORTEST);
        assert_eq!(rate.next_period(1000, 60_000, 2.0), 1000, "moving pages made the round longer");
        rate.set_divisor(4);
        assert_eq!(rate.next_period(400, 938, 1.0), 400);
        rate.set_divisor(1);
        // What was saved up lasts for some dear rounds, and then a 32nd has to do until it is paid for.
        (0..15).for_each(|_| rate.learn(Duration::from_millis(60)));
        assert_eq!(rate.next_period(1000, 30_000, 1.0), 1000);
        rate.learn(Duration::from_millis(80));
        assert_eq!(rate.next_period(400, 938, 1.0), 400);
        rate.learn(second);
        let rounds = (1..1000).find(|_| {
            rate.learn(Duration::ZERO);
            rate.next_period(1000, 30_000, 1.0) == 1000
        });
        assert!(matches!(rounds, Some(32..=33)), "no debt is larger than what may be saved: {rounds:?}");
    }

    #[test]
    fn what_begins_after_a_quiet_time_does_not_flood_us() {
        let mut rate = Rate::new(Duration::from_millis(20), 0.02, 40e6);
        let quiet = |rate: &Rate| (0..20).fold(200_000, |period, _| rate.next_period(period, 30, 0.02));
        assert_eq!(quiet(&rate), 391, "2048 of the 800 thousand accesses of a round in which memory may be contended");
        rate.set_divisor(4);
        assert_eq!(quiet(&rate), 12_500, "and 64");
    }

    #[test]
    fn processors_are_told_where_it_changes() {
        let mut rate = Rate::new(Duration::from_secs(1), 0.02, 0.0);
        assert_eq!([rate.next_hz(48), rate.next_hz(48)], [Some(625), None]);
        rate.set_divisor(4);
        assert_eq!([rate.next_hz(48), rate.next_hz(2)], [Some(19), Some(468)]);
        rate.set_divisor(1);
        assert_eq!(rate.next_hz(2), Some(MOST_HZ));
    }

    #[test]
    fn short_rounds_have_fewer() {
        let wanted = |ms| Rate::new(Duration::from_millis(ms), 0.02, 0.0).full;
        assert_eq!([10, 50, 1000, 5000].map(|ms| wanted(ms) as u64), [2048, 4000, 30_000, 30_000]);
    }
}
