//! Whether samples differ more than by chance: a likelihood-ratio test at 0.1 %.

/// Standard deviations that chance exceeds once in a thousand times.
const Z_999: f64 = 3.09;

/// How far distributions over the same classes, a row each, are from one another.
pub(super) struct Difference {
    /// The likelihood ratio.
    pub statistic: f64,
    /// What chance makes of it on average: the degrees of freedom.
    pub degrees: f64,
}

impl Difference {
    /// By numbers of samples; classes without any do not count.
    pub fn new(rows: &[&[f64]]) -> Self {
        let classes = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let by_class: Vec<f64> = (0..classes).map(|class| rows.iter().filter_map(|row| row.get(class)).sum()).collect();
        let by_row: Vec<f64> = rows.iter().map(|row| row.iter().sum()).collect();
        let all: f64 = by_row.iter().sum();
        let mut statistic = 0.0;
        for (row, in_row) in rows.iter().zip(&by_row) {
            for (count, in_class) in row.iter().zip(&by_class).filter(|(count, _)| **count > 0.0) {
                statistic += 2.0 * count * (count * all / (in_row * in_class)).ln();
            }
        }
        let seen = |sums: &[f64]| sums.iter().filter(|sum| **sum > 0.0).count().saturating_sub(1);
        Self { statistic, degrees: (seen(&by_class) * seen(&by_row)) as f64 }
    }

    /// Whether it is larger than chance makes it once in a thousand times.
    pub fn is_significant(&self) -> bool {
        self.statistic > chi_squared_999(self.degrees)
    }
}

/// Whether two or more distributions differ.
pub(super) fn are_different(rows: &[&[f64]]) -> bool {
    Difference::new(rows).is_significant()
}

/// The value that chi-squared exceeds once in a thousand times, by Wilson and Hilferty's approximation.
fn chi_squared_999(degrees: f64) -> f64 {
    if degrees < 1.0 {
        return f64::INFINITY;
    }
    let ninth = 2.0 / (9.0 * degrees);
    degrees * (1.0 - ninth + Z_999 * ninth.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_is_chi_squared_at_a_thousandth() {
        // Tables: 10.83, 16.27 and 24.32 for 1, 3 and 7 degrees.
        for (degrees, value) in [(1.0, 10.83), (3.0, 16.27), (7.0, 24.32)] {
            assert!((chi_squared_999(degrees) / value - 1.0).abs() < 0.04, "{degrees}");
        }
        assert!(!Difference::new(&[&[100.0], &[300.0]]).is_significant(), "one class");
        let three = Difference::new(&[&[20.0, 30.0, 0.0], &[40.0, 60.0, 0.0], &[2.0, 3.0, 0.0]]);
        assert!(three.statistic.abs() < 1e-9 && (three.degrees - 2.0).abs() < 1e-9);
    }
}
