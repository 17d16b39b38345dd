//! From ticks to `CLOCK_MONOTONIC`. One clock for all sources of a recording that tell times in ticks: what came first in
//! ticks comes first in ns.

use std::collections::VecDeque;

/// Moments that are remembered: a thread may be in the middle of telling an event for so long.
const MOMENTS: usize = 1 << 14;
/// Rates are in units of 2^-32.
const RATE_BITS: u32 = 32;

/// What the time was at some ticks. Between two of them it is on a straight line.
#[derive(Debug)]
pub struct TickClock {
    is_tsc: bool,
    moments: VecDeque<Moment>,
}

/// Both times grow from moment to moment.
#[derive(Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
    /// Of the line that begins here, ns a tick, rounded down so that no line ends after the next one begins.
    rate: u64,
}

impl TickClock {
    /// Of the processor's time stamp counter, where the kernel itself tells the time by it; else ticks are ns of
    /// `CLOCK_MONOTONIC`.
    pub fn detect() -> Self {
        Self::new(linux::tells_time_by_tsc())
    }

    /// Of the processor's time stamp counter, which goes on always and is the same on all CPUs.
    pub fn tsc() -> Self {
        Self::new(true)
    }

    pub(crate) fn new(is_tsc: bool) -> Self {
        let mut clock = Self { is_tsc, moments: VecDeque::new() };
        clock.look();
        clock
    }

    /// Whether ticks are those of the time stamp counter.
    pub fn is_tsc(&self) -> bool {
        self.is_tsc
    }

    /// What the time was at some ticks, as another source knows. Both are after what is known, or it is not taken.
    pub fn note(&mut self, ticks: u64, ns: u64) {
        if self.moments.back().is_none_or(|last| ns > last.ns) {
            self.add((ticks, ns));
        }
    }

    /// Ticks up to now can be told after this.
    pub fn look(&mut self) {
        if self.is_tsc {
            self.add(linux::tsc_and_monotonic_ns());
        }
    }

    fn add(&mut self, (ticks, ns): (u64, u64)) {
        let mut rate = 0;
        if let Some(last) = self.moments.back_mut() {
            if ticks <= last.ticks || ns < last.ns {
                return;
            }
            let exact = (u128::from(ns - last.ns) << RATE_BITS) / u128::from(ticks - last.ticks);
            last.rate = u64::try_from(exact).unwrap_or(u64::MAX);
            rate = last.rate;
        }
        self.moments.push_back(Moment { ticks, ns, rate });
        if self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    /// The time at these ticks, ns.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        // Nearly all are of the last line.
        let before_last = self.moments.len().checked_sub(2).and_then(|index| self.moments.get(index));
        let moment = before_last.filter(|moment| moment.ticks <= ticks).filter(|_| !self.is_after_last(ticks));
        let Some(moment) = moment.or_else(|| self.moment_before(ticks)) else { return ticks };
        let span = |ticks: u64| {
            let ns = (u128::from(ticks) * u128::from(moment.rate)) >> RATE_BITS;
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        match ticks.checked_sub(moment.ticks) {
            Some(passed) => moment.ns.saturating_add(span(passed)),
            None => moment.ns.saturating_sub(span(moment.ticks - ticks)),
        }
    }

    fn is_after_last(&self, ticks: u64) -> bool {
        self.moments.back().is_some_and(|last| last.ticks <= ticks)
    }

    /// The moment whose line goes through these ticks: of what is before all, the first.
    fn moment_before(&self, ticks: u64) -> Option<&Moment> {
        let after = self.moments.partition_point(|moment| moment.ticks <= ticks);
        self.moments.get(after.saturating_sub(1))
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
