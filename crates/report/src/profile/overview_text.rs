//! The overview of a trace, as text.

use super::advice::AdviceText;
use super::metrics::VerdictText;
use super::nodes::{controller_table, matrix_table, thread_table};
use super::overview::ProfileReport;
use super::ranked::Ranked;
use super::rankings_text::{Rankings, objects_by_size, sites_by_size, small_objects};
use super::text::share;
use super::trace_facts::TraceText;
use crate::layout::{Layout, Tone};
use profile::{Avoidable, Counts};
use std::fmt;

impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, trace, filter, counts, advice, together, by, .. } = self;
        let layout = Layout::of(f);
        VerdictText(verdict).fmt(f)?;
        writeln!(f)?;
        let (unknown_share, waiting) = (verdict.unknown_share, &self.waiting);
        TraceText { facts: trace, counts, unknown_share, waiting, filter, kernel: &self.kernel }.fmt(f)?;
        if counts.samples == 0 {
            return f.write_str(&(self.by_size(layout) + &self.small_objects(layout)));
        }
        if !advice.is_empty() {
            f.write_str(&heading(layout, "advice"))?;
            AdviceText { rows: advice, together, trace }.fmt(f)?;
        }
        if self.is_advice_hidden {
            let why = "none: the filter hides accesses to the same objects, and with them who shares and writes these";
            f.write_str(&(heading(layout, "advice") + &layout.wrapped("  ", why)))?;
        }
        let rankings = Rankings { layout, by: *by };
        let objects = format!("objects by the code that allocates them{}", of_all(&self.sites));
        f.write_str(&(heading(layout, &objects) + &rankings.sites(&self.sites.first)))?;
        f.write_str(&avoidable_line(self.avoidable, counts, layout))?;
        f.write_str(&(ranked(layout, "threads", &self.threads) + &rankings.threads(&self.threads.first)))?;
        if self.processes.all > 1 {
            f.write_str(&(ranked(layout, "processes", &self.processes) + &rankings.processes(&self.processes.first)))?;
        }
        f.write_str(&(ranked(layout, "functions", &self.functions) + &rankings.functions(&self.functions.first)))?;
        f.write_str(&self.small_objects(layout))?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        f.write_str(&heading(layout, "threads and nodes, shares of what reached memory"))?;
        f.write_str(&layout.text(&thread_table(&self.threads.first)))?;
        f.write_str(&heading(layout, "nodes, shares of what reached memory"))?;
        f.write_str(&layout.text(&matrix_table(&self.nodes)))?;
        f.write_str(&heading(layout, "controllers"))?;
        f.write_str(&controller_table(&self.controllers, trace.start_ns, layout))
    }
}

impl ProfileReport {
    /// Rankings by size, for a trace without samples. Empty if there is nothing to rank.
    fn by_size(&self, layout: Layout) -> String {
        if self.objects.all == 0 {
            return String::new();
        }
        let sites = ranked(layout, "sites by size", &self.sites) + &sites_by_size(&self.sites.first, layout);
        let objects = ranked(layout, "objects by size", &self.objects) + &objects_by_size(&self.objects.first, layout);
        sites + &objects
    }

    /// Objects that were only counted. Empty if there are none.
    fn small_objects(&self, layout: Layout) -> String {
        let small = &self.small_objects;
        if small.all == 0 {
            return String::new();
        }
        ranked(layout, "small objects, counted by site", small) + &small_objects(&small.first, layout)
    }
}

/// The heading of a part, after an empty line.
pub(crate) fn heading(layout: Layout, text: &str) -> String {
    format!("\n{}", layout.painted_lines(Tone::Heading, &layout.wrapped("", text)))
}

/// The same for a ranking.
pub(crate) fn ranked<T>(layout: Layout, name: &str, rows: &Ranked<T>) -> String {
    heading(layout, &format!("{name}{}", of_all(rows)))
}

/// `, 5 of 71`.
pub(crate) fn of_all<T>(ranked: &Ranked<T>) -> String {
    let (first, all) = (ranked.first.len(), ranked.all);
    if first < all { format!(", {first} of {all}") } else { String::new() }
}

/// The avoidable part of all remote accesses; empty if less than 1 %.
fn avoidable_line(avoidable: Avoidable, counts: &Counts, layout: Layout) -> String {
    let Avoidable { by_pinning_accesses: pinning, by_allocation_accesses: allocation } = avoidable;
    if pinning + allocation < 0.01 * counts.remote_accesses || counts.remote_accesses == 0.0 {
        return String::new();
    }
    let of_remote = |accesses: f64| share(Some(accesses / counts.remote_accesses));
    let text = format!(
        "of all remote accesses, pinning threads where they allocate avoids {}, and allocating where they run {}",
        of_remote(pinning),
        of_remote(allocation)
    );
    format!("\n{}", layout.wrapped("", &text))
}
