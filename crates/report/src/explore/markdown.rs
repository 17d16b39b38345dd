//! A campaign's results as Markdown: the claims, and times in a table for each group of cells.

use super::text::{CLAIM_HEADINGS, change_with_interval};
use super::{CampaignReport, CellReport};
use crate::compare::text::duration;
use crate::escape::escape_sentence;
use std::collections::BTreeMap;

impl CampaignReport {
    /// As Markdown. Times of cells that differ by the label of the baseline's last axis are in one row.
    pub fn markdown(&self) -> String {
        let claims = self.claim_rows();
        let claims = if claims.is_empty() { String::new() } else { format!("\n{}", table(&CLAIM_HEADINGS, &claims)) };
        let remark = |remark: &String| format!("- {}\n", cell(remark));
        let remarks: String = self.remarks().iter().map(remark).collect();
        let remarks = if remarks.is_empty() { remarks } else { format!("\n{remarks}") };
        let line = |line: &str| format!("{}\n", cell(line));
        let about: String = self.about.trim().lines().map(line).collect();
        let about = if about.is_empty() { about } else { format!("\n{about}") };
        let common = self.axes.iter().enumerate().filter(|(index, _)| !self.differs(*index));
        let label = |index: usize| self.cells.first().map_or("", |first| first.labels[index].as_str());
        let labelled = |(index, axis): (usize, &String)| format!(", {axis} {}", label(index));
        let common: String = common.map(labelled).collect();
        let size = cell(&format!("{}{common}", self.size().replacen("incomplete", "Incomplete", 1)));
        format!("# {}\n{about}\n{size}\n\n{}{claims}{remarks}", cell(&self.title), self.times())
    }

    /// The times: a row for each combination of the other axes.
    fn times(&self) -> String {
        let Some(axis) = self.columns else {
            let rows: Vec<[String; 2]> = self.cells.iter().map(|it| [format!("`{}`", it.name), time(it)]).collect();
            return table(&["cell", "time"], &rows);
        };
        let mut columns: Vec<&str> = Vec::new();
        let mut rows: Vec<(Vec<&str>, BTreeMap<&str, &CellReport>)> = Vec::new();
        for it in &self.cells {
            let label = it.labels[axis].as_str();
            let others = it.labels.iter().enumerate().filter(|(index, _)| *index != axis && self.differs(*index));
            let others: Vec<&str> = others.map(|(_, label)| label.as_str()).collect();
            if !columns.contains(&label) {
                columns.push(label);
            }
            match rows.iter_mut().find(|(known, _)| *known == others) {
                Some((_, cells)) => _ = cells.insert(label, it),
                None => rows.push((others, [(label, it)].into())),
            }
        }
        let names = self.axes.iter().enumerate().filter(|(index, _)| *index != axis && self.differs(*index));
        let headings: Vec<&str> = names.map(|(_, name)| name.as_str()).chain(columns.iter().copied()).collect();
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|(labels, cells)| {
                let labels = labels.iter().map(|label| (*label).to_owned());
                labels
                    .chain(columns.iter().map(|label| cells.get(label).map_or_else(String::new, |it| time(it))))
                    .collect()
            })
            .collect();
        table(&headings, &rows)
    }

    /// Whether cells have different labels on an axis.
    fn differs(&self, axis: usize) -> bool {
        self.cells.iter().any(|cell| cell.labels[axis] != self.cells[0].labels[axis])
    }
}

/// A mean time, with the difference to the baseline.
fn time(cell: &CellReport) -> String {
    match (&cell.seconds, &cell.relative) {
        (Some(seconds), Some(ratio)) => format!("{}, {}", duration(seconds.mean), change_with_interval(ratio)),
        (Some(seconds), None) => duration(seconds.mean),
        (None, _) if cell.failed.is_some() => "failed".to_owned(),
        (None, _) => "-".to_owned(),
    }
}

fn table<R: AsRef<[String]>>(headings: &[&str], rows: &[R]) -> String {
    let line =
        |cells: &[String]| format!("| {} |\n", cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | "));
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(headings.len()));
    let rows: String = rows.iter().map(|row| line(row.as_ref())).collect();
    format!("{}{rule}{rows}", line(&headings))
}

/// A text that ends no cell and starts no markup.
fn cell(text: &str) -> String {
    escape_sentence(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}
