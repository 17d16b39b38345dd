//! One object, thread, site or function of a trace in detail, as text.

use super::advice::kind_words;
use super::detail::{DetailReport, Subject};
use super::facts_text::{PhasesText, counts_lines, facts_lines};
use super::nodes::{matrix_table, thread_table};
use super::overview_text::{heading, of_all, ranked};
use super::rankings_text::{Rankings, objects_by_size};
use super::text::{LONGEST_NAME, Lines, short, time};
use super::timeline::TimelineText;
use crate::layout::{Layout, Tone};
use machine::number::count;
use machine::size;
use profile::{Frame, ObjectSummary, Saturation};
use std::fmt;

/// Most frames of a call chain that are shown.
const MOST_FRAMES: usize = 32;

impl fmt::Display for DetailReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, trace, filter, counts, facts, .. } = self;
        let (start_ns, layout) = (trace.start_ns, Layout::of(f));
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
        f.write_str(&layout.painted_lines(Tone::Heading, &layout.wrapped("", &short(&title, LONGEST_NAME))))?;
        lines.fmt(f)?;
        match subject {
            Subject::Object { summary, .. } => f.write_str(&chain(layout, &summary.allocated_from))?,
            Subject::Site { allocated_from, .. } => f.write_str(&chain(layout, allocated_from))?,
            Subject::Function { places, .. } => {
                f.write_str(&heading(layout, "code locations"))?;
                for (frame, samples) in places {
                    f.write_str(&layout.wrapped(&format!("  {samples:>8}  "), &frame_text(frame)))?;
                }
            }
            Subject::Thread { .. } => {}
        }
        if counts.samples == 0 {
            let of_site = matches!(subject, Subject::Site { .. }) && self.objects.all > 0;
            let by_size =
                || ranked(layout, "objects by size", &self.objects) + &objects_by_size(&self.objects.first, layout);
            return if of_site { f.write_str(&by_size()) } else { Ok(()) };
        }
        if !self.phases.is_empty() {
            f.write_str(&heading(layout, "phases"))?;
            PhasesText { phases: &self.phases, start_ns }.fmt(f)?;
        }
        if let Some(timeline) = &self.timeline {
            f.write_str(&heading(layout, "timeline"))?;
            TimelineText { timeline, start_ns }.fmt(f)?;
        }
        if let Some(pages) = &self.pages {
            f.write_str(&heading(layout, "pages"))?;
            pages.fmt(f)?;
        }
        self.rankings(f, layout)?;
        if facts.nodes.is_empty() {
            return Ok(());
        }
        f.write_str(&heading(layout, "threads and nodes, shares of what reached memory"))?;
        f.write_str(&layout.text(&thread_table(&self.threads.first)))?;
        f.write_str(&heading(layout, "nodes, shares of what reached memory"))?;
        f.write_str(&layout.text(&matrix_table(&facts.nodes)))?;
        for Saturation { node, from_ns, until_ns, latency_mean_ns, .. } in &self.saturated {
            let at = |ns: u64| time(ns.saturating_sub(start_ns));
            let (from, until) = (at(*from_ns), at(*until_ns));
            let text =
                format!("memory of node {node} saturated from {from} to {until}: {latency_mean_ns:.0} ns on average");
            f.write_str(&layout.wrapped("  ", &text))?;
        }
        Ok(())
    }
}

impl DetailReport {
    fn rankings(&self, f: &mut fmt::Formatter<'_>, layout: Layout) -> fmt::Result {
        let (rankings, subject) = (Rankings { layout, by: self.by }, &self.subject);
        if matches!(subject, Subject::Site { .. }) {
            f.write_str(&(ranked(layout, "objects", &self.objects) + &rankings.objects(&self.objects.first)))?;
        }
        if matches!(subject, Subject::Thread { .. } | Subject::Function { .. }) {
            let title = format!("objects by the code that allocates them{}", of_all(&self.sites));
            f.write_str(&(heading(layout, &title) + &rankings.sites(&self.sites.first)))?;
        }
        if !matches!(subject, Subject::Thread { .. }) {
            f.write_str(&(ranked(layout, "threads", &self.threads) + &rankings.threads(&self.threads.first)))?;
        }
        if !matches!(subject, Subject::Function { .. }) {
            f.write_str(&(ranked(layout, "functions", &self.functions) + &rankings.functions(&self.functions.first)))?;
        }
        Ok(())
    }
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
                let (objects, size) = (count(*small_objects), size::rounded(*small_bytes));
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
        lines.add("addresses", &format!("{address:x}-{:x} ({})", address.saturating_add(*size), size::rounded(*size)));
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

fn chain(layout: Layout, frames: &[Frame]) -> String {
    if frames.is_empty() {
        return String::new();
    }
    let lines = frames.iter().take(MOST_FRAMES).map(|frame| layout.wrapped("  ", &frame_text(frame)));
    heading(layout, "allocated from") + &lines.collect::<String>()
}

/// A code location with its source and file.
fn frame_text(frame: &Frame) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let label = short(&frame.label, LONGEST_NAME);
    match (&frame.source, &frame.file) {
        (Some(source), _) => format!("{label}  {source}"),
        (None, Some(file)) if frame.function.is_some() => format!("{label}  in {}", name(file)),
        _ => label,
    }
}
