//! Numbers in human-readable form.

/// Nanoseconds without the unit, to a tenth.
pub(super) fn ns(value: f64) -> String {
    format!("{value:.1}").trim_end_matches(".0").to_owned()
}

/// The decimals that show all of these to a tenth, as [`ns`] does one: none if all are whole.
pub(super) fn ns_decimals(values: impl IntoIterator<Item = f64>) -> usize {
    usize::from(values.into_iter().any(|value| ns(value).contains('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!([&[199.0, 200.04][..], &[199.0, 200.1], &[]].map(|all| ns_decimals(all.to_owned())), [0, 1, 0]);
        assert_eq!([104.4, 3.0].map(ns), ["104.4", "3"]);
    }
}
