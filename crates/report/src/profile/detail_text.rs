//! One object, thread, site or function of a trace in detail, as text.

use super::advice::kind_words;
use super::detail::{DetailReport, Subject};
use super::facts_text::{PhasesText, counts_lines, facts_lines};
use super::nodes::{matrix_table, thread_table};
use super::overview_text::{functions, objects, objects_by_size, sites, threads};
use super::ranked::Ranked;
use super::text::{Lines, WIDTH, short, time};
use super::timeline::TimelineText;
use crate::{bytes, count};
use profile::{Frame, ObjectSummary, Saturation};
use std::fmt;

/// Most frames of a call chain that are shown.
const MOST_FRAMES: usize = 32;

impl fmt::Display for DetailReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, trace, filter, counts, facts, .. } = self;
        let start_ns = trace.start_ns;
        let mut lines = Lines::default();
        let title = subject_lines(&mut lines, subject, start_ns);
        counts_lines(&mut lines, counts);
        if !filter.is_empty() {
            lines.add("only", &filter.join(", "));
        }
        let of_objects = matches!(subject, Subject::Object { .. } | Subject::Site { .. });
        if of_objects {
            facts_lines(&mut lines, facts, counts, start_ns);
        }
        write!(f, "{}\n{lines}", short(&title, WIDTH))?;
        match subject {
            Subject::Object { summary, .. } => chain(f, &summary.allocated_from)?,
            Subject::Site { allocated_from, .. } => chain(f, allocated_from)?,
            Subject::Function { places, .. } => {
                writeln!(f, "\ncode locations")?;
                for (frame, samples) in places {
                    writeln!(f, "  {samples:>8}  {}", short(&frame_text(frame), WIDTH - 12))?;
                }
            }
            Subject::Thread { .. } => {}
        }
        if counts.samples == 0 {
            let of_site = matches!(subject, Subject::Site { .. }) && self.objects.all > 0;
            let by_size = || objects_by_size(&self.objects.first);
            return if of_site { part(f, "objects by size", &self.objects, &by_size()) } else { Ok(()) };
        }
        if !self.phases.is_empty() {
            write!(f, "\nphases\n{}", PhasesText { phases: &self.phases, start_ns })?;
        }
        if let Some(timeline) = &self.timeline {
            write!(f, "\ntimeline\n{}", TimelineText { timeline, start_ns })?;
        }
        if let Some(pages) = &self.pages {
            write!(f, "\npages\n{pages}")?;
        }
        if !matches!(subject, Subject::Object { .. }) {
            part(f, "objects", &self.objects, &objects(&self.objects.first))?;
        }
        if !of_objects {
            part(f, "sites", &self.sites, &sites(&self.sites.first))?;
        }
        if !matches!(subject, Subject::Thread { .. }) {
            part(f, "threads", &self.threads, &threads(&self.threads.first))?;
        }
        if !matches!(subject, Subject::Function { .. }) {
            part(f, "functions", &self.functions, &functions(&self.functions.first))?;
        }
        if facts.nodes.is_empty() {
            return Ok(());
        }
        write!(f, "\nthreads and nodes, shares of what reached memory\n{}", thread_table(&self.threads.first))?;
        write!(f, "\nnodes, shares of what reached memory\n{}", matrix_table(&facts.nodes))?;
        for Saturation { node, from_ns, until_ns, latency_mean_ns, .. } in &self.saturated {
            let at = |ns: u64| time(ns.saturating_sub(start_ns));
            let (from, until) = (at(*from_ns), at(*until_ns));
            writeln!(
                f,
                "  memory of node {node} saturated from {from} to {until}: {latency_mean_ns:.0} ns on average"
            )?;
        }
        Ok(())
    }
}

fn part<T>(f: &mut fmt::Formatter<'_>, name: &str, ranked: &Ranked<T>, text: &str) -> fmt::Result {
    let (first, all) = (ranked.first.len(), ranked.all);
    let of = if first < all { format!(", {first} of {all}") } else { String::new() };
    write!(f, "\n{name}{of}\n{text}")
}

/// Adds lines about the subject, and returns its title.
fn subject_lines(lines: &mut Lines, subject: &Subject, start_ns: u64) -> String {
    match subject {
        Subject::Object { summary, source } => {
            object_lines(lines, summary, source.as_deref(), start_ns);
            format!("object {}: {}", summary.object, summary.label)
        }
        Subject::Thread { summary, node_changes } => {
            let process = &summary.process;
            let application = process.application.as_deref().unwrap_or("");
            lines.add("process", &format!("{} {application}", process.pid));
            lines.add("node changes", &format!("{node_changes} seen"));
            format!("thread {}: {}", summary.tid, summary.name.as_deref().unwrap_or(""))
        }
        Subject::Site { site, label, source, small_objects, small_bytes, .. } => {
            if let Some(source) = source {
                lines.add("source", source);
            }
            if *small_objects > 0 {
                let (objects, size) = (count(*small_objects), bytes(*small_bytes));
                lines.add("small objects", &format!("{objects} of {size} together, only counted"));
            }
            format!("site {site}: {label}")
        }
        Subject::Function { function, .. } => format!("function {function}"),
    }
}

fn object_lines(lines: &mut Lines, summary: &ObjectSummary, source: Option<&str>, start_ns: u64) {
    let ObjectSummary { kind, process, address, bytes: size, from_ns, until_ns, site, .. } = summary;
    let application = process.application.as_deref().unwrap_or("");
    lines.add("kind", &format!("{}, of process {} {application}; site {site}", kind_words(*kind), process.pid));
    if *size > 0 {
        lines.add("addresses", &format!("{address:x}-{:x} ({})", address.saturating_add(*size), bytes(*size)));
    }
    if let Some(source) = source {
        lines.add("source", source);
    }
    let at = |ns: u64| {
        if ns < start_ns { format!("{} before the first access", time(start_ns - ns)) } else { time(ns - start_ns) }
    };
    let until = until_ns.map_or_else(|| "the end".to_owned(), at);
    lines.add("lives", &format!("from {} to {until}", at(*from_ns)));
    if let Some(tid) = summary.allocated_by_tid {
        let node = summary.allocated_on_node.map_or_else(String::new, |node| format!(", on node {node}"));
        let cpu = summary.allocated_on_cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
        lines.add("allocated", &format!("by thread {tid}{node}{cpu}"));
    }
}

fn chain(f: &mut fmt::Formatter<'_>, frames: &[Frame]) -> fmt::Result {
    if frames.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nallocated from")?;
    for frame in frames.iter().take(MOST_FRAMES) {
        writeln!(f, "  {}", short(&frame_text(frame), WIDTH - 2))?;
    }
    Ok(())
}

/// A code location with its source and file.
fn frame_text(frame: &Frame) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    match (&frame.source, &frame.file) {
        (Some(source), _) => format!("{}  {source}", frame.label),
        (None, Some(file)) if frame.function.is_some() => format!("{}  in {}", frame.label, name(file)),
        _ => frame.label.clone(),
    }
}
