//! Times of data that come while they are made: the processor writes the count of its timer, and the recorder looks
//! what time it is.

use crate::TickClock;

/// A clock that knows the times between its first look and its last one.
#[derive(Debug)]
pub(crate) struct LiveClock {
    clock: TickClock,
    first: u64,
    last: u64,
}

impl LiveClock {
    /// Begins now.
    pub fn new() -> Self {
        let first = linux::tsc();
        Self { clock: TickClock::tsc(), first, last: first }
    }

    /// Ticks up to now can be told after this.
    pub fn look(&mut self) {
        self.clock.look();
        self.last = linux::tsc();
    }

    /// The time at these ticks, ns. Nothing where no record can be of it: damage would lead anywhere.
    pub fn ns(&self, ticks: u64) -> Option<u64> {
        (self.first..=self.last).contains(&ticks).then(|| self.clock.ns(ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{monotonic_ns, tsc};

    #[test]
    fn times_are_those_of_the_recording() {
        let before = tsc();
        let (mut clock, began) = (LiveClock::new(), monotonic_ns());
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (ticks, at) = (tsc(), monotonic_ns());
        assert_eq!(clock.ns(ticks), None);
        clock.look();
        let told = clock.ns(ticks).unwrap();
        assert!(told.abs_diff(at) < 1_000_000 && told > began, "{began} {told} {at}");
        assert_eq!([0, before, tsc(), u64::MAX].map(|ticks| clock.ns(ticks)), [None; 4]);
    }
}
