//! Converts ticks to `CLOCK_MONOTONIC`. All sources of a recording that stamp events with ticks share one clock,
//! which preserves the order of ticks.

use std::collections::VecDeque;

/// Number of reference points that are kept. A thread may take that long to report an event.
const MOMENTS: usize = 1 << 17;
/// Rates are fixed-point numbers with this many fractional bits.
const RATE_BITS: u32 = 32;

/// Reference points of ticks and time, with linear interpolation between them.
#[derive(Debug)]
pub struct TickClock {
    is_tsc: bool,
    moments: VecDeque<Moment>,
}

/// A reference point. Ticks and time both grow from one to the next.
#[derive(Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
    /// Slope of the line that starts here, in ns per tick, rounded down so that no line ends after the next one
    /// starts.
    rate: u64,
}

impl TickClock {
    /// A clock of the processor's time stamp counter if the kernel itself keeps time by it; otherwise ticks are ns of
    /// `CLOCK_MONOTONIC`.
    pub fn detect() -> Self {
        Self::new(linux::keeps_time_by_tsc())
    }

    /// A clock of the processor's time stamp counter, which never stops and is the same on all CPUs.
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

    /// Adds a reference point, so that ticks up to now can be converted.
    pub fn look(&mut self) {
        if self.is_tsc {
            self.add(linux::tsc_and_monotonic_ns());
        }
    }

    fn add(&mut self, (ticks, ns): (u64, u64)) {
        let index = self.index_of(ticks);
        let before = index.checked_sub(1).and_then(|index| self.moments.get(index));
        let after = self.moments.get(index);
        if before.is_some_and(|before| ns < before.ns)
            || after.is_some_and(|after| ticks == after.ticks || after.ns < ns)
        {
            return;
        }
        self.moments.insert(index, Moment { ticks, ns, rate: 0 });
        for index in index.saturating_sub(1)..=index {
            self.draw_line_from(index);
        }
        if self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    /// Number of reference points before these ticks, searched from the end, where nearly all lookups are.
    fn index_of(&self, ticks: u64) -> usize {
        self.moments.len() - self.moments.iter().rev().take_while(|moment| moment.ticks >= ticks).count()
    }

    /// Draws the line from here to the next point, or extends the line before.
    fn draw_line_from(&mut self, index: usize) {
        let moment = |index: usize| self.moments.get(index);
        let rate = match (moment(index), moment(index + 1)) {
            (Some(from), Some(to)) => {
                let exact = (u128::from(to.ns - from.ns) << RATE_BITS) / u128::from(to.ticks - from.ticks);
                u64::try_from(exact).unwrap_or(u64::MAX)
            }
            _ => index.checked_sub(1).and_then(moment).map_or(0, |before| before.rate),
        };
        if let Some(from) = self.moments.get_mut(index) {
            from.rate = rate;
        }
    }

    /// Converts ticks to time, in ns.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        // Nearly all lookups are on the last line.
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

    /// The point whose line covers these ticks; the first point for earlier ticks.
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
