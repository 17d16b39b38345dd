//! The overview of a trace, as text.

use super::advice::{AdviceText, kind_words, place};
use super::metrics::VerdictText;
use super::nodes::{busy_threads, controller_table, matrix_table, thread_table};
use super::overview::ProfileReport;
use super::ranked::{FunctionRow, ObjectRow, ProcessRow, Ranked, SiteRow, SmallRow, ThreadRow};
use super::text::{Noted, WIDTH, latency, share, short};
use super::trace_facts::TraceText;
use crate::{Table, bytes, columns, count};
use profile::{Avoidable, Counts, ObjectSummary};
use std::fmt;

impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, trace, filter, counts, advice, .. } = self;
        writeln!(f, "{}", VerdictText(verdict))?;
        write!(f, "{}", TraceText { facts: trace, counts, unknown_share: verdict.unknown_share, filter })?;
        if counts.samples == 0 {
            let by_size = BySize { sites: &self.sites, objects: &self.objects };
            return write!(f, "{by_size}{}", SmallText(&self.small_objects));
        }
        if !advice.is_empty() {
            write!(f, "\nadvice\n{}", AdviceText { rows: advice, start_ns: trace.start_ns })?;
        }
        write!(f, "\n{}{}", heading("objects", &self.objects), objects(&self.objects.first))?;
        write!(f, "{}", avoidable_line(self.avoidable, counts))?;
        write!(f, "\n{}{}", heading("sites", &self.sites), sites(&self.sites.first))?;
        write!(f, "\n{}{}", heading("threads", &self.threads), threads(&self.threads.first))?;
        if self.processes.all > 1 {
            write!(f, "\n{}{}", heading("processes", &self.processes), processes(&self.processes.first))?;
        }
        write!(f, "\n{}{}", heading("functions", &self.functions), functions(&self.functions.first))?;
        write!(f, "{}", SmallText(&self.small_objects))?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        write!(f, "\nthreads and nodes, shares of what reached memory\n{}", thread_table(&self.threads.first))?;
        write!(f, "\nnodes, shares of what reached memory\n{}", matrix_table(&self.nodes))?;
        write!(f, "\ncontrollers\n{}", controller_table(&self.controllers, trace.start_ns))
    }
}

fn heading<T>(name: &str, ranked: &Ranked<T>) -> String {
    let (first, all) = (ranked.first.len(), ranked.all);
    if first < all { format!("{name}, {first} of {all}\n") } else { format!("{name}\n") }
}

/// The columns of every ranking.
const COUNTS: [&str; 6] = ["samples", "of all", "local", "latency", "remote cost", "writes"];

fn cells(counts: &Counts) -> [String; 6] {
    let Counts { samples, share: of_all, local_access_ratio, latency_mean_ns, load_samples, store_samples, .. } =
        counts;
    let known = load_samples + store_samples;
    let writes = (known > 0).then(|| *store_samples as f64 / known as f64);
    [
        count(*samples),
        share(Some(*of_all)),
        share(*local_access_ratio),
        latency(*latency_mean_ns),
        share(remote_cost(counts)),
        share(writes),
    ]
}

/// The share of all memory time that its remote accesses took; or its share of all remote accesses, if no latencies are
/// known.
pub(crate) fn remote_cost(counts: &Counts) -> Option<f64> {
    counts.remote_time_share.or(Some(counts.remote_share))
}

pub(crate) fn objects(rows: &[ObjectRow]) -> String {
    let heading = ["   #", "object", "kind", "size"].into_iter().chain(COUNTS).chain(["threads", "by allocator"]);
    let mut table = Table::new(heading);
    let mut notes = Vec::new();
    for (ObjectRow { summary, source, counts, facts }, rank) in rows.iter().zip(1..) {
        let size = if summary.bytes > 0 { bytes(summary.bytes) } else { "-".to_owned() };
        let first = [format!("{rank:>4}"), summary.object.to_string(), kind_words(summary.kind).to_owned(), size];
        let last = [busy_threads(&facts.threads).to_string(), share(facts.by_allocating_thread)];
        table.row(first.into_iter().chain(cells(counts)).chain(last));
        notes.push(origin(summary, source.as_deref()));
    }
    Noted { table: &table, notes: &notes }.to_string()
}

/// The avoidable part of all remote accesses; empty if less than 1 %.
fn avoidable_line(avoidable: Avoidable, counts: &Counts) -> String {
    let Avoidable { by_pinning_accesses: pinning, by_allocation_accesses: allocation } = avoidable;
    if pinning + allocation < 0.01 * counts.remote_accesses || counts.remote_accesses == 0.0 {
        return String::new();
    }
    let of_remote = |accesses: f64| share(Some(accesses / counts.remote_accesses));
    format!(
        "\nof all remote accesses, pinning threads where they allocate avoids {}, and allocating where they run {}\n",
        of_remote(pinning),
        of_remote(allocation)
    )
}

