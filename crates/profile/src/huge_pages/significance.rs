//! The tail of chi-squared, the false-discovery rate over several tests, and overdispersion.

/// The probability that a chi-squared variable of this number of degrees of freedom exceeds a value. Odd degrees are
/// rounded up, which makes the probability too large, never too small.
pub(crate) fn chi_squared_tail(value: f64, degrees: usize) -> f64 {
    let half = value / 2.0;
    if half <= 0.0 || degrees == 0 {
        return 1.0;
    }
    // The probability that a Poisson variable of this mean is below half the degrees: the logarithm of each term, as the
    // terms of thousands of samples are beyond the range of numbers.
    let mut logarithm = -half;
    let mut sum = logarithm.exp();
    for at in 1..degrees.div_ceil(2) {
        logarithm += (half / at as f64).ln();
        sum += logarithm.exp();
    }
    sum.min(1.0)
}

/// The largest p-value that is a discovery if at most this share of the discoveries may be false: Benjamini and
/// Hochberg's procedure. None if there is no discovery.
pub(crate) fn discoveries(mut p_values: Vec<f64>, rate: f64) -> Option<f64> {
    p_values.sort_unstable_by(f64::total_cmp);
    let all = p_values.len() as f64;
    let is_found = |(at, p): &(usize, &f64)| **p <= rate * (at + 1) as f64 / all;
    p_values.iter().enumerate().filter(is_found).map(|(_, p)| *p).next_back()
}

/// Pairs of observations in the same group: whether they agree more often than the shares of all observations
/// predict.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreement {
    agree: f64,
    pub pairs: f64,
    expected: f64,
    variance: f64,
}

impl Agreement {
    /// Adds a group with its counts by category; the sums are of squares and of cubes of the categories' shares.
    pub fn add(&mut self, counts: &[u32], squares: f64, cubes: f64) {
        let all: f64 = counts.iter().map(|&count| f64::from(count)).sum();
        let pairs = all * (all - 1.0) / 2.0;
        self.agree += counts.iter().map(|&count| f64::from(count) * (f64::from(count) - 1.0) / 2.0).sum::<f64>();
        self.pairs += pairs;
        self.expected += pairs * squares;
        // Two pairs that share an observation depend on each other.
        let overlaps = all * (all - 1.0) * (all - 2.0);
        self.variance += pairs * (squares - squares * squares) + overlaps * (cubes - squares * squares);
    }

    /// The share of pairs that agree.
    pub fn share(&self) -> f64 {
        if self.pairs > 0.0 { self.agree / self.pairs } else { 0.0 }
    }

    /// By how many standard deviations more pairs agree than expected.
    pub fn excess(&self) -> f64 {
        if self.variance > 0.0 { (self.agree - self.expected) / self.variance.sqrt() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tails_are_those_of_tables() {
        for (value, degrees, p) in [(13.816, 2, 0.001), (9.210, 2, 0.01), (18.467, 4, 0.001), (29.588, 10, 0.001)] {
            let found = chi_squared_tail(value, degrees);
            assert!((found / p - 1.0).abs() < 0.01, "{value}, {degrees}: {found}");
        }
        assert!(chi_squared_tail(37.697, 15) > 0.001, "0.001 is exact, odd degrees are rounded up");
        // Terms beyond the largest number.
        assert_eq!((chi_squared_tail(40_000.0, 441), chi_squared_tail(1e6, 7)), (0.0, 0.0));
        assert_eq!((chi_squared_tail(0.0, 2), chi_squared_tail(5.0, 0)), (1.0, 1.0));
    }

    #[test]
    fn discoveries_are_those_of_benjamini_and_hochberg() {
        // Their example of 1995: of 15 tests, four are discoveries at 5 %.
        let p_values = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        assert_eq!(discoveries(p_values.to_vec(), 0.05), Some(0.0095));
        assert_eq!(discoveries(vec![0.9; 5], 0.05), None);
        assert_eq!(discoveries(Vec::new(), 0.05), None);
    }

    proptest! {
        #[test]
        fn independent_observations_have_no_excess(draws in prop::collection::vec(0..10_u32, 1500)) {
            let mut all = Agreement::default();
            for group in draws.chunks(5) {
                let first = group.iter().filter(|draw| **draw < 3).count() as u32;
                all.add(&[first, 5 - first], 0.58, 0.37);
            }
            prop_assert!(all.excess().abs() < 5.0, "{}", all.excess());
        }
    }
}
