//! Comparison of two traces, as text.

use super::advice::{kind_words, place};
use super::change::Change;
use super::diff::{DiffReport, NodeChange, Side};
use super::metrics::verdict_line;
use super::rankings_text::remote_cost;
use super::text::{latency, number, share, time};
use crate::Table;
use crate::layout::{Layout, Tone};
use profile::Counts;
use std::fmt;

impl fmt::Display for DiffReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, filter, change, sites, sites_all, threads, nodes } = self;
        let layout = Layout::of(f);
        for (first, side) in [("A  ", a), ("B  ", b)] {
            let text = format!("{}: {}", side.trace.path, side.verdict.text);
            f.write_str(&verdict_line(layout, first, &text, &side.verdict))?;
        }
        if !filter.is_empty() {
            f.write_str(&layout.wrapped("only ", &filter.join(", ")))?;
        }
        if [a, b].iter().all(|side| side.counts.samples == 0) {
            let why = "nothing to compare: neither has samples; nearside report lists the objects of each by size";
            return write!(f, "\n{}", layout.wrapped("  ", why));
        }
        write!(f, "\n{}", layout.text(&whole(a, b, *change)))?;
        if (a.trace.machine.as_str(), a.trace.nodes) != (b.trace.machine.as_str(), b.trace.nodes) {
            let differ = format!("the machines differ: {} and {}", a.trace.machine, b.trace.machine);
            f.write_str(&layout.wrapped("  ", &differ))?;
        }
        let mut table = changes("  sites");
        for site in sites {
            let counts = [&site.a, &site.b].map(|side| side.as_ref().map(|side| &side.counts));
            let (kind, place) = (kind_words(site.kind), place(&site.label, site.source.as_deref()));
            let label = if place.starts_with(kind) { place } else { format!("{kind} {place}") };
            change_row(&mut table, site.change, counts, label);
        }
        write!(f, "\n{}", layout.text(&table))?;
        if sites.len() < *sites_all {
            writeln!(f, "  and {} less costly ones", sites_all - sites.len())?;
        }
        let mut table = changes("  threads");
        for thread in threads {
            let counts = [&thread.a, &thread.b].map(|side| side.as_ref().map(|side| &side.counts));
            let many = |side: &Option<super::diff::ThreadSide>| side.as_ref().map_or(0, |side| side.threads);
            let label = format!("{} of {} ({}, {})", thread.name, thread.application, many(&thread.a), many(&thread.b));
            change_row(&mut table, thread.change, counts, label);
        }
        write!(f, "\n{}", layout.text(&table))?;
        if nodes.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(["  accesses from -> to", "A", "B"]);
        for NodeChange { from, to, a_share, b_share } in nodes {
            table.row([format!("  node {from} -> {to}"), share(Some(*a_share)), share(Some(*b_share))]);
        }
        write!(f, "\n{}", layout.text(&table))?;
        if sites.iter().any(|site| site.change == Change::Noise) {
            let why = "noise: no difference is significant with as few samples";
            write!(f, "\n{}", layout.wrapped("", why))?;
        }
        Ok(())
    }
}

/// A table of changes. Where lines are short, samples and then latencies are left out.
fn changes(what: &str) -> Table {
    Table::new([what, "of all A", "B", "local A", "B", "latency A", "B", "samples A", "B"]).optional(&[7, 8, 5, 6])
}

fn change_row(table: &mut Table, change: Change, [a, b]: [Option<&Counts>; 2], label: String) {
    let both = |of: &dyn Fn(&Counts) -> String| [a, b].map(|counts| counts.map_or_else(|| "-".to_owned(), of));
    let parts = [
        both(&|counts| share(Some(counts.share))),
        both(&|counts| share(counts.local_access_ratio)),
        both(&|counts| latency(counts.latency_mean_ns)),
        both(&|counts| crate::count(counts.samples)),
    ];
    table.noted(std::iter::once(format!("  {}", change.word())).chain(parts.into_iter().flatten()), label);
    table.tone(0, tone(change));
}

fn tone(change: Change) -> Tone {
    match change {
        Change::Worse => Tone::Bad,
        Change::Better => Tone::Good,
        Change::Noise => Tone::Unsure,
        Change::Same | Change::New | Change::Gone => Tone::Plain,
    }
}

/// All accesses together.
fn whole(a: &Side, b: &Side, change: Change) -> Table {
    let mut table = Table::new(["", "A", "B", ""]);
    let mut row = |name: &str, of: &dyn Fn(&Side) -> String, note: &str| {
        table.row([format!("  {name}"), of(a), of(b), note.to_owned()]);
        table.tone(3, if note == change.word() { tone(change) } else { Tone::Plain });
    };
    let is_any = |of: &dyn Fn(&Counts) -> Option<f64>| [a, b].iter().any(|side| of(&side.counts).is_some());
    let is_timed = is_any(&|counts| counts.latency_mean_ns);
    let is_local = is_any(&|counts| counts.local_access_ratio);
    let (before, after) = (a.trace.duration_ns as f64, b.trace.duration_ns as f64);
    let faster = match before / after {
        ratio if !ratio.is_finite() => String::new(),
        ratio => format!("{ratio:.2} times as fast"),
    };
    let metric = |side: &Side, name: &str| {
        let metric = side.verdict.metrics.iter().find(|metric| metric.name == name);
        metric.and_then(|metric| metric.value).map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
    };
    row("first to last access", &|side| time(side.trace.duration_ns), &faster);
    row("samples", &|side| number(side.counts.samples), "");
    // Without latencies, it is the local share that became better or worse.
    let of_share = if is_local && !is_timed { change.word() } else { "" };
    row("local access ratio", &|side| share(side.counts.local_access_ratio), of_share);
    if is_timed {
        row("mean latency", &|side| latency(side.counts.latency_mean_ns), change.word());
    }
    row("remote cost", &|side| share(remote_cost(&side.counts)), "");
    row("imbalance", &|side| metric(side, "imbalance"), "");
    row("latency over idle", &|side| metric(side, "latency_over_idle"), "");
    row("unknown", &|side| share(Some(side.verdict.unknown_share)), "");
    table
}
