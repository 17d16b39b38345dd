//! Targets of figures.

use explore::number;
use std::fmt;

/// The target of a figure, in the unit of its [`Row`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// No target: shown for comparison.
    None,
}

/// One line of the results.
#[derive(Clone, Debug)]
pub struct Row {
    /// The measured quantity.
    pub what: String,
    /// Its target.
    pub target: Target,
    /// The measured value.
    pub measured: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// The command that measured it.
    pub command: String,
}

impl Target {
    /// Whether a value meets the target. NaN never does.
    pub fn is_met_by(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::AtMost(most) => measured <= most,
            Self::None => true,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {}", number(*least)),
            Self::AtMost(most) => write!(f, "<= {}", number(*most)),
            Self::None => write!(f, "-"),
        }
    }
}

impl Row {
    /// Whether it meets its target.
    pub fn is_met(&self) -> bool {
        self.target.is_met_by(self.measured)
    }

    /// The measured figure, with its unit.
    pub fn measured(&self) -> String {
        format!("{} {}", number(self.measured), self.unit)
    }
}

/// The median: the middle value, or the mean of the two in the middle; NaN for no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    machine::median(values).unwrap_or(f64::NAN)
}

/// The range, in hundredths of the median.
pub fn spread_percent(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (most - least) / median(values.iter().copied()) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_or_missed() {
        let met = |target: Target, values: [f64; 3]| values.map(|value| target.is_met_by(value));
        assert_eq!(met(Target::AtLeast(60.0), [59.9, 60.0, f64::NAN]), [false, true, false]);
        assert_eq!(met(Target::AtMost(6.0), [6.0, 6.1, f64::NAN]), [true, false, false]);
        assert!(Target::None.is_met_by(0.0));
    }

    #[test]
    fn the_median_is_in_the_middle_and_the_spread_around_it() {
        assert!(median([]).is_nan());
        let same = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
        same(median([3.0]), 3.0);
        same(median([5.0, 1.0, 2.0]), 2.0);
        same(median([4.0, 1.0]), 2.5);
        same(spread_percent(&[100.0, 101.0, 99.0]), 2.0);
        assert!(spread_percent(&[]).is_nan());
    }

    #[test]
    fn a_row_says_what_was_measured() {
        let target = Target::AtMost(6.0);
        let row = Row { what: String::new(), target, measured: 6.5, unit: "minutes", command: String::new() };
        assert_eq!((target.to_string(), row.measured(), row.is_met()), ("<= 6".into(), "6.5 minutes".into(), false));
    }
}
