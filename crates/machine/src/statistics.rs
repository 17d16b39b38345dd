//! Statistics of measurements and loads, defined once.

/// The median: the middle value, or the mean of the two in the middle; none for no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// The lower of the two in the middle where [`median`] is their mean: always one of the values.
pub fn median_low(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The value below which this part of the ascending values lies, interpolated linearly between neighbours as R's
/// type 7; none for no values.
pub fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let at = part * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted.get(at as usize)?, sorted.get(at.ceil() as usize)?);
    Some(low + (high - low) * at.fract())
}

/// The imbalance of loads: sample standard deviation (n - 1) over the mean; none for fewer than two values, or if all
/// are 0.
pub fn imbalance(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1 && mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([5.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!([vec![], vec![3.0], vec![4.0, 1.0]].map(median_low), [None, Some(3.0), Some(1.0)]);
    }

    #[test]
    fn c22_c23_imbalance_is_over_n_minus_1() {
        assert_eq!(imbalance([100.0; 4]), Some(0.0));
        assert_eq!(imbalance([400.0, 0.0, 0.0, 0.0]), Some(2.0));
        assert_eq!(imbalance([0.0; 4]), None);
        assert_eq!(imbalance([7.0]), None);
        assert_eq!(imbalance([]), None);
    }
}
