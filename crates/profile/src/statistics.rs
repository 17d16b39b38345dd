//! Confidence in shares that were estimated from samples.

use serde::Serialize;

/// Standard deviations of a normal distribution that exclude 1 % and 5 %.
const Z_99: f64 = 2.576;
const Z_95: f64 = 1.960;
/// Fewer observations are not enough for a decision.
pub(crate) const FEWEST: u64 = 10;

/// A share; none if the whole is 0.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Confidence in a decision that rests on shares of samples. Wilson's interval of each share, with accesses treated as
/// independent draws, is entirely on the required side of its threshold:
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// not even at 95 %: only the share itself is on that side, or there are fewer than 10 samples.
    Low,
    /// at 95 %.
    Medium,
    /// at 99 %.
    High,
}

/// A share among samples, and its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Number of samples that count.
    pub part: u64,
    /// Number of all samples.
    pub of: u64,
    /// The threshold, 0 to 1.
    pub threshold: f64,
}

impl Share {
    /// The share, 0 to 1; 0 if there are no samples.
    pub fn value(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.part as f64 / self.of as f64 }
    }

    /// Whether the share is at least its threshold.
    pub fn is_reached(&self) -> bool {
        self.of > 0 && self.value() >= self.threshold
    }

    /// The confidence that the share is on its side of the threshold.
    pub fn confidence(&self) -> Confidence {
        let clear = |z: f64| {
            let (low, high) = wilson(self.part, self.of, z);
            if self.is_reached() { low >= self.threshold } else { high < self.threshold }
        };
        match self.of {
            0..FEWEST => Confidence::Low,
            _ if clear(Z_99) => Confidence::High,
            _ if clear(Z_95) => Confidence::Medium,
            _ => Confidence::Low,
        }
    }
}

/// A part of a whole, from samples that stand for different numbers of accesses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weighed {
    pub part: f64,
    pub all: f64,
    /// Sum of the squares of what samples stand for.
    pub squares: f64,
}

impl Weighed {
    /// Adds a sample that stands for `weight` accesses, if it counts.
    pub fn add(&mut self, weight: f32, counts: bool, is_part: bool) {
        let weight = f64::from(weight);
        if counts {
            self.part += if is_part { weight } else { 0.0 };
            self.all += weight;
            self.squares += weight * weight;
        }
    }

    /// The part, and the number of equally weighted samples that would show the share as precisely (Kish's effective
    /// sample size).
    pub fn part_of(self) -> (u64, u64) {
        let of = effective_samples(self.all, self.squares);
        let share = ratio(self.part, self.all).unwrap_or(0.0);
        ((share * of as f64).round() as u64, of)
    }
}

/// Kish's effective sample size, from the sum of the weights and that of their squares.
pub(crate) fn effective_samples(weights: f64, squares: f64) -> u64 {
    ratio(weights * weights, squares).map_or(0, |samples| samples.round() as u64)
}

/// Wilson's score interval of a share, which also holds for small shares and few samples. `z` is its half width in
/// standard deviations.
pub fn wilson(part: u64, of: u64, z: f64) -> (f64, f64) {
    if of == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (of as f64, part as f64 / of as f64);
    let centre = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_that_stand_for_much_decide() {
        let mut writes = Weighed::default();
        (0..5970).for_each(|_| writes.add(1000.0, true, false));
        (0..30).for_each(|_| writes.add(200_000.0, true, true));
        // Half of the accesses, told by little more than the 30 samples of the writes.
        assert_eq!(writes.part_of(), (60, 119));
        let mut equal = Weighed::default();
        (0..10).for_each(|at| equal.add(512.0, at > 0, at > 5));
        assert_eq!((equal.part_of(), Weighed::default().part_of()), ((4, 9), (0, 0)));
    }

    #[test]
    fn intervals_are_wilsons() {
        // Newcombe 1998, table 1: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (part, of, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]
        {
            let (found_low, found_high) = wilson(part, of, Z_95);
            assert!((found_low - low).abs() < 1e-4 && (found_high - high).abs() < 1e-4, "{part} of {of}");
        }
    }

    #[test]
    fn few_samples_are_little_evidence() {
        let confidence = |part, of| Share { part, of, threshold: 0.05 }.confidence();
        assert_eq!(confidence(0, 9), Confidence::Low);
        assert_eq!(confidence(0, 72), Confidence::Low);
        assert_eq!(confidence(0, 73), Confidence::Medium);
        assert_eq!(confidence(0, 127), Confidence::High);
        assert_eq!(confidence(500, 1000), Confidence::High);
    }
}
