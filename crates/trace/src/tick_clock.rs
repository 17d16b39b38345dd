//! From ticks to `CLOCK_MONOTONIC`. One clock for all sources of a recording that tell times in ticks: what came first in
//! ticks comes first in ns.

use std::collections::VecDeque;

/// Moments that are remembered: the virtual PMU may tell so many at once, and a thread may be in the middle of telling an
/// event for as long.
const MOMENTS: usize = 1 << 17;
/// Rates are in units of 2^-32.
const RATE_BITS: u32 = 32;

/// What the time was at some ticks. Between two of them it is on a straight line.
#[derive(Debug)]
pub struct TickClock {
    is_tsc: bool,
    moments: VecDeque<Moment>,
    /// Up to these ticks times may have been told.
    settled: u64,
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
        let mut clock = Self { is_tsc, moments: VecDeque::new(), settled: 0 };
        clock.look();
        clock
    }

    /// Whether ticks are those of the time stamp counter.
    pub fn is_tsc(&self) -> bool {
        self.is_tsc
    }

    /// What the time was at some ticks, as another source knows. It may tell so after the last [`look`](Self::look), of
    /// what was before it: no times after the look before that are to be told until it has. What contradicts what is known is
    /// not taken, and while a clock stands still its first moment counts.
    pub fn note(&mut self, ticks: u64, ns: u64) {
        if ticks <= self.settled {
            return;
        }
        let before = self.place_of(ticks).checked_sub(1).and_then(|place| self.moments.get(place));
        if before.is_none_or(|before| ns > before.ns) {
            self.add((ticks, ns));
        }
    }

    /// Ticks up to now can be told after this.
    pub fn look(&mut self) {
        if self.is_tsc {
            self.settled = self.moments.back().map_or(0, |last| last.ticks);
            self.add(linux::tsc_and_monotonic_ns());
        }
    }

    fn add(&mut self, (ticks, ns): (u64, u64)) {
        let place = self.place_of(ticks);
        let before = place.checked_sub(1).and_then(|place| self.moments.get(place));
        let after = self.moments.get(place);
        if before.is_some_and(|before| ns < before.ns)
            || after.is_some_and(|after| ticks == after.ticks || after.ns < ns)
        {
            return;
        }
        self.moments.insert(place, Moment { ticks, ns, rate: 0 });
        for place in place.saturating_sub(1)..=place {
            self.draw_line_from(place);
        }
        if self.moments.len() > MOMENTS {
            self.moments.pop_front();
        }
    }

    /// How many moments are before these ticks: nearly all, so that it is looked from the end.
    fn place_of(&self, ticks: u64) -> usize {
        self.moments.len() - self.moments.iter().rev().take_while(|moment| moment.ticks >= ticks).count()
    }

    /// To the next moment, or as the line before goes on.
    fn draw_line_from(&mut self, place: usize) {
        let moment = |place: usize| self.moments.get(place);
        let rate = match (moment(place), moment(place + 1)) {
            (Some(from), Some(to)) => {
                let exact = (u128::from(to.ns - from.ns) << RATE_BITS) / u128::from(to.ticks - from.ticks);
                u64::try_from(exact).unwrap_or(u64::MAX)
            }
            _ => place.checked_sub(1).and_then(moment).map_or(0, |before| before.rate),
        };
        if let Some(from) = self.moments.get_mut(place) {
            from.rate = rate;
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
        let mut clock = TickClock { is_tsc: true, moments: VecDeque::new(), settled: 0 };
        assert_eq!(clock.ns(7), 7);
        clock.add((1000, 500));
        assert_eq!(clock.ns(7), 500);
        clock.add((2000, 1000));
        clock.add((3000, 2000));
        clock.add((2500, 2100));
        assert_eq!([0, 1000, 1500, 2000, 2500, 4000].map(|ticks| clock.ns(ticks)), [0, 500, 750, 1000, 1500, 3000]);
        let ns = TickClock { is_tsc: false, moments: VecDeque::new(), settled: 0 };
        assert_eq!(ns.ns(12), 12);
    }

    #[test]
    fn what_another_source_knows_of_before_the_last_look_counts() {
        let mut clock = TickClock { is_tsc: true, moments: VecDeque::new(), settled: 1000 };
        clock.add((1000, 500));
        clock.add((3000, 2500));
        // The clock stood until just before the look; of the same time again, the first moment is known.
        for (ticks, ns) in [(2800, 510), (2900, 510), (2950, 2500)] {
            clock.note(ticks, ns);
        }
        assert_eq!([2000, 2800, 2875, 2950, 3000].map(|ticks| clock.ns(ticks)), [505, 510, 1504, 2500, 2500]);
        // What was told stays, and so does what contradicts it.
        for (ticks, ns) in [(1000, 400), (900, 450), (2500, 2600), (2990, 2400)] {
            clock.note(ticks, ns);
        }
        assert_eq!(clock.moments.len(), 4);
        clock.note(4000, 3500);
        assert_eq!(clock.ns(5000), 4500);
    }

    proptest! {
        #[test]
        fn time_never_goes_back(moments in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..9), a: u64, b: u64) {
            let mut clock = TickClock { is_tsc: true, moments: VecDeque::new(), settled: 0 };
            for moment in moments {
                clock.add(moment);
            }
            prop_assert!(clock.ns(a.min(b)) <= clock.ns(a.max(b)));
        }
    }
}
