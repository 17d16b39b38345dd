//! Random numbers that a seed repeats.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one; 0 for 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// A time up to this one.
    pub fn moment(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.next() % (most.as_nanos() as u64).max(1))
    }
}

/// A seed that differs from run to run.
pub fn from_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_within_their_bounds() {
        let numbers = |seed| {
            let mut random = Random(seed);
            (0..1000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!((0..10).all(|number| numbers(7).contains(&number)));
        assert_eq!(Random(1).below(0), 0);
        assert!(Random(1).moment(Duration::from_millis(3)) < Duration::from_millis(3));
    }
}
