//! Numbers in human-readable form.

/// Nanoseconds without the unit, to a tenth.
pub(super) fn ns(value: f64) -> String {
    format!("{value:.1}").trim_end_matches(".0").to_owned()
}

/// The decimals that show all of these to a tenth, as [`ns`] does one: none if all are whole.
pub(super) fn ns_decimals(values: impl IntoIterator<Item = f64>) -> usize {
    usize::from(values.into_iter().any(|value| ns(value).contains('.')))
}

/// A count with its noun: `1 node`, `4 nodes`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_read_well() {
        assert_eq!([&[199.0, 200.04][..], &[199.0, 200.1], &[]].map(|all| ns_decimals(all.to_owned())), [0, 1, 0]);
        assert_eq!(
            (ns(104.4), ns(3.0), count(1, "node"), count(0, "node")),
            ("104.4".into(), "3".into(), "1 node".into(), "0 nodes".into())
        );
    }
}
