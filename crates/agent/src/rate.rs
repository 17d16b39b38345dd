//! How many samples to take: as many as are wanted, and no more than may be paid for.

use std::time::Duration;

/// Samples a second at the full rate, of all CPUs together, as rounds of a second are concerned; shorter rounds have
/// more of them, so that each has some thousands.
const PER_SECOND: f64 = 80_000.0;
/// Samples of a round at the full rate.
const FEWEST: f64 = 2048.0;
const MOST: f64 = 30_000.0;
/// What is left when samples cost too much.
const LEAST: f64 = 128.0;

/// How many samples to take.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    /// Samples in a round, at the full rate.
    full: f64,
    /// What is affordable of them.
    wanted: f64,
    /// So many times fewer at the moment.
    divisor: f64,
    /// CPU time of ours that a round may cost.
    limit: Duration,
}

impl Rate {
    /// Of rounds of this length; observing and deciding may take this part of one CPU.
    pub fn new(round: Duration, cpu_limit: f64) -> Self {
        let full = (PER_SECOND * round.as_secs_f64()).clamp(FEWEST, MOST);
        Self { full, wanted: full, divisor: 1.0, limit: round.mul_f64(cpu_limit) }
    }

    /// So many times fewer from now on.
    pub fn set_divisor(&mut self, divisor: u64) {
        self.divisor = divisor.max(1) as f64;
    }

    /// Takes note of what a round cost.
    pub fn learn(&mut self, cost: Duration) {
        let over = cost.as_secs_f64() / self.limit.as_secs_f64().max(1e-9);
        let factor = if over > 1.0 { 1.0 / over.min(4.0) } else { 1.1 };
        let is_cheap = over <= 0.8;
        if over > 1.0 || is_cheap {
            self.wanted = (self.wanted * factor).clamp(LEAST, self.full);
        }
    }

    /// The period of the next round, where the last one's gave so many samples. Programs change, so that it is at most
    /// four times as long, and no less than a quarter.
    pub fn next_period(&self, period: u64, taken: u64) -> u64 {
        let wanted = self.wanted / self.divisor;
        let factor = (taken as f64 / wanted).clamp(0.25, 4.0);
        ((period as f64 * factor).round() as u64).clamp(SHORTEST, LONGEST)
    }
}

/// When nothing goes on a period must not become so short that what begins then floods us.
const SHORTEST: u64 = 100;
const LONGEST: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_wanted_come_and_no_more_than_may_be_paid_for() {
        let second = Duration::from_secs(1);
        let mut rate = Rate::new(second, 0.02);
        assert_eq!([30_000, 60_000, 3_000, 0].map(|taken| rate.next_period(1000, taken)), [1000, 2000, 250, 250]);
        assert_eq!(rate.next_period(120, 0), SHORTEST);
        rate.set_divisor(4);
        assert_eq!(rate.next_period(1000, 30_000), 4000);
        rate.set_divisor(1);
        // Twice as dear as it may be: half as many.
        rate.learn(Duration::from_millis(40));
        assert_eq!(rate.next_period(1000, 30_000), 2000);
        (0..100).for_each(|_| rate.learn(second));
        assert!((rate.wanted - LEAST).abs() < 1e-9);
        (0..100).for_each(|_| rate.learn(Duration::ZERO));
        assert!((rate.wanted - rate.full).abs() < 1e-9);
    }

    #[test]
    fn short_rounds_have_fewer() {
        let wanted = |ms| Rate::new(Duration::from_millis(ms), 0.02).wanted;
        assert_eq!([10, 50, 1000, 5000].map(|ms| wanted(ms) as u64), [2048, 4000, 30_000, 30_000]);
    }
}
