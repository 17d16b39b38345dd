//! Tolerances of measured numbers.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// How near a measured number has to be to the published one. Written `3 %`, `8 points`, `0.5`, `at most`, `at
/// least`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Within {
    /// Within this many percent of the published number.
    Percent(f64),
    /// Within this many percentage points, if both numbers are percentages.
    Points(f64),
    /// Within this difference, in the unit of both.
    Absolute(f64),
    /// The published number is an upper bound.
    AtMost,
    /// The published number is a lower bound.
    AtLeast,
}

impl Within {
    /// Whether a measured number is within the tolerance. NaN never is.
    pub fn allows(self, published: f64, measured: f64) -> bool {
        let off = self.off(published, measured);
        match self {
            Self::Percent(percent) => off <= published.abs() * percent / 100.0,
            Self::Points(most) | Self::Absolute(most) => off <= most,
            Self::AtMost | Self::AtLeast => off <= 0.0,
        }
    }

    /// The error of a measured number, in the unit of both: its distance from the published one, or beyond it for a
    /// bound.
    pub fn off(self, published: f64, measured: f64) -> f64 {
        match self {
            Self::Percent(_) | Self::Points(_) | Self::Absolute(_) => (measured - published).abs(),
            Self::AtMost => measured - published,
            Self::AtLeast => published - measured,
        }
    }
}

impl FromStr for Within {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not one of `3 %`, `8 points`, `0.5`, `at most`, `at least`");
        let amount = |text: &str| {
            let amount: f64 = text.trim().parse().map_err(|_| wrong())?;
            if amount.is_finite() && amount >= 0.0 { Ok(amount) } else { Err(wrong()) }
        };
        match text.trim() {
            "at most" => Ok(Self::AtMost),
            "at least" => Ok(Self::AtLeast),
            text => match (text.strip_suffix('%'), text.strip_suffix("points")) {
                (Some(percent), _) => Ok(Self::Percent(amount(percent)?)),
                (_, Some(points)) => Ok(Self::Points(amount(points)?)),
                _ => Ok(Self::Absolute(amount(text)?)),
            },
        }
    }
}

impl TryFrom<String> for Within {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent} %"),
            Self::Points(points) => write!(f, "{points} points"),
            Self::Absolute(amount) => write!(f, "{amount}"),
            Self::AtMost => f.write_str("at most"),
            Self::AtLeast => f.write_str("at least"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_is_near_enough_or_not() {
        let allows = |within: &str, published, measured: [f64; 3]| {
            measured.map(|measured| within.parse::<Within>().unwrap().allows(published, measured))
        };
        assert_eq!(allows("3 %", 100.0, [97.0, 103.1, f64::NAN]), [true, false, false]);
        assert_eq!(allows("50%", -100.0, [-51.0, -149.0, -151.0]), [true, true, false]);
        assert_eq!(allows("8 points", -11.0, [-19.0, -3.0, -2.9]), [true, true, false]);
        assert_eq!(allows("0", 3.0, [3.0, 2.0, f64::NAN]), [true, false, false]);
        assert_eq!(allows("at most", 10.0, [9.0, 10.1, f64::NAN]), [true, false, false]);
        assert_eq!(allows("at least", 10.0, [9.0, 10.1, f64::NAN]), [false, true, false]);
    }

    #[test]
    fn what_is_no_tolerance_is_refused() {
        for text in ["", "%", "3 percent", "-1 %", "nan", "inf points", "at", "3 % %"] {
            assert!(text.parse::<Within>().unwrap_err().contains("is not one of"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(amount in 0.0..1e9_f64, kind in 0..3) {
            let within = [Within::Percent, Within::Points, Within::Absolute][kind as usize](amount);
            prop_assert_eq!(within.to_string().parse(), Ok(within));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = text.parse::<Within>();
        }
    }
}
