//! Estimates from repeated measurements: a mean with its confidence interval.

use serde::{Deserialize, Serialize};

/// A mean, or a ratio of means, with its 95 % confidence interval by Student's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean, or the ratio of two means.
    pub mean: f64,
    /// The interval; none for a single measurement.
    pub interval: Option<(f64, f64)>,
}

/// Squared relative standard error of a mean, and its degrees of freedom.
struct Sums {
    relative_variance: f64,
    freedom: f64,
}

impl Sums {
    /// For two or more positive values.
    fn from_values(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = mean(values).filter(|mean| *mean > 0.0 && values.len() > 1)?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = squares / (count - 1.0) / count;
        Some(Self { relative_variance: variance / mean.powi(2), freedom: count - 1.0 })
    }
}

/// The mean; none if there are no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The interval of a ratio of which the logarithm is a sum of independent parts, given by their variances and degrees of
/// freedom.
fn around_ratio(ratio: f64, parts: &[(f64, f64)]) -> (f64, f64) {
    let variance: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let squares: f64 = parts.iter().map(|(variance, freedom)| variance.powi(2) / freedom).sum();
    let freedom = if squares > 0.0 { variance.powi(2) / squares } else { parts.iter().map(|part| part.1).sum() };
    let far = (student(freedom) * variance.sqrt()).exp();
    (ratio / far, ratio * far)
}

impl Estimate {
    /// The ratio of a time to itself.
    pub const ONE: Self = Self { mean: 1.0, interval: None };

    /// The mean of measurements; none if there are none.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        let mean = mean(values)?;
        let around = |sums: Sums| {
            let far = student(sums.freedom) * sums.relative_variance.sqrt() * mean;
            (mean - far, mean + far)
        };
        Some(Self { mean, interval: Sums::from_values(values).map(around) })
    }

    /// The ratio of two times; none if one is 0. The interval is that of the ratio's logarithm, with Welch's degrees of
    /// freedom, as the variances may differ.
    pub fn ratio(long: &[f64], short: &[f64]) -> Option<Self> {
        let positive = |values| mean(values).filter(|mean| *mean > 0.0);
        let ratio = positive(long)? / positive(short)?;
        let parts = [long, short].map(Sums::from_values).into_iter().collect::<Option<Vec<Sums>>>();
        let parts =
            parts.map(|sums| sums.iter().map(|sums| (sums.relative_variance, sums.freedom)).collect::<Vec<_>>());
        Some(Self { mean: ratio, interval: parts.map(|parts| around_ratio(ratio, &parts)) })
    }

    /// The geometric mean of ratios of two times: of each pair, given as positions in `times`, the first to the second.
    /// Times that are in several pairs, such as a common baseline, count as what they are: measured once. The interval
    /// follows from those of the runs: the pairs are all that there are, and no sample of a larger population.
    pub fn mean_ratio(pairs: &[(usize, usize)], times: &[Vec<f64>]) -> Option<Self> {
        let of = |position: usize| times.get(position).map(Vec::as_slice);
        if let [(long, short)] = *pairs
            && long != short
        {
            return Self::ratio(of(long)?, of(short)?);
        }
        // The logarithm of the result is a sum of the logarithms of the means, each with its coefficient.
        let mut coefficients = vec![0.0; times.len()];
        for (long, short) in pairs {
            *coefficients.get_mut(*long)? += 1.0 / pairs.len() as f64;
            *coefficients.get_mut(*short)? -= 1.0 / pairs.len() as f64;
        }
        let used = || pairs.iter().flat_map(|(long, short)| [*long, *short]);
        let means: Option<Vec<f64>> = used().map(|at| mean(of(at)?).filter(|mean| *mean > 0.0)).collect();
        let logarithms = means.filter(|means| !means.is_empty())?;
        let mean = (logarithms.chunks(2).map(|pair| (pair[0] / pair[1]).ln()).sum::<f64>() / pairs.len() as f64).exp();
        let weighted = times.iter().zip(coefficients).filter(|(_, coefficient)| *coefficient != 0.0);
        let parts: Option<Vec<(f64, f64)>> = weighted
            .map(|(times, coefficient)| {
                let sums = Sums::from_values(times)?;
                Some((coefficient.powi(2) * sums.relative_variance, sums.freedom))
            })
            .collect();
        Some(Self { mean, interval: parts.map(|parts| around_ratio(mean, &parts)) })
    }

    /// Whether the whole interval is above a value.
    pub fn is_above(&self, value: f64) -> bool {
        self.interval.is_some_and(|(low, _)| low > value)
    }

    /// Whether the whole interval is below a value.
    pub fn is_below(&self, value: f64) -> bool {
        self.interval.is_some_and(|(_, high)| high < value)
    }

    /// Half of the interval, relative to the mean.
    pub fn spread(&self) -> Option<f64> {
        self.interval.map(|(low, high)| (high - low) / 2.0 / self.mean)
    }

    /// ` (1.68 to 1.76)`: the interval with a leading space, if it has a width. An interval too wide for its digits is
    /// described as such.
    pub fn interval_text(&self) -> String {
        match self.interval {
            Some((low, high)) if high > 10.0 * low => " (chance)".to_owned(),
            Some((low, high)) if high > low => format!(" ({low:.2} to {high:.2})"),
            _ => String::new(),
        }
    }
}

