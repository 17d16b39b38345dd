//! The runs of a campaign as one table, for other tools.

use explore::{Campaign, Cell, Results, UnitOutcome};
use std::collections::BTreeSet;

/// A run in each row.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTable {
    /// The names of columns with texts: `cell`, the axes, `failed`.
    pub text_columns: Vec<String>,
    /// The names of columns with numbers: `round`, `seconds`, `wall_seconds`, the metrics.
    pub number_columns: Vec<String>,
    /// The values of each row, in that order.
    pub rows: Vec<(Vec<String>, Vec<Option<f64>>)>,
}

impl RunTable {
    /// The runs of some cells.
    pub fn new(campaign: &Campaign, results: &Results, cells: &[&Cell]) -> Self {
        let metrics: BTreeSet<String> = cells
            .iter()
            .flat_map(|cell| results.measured(&cell.id))
            .flat_map(|run| run.metrics.keys().cloned())
            .collect();
        let axes = campaign.axes.iter().map(|axis| axis.name.clone());
        let text_columns = ["cell".to_owned()].into_iter().chain(axes).chain(["failed".to_owned()]).collect();
        let fixed = ["round", "seconds", "wall_seconds"].map(str::to_owned);
        let number_columns = fixed.into_iter().chain(metrics.iter().cloned()).collect();
        let row = |cell: &&Cell, unit: &explore::Unit| {
            let (why, run) = match &unit.outcome {
                UnitOutcome::Measured(run) => (String::new(), Some(run)),
                UnitOutcome::Failed { why, .. } => (why.clone(), None),
            };
            let labels = campaign.labels(cell).map(|(_, label)| label.to_owned());
            let texts = [cell.name.clone()].into_iter().chain(labels).chain([why]).collect();
            let fixed = [Some(f64::from(unit.round)), run.map(|run| run.seconds), run.map(|run| run.wall_seconds)];
            let metrics = metrics.iter().map(|name| run?.metric(name));
            (texts, fixed.into_iter().chain(metrics).collect())
        };
        let rows = cells.iter().flat_map(|cell| results.units(&cell.id).iter().map(|unit| row(cell, unit))).collect();
        Self { text_columns, number_columns, rows }
    }

    /// As RFC 4180 has it.
    pub fn to_csv(&self) -> String {
        let quoted = |text: &String| {
            if text.contains(['"', ',', '\n', '\r']) {
                format!("\"{}\"", text.replace('"', "\"\""))
            } else {
                text.clone()
            }
        };
        let number = |number: &Option<f64>| number.map_or_else(String::new, |number| number.to_string());
        let names: Vec<String> = self.text_columns.iter().chain(&self.number_columns).map(quoted).collect();
        let row = |(texts, numbers): &(Vec<String>, Vec<Option<f64>>)| {
            texts.iter().map(quoted).chain(numbers.iter().map(number)).collect::<Vec<_>>().join(",")
        };
        let lines = [names.join(",")].into_iter().chain(self.rows.iter().map(row));
        lines.flat_map(|line| [line, "\r\n".to_owned()]).collect()
    }
}
