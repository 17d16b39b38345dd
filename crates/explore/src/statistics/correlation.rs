//! How closely two measurements of the same runs are related.

use super::estimate::mean;

/// The 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_963_984_540_054;

/// Pearson's correlation of pairs, -1 to 1; `None` for fewer than two pairs, or where one side does not vary.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    // Deviations from a rounded mean of equal values need not be 0.
    let varies = |values: &[f64]| values.iter().any(|value| Some(value) != values.first());
    if !varies(&xs) || !varies(&ys) {
        return None;
    }
    let (x_mean, y_mean) = (mean(&xs)?, mean(&ys)?);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (x, y) = (x - x_mean, y - y_mean);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    let r = xy / (xx.sqrt() * yy.sqrt());
    r.is_finite().then(|| r.clamp(-1.0, 1.0))
}

/// Spearman's correlation: that of the ranks. Equal values share their mean rank.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    pearson(&ranks(&xs).into_iter().zip(ranks(&ys)).collect::<Vec<_>>())
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        let rank = first as f64 + (equal.len() - 1) as f64 / 2.0;
        for &index in equal {
            ranks[index] = rank;
        }
        first += equal.len();
    }
    ranks
}

/// The 95 % interval of a correlation of `count` pairs, by Fisher's transformation; `None` for fewer than four pairs.
pub fn fisher_interval(r: f64, count: usize) -> Option<(f64, f64)> {
    let error = NORMAL / ((count > 3).then(|| count - 3)? as f64).sqrt();
    // Exactly 1 or -1 is at infinity, and stays there.
    let z = r.atanh();
    Some(((z - error).tanh(), (z + error).tanh()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Time and share of local accesses of ten runs. Their correlations were computed with 40 digits, from the exact
    /// sums of Python's fractions.
    const RUNS: [(f64, f64); 10] = [
        (7.43, 0.853),
        (7.63, 0.849),
        (6.05, 1.0),
        (6.02, 0.999),
        (6.19, 0.85),
        (6.23, 0.877),
        (6.77, 0.988),
        (2.77, 0.76),
        (2.68, 0.64),
        (2.7, 0.7),
    ];

    #[test]
    fn what_does_not_vary_is_not_correlated() {
        // The mean of six times 0.7 is not exactly 0.7.
        let pairs: Vec<(f64, f64)> = (0..6).map(|run| (0.7, 0.1 + f64::from(run % 2))).collect();
        assert_eq!((pearson(&pairs), pearson(&[(0.1, 0.7); 6])), (None, None));
    }

    #[test]
    fn correlations_equal_those_with_more_digits() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(pearson(&RUNS).unwrap(), 0.736_292_989_014_062_6);
        close(spearman(&RUNS).unwrap(), 0.418_181_818_181_818_2);
        // Python: tanh(atanh(-0.987) -+ 1.959963984540054 / sqrt(21))
        let (low, high) = fisher_interval(-0.987, 24).unwrap();
        close(low, -0.994_452_792_179_901_8);
        close(high, -0.969_686_409_232_589);
        assert_eq!(fisher_interval(0.5, 3), None);
        assert_eq!(fisher_interval(1.0, 10), Some((1.0, 1.0)));
    }

    #[test]
    fn what_does_not_vary_has_no_correlation() {
        assert_eq!(pearson(&[]), None);
        assert_eq!(pearson(&[(1.0, 2.0)]), None);
        assert_eq!(pearson(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(pearson(&[(1.0, 2.0), (f64::NAN, 3.0)]), None);
        assert!(pearson(&[(1.0, 2.0), (2.0, 4.0)]).unwrap() > 1.0 - 1e-15);
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 9.0]), [1.5, 0.0, 1.5, 3.0]);
    }

    proptest! {
        #[test]
        fn a_correlation_keeps_under_scaling(
            pairs in prop::collection::vec((-1e6_f64..1e6, -1e6_f64..1e6), 4..40),
            factor in 1e-3_f64..1e3,
        ) {
            let Some(r) = pearson(&pairs) else { return Ok(()) };
            let scaled: Vec<_> = pairs.iter().map(|(x, y)| (x * factor, -y)).collect();
            prop_assert!((pearson(&scaled).unwrap() + r).abs() < 1e-9);
            let (low, high) = fisher_interval(r, pairs.len()).unwrap();
            prop_assert!((-1.0..=r).contains(&low) && (r..=1.0).contains(&high));
            let cubes: Vec<_> = pairs.iter().map(|(x, y)| (x.powi(3), *y)).collect();
            prop_assert!((spearman(&cubes).unwrap() - spearman(&pairs).unwrap()).abs() < 1e-9);
        }
    }
}
