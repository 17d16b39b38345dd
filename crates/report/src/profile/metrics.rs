//! The metrics of a verdict.

use super::text::wrapped;
use crate::{Table, columns, percent};
use profile::{Metric, Verdict};
use std::fmt;

/// A verdict as text, with its metrics.
pub(crate) struct VerdictText<'a>(pub &'a Verdict);

impl fmt::Display for VerdictText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { text, metrics, samples, local_access_ratio_interval: (low, high), .. } = self.0;
        f.write_str(&wrapped("", text))?;
        if *samples > 0 {
            let of = super::text::number(*samples);
            let (low, high) = (percent(*low), percent(*high));
            writeln!(f, "({of} samples reached memory: the share of local accesses is within {low} to {high})")?;
        }
        writeln!(f)?;
        let mut table = Table::new(["", "value", "threshold", ""]);
        for metric in metrics {
            table.row([
                name(metric),
                value(metric, metric.value),
                value(metric, Some(metric.threshold)),
                state(metric).to_owned(),
            ]);
        }
        let text = table.to_string();
        let width = text.lines().map(columns::width).max().unwrap_or(0);
        let mut lines = text.lines();
        writeln!(f, "{}", lines.next().unwrap_or(""))?;
        for (line, metric) in lines.zip(metrics) {
            let counted = if metric.counted { "counted: " } else { "" };
            f.write_str(&wrapped(
                &format!("{}  ", columns::left(line, width)),
                &format!("{counted}{}", metric.meaning),
            ))?;
        }
        Ok(())
    }
}

pub(crate) fn name(metric: &Metric) -> String {
    let name = metric.name.replace('_', " ");
    match (&metric.of, metric.name) {
        (Some(of), "link_load") => format!("  {name}, {of}"),
        (Some(of), _) => format!("  {name}, node {of}"),
        (None, _) => format!("  {name}"),
    }
}

pub(crate) fn value(metric: &Metric, value: Option<f64>) -> String {
    let shares = ["memory_bound", "local_access_ratio", "controller_load", "link_load"];
    match value {
        None => "-".to_owned(),
        Some(value) if shares.contains(&metric.name) => percent(value),
        Some(value) if metric.name == "accesses_per_instruction" => format!("{value:.4}"),
        Some(value) => format!("{value:.2}"),
    }
}

pub(crate) fn state(metric: &Metric) -> &'static str {
    match (metric.value, metric.is_bad) {
        (None, _) => "unknown",
        (Some(_), true) => "bad",
        (Some(_), false) => "fine",
    }
}