/// The site of an object, and the thread that allocated it.
fn origin(summary: &ObjectSummary, source: Option<&str>) -> String {
    let by = match (summary.allocated_by_tid, summary.allocated_on_node) {
        (Some(tid), Some(node)) => format!(", allocated by thread {tid} on node {node}"),
        (Some(tid), None) => format!(", allocated by thread {tid}"),
        _ => String::new(),
    };
    place(&summary.label, source, WIDTH - 50 - by.len().min(50)) + &by
}

/// Rankings by size, for a trace without samples. Empty if there is nothing to rank.
struct BySize<'a> {
    sites: &'a Ranked<SiteRow>,
    objects: &'a Ranked<ObjectRow>,
}

impl fmt::Display for BySize<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.objects.all == 0 {
            return Ok(());
        }
        let row = |SiteRow { site, label, kind, source, objects, bytes: size, .. }: &SiteRow| {
            let first = [format!("{site:>6}"), kind_words(*kind).to_owned(), objects.to_string(), bytes(*size)];
            (Vec::from(first), place(label, source.as_deref(), WIDTH))
        };
        let sites = labelled(&["  site", "kind", "objects", "size"], self.sites.first.iter().map(row));
        write!(f, "\n{}{sites}", heading("sites by size", self.sites))?;
        write!(f, "\n{}{}", heading("objects by size", self.objects), objects_by_size(&self.objects.first))
    }
}

/// Objects that were only counted. Empty if there are none.
struct SmallText<'a>(&'a Ranked<SmallRow>);

impl fmt::Display for SmallText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(small) = self;
        if small.all == 0 {
            return Ok(());
        }
        let row = |SmallRow { site, label, source, objects, bytes: size, .. }: &SmallRow| {
            (vec![format!("{site:>6}"), count(*objects), bytes(*size)], place(label, source.as_deref(), WIDTH))
        };
        let rows = labelled(&["  site", "objects", "size"], small.first.iter().map(row));
        write!(f, "\n{}{rows}", heading("small objects, counted by site", small))
    }
}

pub(crate) fn objects_by_size(rows: &[ObjectRow]) -> String {
    let row = |(ObjectRow { summary, source, .. }, rank): (&ObjectRow, usize)| {
        let first = [format!("{rank:>4}"), summary.object.to_string(), kind_words(summary.kind).to_owned()];
        (first.into_iter().chain([bytes(summary.bytes)]).collect(), origin(summary, source.as_deref()))
    };
    labelled(&["   #", "object", "kind", "size"], rows.iter().zip(1..).map(row))
}

pub(crate) fn labelled(heading: &[&str], rows: impl Iterator<Item = (Vec<String>, String)>) -> String {
    let mut table = Table::new(heading.iter().copied());
    let mut labels = Vec::new();
    for (cells, label) in rows {
        table.row(cells);
        labels.push(label);
    }
    let text = table.to_string();
    let width = text.lines().map(columns::width).max().unwrap_or(0);
    let mut lines = text.lines();
    let mut out = format!("{}\n", lines.next().unwrap_or(""));
    for (line, label) in lines.zip(labels) {
        let label = short(&label, WIDTH.saturating_sub(width + 2));
        out.push_str(format!("{}  {label}", columns::left(line, width)).trim_end());
        out.push('\n');
    }
    out
}

fn with_counts<'a>(first: &[&'a str]) -> Vec<&'a str> {
    first.iter().copied().chain(COUNTS).collect()
}

pub(crate) fn sites(rows: &[SiteRow]) -> String {
    let row = |SiteRow { site, label, kind, source, objects, counts, .. }: &SiteRow| {
        let first = [format!("{site:>6}"), kind_words(*kind).to_owned(), objects.to_string()];
        (first.into_iter().chain(cells(counts)).collect(), place(label, source.as_deref(), WIDTH))
    };
    labelled(&with_counts(&["  site", "kind", "objects"]), rows.iter().map(row))
}

pub(crate) fn threads(rows: &[ThreadRow]) -> String {
    let row = |ThreadRow { summary, counts, .. }: &ThreadRow| {
        let (name, process) = (summary.name.as_deref().unwrap_or(""), &summary.process);
        let application = process.application.as_deref().unwrap_or("");
        let of = if name == application { String::new() } else { format!(" of {application}") };
        let label = format!("{name}{of} ({})", process.pid);
        let first = [format!("{:>8}", summary.tid)];
        (first.into_iter().chain(cells(counts)).collect(), label)
    };
    labelled(&with_counts(&["  thread"]), rows.iter().map(row))
}

pub(crate) fn processes(rows: &[ProcessRow]) -> String {
    let row = |ProcessRow { summary, counts }: &ProcessRow| {
        let first = [format!("{:>9}", summary.pid)];
        (first.into_iter().chain(cells(counts)).collect(), summary.application.clone().unwrap_or_default())
    };
    labelled(&with_counts(&["  process"]), rows.iter().map(row))
}

pub(crate) fn functions(rows: &[FunctionRow]) -> String {
    let row = |(FunctionRow { function, counts }, rank): (&FunctionRow, usize)| {
        ([format!("{rank:>4}")].into_iter().chain(cells(counts)).collect(), function.clone())
    };
    labelled(&with_counts(&["   #"]), rows.iter().zip(1..).map(row))
}
