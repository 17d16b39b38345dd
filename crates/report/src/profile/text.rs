//! Text formatting shared by the reports of a trace.

use crate::columns;
use crate::escape::plain;
use crate::layout::Layout;
use machine::number::percent;
use std::fmt;

/// Longest name: longer ones lose their middle. Template arguments of C++ may fill pages.
pub(crate) const LONGEST_NAME: usize = 200;

/// A share, or a dash if not known.
pub(crate) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), percent)
}

/// A latency, or a dash if not known.
pub(crate) fn latency(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0} ns"))
}

/// A duration or a time since the start, with at least three digits and its unit.
pub(crate) fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ns if ns >= 1e9 => format!("{:.3} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.2} us", ns / 1e3),
        ns => format!("{ns} ns"),
    }
}

/// An integer with commas between groups of three digits.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let first = digits.len() % 3;
    let mut text = digits.get(..first).unwrap_or("").to_owned();
    for group in digits.as_bytes().get(first..).unwrap_or(&[]).chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().map(|&digit| char::from(digit)));
    }
    text
}

/// Shortens a text to `width` columns by removing its middle. Control and direction characters are replaced.
pub(crate) fn short(text: &str, width: usize) -> String {
    let clean = plain(text);
    if columns::width(&clean) <= width {
        return clean;
    }
    let end = width.saturating_sub(1) / 2;
    let begin = width.saturating_sub(1) - end;
    format!("{}…{}", columns::beginning(&clean, begin), columns::end(&clean, end))
}

/// Lines with names in a column: `  site          matrix.c:455`.
#[derive(Default)]
pub(crate) struct Lines(pub Vec<(String, String)>);

impl Lines {
    /// Adds a line, or several if the text is long.
    pub fn add(&mut self, name: &str, text: &str) {
        self.0.push((name.to_owned(), text.to_owned()));
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        self.0.iter().try_for_each(|(name, text)| f.write_str(&layout.wrapped(&format!("  {name:<16}"), text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 1500, 2_500_000, 3_214_000_000].map(time), ["12 ns", "1.50 us", "2.50 ms", "3.214 s"]);
        assert_eq!(
            (share(None), share(Some(0.293)), latency(Some(1041.3))),
            ("-".into(), "29.3 %".into(), "1041 ns".into())
        );
    }

    #[test]
    fn long_texts_lose_their_middle() {
        assert_eq!((short("abcdefgh", 8), short("abcdefgh", 5)), ("abcdefgh".to_owned(), "ab…gh".to_owned()));
        assert_eq!(short("a\u{1b}[31m\u{202e}", 9), "a?[31m?");
        assert_eq!(short("数据库数据库", 8), "数据…库");
    }
}
