//! Aligned columns of text.

use crate::columns::{left, right, width};
use crate::escape::plain;
use crate::layout::{Layout, Tone, wrapped_rows};
use std::fmt;

/// A table: the first column is left-aligned, the others right-aligned.
///
/// With a width (`{table:80}`), columns that do not fit are left out, as far as [`Table::optional`] permits; the others
/// go into further tables below. Without one, lines are as long as they get.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
    optional: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    cells: Vec<String>,
    /// The tone of the cell in each of these columns.
    tones: Vec<(usize, Tone)>,
    /// A text beside or below it.
    note: String,
}

/// Least columns for notes beside the cells.
const LEAST_NOTE: usize = 40;
/// Columns before a note below the cells.
const NOTE_INDENT: usize = 5;

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
    pub(crate) fn noted<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>, note: impl Into<String>) {
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

    /// The widths of the columns.
    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| width(cell)).max().unwrap_or(0)
        };
        (0..columns).map(widest).collect()
    }

    /// The columns that are shown side by side; each part after the first repeats the first column.
    fn parts(&self, widths: &[usize], most: usize) -> Vec<Vec<usize>> {
        let total = |columns: &[usize]| columns.iter().map(|&column| widths[column] + 2).sum::<usize>();
        let mut shown: Vec<usize> = (0..widths.len()).collect();
        let mut optional = self.optional.iter();
        while total(&shown) > most.saturating_add(2) {
            let Some(left_out) = optional.next() else { break };
            shown.retain(|column| column != left_out);
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for column in shown {
            match parts.last_mut() {
                Some(part) if total(part) + widths[column] <= most || part.len() < 2 => part.push(column),
                Some(_) => parts.push(vec![0, column]),
                None => parts.push(vec![column]),
            }
        }
        parts
    }
}

/// A row's cells in these columns.
fn cells_of(row: &Row, columns: &[usize], widths: &[usize], layout: Layout) -> String {
    let cell = |&column: &usize| {
        let text = row.cells.get(column)?;
        let aligned = if column == 0 { left(text, widths[column]) } else { right(text, widths[column]) };
        let tone = row.tones.iter().find(|(of, _)| *of == column);
        Some(tone.map_or(aligned.clone(), |(_, tone)| aligned.replace(text.as_str(), &layout.paint(*tone, text))))
    };
    columns.iter().filter_map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        let most = f.width().map_or(usize::MAX, |_| layout.width());
        let widths = self.widths();
        let parts = self.parts(&widths, most);
        let taken: usize = parts.first().map_or(0, |part| part.iter().map(|&column| widths[column] + 2).sum());
        let longest = self.rows.iter().map(|row| width(&row.note)).max().unwrap_or(0);
        let room = most.saturating_sub(taken);
        let beside = parts.len() == 1 && (room >= LEAST_NOTE || longest <= room);
        for (part, number) in parts.iter().zip(0..) {
            if number > 0 {
                writeln!(f)?;
            }
            for row in &self.rows {
                let line = cells_of(row, part, &widths, layout);
                if row.note.is_empty() || number > 0 {
                    writeln!(f, "{line}")?;
                } else if beside {
                    // Colours take no columns.
                    let plain = cells_of(row, part, &widths, Layout::PIPED);
                    let gap = taken.saturating_sub(width(&plain));
                    let mut notes = wrapped_rows(&row.note, room).into_iter();
                    writeln!(f, "{line}{:gap$}{}", "", notes.next().unwrap_or_default())?;
                    notes.try_for_each(|note| writeln!(f, "{:taken$}{note}", ""))?;
                } else {
                    writeln!(f, "{line}")?;
                    let rows = wrapped_rows(&row.note, most.saturating_sub(NOTE_INDENT));
                    rows.iter().try_for_each(|note| writeln!(f, "{:NOTE_INDENT$}{note}", ""))?;
                }
            }
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
    fn colours_take_no_columns() {
        let plain = format!("{:#60}", table()).replace("\x1b[1;31m", "").replace("\x1b[0m", "");
        assert_eq!(plain, format!("{:60}", table()));
        assert!(format!("{:#60}", table()).contains("\x1b[1;31m9 %\x1b[0m"));
    }
}
