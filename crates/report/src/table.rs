//! Aligned columns of text.

use crate::columns::width;
use crate::escape::plain;
use crate::layout::{Layout, Tone, wrapped_rows};
use std::fmt;

/// A table: the first column is left-aligned and the others right-aligned, unless [`Table::left`] says otherwise.
///
/// With a width (`{table:80}`), columns that do not fit are left out, as far as [`Table::optional`] permits; the others
/// go into further tables below. A first column that would take most of the line goes onto lines of its own, above the
/// other cells, and a cell that is wider than the line is wrapped. Without a width, lines are as long as they get.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Row>,
    optional: Vec<usize>,
    left: Vec<usize>,
    indent: usize,
}

#[derive(Clone, Debug, Default)]
struct Row {
    cells: Vec<String>,
    /// The tone of the cell in each of these columns.
    tones: Vec<(usize, Tone)>,
    /// A text beside or below it.
    note: String,
}

/// The columns of a table in lines of limited length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    widths: Vec<usize>,
    /// Those side by side; each part after the first repeats the first column.
    parts: Vec<Vec<usize>>,
    /// Whether the cells of the first column have lines of their own, above the others.
    first_above: bool,
}

/// Least columns for notes beside the cells.
const LEAST_NOTE: usize = 40;
/// Columns before what is below the first cell: a note, or the other cells.
const BELOW_INDENT: usize = 5;
/// Cells are wrapped to no fewer columns than this, so that numbers stay whole.
const LEAST_CELL: usize = 20;
/// In lines that are too short, the first column may take one of this many parts.
const PARTS_OF_LINE: usize = 3;

impl Default for Table {
    fn default() -> Self {
        Self { rows: Vec::new(), optional: Vec::new(), left: vec![0], indent: 0 }
    }
}

impl Table {
    /// A table with a heading.
    pub fn new<T: Into<String>>(heading: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self::default();
        table.row(heading);
        table
    }