/// Half width in standard errors of the 95 % interval of Student's distribution.
fn student(freedom: f64) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    // Welch's degrees of freedom are not integers: rounding down makes the interval wider, which is safe.
    let whole = freedom.floor().max(1.0);
    match FEW.get(whole as usize - 1) {
        Some(known) => *known,
        // Cornish-Fisher expansion around the normal distribution.
        None => 1.95996 + 2.37227 / whole + 2.8225 / whole.powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_are_those_of_statistics_packages() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-3 * b.abs(), "{a} {b}");
        // R: t.test(c(10, 12, 11))
        let three = Estimate::from_values(&[10.0, 12.0, 11.0]).unwrap();
        let (low, high) = three.interval.unwrap();
        close(low, 8.5159);
        close(high, 13.4841);
        close(three.spread().unwrap(), 2.4841 / 11.0);
        assert_eq!(Estimate::from_values(&[7.0]), Some(Estimate { mean: 7.0, interval: None }));
        assert_eq!(Estimate::from_values(&[]), None);
        // R: qt(0.975, c(1, 5, 11, 30, 1000))
        for (freedom, expected) in [(1.0, 12.706), (5.9, 2.571), (11.0, 2.201), (30.0, 2.0423), (1e3, 1.9623)] {
            close(student(freedom), expected);
        }
    }

    #[test]
    fn a_difference_is_reported_if_it_is_significant() {
        let slow = [200.0, 202.0, 198.0];
        assert!(Estimate::ratio(&slow, &[100.0, 101.0, 99.0]).unwrap().is_above(1.9));
        let same = Estimate::ratio(&slow, &[199.0, 203.0, 196.0]).unwrap();
        assert!(!same.is_above(1.0) && same.interval.unwrap().1 > 1.0);
        assert!(same.interval_text().starts_with(" (0.9"), "{}", same.interval_text());
        assert_eq!(Estimate::ratio(&[1.0, 9.0], &[9.0, 1.0]).unwrap().interval_text(), " (chance)");
        assert!(!Estimate::ratio(&slow, &[100.0]).unwrap().is_above(0.0), "one measurement has no interval");
        // Exactly repeated values differ with certainty.
        assert!(Estimate::ratio(&[2.0, 2.0], &[1.0, 1.0]).unwrap().is_above(1.99));
        assert_eq!(Estimate::ratio(&slow, &[]), None);
        assert_eq!(Estimate::ratio(&slow, &[0.0]), None);
    }

    fn width(estimate: Estimate) -> f64 {
        estimate.interval.map(|(low, high)| (high / low).ln()).unwrap()
    }

    #[test]
    fn ratios_of_several_pairs_have_a_narrower_interval() {
        let (slow, fast) = (vec![200.0, 204.0, 196.0], vec![100.0, 102.0, 98.0]);
        let times: Vec<Vec<f64>> = [&slow, &fast].into_iter().cycle().take(8).cloned().collect();
        let one = Estimate::mean_ratio(&[(0, 1)], &times).unwrap();
        assert_eq!(Some(one), Estimate::ratio(&slow, &fast));
        let four = Estimate::mean_ratio(&[(0, 1), (2, 3), (4, 5), (6, 7)], &times).unwrap();
        assert!((four.mean - 2.0).abs() < 1e-12);
        // Half as wide, and with 16 degrees of freedom in place of 4.
        assert!((width(one) / width(four) - 2.0 * 2.776 / student(16.0)).abs() < 1e-3, "{one:?} {four:?}");
        // Twice as slow and twice as fast are as slow on average.
        let both = Estimate::mean_ratio(&[(0, 1), (3, 2)], &times).unwrap();
        assert!((both.mean - 1.0).abs() < 1e-12 && !both.is_above(1.0) && !both.is_below(1.0));
        assert!(Estimate::mean_ratio(&[(1, 0)], &times).unwrap().is_below(0.6));
        assert_eq!(Estimate::mean_ratio(&[], &times), None);
        let itself = Estimate { mean: 1.0, interval: Some((1.0, 1.0)) };
        assert_eq!(Estimate::mean_ratio(&[(0, 0)], &times), Some(itself), "a cell and itself do not differ by chance");
        assert_eq!(Estimate::mean_ratio(&[(0, 1), (0, 8)], &times), None, "there is no such time");
        let single = [slow, fast, vec![1.0]];
        assert_eq!(Estimate::mean_ratio(&[(0, 1), (2, 1)], &single).unwrap().interval, None);
    }

    /// Three cells over one baseline that varies: what the baseline happened to be is in all three ratios.
    #[test]
    fn pairs_that_share_a_time_are_not_independent() {
        let steady = vec![200.0, 200.2, 199.8];
        let times = [steady.clone(), steady.clone(), steady, vec![90.0, 100.0, 110.0]];
        let one = Estimate::mean_ratio(&[(0, 3)], &times).unwrap();
        let shared = Estimate::mean_ratio(&[(0, 3), (1, 3), (2, 3)], &times).unwrap();
        assert!((width(shared) / width(one) - 1.0).abs() < 1e-3, "{one:?} {shared:?}");
        // A chain: what is between the ends cancels.
        let chain = Estimate::mean_ratio(&[(0, 3), (3, 1)], &times).unwrap();
        assert!(width(chain) < width(one) / 10.0 && (chain.mean - 1.0).abs() < 1e-9, "{chain:?}");
    }

    proptest! {
        #[test]
        fn the_mean_is_inside(
            values in prop::collection::vec(1e-9_f64..1e9, 2..12),
            other in prop::collection::vec(1e-9_f64..1e9, 2..12),
        ) {
            for estimate in [Estimate::from_values(&values).unwrap(), Estimate::ratio(&values, &other).unwrap()] {
                let (low, high) = estimate.interval.unwrap();
                prop_assert!(low <= estimate.mean * (1.0 + 1e-9) && estimate.mean <= high * (1.0 + 1e-9));
            }
        }
    }
}
