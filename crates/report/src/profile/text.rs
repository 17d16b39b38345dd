//! Text formatting shared by the reports of a trace.

use crate::{Table, columns, percent};
use std::fmt;

/// Longest line of a report.
pub(crate) const WIDTH: usize = 118;

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

/// Shortens a text to `width` columns by removing its middle. Control characters are replaced.
pub(crate) fn short(text: &str, width: usize) -> String {
    let clean = text.replace(char::is_control, "?");
    if columns::width(&clean) <= width {
        return clean;
    }
    let end = width.saturating_sub(1) / 2;
    let begin = width.saturating_sub(1) - end;
    format!("{}…{}", columns::beginning(&clean, begin), columns::end(&clean, end))
}

/// Wraps words at [`WIDTH`]; the first line begins with `first`, the others are indented by its width.
pub(crate) fn wrapped(first: &str, text: &str) -> String {
    let indent = columns::width(first);
    let (mut lines, mut line) = (String::new(), first.to_owned());
    let mut empty = true;
    for word in text.split_whitespace() {
        let word = short(word, WIDTH.saturating_sub(indent).max(8));
        if !empty && columns::width(&line) + 1 + columns::width(&word) > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(&word);
        empty = false;
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

/// A table with a line of text after each row, indented by two; the heading is not indented.
pub(crate) struct Noted<'a> {
    /// The table, with a heading.
    pub table: &'a Table,
    /// The lines.
    pub notes: &'a [String],
}

impl fmt::Display for Noted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.table.to_string();
        let mut lines = text.lines();
        if let Some(heading) = lines.next() {
            writeln!(f, "{heading}")?;
        }
        for (line, note) in lines.zip(self.notes) {
            writeln!(f, "{line}\n     {}", short(note, WIDTH - 5))?;
        }
        Ok(())
    }
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
        self.0.iter().try_for_each(|(name, text)| f.write_str(&wrapped(&format!("  {name:<16}"), text)))
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
    fn long_texts_lose_their_middle_and_lines_are_wrapped() {
        assert_eq!((short("abcdefgh", 8), short("abcdefgh", 5)), ("abcdefgh".to_owned(), "ab…gh".to_owned()));
        assert_eq!(short("a\u{1b}[31m", 9), "a?[31m");
        assert_eq!(short("数据库数据库", 8), "数据…库");
        let text = wrapped("  why  ", &"word ".repeat(60));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("       word")), "{text}");
    }
}