    /// Adds a row. Control characters are replaced.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(Row { cells: cells.into_iter().map(|cell| plain(&cell.into())).collect(), ..Row::default() });
    }

    /// Adds a row with a text of any length, such as the name of a function: beside the cells if there is room, or below.
    pub fn noted<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>, note: impl Into<String>) {
        self.row(cells);
        let note = plain(&note.into());
        self.rows.last_mut().into_iter().for_each(|row| row.note.clone_from(&note));
    }

    /// Sets the tone of a cell of the last row.
    pub(crate) fn tone(&mut self, column: usize, tone: Tone) {
        self.rows.last_mut().into_iter().for_each(|row| row.tones.push((column, tone)));
    }

    /// Columns that may be left out where lines are too short, the least important first.
    #[must_use]
    pub(crate) fn optional(self, columns: &[usize]) -> Self {
        Self { optional: columns.to_vec(), ..self }
    }

    /// The columns that are left-aligned.
    #[must_use]
    pub(crate) fn left(self, columns: &[usize]) -> Self {
        Self { left: columns.to_vec(), ..self }
    }

    /// Spaces before each line, as below a heading.
    #[must_use]
    pub(crate) fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    fn columns(&self, most: usize) -> Columns {
        let count = self.rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        let widest = |column: usize, from: usize| {
            let cells = self.rows.iter().skip(from).filter_map(|row| row.cells.get(column));
            cells.map(|cell| width(cell)).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..count).map(|column| widest(column, 0)).collect();
        let parts = self.parts(&widths, most);
        let fits = parts.len() < 2 && parts.iter().all(|part| !is_too_wide(part, &widths, most));
        // A wide heading above short names is no reason to give each name a line.
        if fits || widest(0, 1) <= most / PARTS_OF_LINE {
            return Columns { widths, parts, first_above: false };
        }
        widths.iter_mut().take(1).for_each(|first| *first = BELOW_INDENT - GAP);
        Columns { parts: self.parts(&widths, most), widths, first_above: true }
    }

    fn parts(&self, widths: &[usize], most: usize) -> Vec<Vec<usize>> {
        let mut shown: Vec<usize> = (0..widths.len()).collect();
        let mut optional = self.optional.iter();
        while is_too_wide(&shown, widths, most) {
            let Some(left_out) = optional.next() else { break };
            shown.retain(|column| column != left_out);
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for column in shown {
            match parts.last_mut() {
                Some(part) if taken(part, widths) + widths[column] <= most || part.len() < 2 => part.push(column),
                Some(_) => parts.push(vec![0, column]),
                None => parts.push(vec![column]),
            }
        }
        parts
    }

    /// A row's cells in the columns of one part: one line, or several if there are cells with lines of their own.
    fn cells(&self, row: &Row, part: &[usize], columns: &Columns, most: usize, layout: Layout) -> Vec<String> {
        let Columns { widths, first_above, .. } = columns;
        let text = |column: usize| row.cells.get(column).map_or("", String::as_str);
        let painted = |column: usize, text: &str| {
            let tone = row.tones.iter().find(|(of, _)| *of == column).map_or(Tone::Plain, |(_, tone)| *tone);
            layout.paint(tone, text)
        };
        let (above, side_by_side) = part.split_at(usize::from(*first_above));
        let mut lines: Vec<String> = Vec::new();
        for &column in above.iter().filter(|&&column| !text(column).is_empty()) {
            lines.extend(wrapped_rows(text(column), most).iter().map(|text| painted(column, text)));
        }
        let indent = if *first_above { BELOW_INDENT } else { 0 };
        let last = side_by_side.last().copied();
        let room = most.saturating_sub(taken(part, widths) - last.map_or(0, |last| widths[last] + GAP));
        let is_wrapped = is_too_wide(part, widths, most) && room >= LEAST_CELL;
        let wrapped = last.filter(|_| is_wrapped).map_or_else(Vec::new, |last| wrapped_rows(text(last), room));
        let cell = |&column: &usize| {
            if is_wrapped && Some(column) == last {
                return painted(column, wrapped.first().map_or("", String::as_str));
            }
            let space = format!("{:1$}", "", widths[column].saturating_sub(width(text(column))));
            let text = painted(column, text(column));
            if self.left.contains(&column) { text + &space } else { space + &text }
        };
        let cells = side_by_side.iter().map(cell).collect::<Vec<_>>().join(&format!("{:GAP$}", ""));
        let line = format!("{:indent$}{cells}", "").trim_end().to_owned();
        if lines.is_empty() || !line.is_empty() {
            lines.push(line);
        }
        lines.extend(wrapped.iter().skip(1).map(|text| format!("{:1$}{text}", "", most - room)));
        lines
    }

    /// The lines of the table, each of at most `most` columns.
    fn lines(&self, most: usize, layout: Layout) -> Vec<String> {
        let columns = self.columns(most);
        let taken = columns.parts.first().map_or(0, |part| taken(part, &columns.widths));
        let longest = self.rows.iter().map(|row| width(&row.note)).max().unwrap_or(0);
        let room = most.saturating_sub(taken);
        let is_one_line = columns.parts.len() == 1 && !columns.first_above;
        let beside = is_one_line && (room >= LEAST_NOTE || longest <= room);
        let mut lines = Vec::new();
        for (number, part) in columns.parts.iter().enumerate() {
            if number > 0 {
                lines.push(String::new());
            }
            for row in &self.rows {
                let mut cells = self.cells(row, part, &columns, most, layout);
                let note = if number == 0 { row.note.as_str() } else { "" };
                if beside && !note.is_empty() {
                    // Colours take no columns.
                    let plain = self.cells(row, part, &columns, most, Layout::PIPED);
                    let gap = taken.saturating_sub(plain.last().map_or(0, |line| width(line)));
                    let mut notes = wrapped_rows(note, room).into_iter();
                    let first = notes.next().unwrap_or_default();
                    cells.last_mut().into_iter().for_each(|line| *line = format!("{line}{:gap$}{first}", ""));
                    cells.extend(notes.map(|note| format!("{:taken$}{note}", "")));
                } else if !note.is_empty() {
                    let notes = wrapped_rows(note, most.saturating_sub(BELOW_INDENT));
                    cells.extend(notes.iter().map(|note| format!("{:BELOW_INDENT$}{note}", "")));
                }
                lines.extend(cells);
            }
        }
        lines
    }
}

/// Columns of the terminal between two columns of a table.
const GAP: usize = 2;

