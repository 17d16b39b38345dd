//! The layout of a report as text: the width of its lines, and colour.

use crate::columns;
use crate::escape::plain;
use std::fmt;

/// Width and colour of a report as text.
///
/// Reports take both from their format: `{report:80}` is 80 columns wide, `{report:#80}` coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Columns of a line, from [`Layout::LEAST_WIDTH`] to [`Layout::MOST_WIDTH`].
    width: usize,
    color: bool,
}

/// A space at which no line is broken.
const NO_BREAK: char = '\u{a0}';

/// What a text says, for its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// The name of a part of the report.
    Heading,
    Good,
    Bad,
    /// Neither: not known, or not significant.
    Unsure,
}

impl Layout {
    /// Narrower terminals wrap lines themselves.
    pub const LEAST_WIDTH: usize = 20;
    /// Wider lines are hard to read, and the standard library's formats end at 65535.
    pub const MOST_WIDTH: usize = 160;
    /// For files and pipes.
    pub const PIPED: Self = Self { width: 100, color: false };

    /// For a terminal of this many columns, or the nearest supported number.
    pub fn new(width: usize, color: bool) -> Self {
        Self { width: width.clamp(Self::LEAST_WIDTH, Self::MOST_WIDTH), color }
    }

    /// Formats a report.
    pub fn text(self, report: &impl fmt::Display) -> String {
        let width = self.width;
        if self.color { format!("{report:#width$}") } else { format!("{report:width$}") }
    }

    /// The layout that a report is formatted with.
    pub(crate) fn of(f: &fmt::Formatter<'_>) -> Self {
        Self { color: f.alternate(), ..f.width().map_or(Self::PIPED, |width| Self::new(width, false)) }
    }

    /// Columns of a line.
    pub fn width(self) -> usize {
        self.width
    }

    /// Adds the colour of a tone (SGR, ECMA-48).
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.color || text.is_empty() => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Unsure => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The same for each line of a text.
    pub(crate) fn painted_lines(self, tone: Tone, text: &str) -> String {
        text.lines().map(|line| self.paint(tone, line) + "\n").collect()
    }

    /// Wraps words; the first line begins with `first`, the others are indented by its width. Words that are longer
    /// than a line are broken. Control characters are replaced.
    pub fn wrapped(self, first: &str, text: &str) -> String {
        let (first, text) = (plain(first), plain(text));
        let indent = columns::width(&first).min(self.width / 2);
        let room = self.width - indent;
        let mut rows = wrapped_rows(&text, room).into_iter();
        let start = rows.next().unwrap_or_default();
        let mut lines =
            if columns::width(&first) > indent && columns::width(&first) + columns::width(&start) > self.width {
                format!("{}\n{:indent$}{start}\n", first.trim_end(), "")
            } else {
                format!("{first}{start}").trim_end().to_owned() + "\n"
            };
        lines.extend(rows.map(|row| format!("{:indent$}{row}\n", "")));
        lines
    }

    /// Wraps each line of a text that is too wide: the rest goes below, indented by two columns more.
    pub fn wrapped_lines(self, text: &str) -> String {
        let mut lines = String::new();
        for line in text.lines() {
            let own = (line.len() - line.trim_start().len()).min(self.width / 2 - 2);
            if columns::width(line) <= self.width {
                lines.extend([line, "\n"]);
            } else {
                let rows = wrapped_rows(line, self.width - own - 2);
                let indents = std::iter::once(own).chain(std::iter::repeat(own + 2));
                lines.extend(indents.zip(rows).map(|(indent, row)| format!("{:indent$}{row}\n", "")));
            }
        }
        lines
    }
}

/// The words of a text in rows of at most `width` columns; no row has trailing spaces. A percent sign stays with its
/// number. Words that are longer than a row are broken, after a comma if they have one.
pub(crate) fn wrapped_rows(text: &str, width: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let text = text.replace(" %", &format!("{NO_BREAK}%"));
    for word in text.split(|one: char| one.is_whitespace() && one != NO_BREAK).filter(|word| !word.is_empty()) {
        let mut word = word;
        let row = rows.last().map_or(0, |row| columns::width(row));
        if row > 0 && row + 1 + columns::width(word) <= width {
            rows.last_mut().into_iter().for_each(|row| *row = format!("{row} {word}"));
            continue;
        }
        if row > 0 {
            rows.push(String::new());
        }
        while columns::width(word) > width {
            // A character of two columns does not fit into one column.
            let piece = columns::beginning(word, width);
            let piece = piece.rfind(',').map_or(piece, |comma| &piece[..=comma]);
            let piece = if piece.is_empty() { &word[..word.chars().next().map_or(0, char::len_utf8)] } else { piece };
            rows.last_mut().into_iter().for_each(|row| row.push_str(piece));
            rows.push(String::new());
            word = &word[piece.len()..];
        }
        rows.last_mut().into_iter().for_each(|row| row.push_str(word));
    }
    if rows.len() > 1 && rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows.iter().map(|row| row.replace(NO_BREAK, " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_long_ones_broken() {
        let text = Layout::new(20, false).wrapped("  why  ", &"word ".repeat(6));
        assert_eq!(text, "  why  word word\n       word word\n       word word\n");
        assert_eq!(wrapped_rows("ab 数据库数据库 c", 5), ["ab", "数据", "库数", "据库", "c"]);
        assert_eq!(wrapped_rows("local: 90 % now", 9), ["local:", "90 % now"]);
        assert_eq!(wrapped_rows("0-5,12-17,24-29", 12), ["0-5,12-17,", "24-29"]);
        assert_eq!((wrapped_rows("", 5), wrapped_rows("数", 1)), (vec![String::new()], vec!["数".to_owned()]));
        assert_eq!(Layout::new(20, false).wrapped("a name of 16 col", "words"), "a name of 16 col\n          words\n");
    }

    #[test]
    fn lines_that_are_too_wide_go_on_below() {
        let text = "grant 1: CPU 0, memory of node 0\n  the rest may draw 4.25 GB/s\nshort\n";
        let wrapped = "grant 1: CPU 0,\n  memory of node 0\n  the rest may\n    draw 4.25 GB/s\nshort\n";
        assert_eq!(Layout::new(20, false).wrapped_lines(text), wrapped);
        assert_eq!(Layout::new(40, false).wrapped_lines(text), text);
        let deep = format!("{:30}{}", "", "a".repeat(25));
        assert!(Layout::new(20, false).wrapped_lines(&deep).lines().all(|line| columns::width(line) <= 20));
    }

    #[test]
    fn color_is_added_only_where_it_is_wanted() {
        let paint = |color| Layout::new(80, color).paint(Tone::Bad, "bad");
        assert_eq!((paint(false), paint(true)), ("bad".to_owned(), "\x1b[1;31mbad\x1b[0m".to_owned()));
        assert_eq!(Layout::new(80, true).paint(Tone::Plain, "as it is"), "as it is");
    }
}
