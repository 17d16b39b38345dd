//! How latency grows with load, as two numbers: at utilisation `u` of a controller's bandwidth it is the idle one times
//! `1 + rise + slope u / (1 - u)`.

/// Utilisation from which the full rise applies: published curves begin at 13 to 18 %.
const RISEN: f64 = 0.1;
/// Beyond it the length of a queue depends on the cores' accesses in flight, not on the curve.
const MOST: f64 = 0.95;
/// No machine's latency grows like this: the measurement is of something else.
const IMPLAUSIBLE: f64 = 10.0;

/// The two numbers of a curve, both at least 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Curve {
    /// Relative increase over the idle latency as soon as there is a load.
    pub rise: f64,
    /// Slope of the growth.
    pub slope: f64,
}

impl Curve {
    /// The least-squares fit to points of utilisation and latency relative to the idle one. `None` unless at least two
    /// of them are usable and show a queue.
    pub(crate) fn near(points: &[(f64, f64)]) -> Option<Self> {
        let useful: Vec<(f64, f64, f64)> = points
            .iter()
            .filter(|(u, ratio)| (RISEN..=MOST).contains(u) && ratio.is_finite())
            .map(|&(u, ratio)| (1.0, u / (1.0 - u), ratio - 1.0))
            .collect();
        let sum = |of: fn(&(f64, f64, f64)) -> f64| useful.iter().map(of).sum::<f64>();
        let (ones, queue, queue2) = (sum(|p| p.0), sum(|p| p.1), sum(|p| p.1 * p.1));
        let (more, queue_more) = (sum(|p| p.2), sum(|p| p.1 * p.2));
        let determinant = ones * queue2 - queue * queue;
        if useful.len() < 2 || determinant <= f64::EPSILON * queue2 {
            return None;
        }
        let (rise, slope) =
            ((more * queue2 - queue * queue_more) / determinant, (ones * queue_more - queue * more) / determinant);
        // If one of the two best values is below 0, use the best of the other alone.
        let curve = match (rise >= 0.0, slope >= 0.0) {
            (true, true) => Self { rise, slope },
            (false, _) => Self { rise: 0.0, slope: (queue_more / queue2).max(0.0) },
            (true, false) => Self { rise: (more / ones).max(0.0), slope: 0.0 },
        };
        (curve.rise <= IMPLAUSIBLE && curve.slope <= IMPLAUSIBLE).then_some(curve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `spec/field.md` 5.2: points of a Xeon 8180, with 1.04 and 0.145 as the best fit by the largest error.
    #[test]
    fn a_published_curve_is_found_again() {
        let curve = Curve::near(&[(0.0, 1.0), (0.16, 1.12), (0.39, 1.17), (0.52, 1.25), (0.74, 1.5)]).unwrap();
        for (u, ratio) in [(0.16, 1.12), (0.39, 1.17), (0.52, 1.25), (0.74, 1.5_f64)] {
            let fitted = 1.0 + curve.rise + curve.slope * u / (1.0 - u);
            assert!((fitted / ratio - 1.0).abs() < 0.05, "{curve:?} at {u}");
        }
    }

    #[test]
    fn too_few_points_are_no_curve() {
        assert_eq!(Curve::near(&[(0.0, 1.0), (0.5, 1.3), (0.99, 3.0)]), None);
        assert_eq!(Curve::near(&[(0.5, 1.3), (0.5, 1.2)]), None);
    }

    proptest! {
        #[test]
        fn exact_points_give_their_curve(rise in 0.0..0.5_f64, slope in 0.0..0.5_f64) {
            let points: Vec<_> =
                (1..=9).map(|i| f64::from(i) / 10.0).map(|u| (u, 1.0 + rise + slope * u / (1.0 - u))).collect();
            let curve = Curve::near(&points).unwrap();
            prop_assert!((curve.rise - rise).abs() < 1e-6 && (curve.slope - slope).abs() < 1e-6, "{:?}", curve);
        }

        #[test]
        fn any_points_give_a_curve_that_does_not_fall(points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..20)) {
            if let Some(Curve { rise, slope }) = Curve::near(&points) {
                prop_assert!((0.0..=IMPLAUSIBLE).contains(&rise) && (0.0..=IMPLAUSIBLE).contains(&slope));
            }
        }
    }
}
