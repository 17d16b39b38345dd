//! How fast pages move, from the moves so far.

use crate::outcome::Outcome;
use crate::thresholds::Thresholds;
use serde::{Deserialize, Serialize};

/// What [`Thresholds::move_bytes_per_s`] weighs, bytes: each call to the kernel waits for all CPUs, so that the time of a
/// few pages says little about the time of many.
const ASSUMED_BYTES: f64 = (1 << 20) as f64;
/// Largest factor by which the rate may differ from [`Thresholds::move_bytes_per_s`].
const RATE_RANGE: f64 = 64.0;

/// The moves so far. Older ones weigh less: half as much after each later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MoveRate {
    bytes: f64,
    seconds: f64,
}

impl MoveRate {
    /// Bytes/s, always positive.
    pub fn bytes_per_s(&self, thresholds: &Thresholds) -> f64 {
        let assumed = thresholds.move_bytes_per_s.max(1.0);
        let rate = (ASSUMED_BYTES + self.bytes) / (ASSUMED_BYTES / assumed + self.seconds);
        rate.clamp(assumed / RATE_RANGE, assumed * RATE_RANGE)
    }

    /// Records how long a round's moves took. Pages that the kernel refused, or that were there already, show no rate.
    pub fn learn(&mut self, outcome: &Outcome) {
        let (bytes, seconds) = (outcome.bytes_moved as f64, outcome.moving_s);
        if seconds > 0.0 && (bytes > 0.0 || outcome.out_of_time) {
            *self = Self { bytes: self.bytes / 2.0 + bytes, seconds: self.seconds / 2.0 + seconds };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(moves: &[(u64, f64)]) -> f64 {
        let mut rate = MoveRate::default();
        for &(bytes_moved, moving_s) in moves {
            rate.learn(&Outcome { moving_s, bytes_moved, ..Outcome::default() });
        }
        rate.bytes_per_s(&Thresholds::default()) / Thresholds::default().move_bytes_per_s
    }

    #[test]
    fn many_pages_show_the_rate_and_few_do_not() {
        assert!((after(&[]) - 1.0).abs() < 1e-9);
        assert!((after(&[(0, 1.0), (4096, 0.0)]) - 1.0).abs() < 1e-9, "these show nothing");
        // In 18 ms the assumed rate would have moved 10.8 MB.
        assert!((0.08..0.1).contains(&after(&[(3 * 4096, 0.018)])));
        let mut out_of_time = MoveRate::default();
        out_of_time.learn(&Outcome { moving_s: 0.018, out_of_time: true, ..Outcome::default() });
        assert_ne!(out_of_time, MoveRate::default());
        let slow = (300_000_000, 1.0);
        assert!((0.49..0.51).contains(&after(&[slow])));
        assert!((1.1..1.3).contains(&after(&[slow, slow, (600_000_000, 0.4)])), "the last one weighs most");
        assert!((after(&[(1 << 40, 1e-3)]) - RATE_RANGE).abs() < 1e-9);
        assert!((after(&[(4096, 1e6)]) * RATE_RANGE - 1.0).abs() < 1e-9);
    }
}
