//! The closed loop of limits in percent. Intel's percents are of an unknown whole and not proportional, and Arm's count
//! whatever a controller does: what a limit lets through is measured, and the limit corrected.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between two corrections.
const PERIOD: Duration = Duration::from_secs(1);
/// What is drawn may be above what is wanted by this part: counters and programs are not that even.
const TOO_MUCH: f64 = 1.05;
/// A rest that draws less than this part of what it may is not held back by its limit, which therefore stays.
const HELD_BACK: f64 = 0.5;
/// Corrections until a limit that let too much through is tried again. Where two neighbouring steps are too strict and too
/// loose, the rest is over its limit for one period in this number.
const CORRECTIONS_UNTIL_RETRY: u32 = 60;

/// The loops, by cache.
#[derive(Debug, Default)]
pub(crate) struct Corrections {
    loops: BTreeMap<usize, Loop>,
    next: Option<Instant>,
}

#[derive(Debug, Default)]
struct Loop {
    /// When bytes were counted, and how many there were.
    counted: Option<(Instant, u64)>,
    /// The least limit that let too much through, and for how many corrections it is not set again.
    failed: Option<(u64, u32)>,
}

impl Corrections {
    /// Whether the period is over; then the next one begins.
    pub fn is_time(&mut self, now: Instant) -> bool {
        let is_over = self.next.is_none_or(|next| next <= now);
        if is_over {
            self.next = Some(now + PERIOD);
        }
        is_over
    }

    /// When to look again, once it has begun.
    pub fn next_look(&self) -> Option<Instant> {
        self.next
    }

    /// Bytes/s since the last count. None where a count is missing, or the counter went back: it was reset.
    pub fn rate(&mut self, cache: usize, bytes: Option<u64>, now: Instant) -> Option<f64> {
        let of_cache = self.loops.entry(cache).or_default();
        let counted = of_cache.counted.take();
        of_cache.counted = bytes.map(|bytes| (now, bytes));
        let ((before, had), bytes) = counted.zip(bytes)?;
        let seconds = now.saturating_duration_since(before).as_secs_f64();
        let drawn = bytes.checked_sub(had).filter(|_| seconds > 0.0)?;
        Some(drawn as f64 / seconds)
    }

    /// The next limit, where `part` of what is wanted was drawn by the limit `percent`. Limits are multiples of `step` from
    /// `least` to 100.
    pub fn next(&mut self, cache: usize, percent: u64, part: f64, least: u64, step: u64) -> u64 {
        let failed = &mut self.loops.entry(cache).or_default().failed;
        *failed = failed.and_then(|(limit, left)| Some((limit, left.checked_sub(1)?)));
        if part > TOO_MUCH {
            *failed = Some((failed.map_or(percent, |(limit, _)| limit.min(percent)), CORRECTIONS_UNTIL_RETRY));
            // At least one step, and as far as it would be if percents were proportional.
            let proportional = (percent as f64 / part) as u64;
            let next = proportional.min(percent.saturating_sub(step));
            return (next / step * step).max(least);
        }
        let higher = (percent / step * step + step).min(100);
        let would_draw = part * higher as f64 / percent.max(1) as f64;
        let has_failed = failed.is_some_and(|(limit, _)| higher >= limit);
        if part > HELD_BACK && would_draw <= 1.0 && !has_failed { higher } else { percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hardware that lets this part of what is wanted through by a limit.
    fn run(start: u64, (least, step): (u64, u64), drawn: impl Fn(u64) -> f64, periods: usize) -> Vec<u64> {
        let mut corrections = Corrections::default();
        let mut percent = start;
        let mut next = || {
            percent = corrections.next(0, percent, drawn(percent), least, step);
            percent
        };
        (0..periods).map(|_| next()).collect()
    }

    #[test]
    fn limits_converge_on_hardware_of_other_scales() {
        // Twice as much as the percents say, half as much, and Intel's steep curve: 10 % is a third.
        let steep = |percent: u64| 0.25 + percent as f64 / 100.0;
        let twice = |percent: u64| 2.0 * percent as f64 / 50.0;
        let half = |percent: u64| 0.79 * percent as f64 / 40.0;
        assert_eq!(run(50, (10, 10), twice, 5).last(), Some(&20));
        assert_eq!(run(30, (1, 1), half, 100).last(), Some(&50));
        assert_eq!(run(90, (10, 10), steep, 9).last(), Some(&70));
    }

    #[test]
    fn between_two_steps_the_limit_is_too_loose_for_one_period_in_sixty() {
        // 30 % lets 0.55 through, and 40 % already twice what is wanted.
        let jumps = |percent: u64| if percent <= 30 { 0.55 } else { 2.0 };
        let limits = run(40, (10, 10), jumps, 600);
        let loose = limits.iter().filter(|&&percent| percent > 30).count();
        assert!((1..=10).contains(&loose), "{loose}: {limits:?}");
        // Programs that draw little are not given more.
        assert_eq!(run(20, (10, 10), |_| 0.2, 10), [20; 10]);
        // Where the least lets too much through, it stays.
        assert_eq!(run(20, (10, 10), |_| 3.0, 3), [10, 10, 10]);
    }

    #[test]
    fn counters_that_are_missing_or_go_back_begin_again() {
        let (mut corrections, began) = (Corrections::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let counts = [Some(100), Some(300), None, Some(700), Some(600), Some(1600)];
        let rates: Vec<_> =
            counts.into_iter().zip(1..).map(|(bytes, second)| corrections.rate(0, bytes, at(second))).collect();
        assert_eq!(rates, [None, Some(200.0), None, None, None, Some(1000.0)]);
        assert!(corrections.is_time(at(0)) && !corrections.is_time(at(0)) && corrections.is_time(at(1)));
    }

    proptest! {
        #[test]
        fn limits_stay_limits(
            parts in prop::collection::vec(prop_oneof![0.0..5.0, Just(f64::INFINITY), Just(f64::NAN)], 1..50),
            start in 1..100_u64,
            (least, step) in prop_oneof![Just((10, 10)), Just((1, 1)), Just((5, 5))],
        ) {
            let (mut corrections, mut percent) = (Corrections::default(), (start / step * step).max(least));
            for part in parts {
                percent = corrections.next(0, percent, part, least, step);
                prop_assert!((least..=100).contains(&percent) && percent % step == 0, "{percent}");
            }
        }
    }
}
