//! From ticks to `CLOCK_MONOTONIC`.

use std::collections::VecDeque;

/// Moments that are remembered: a thread may be in the middle of telling an event for so long.
const MOMENTS: usize = 1 << 14;

/// What the time was at some ticks. Between two of them it is on a straight line.
#[derive(Debug)]
pub struct TickClock {
    is_tsc: bool,
    /// Ticks and ns, both growing.
    moments: VecDeque<(u64, u64)>,
}

impl TickClock {
    pub fn new(is_tsc: bool) -> Self {
        let mut clock = Self { is_tsc, moments: VecDeque::new() };
        clock.look();
        clock
    }

    /// Ticks up to now can be told after this.
    pub fn look(&mut self) {
        if self.is_tsc {
            self.add(linux::tsc_and_monotonic_ns());
        }
    }

    fn add(&mut self, moment: (u64, u64)) {
        if self.moments.back().is_none_or(|last| last.0 < moment.0 && last.1 <= moment.1) {
            self.moments.push_back(moment);
        }
        if self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    /// The time at these ticks, ns.
    pub fn ns(&self, ticks: u64) -> u64 {
        let last = self.moments.len().saturating_sub(1);
        let after = self.moments.partition_point(|moment| moment.0 <= ticks).clamp(1, last.max(1));
        let Some((&(from, from_ns), &(to, to_ns))) = self.moments.get(after - 1).zip(self.moments.get(after)) else {
            return self.moments.front().map_or(ticks, |moment| moment.1);
        };
        let passed = i128::from(ticks) - i128::from(from);
        let ns = i128::from(from_ns) + passed.saturating_mul((to_ns - from_ns).into()) / i128::from(to - from);
        ns.clamp(0, u64::MAX.into()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn between_moments_time_is_on_a_line() {
        let mut clock = TickClock { is_tsc: true, moments: VecDeque::new() };
        assert_eq!(clock.ns(7), 7);
        clock.add((1000, 500));
        assert_eq!(clock.ns(7), 500);
        clock.add((2000, 1000));
        clock.add((3000, 2000));
        clock.add((2500, 2100));
        assert_eq!([0, 1000, 1500, 2000, 2500, 4000].map(|ticks| clock.ns(ticks)), [0, 500, 750, 1000, 1500, 3000]);
        let ns = TickClock { is_tsc: false, moments: VecDeque::new() };
        assert_eq!(ns.ns(12), 12);
    }

    proptest! {
        #[test]
        fn time_never_goes_back(moments in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..9), a: u64, b: u64) {
            let mut clock = TickClock { is_tsc: true, moments: VecDeque::new() };
            for moment in moments {
                clock.add(moment);
            }
            prop_assert!(clock.ns(a.min(b)) <= clock.ns(a.max(b)));
        }
    }
}
