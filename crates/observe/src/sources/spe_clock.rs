//! Times of live data of Arm's SPE: the processor writes its timer's count, and the recorder reads the time.

use crate::TickClock;

/// A clock that can convert ticks between its first reading and its last one.
#[derive(Debug)]
pub(super) struct LiveClock {
    clock: TickClock,
    first: u64,
    last: u64,
}

impl LiveClock {
    /// Starts the clock now.
    pub fn new() -> Self {
        let first = linux::tsc();
        Self { clock: TickClock::tsc(), first, last: first }
    }

    /// Takes a reading, so that ticks up to now can be converted.
    pub fn look(&mut self) {
        self.clock.look();
        self.last = linux::tsc();
    }

    /// Converts ticks to ns. `None` for ticks outside the recording, which are corrupt.
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
