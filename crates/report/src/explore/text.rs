//! A campaign's results as text.

use super::{CampaignReport, CellReport};
use crate::Table;
use crate::compare::text::duration;
use crate::escape::{escape_name, escape_sentence};
use explore::{Correlated, Estimate};
use machine::number::percent;
use machine::number::rounded_count;
use std::fmt;

/// Metrics shown of a ranking.
const MOST_RANKED: usize = 12;

impl fmt::Display for CampaignReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        let mut table = Table::new(CELL_HEADINGS);
        self.cells.iter().for_each(|cell| table.row(cell_row(cell)));
        write!(f, "\n{table}")?;
        if !self.effects.is_empty() || !self.correlations.is_empty() {
            let mut table = Table::new(CLAIM_HEADINGS);
            self.claim_rows().into_iter().for_each(|row| table.row(row));
            write!(f, "\n{table}")?;
        }
        for ranking in &self.rankings {
            writeln!(f, "\nCorrelation with the time, {}", ranking.over)?;
            let mut table = Table::new(["metric", "r", "95 %", "rank", "runs"]);
            ranking.metrics.iter().take(MOST_RANKED).for_each(|ranked| {
                table.row(ranked_row(&ranked.metric, &ranked.found));
            });
            write!(f, "{table}")?;
        }
        let notes = self.remarks();
        if !notes.is_empty() {
            writeln!(f)?;
        }
        notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        for cell in self.cells.iter().filter(|cell| !cell.output.is_empty()) {
            writeln!(f, "\nThe last lines of {}:", escape_name(&cell.name))?;
            cell.output.lines().try_for_each(|line| writeln!(f, "  | {}", escape_name(line)))?;
        }
        Ok(())
    }
}

/// Columns of the cells.
pub(crate) const CELL_HEADINGS: [&str; 6] = ["cell", "n", "time", "95 %", "to baseline", "state"];
/// Columns of the claims.
pub(crate) const CLAIM_HEADINGS: [&str; 6] = ["claim", "of", "expected", "found", "95 %", "result"];

/// A cell, in the order of the columns.
pub(crate) fn cell_row(cell: &CellReport) -> [String; 6] {
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        escape_name(&cell.name),
        cell.runs.len().to_string(),
        or(cell.seconds.map(|seconds| duration(seconds.mean))),
        or(cell.seconds.and_then(|seconds| seconds.spread()).map(|spread| format!("± {}", percent(spread)))),
        or(cell.relative.map(|ratio| change_with_interval(&ratio))),
        match &cell.failed {
            Some(_) => "failed".to_owned(),
            None if cell.is_over => "done".to_owned(),
            None => "to run".to_owned(),
        },
    ]
}

/// `+12.3 %`.
pub(crate) fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn interval(estimate: &Estimate) -> String {
    estimate.interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} to {}", change(low), change(high)))
}

pub(super) fn change_with_interval(ratio: &Estimate) -> String {
    let around = ratio.interval.map(|_| format!(" ({})", interval(ratio))).unwrap_or_default();
    format!("{}{around}", change(ratio.mean))
}

/// A metric's correlation, in the order of the columns.
pub(crate) fn ranked_row(metric: &str, found: &Correlated) -> [String; 5] {
    [
        escape_name(metric),
        format!("{:.3}", found.r),
        found.interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}")),
        found.rho.map_or_else(|| "-".to_owned(), |rho| format!("{rho:.3}")),
        found.runs.to_string(),
    ]
}

impl CampaignReport {
    pub(crate) fn heading(&self) -> String {
        format!("{}: {}", escape_sentence(&self.title), self.size())
    }

    /// Numbers of cells and runs.
    pub(super) fn size(&self) -> String {
        let runs: usize = self.cells.iter().map(|cell| cell.runs.len()).sum();
        let failed = self.cells.iter().filter(|cell| cell.failed.is_some()).count();
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let cells = rounded_count(self.cells.len() as u64, "cell");
        match self.left {
            0 => format!("{cells}, {}{failed}", rounded_count(runs as u64, "run")),
            left => format!("incomplete: {runs} of at least {} runs of {cells}{failed}", runs + left),
        }
    }

    /// All claims, in the order of the columns.
    pub(crate) fn claim_rows(&self) -> Vec<[String; 6]> {
        let effects = self.effects.iter().map(|effect| {
            let (all, known) = (effect.pairs.len(), effect.pairs.iter().filter(|pair| pair.ratio.is_some()).count());
            let of = match &effect.worst {
                Some(_) if known < all => format!("worst of {known} of "),
                Some(_) => "worst of ".to_owned(),
                None => String::new(),
            };
            let ratio = effect.worst.as_ref().map_or(effect.ratio, |worst| worst.ratio);
            [
                escape_name(&effect.name),
                format!("{}, {of}{all} {}", escape_name(&effect.metric), if all == 1 { "pair" } else { "pairs" }),
                effect.expected.clone(),
                ratio.map_or_else(|| "-".to_owned(), |ratio| change(ratio.mean)),
                ratio.map_or_else(|| "-".to_owned(), |ratio| interval(&ratio)),
                effect.claim.name().to_owned(),
            ]
        });
        let correlations = self.correlations.iter().map(|correlation| {
            let found = correlation.found.as_ref().map(|found| ranked_row("", found));
            let [_, r, interval, ..] = found.unwrap_or_else(|| std::array::from_fn(|_| "-".to_owned()));
            [
                escape_name(&correlation.name),
                format!("r of {}", escape_name(&correlation.metric)),
                correlation.expected.clone(),
                r,
                interval,
                correlation.claim.name().to_owned(),
            ]
        });
        effects.chain(correlations).collect()
    }

    /// Sentences about cells, and the other notes.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let failed = self.cells.iter().filter_map(|cell| {
            Some(format!("{} failed: {}", escape_name(&cell.name), escape_sentence(cell.failed.as_ref()?)))
        });
        let of_cells = self.cells.iter().flat_map(|cell| {
            cell.notes.iter().map(|note| format!("{}: {}", escape_name(&cell.name), escape_sentence(note)))
        });
        let worst = self.effects.iter().filter_map(|effect| {
            let pair = effect.worst.as_ref()?;
            let [name, of, against] = [&effect.name, &pair.of, &pair.against].map(|name| escape_name(name));
            Some(format!("{name}: the worst pair is {of} against {against}"))
        });
        failed.chain(of_cells).chain(worst).chain(self.notes.iter().map(|note| escape_sentence(note))).collect()
    }
}