/// The width of some columns, with a gap after each.
fn taken(columns: &[usize], widths: &[usize]) -> usize {
    columns.iter().map(|&column| widths[column] + GAP).sum()
}

fn is_too_wide(columns: &[usize], widths: &[usize], most: usize) -> bool {
    taken(columns, widths) > most.saturating_add(GAP)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        let most = f.width().map_or(usize::MAX, |_| layout.width().saturating_sub(self.indent));
        for line in self.lines(most, layout) {
            let indent = if line.is_empty() { 0 } else { self.indent };
            writeln!(f, "{:indent$}{line}", "")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_under_wide_names() {
        let mut table = Table::new(["name", "bytes"]);
        table.row(["数据库", "8"]);
        table.row(["postgres", "4096"]);
        assert_eq!(table.to_string(), "name      bytes\n数据库        8\npostgres   4096\n");
    }

    fn table() -> Table {
        let mut table = Table::new(["site", "cost", "samples", "latency"]).optional(&[2]);
        table.noted(["7", "9 %", "12", "134 ns"], "read_basis in recognise.c:7");
        table.tone(1, Tone::Bad);
        table
    }

    #[test]
    fn columns_and_notes_go_where_there_is_room() {
        assert_eq!(
            format!("{:60}", table()),
            "site  cost  samples  latency\n7      9 %       12   134 ns  read_basis in recognise.c:7\n"
        );
        assert_eq!(
            format!("{:24}", table()),
            "site  cost  latency\n7      9 %   134 ns\n     read_basis in\n     recognise.c:7\n"
        );
        let narrow = Table { optional: Vec::new(), ..table() };
        let of_20 = "site  cost  samples\n7      9 %       12\n     read_basis in\n     recognise.c:7\n\nsite  latency\n7      134 ns\n";
        assert_eq!(format!("{narrow:20}"), of_20);
    }

    #[test]
    fn a_wide_first_column_has_lines_of_its_own() {
        let mut table = Table::new(["mapping", "policy", "total", "swapped"]).optional(&[3]);
        table.row(["7f00-7f10 rw-p /usr/lib/libc.so.6", "default", "12 KiB", "-"]);
        // A further line of the same mapping.
        table.row(["", "", "2 MiB", ""]);
        let above = "mapping\n      policy   total  swapped\n7f00-7f10 rw-p /usr/lib/libc.so.6\n     \
                     default  12 KiB        -\n               2 MiB\n";
        assert_eq!(format!("{table:40}"), above);
        // A wide heading is no reason.
        let mut taken = Table::new(["pages taken, since boot", "hit", "missed"]);
        taken.row(["0", "1234567", "7"]);
        let parts = "pages taken, since boot      hit\n0                        1234567\n\n\
                     pages taken, since boot  missed\n0                             7\n";
        assert_eq!(format!("{taken:36}"), parts);
    }

    #[test]
    fn a_cell_that_is_wider_than_the_line_is_wrapped() {
        let mut table = Table::new(["node", "CPUs", "free"]).indented(2);
        table.row(["10", "0-5,12-17,24-29,36-41,48-53", "2 GiB"]);
        let parts = "  node  CPUs\n  10    0-5,12-17,24-29,36-41,\n        48-53\n\n  node   free\n  10    2 GiB\n";
        assert_eq!(format!("{table:30}"), parts);
        assert!(table.to_string().lines().all(|line| line.starts_with("  ")), "{table}");
    }

    #[test]
    fn columns_are_aligned_at_the_side_that_was_asked_for() {
        let mut table = Table::new(["link", "", "latency"]).left(&[1]);
        table.row(["0 -> 15", "one way", "7 ns"]);
        table.row(["1", "both", "12 ns"]);
        assert_eq!(
            table.to_string(),
            "   link           latency\n0 -> 15  one way     7 ns\n      1  both       12 ns\n"
        );
    }

    #[test]
    fn colours_take_no_columns() {
        let plain = format!("{:#60}", table()).replace("\x1b[1;31m", "").replace("\x1b[0m", "");
        assert_eq!(plain, format!("{:60}", table()));
        assert!(format!("{:#60}", table()).contains("\x1b[1;31m9 %\x1b[0m"));
    }
}
