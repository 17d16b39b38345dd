//! Facts about an object, as text.

use super::nodes::busy_threads;
use super::text::{Lines, latency, number, share, time};
use crate::layout::Layout;
use machine::number::{count, counted};
use profile::{Counts, Facts, Phase, Usage};
use std::fmt;

/// The accesses to something.
pub(crate) fn counts_lines(lines: &mut Lines, counts: &Counts) {
    let of_all = share(Some(counts.share));
    lines.add("samples", &format!("{}, {of_all} of all", number(counts.samples)));
    let unknown = counts.samples.saturating_sub(counts.load_samples + counts.store_samples);
    let unknown = if unknown > 0 { format!(", {} unknown", number(unknown)) } else { String::new() };
    let (reads, writes) = (number(counts.load_samples), number(counts.store_samples));
    lines.add("", &format!("{reads} reads, {writes} writes{unknown}"));
    let lar = share(counts.local_access_ratio);
    lines.add(
        "local",
        &format!("{lar} of what reached memory, which took {} on average", latency(counts.latency_mean_ns)),
    );
    let cost = match (counts.memory_time_share, counts.remote_time_share) {
        (Some(all), Some(remote)) => {
            format!("{} of the time waited for memory, {} remotely", share(Some(all)), share(Some(remote)))
        }
        _ => format!("{} of all remote accesses; latencies are not known", share(Some(counts.remote_share))),
    };
    lines.add("cost", &cost);
}

/// Facts about objects. `counts` are the accesses to them.
pub(crate) fn facts_lines(lines: &mut Lines, facts: &Facts, counts: &Counts, start_ns: u64) {
    let since = |ns: u64| time(ns.saturating_sub(start_ns));
    let busy = busy_threads(&facts.threads);
    if !facts.threads.is_empty() {
        lines.add(
            "threads",
            &format!("{} access it, {busy} of them with more than 1 % of the accesses", facts.threads.len()),
        );
    }
    if let Some(own) = facts.by_allocating_thread {
        let before = facts.before_others_samples;
        let before =
            if before > 0 { format!("; {} before any other thread's", samples_text(before)) } else { String::new() };
        lines.add("allocator", &format!("did {} of the accesses{before}", share(Some(own))));
    }
    if let Some(writer) = facts.first_writer {
        lines.add("first writer", &format!("thread {}, at {}", writer.tid, since(writer.time_ns)));
    }
    match facts.read_only_since_ns {
        Some(ns) => lines.add("read only", &format!("since {}: no writes observed after that", since(ns))),
        // If the source does not report the kind of accesses, there may have been writes.
        None if facts.first_writer.is_none() && counts.load_samples > 0 => {
            lines.add("read only", "no writes observed");
        }
        None => {}
    }
    if facts.avoidable.by_pinning_accesses > 0.0 {
        let text =
            "remote accesses of the allocating thread were from another node than it allocated on: pinning avoids them";
        lines.add("moved thread", &format!("{} {text}", count(facts.avoidable.by_pinning_accesses as u64)));
    }
    if facts.avoidable.by_allocation_accesses > 0.0 {
        let text =
            "remote accesses of the allocating thread were from the node where it allocated: the memory is elsewhere";
        lines.add("misplaced", &format!("{} {text}", count(facts.avoidable.by_allocation_accesses as u64)));
    }
    if facts.page_migrations > 0 {
        lines.add("migrations", &format!("{} pages were moved", number(facts.page_migrations)));
    }
}

fn samples_text(samples: u64) -> String {
    format!("{} sample{}", number(samples), if samples == 1 { "" } else { "s" })
}

/// Phases as lines.
pub(crate) struct PhasesText<'a> {
    pub phases: &'a [Phase],
    pub start_ns: u64,
}

impl fmt::Display for PhasesText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Phase { from_ns, until_ns, usage, node, threads, samples } in self.phases {
            let at = |ns: u64| time(ns.saturating_sub(self.start_ns));
            let usage = match usage {
                Usage::Read => "read",
                Usage::Write => "written",
                Usage::ReadAndWrite => "read and written",
                Usage::Unknown => "used",
            };
            let from = node.map_or_else(|| "several nodes".to_owned(), |node| format!("node {node}"));
            let threads = counted(*threads, "thread");
            let samples = samples_text(*samples);
            let first = format!("  {:>10} to {:>10}  ", at(*from_ns), at(*until_ns));
            let text = format!("{usage} from {from} by {threads} ({samples})");
            f.write_str(&Layout::of(f).wrapped(&first, &text))?;
        }
        Ok(())
    }
}
