//! docs/figures.md: its table has the latest measurement of each figure, and remarks that people wrote.

use crate::target::Row;
use std::fmt;

/// The lines around the table.
const BEGIN: &str = "<!-- written by nearside-bench --page; only remarks are edited by hand -->";
const END: &str = "<!-- end of the table -->";
const HEAD: [&str; COLUMNS] = ["what", "target", "measured", "", "command", "remark"];
const COLUMNS: usize = 6;
/// Marks a missed target; each has a remark that says why.
const MISSED: &str = "missed";

/// A page with a table of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    before: String,
    lines: Vec<Line>,
    after: String,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    cells: [String; COLUMNS],
}

impl Line {
    fn new(text: &str) -> Result<Self, String> {
        let cells = text.strip_prefix('|').and_then(|text| text.strip_suffix('|'));
        let cells: Vec<String> = cells.unwrap_or_default().split('|').map(|cell| cell.trim().to_owned()).collect();
        let cells = cells.try_into().map_err(|cells: Vec<String>| {
            format!("a line of the table has {} columns instead of {COLUMNS}: {text}", cells.len())
        })?;
        Ok(Self { cells })
    }

    /// The line of a measured row, with the remark of an earlier one.
    fn measured(row: &Row, remark: String) -> Self {
        let verdict = if row.is_met() { "" } else { MISSED };
        let command = format!("`{}`", row.command);
        let cells = [row.what.clone(), row.target.to_string(), row.measured(), verdict.to_owned(), command, remark];
        // A bar would begin another column.
        Self { cells: cells.map(|cell| cell.replace('|', "/")) }
    }

    fn is_missed(&self) -> bool {
        self.cells[3] == MISSED
    }
}

impl Page {
    /// From the text of the page.
    pub fn new(text: &str) -> Result<Self, String> {
        let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("there is no line {BEGIN:?}"))?;
        let (table, after) = rest.split_once(END).ok_or_else(|| format!("there is no line {END:?}"))?;
        let lines = table.lines().filter(|line| !line.is_empty()).skip(2).map(Line::new);
        Ok(Self { before: before.to_owned(), lines: lines.collect::<Result<_, _>>()?, after: after.to_owned() })
    }

    /// Enters measurements: each replaces the earlier one of its name. Missed targets come first.
    pub fn enter(&mut self, rows: &[Row]) {
        for row in rows {
            let name = Line::measured(row, String::new()).cells[0].clone();
            match self.lines.iter_mut().find(|line| line.cells[0] == name) {
                Some(line) => *line = Line::measured(row, line.cells[5].clone()),
                None => self.lines.push(Line::measured(row, String::new())),
            }
        }
        self.lines.sort_by_key(|line| !line.is_missed());
    }

    /// The figures that miss their targets without a remark.
    pub fn unexplained(&self) -> Vec<&str> {
        let unexplained = |line: &&Line| line.is_missed() && line.cells[5].is_empty();
        self.lines.iter().filter(unexplained).map(|line| line.cells[0].as_str()).collect()
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        writeln!(f, "{}{BEGIN}\n\n{}", self.before, line(&HEAD.map(str::to_owned)))?;
        writeln!(f, "{}", line(&HEAD.map(|_| "---".to_owned())).replace(' ', ""))?;
        for figure in &self.lines {
            writeln!(f, "{}", line(&figure.cells))?;
        }
        write!(f, "\n{END}{}", self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    const PAGE: &str = include_str!("../../../../docs/figures.md");

    fn row(what: &str, measured: f64) -> Row {
        Row { what: what.to_owned(), target: Target::AtMost(2.0), measured, unit: "s", command: "a | b".to_owned() }
    }

    /// The committed page is as the program would write it, and each missed target says why.
    #[test]
    fn the_committed_page_is_whole() {
        let page = Page::new(PAGE).unwrap();
        assert_eq!(page.to_string(), PAGE);
        assert!(page.lines.len() > 30, "{} figures", page.lines.len());
        assert_eq!(page.unexplained(), [""; 0], "missed targets need a remark in docs/figures.md");
    }

    #[test]
    fn a_measurement_replaces_the_earlier_one_and_keeps_its_remark() {
        let mut page = Page::new(&format!("Figures\n\n{BEGIN}\n\n{END}\nAfter\n")).unwrap();
        page.enter(&[row("one", 1.0), row("two", 1.0)]);
        page.enter(&[row("two", 3.0)]);
        assert_eq!(page.unexplained(), ["two"]);
        let text = page.to_string().replace("| missed | `a / b` |  |", "| missed | `a / b` | slow |");
        let mut page = Page::new(&text).unwrap();
        assert_eq!(page.to_string(), text);
        page.enter(&[row("two", 4.0)]);
        let table: Vec<[&str; COLUMNS]> =
            page.lines.iter().map(|line| line.cells.each_ref().map(String::as_str)).collect();
        assert_eq!(
            table,
            [["two", "<= 2", "4 s", "missed", "`a / b`", "slow"], ["one", "<= 2", "1 s", "", "`a / b`", ""]]
        );
    }

    #[test]
    fn a_page_without_its_table_is_refused() {
        assert!(Page::new("Figures").unwrap_err().contains(BEGIN));
        assert!(Page::new(&format!("{BEGIN}\n|a|\n|-|\n| a | b |\n{END}")).unwrap_err().contains("2 columns"));
    }
}
