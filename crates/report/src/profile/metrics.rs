//! The metrics of a verdict.

use crate::Table;
use crate::layout::{Layout, Tone};
use machine::number::percent;
use profile::{Metric, Problem, Verdict};
use std::fmt;

/// A verdict as text, with its metrics.
pub(crate) struct VerdictText<'a>(pub &'a Verdict);

impl fmt::Display for VerdictText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { metrics, samples, local_access_ratio_interval: (low, high), .. } = self.0;
        let layout = Layout::of(f);
        f.write_str(&verdict_line(layout, "", &self.0.text, self.0))?;
        if *samples > 0 {
            let of = super::text::number(*samples);
            let (low, high) = (percent(*low), percent(*high));
            let text = format!("({of} samples reached memory: the share of local accesses is within {low} to {high})");
            f.write_str(&layout.wrapped("", &text))?;
        }
        writeln!(f)?;
        let mut table = Table::new(["", "value", "threshold", ""]);
        for metric in metrics {
            let counted = if metric.counted { "counted: " } else { "" };
            let cells = [
                name(metric),
                value(metric, metric.value),
                value(metric, Some(metric.threshold)),
                state(metric).to_owned(),
            ];
            table.noted(cells, format!("{counted}{}", metric.meaning));
            table.tone(3, if metric.is_bad { Tone::Bad } else { Tone::Plain });
        }
        f.write_str(&layout.text(&table))
    }
}

/// A sentence with the tone of a verdict, after `first`.
pub(crate) fn verdict_line(layout: Layout, first: &str, text: &str, verdict: &Verdict) -> String {
    let tone = match verdict.problem {
        _ if verdict.is_numa_problem => Tone::Bad,
        Problem::SharedLines => Tone::Bad,
        Problem::Unknown => Tone::Unsure,
        _ => Tone::Good,
    };
    layout.painted_lines(tone, &layout.wrapped(first, text))
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
    let shares = ["memory_bound", "local_access_ratio", "controller_load", "link_load", "saturated_alone"];
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
