//! Numbers as people write and read them, except sizes: [`crate::size`].

const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];

/// Three digits and a decimal prefix: `2.75 M`. Numbers below 1,000 are exact.
pub fn count(value: u64) -> String {
    let mut scaled = value as f64;
    let mut prefix = 0;
    // Values that would round to four digits take the next prefix.
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    if prefix == 0 {
        return value.to_string();
    }
    let decimals = if scaled < 9.995 { 2 } else { usize::from(scaled < 99.95) };
    format!("{scaled:.decimals$} {}", PREFIXES[prefix])
}

/// A number with its noun: `1 node`, `4 nodes`.
pub fn counted(value: impl TryInto<u64>, noun: &str) -> String {
    let value = value.try_into().unwrap_or(u64::MAX);
    format!("{value} {noun}{}", plural(value))
}

/// A number with its noun, to three digits: `2.75 M pages`.
pub fn rounded_count(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), plural(value))
}

fn plural(value: u64) -> &'static str {
    if value == 1 { "" } else { "s" }
}

/// Three significant digits, without trailing zeros: `7.58`, `15.6`, `512`.
pub fn significant(value: f64) -> String {
    let decimals = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A bandwidth in the largest decimal unit that it reaches, such as `2.85 GB/s`: vendors specify links and controllers in
/// powers of ten, and STREAM reports them. Sizes have powers of two: [`crate::size::rounded`].
pub fn bandwidth(bytes_per_s: f64) -> String {
    let unit = [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)]
        .into_iter()
        .find(|(_, unit)| bytes_per_s >= *unit);
    let (name, unit) = unit.unwrap_or(("B/s", 1.0));
    format!("{} {name}", significant(bytes_per_s / unit))
}

/// A ratio as a percentage with one decimal; zero has no sign.
pub fn percent(ratio: f64) -> String {
    let text = format!("{:.1} %", ratio * 100.0);
    if text == "-0.0 %" { "0.0 %".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        let written = [0, 999, 1000, 2_754_321, 99_960, 999_499, 999_999, 48_735_003].map(count);
        assert_eq!(written, ["0", "999", "1.00 k", "2.75 M", "100 k", "999 k", "1.00 M", "48.7 M"]);
        let written = [2.85e9, 10e9, 999e6, 12.0, 1.2e12].map(bandwidth);
        assert_eq!(written, ["2.85 GB/s", "10 GB/s", "999 MB/s", "12 B/s", "1.2 TB/s"]);
        assert_eq!([0.99361, -0.0, -0.0004, -0.02].map(percent), ["99.4 %", "0.0 %", "0.0 %", "-2.0 %"]);
    }
}
