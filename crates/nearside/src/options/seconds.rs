//! Options that are a time in seconds.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A parser of seconds within these limits.
pub fn seconds(limits: RangeInclusive<f64>) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match text.parse::<f64>() {
        Ok(seconds) if limits.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("seconds, from {} to {}", limits.start(), limits.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_within_their_limits() {
        let parse = seconds(0.01..=86_400.0);
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "0.009", "86400.1", "-1", "NaN", "inf", "1s", ""] {
            assert_eq!(parse(wrong), Err("seconds, from 0.01 to 86400".to_owned()), "{wrong}");
        }
    }
}
