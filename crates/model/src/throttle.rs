//! The limit of a CPU's lines to and from memory: a token bucket that holds one window's lines, in the CPU's own time.
//! So nothing is shared, and results do not depend on the host's scheduling.

use crate::LINE_BYTES;
use crate::own_counts::WINDOW_PS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A CPU's limit. Any thread may set it; only the CPU's own takes lines.
#[derive(Default)]
pub(crate) struct Throttle {
    /// Time between two lines at the limit, ps; 0 for no limit.
    ps_per_line: AtomicU64,
    /// When all lines so far would have been taken at that pace, ps.
    due_ps: AtomicU64,
}

impl Throttle {
    /// Sets the limit, bytes/s; 0 for none.
    pub(crate) fn set(&self, bytes_per_s: u64) {
        let ps_per_line = (LINE_BYTES * 1_000_000_000_000).checked_div(bytes_per_s).unwrap_or(0);
        self.ps_per_line.store(ps_per_line, Relaxed);
    }

    /// Takes a line. Returns how long the CPU has to wait for it, ps; a line that does not wait is paid for by the next.
    #[inline]
    pub(crate) fn take(&self, time_ps: u64) -> u64 {
        let ps_per_line = self.ps_per_line.load(Relaxed);
        if ps_per_line == 0 {
            return 0;
        }
        // More than a window's lines are never owed: time may have started again, or the limit was another one.
        let most_ps = time_ps + 2 * WINDOW_PS + ps_per_line;
        let due_ps = (self.due_ps.load(Relaxed).max(time_ps) + ps_per_line).min(most_ps);
        self.due_ps.store(due_ps, Relaxed);
        due_ps.saturating_sub(time_ps + WINDOW_PS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lines in a time, if each is wanted this long after the one before, or as late as it has to wait.
    fn lines(throttle: &Throttle, every_ps: u64, from_ps: u64, until_ps: u64) -> u64 {
        let (mut time_ps, mut lines) = (from_ps, 0);
        while time_ps < until_ps {
            time_ps += throttle.take(time_ps) + every_ps;
            lines += 1;
        }
        lines
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let throttle = Throttle::default();
        assert_eq!(lines(&throttle, 1000, 0, 1_000_000_000), 1_000_000);
        throttle.set(1_000_000);
        throttle.set(0);
        assert_eq!(throttle.take(0), 0);
    }

    #[test]
    fn a_window_is_at_full_speed_and_the_rest_at_the_limit() {
        let throttle = Throttle::default();
        throttle.set(640_000_000);
        // 10 lines a microsecond, wanted at a hundred.
        let first = lines(&throttle, 10_000, 0, WINDOW_PS);
        assert!((300..=640).contains(&first), "{first}");
        assert!(lines(&throttle, 10_000, WINDOW_PS, 101 * WINDOW_PS).abs_diff(30_000) <= 1);
    }

    #[test]
    fn time_that_starts_again_owes_a_window_and_a_line_at_most() {
        let throttle = Throttle::default();
        throttle.set(1_000_000);
        throttle.take(u64::MAX / 4);
        assert!(throttle.take(0) <= WINDOW_PS + 64_000_000);
    }

    proptest! {
        /// Never more than the limit and one window's lines, and no fewer if that many are wanted.
        #[test]
        fn the_limit_holds_over_any_time(
            bytes_per_s in 1_000_000_u64..100_000_000_000, every_ps in 1000_u64..100_000, windows in 1_u64..50,
        ) {
            let throttle = Throttle::default();
            throttle.set(bytes_per_s);
            let time_ps = windows * WINDOW_PS;
            let taken = lines(&throttle, every_ps, 0, time_ps);
            let ps_per_line = LINE_BYTES * 1_000_000_000_000 / bytes_per_s;
            let most = (time_ps + WINDOW_PS) / ps_per_line.max(1) + 2;
            prop_assert!(taken <= most, "{} of {}", taken, most);
            let wanted = time_ps / every_ps.max(ps_per_line);
            prop_assert!(taken + 1 >= wanted.saturating_sub(WINDOW_PS / ps_per_line.max(1)), "{} of {}", taken, wanted);
        }

        #[test]
        fn no_wait_is_longer_than_a_window_and_a_line(
            limits in prop::collection::vec((0_u64..2_000_000_000, 0_u64..1 << 50), 1..100),
        ) {
            let throttle = Throttle::default();
            for (bytes_per_s, time_ps) in limits {
                let bytes_per_s = if bytes_per_s < 1_000_000 { 0 } else { bytes_per_s };
                throttle.set(bytes_per_s);
                prop_assert!(throttle.take(time_ps) <= WINDOW_PS + 64_000_000);
            }
        }
    }
}
