//! Numbers in human-readable form.

pub(super) use machine::size::rounded as bytes;
use machine::size::significant;

/// A bandwidth in the largest decimal unit that it reaches, such as `2.85 GB/s`: links and controllers are specified in
/// powers of ten.
pub(super) fn bandwidth(bytes_per_s: f64) -> String {
    let unit = [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)]
        .into_iter()
        .find(|(_, unit)| bytes_per_s >= *unit);
    let (name, unit) = unit.unwrap_or(("B/s", 1.0));
    format!("{} {name}", significant(bytes_per_s / unit))
}

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
    fn sizes_bandwidths_and_times_read_well() {
        for (value, text) in [
            (0, "0 B"),
            (512 << 10, "512 KiB"),
            (8 << 30, "8 GiB"),
            (16_710_066_176, "15.6 GiB"),
            (100 << 30, "100 GiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in
            [(2.85e9, "2.85 GB/s"), (10e9, "10 GB/s"), (999e6, "999 MB/s"), (12.0, "12 B/s"), (1.2e12, "1.2 TB/s")]
        {
            assert_eq!(bandwidth(value), text);
        }
        assert_eq!([&[199.0, 200.04][..], &[199.0, 200.1], &[]].map(|all| ns_decimals(all.to_owned())), [0, 1, 0]);
        assert_eq!(
            (ns(104.4), ns(3.0), count(1, "node"), count(0, "node")),
            ("104.4".into(), "3".into(), "1 node".into(), "0 nodes".into())
        );
    }
}
