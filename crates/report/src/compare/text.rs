//! A comparison as text.

use super::{CompareReport, Estimate, PolicyRuns, PolicySummary};
use crate::Table;
use crate::escape::{escape_name, escape_sentence};
use crate::layout::{Layout, Tone};
use crate::profile::text::time;
use machine::number::{count, counted, percent};
use std::fmt;

impl fmt::Display for CompareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = || self.comparison.policies.iter().zip(&self.summaries);
        let layout = Layout::of(f);
        f.write_str(&layout.painted_lines(Tone::Heading, &layout.wrapped("", &self.heading())))?;
        writeln!(f, "{}", layout.wrapped("", &self.method()))?;
        if rows().any(|(_, summary)| summary.seconds.is_some()) {
            let against = self.baseline.as_deref().unwrap_or_default();
            let against = format!("as fast as {against}");
            let mut table = Table::new(HEADINGS.map(|name| if name.is_empty() { against.as_str() } else { name }))
                .optional(&OPTIONAL);
            for (policy, summary) in rows().filter(|(_, summary)| summary.seconds.is_some()) {
                table.row(cells(summary));
                let is_best = self.verdict.winner.as_ref() == Some(&policy.policy);
                table.tone(0, if is_best { Tone::Good } else { Tone::Plain });
            }
            writeln!(f, "{}", layout.text(&table))?;
        }
        let tone = if self.verdict.winner.is_some() { Tone::Good } else { Tone::Unsure };
        f.write_str(&layout.painted_lines(tone, &layout.wrapped("", &self.verdict.text)))?;
        let remarks: Vec<String> = rows().flat_map(|(policy, _)| remarks(policy)).collect();
        let notes = self.comparison.notes.iter().map(|note| escape_sentence(note));
        let notes: Vec<String> = remarks.into_iter().chain(notes).collect();
        if !notes.is_empty() {
            writeln!(f)?;
        }
        notes.iter().try_for_each(|note| f.write_str(&layout.wrapped("", note)))?;
        for (policy, failed) in rows().filter_map(|(policy, _)| Some((&policy.policy, policy.failed.as_ref()?))) {
            let why =
                format!("The program failed under {policy}, run {}: {}", failed.index, escape_sentence(&failed.why));
            write!(f, "\n{}", layout.painted_lines(Tone::Bad, &layout.wrapped("", &why)))?;
            failed.output.lines().try_for_each(|line| f.write_str(&layout.wrapped("  | ", &escape_name(line))))?;
        }
        if self.comparison.interrupted {
            writeln!(f, "\nThe comparison ended early: these are the runs that had ended.")?;
        }
        Ok(())
    }
}

/// Columns; the unnamed one is the speedup over the baseline.
pub(crate) const HEADINGS: [&str; 10] =
    ["policy", "n", "time", "95 %", "", "local", "imbalance", "latency", "pages moved", "policy's CPU"];

/// Columns that may be left out where lines are short, the least important first.
const OPTIONAL: [usize; 5] = [9, 8, 6, 7, 1];

/// A policy's summary, in the order of the columns.
pub(crate) fn cells(summary: &PolicySummary) -> [String; 10] {
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        escape_name(&summary.policy),
        summary.runs.to_string(),
        or(summary.seconds.map(|seconds| duration(seconds.mean))),
        or(summary.seconds.and_then(spread_text)),
        or(summary.speedup.map(|speedup| speedup_text(&speedup))),
        or(summary.local_access_ratio.map(percent)),
        or(summary.imbalance.map(|imbalance| format!("{imbalance:.2}"))),
        or(summary.latency_mean_ns.map(|latency| format!("{latency:.0} ns"))),
        or(summary.pages_moved.map(|pages| count(pages.round() as u64))),
        or(summary.policy_cpu_seconds.map(|seconds| {
            let share = summary.policy_cpu_share.filter(|_| seconds > 0.0);
            share.map_or_else(|| duration(seconds), |share| format!("{} ({})", duration(seconds), percent(share)))
        })),
    ]
}

/// `1.72 x (1.68 to 1.76)`.
fn speedup_text(speedup: &Estimate) -> String {
    format!("{:.2} x{}", speedup.mean, speedup.interval_text())
}

/// An interval wider than its mean has no useful number.
fn spread_text(seconds: Estimate) -> Option<String> {
    let spread = seconds.spread()?;
    Some(if spread < 1.0 { format!("± {}", percent(spread)) } else { "± all of it".to_owned() })
}

/// At least three digits.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds > 0.0 { time((seconds * 1e9).round() as u64) } else { "0".to_owned() }
}

/// Remarks on a policy, one per line.
pub(crate) fn remarks(policy: &PolicyRuns) -> Vec<String> {
    let name = escape_name(&policy.policy);
    let left_out = policy.left_out.iter().map(|why| format!("{name} was left out: {}", escape_sentence(why)));
    let notes = policy.notes.iter().map(|note| format!("{name}: {}", escape_sentence(note)));
    left_out.chain(notes).collect()
}

impl CompareReport {
    /// The program and the machine.
    pub(crate) fn heading(&self) -> String {
        let compared = &self.comparison;
        let heading = format!(
            "{} on {} ({}, {})",
            escape_name(&compared.command.join(" ")),
            escape_name(&compared.machine),
            counted(compared.nodes, "node"),
            counted(compared.cpus, "CPU")
        );
        let Some(simulation) = &compared.simulation else { return heading };
        let names: Vec<_> = simulation.model_without.iter().map(ToString::to_string).collect();
        let without = if names.is_empty() { String::new() } else { format!(" without {}", names.join(", ")) };
        let scale = match simulation.time_scale {
            1 => String::new(),
            scale => format!(", time scale {scale}"),
        };
        format!("{heading}, simulated, model {}{without}{scale}", escape_name(&simulation.model_version))
    }

    /// Number of runs, and what the times measure.
    pub(crate) fn method(&self) -> String {
        let runs = counted(self.comparison.repeat, "run");
        let unmeasured = match self.comparison.warm_ups {
            0 => String::new(),
            runs => format!(", after {runs} unmeasured"),
        };
        format!(
            "{runs} under each policy{unmeasured}, in turn; the time is {}",
            escape_sentence(&self.comparison.seconds_are)
        )
    }
}
