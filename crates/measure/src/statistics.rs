//! Summarizes repeated measurements.

use machine::quantile;
use serde::{Deserialize, Serialize};

/// The median of repeated measurements, and their spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// The median, in the unit of the field's name; `None` if the spread is above the limit.
    pub value: Option<f64>,
    /// Interquartile range over the median; 0 for a single measurement.
    pub spread: f64,
    /// The number of measurements.
    pub repeats: usize,
}

/// A number for each pair of nodes: rows are the accessing nodes, columns the memory's, in the order of
/// [`Results::nodes`](crate::Results::nodes). `None` for a pair that cannot exist, was not measured, or could not be measured.
pub type Matrix = Vec<Vec<Option<Number>>>;

impl Number {
    /// Summarizes positive measurements; `None` if there are none.
    pub fn from_samples(samples: &[f64], max_spread: f64) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 0.5)?;
        let spread = (quantile(&sorted, 0.75)? - quantile(&sorted, 0.25)?) / median;
        // Not `>`: NaN must not become a result either.
        let value = (spread <= max_spread && median > 0.0).then_some(median);
        Some(Self { value, spread, repeats: samples.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quartiles_are_those_of_statistics_packages() {
        let number = Number::from_samples(&[4.0, 1.0, 3.0, 2.0], 1.0).unwrap();
        assert_eq!((number.value, number.spread, number.repeats), (Some(2.5), 1.5 / 2.5, 4));
        assert_eq!(Number::from_samples(&[7.0], 0.0).unwrap(), Number { value: Some(7.0), spread: 0.0, repeats: 1 });
        assert_eq!(Number::from_samples(&[], 1.0), None);
    }

    #[test]
    fn one_outlier_does_not_spoil_a_number_and_a_busy_machine_does() {
        assert_eq!(Number::from_samples(&[100.0, 101.0, 100.0, 900.0, 100.0], 0.1).unwrap().value, Some(100.0));
        let busy = Number::from_samples(&[100.0, 150.0, 210.0, 120.0, 300.0], 0.1).unwrap();
        assert_eq!(busy.value, None);
        assert!(busy.spread > 0.1);
    }

    proptest! {
        #[test]
        fn the_median_is_within_and_scale_does_not_matter(samples in prop::collection::vec(0.1_f64..1e6, 1..20)) {
            let number = Number::from_samples(&samples, f64::INFINITY).unwrap();
            let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
            let most = samples.iter().copied().fold(0.0, f64::max);
            let value = number.value.unwrap();
            prop_assert!(least <= value && value <= most && number.spread >= 0.0);
            let doubled: Vec<f64> = samples.iter().map(|sample| sample * 2.0).collect();
            let doubled = Number::from_samples(&doubled, f64::INFINITY).unwrap();
            prop_assert!((doubled.value.unwrap() / value - 2.0).abs() < 1e-9);
            prop_assert!((doubled.spread - number.spread).abs() < 1e-9);
        }
    }
}
