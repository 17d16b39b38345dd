//! Rankings as tables, with the column that they are sorted by marked.

use super::advice::{kind_words, place};
use super::nodes::busy_threads;
use super::ranked::{AllocatedBy, By, FunctionRow, ObjectRow, ProcessRow, SiteRow, SmallRow, ThreadRow};
use super::text::{latency, share};
use crate::Table;
use crate::layout::Layout;
use machine::number::count;
use machine::size;
use profile::{Counts, ObjectSummary};

/// Formats rankings that are sorted by `by`.
#[derive(Clone, Copy)]
pub(crate) struct Rankings {
    pub layout: Layout,
    pub by: By,
}

/// The columns of every ranking, and those that may be left out, the least important first.
pub(crate) const COUNTS: [&str; 7] = ["cost", "remote cost", "local", "latency", "samples", "of all", "writes"];
const OPTIONAL: [&str; 8] = ["of all", "writes", "samples", "by allocator", "threads", "kind", "size", "local"];

impl By {
    /// The column of rankings with its values; for writes, their number.
    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::RemoteCost => "remote cost",
            Self::Samples => "samples",
            Self::Stores => "writes",
            Self::Latency => "latency",
        }
    }
}

/// The mark of the column that a ranking is sorted by.
pub(crate) const SORTED: char = '▼';

/// The share of all memory time; or the share of all remote accesses, if no latencies are known.
pub(crate) fn cost(counts: &Counts) -> Option<f64> {
    counts.memory_time_share.or(Some(counts.remote_share))
}

/// The share of all memory time that its remote accesses took; or its share of all remote accesses, if no latencies are
/// known.
pub(crate) fn remote_cost(counts: &Counts) -> Option<f64> {
    counts.remote_time_share.or(Some(counts.remote_share))
}

/// The share of writes among accesses of known kind.
pub(crate) fn writes(counts: &Counts) -> Option<f64> {
    let known = counts.load_samples + counts.store_samples;
    (known > 0).then(|| counts.store_samples as f64 / known as f64)
}

impl Rankings {
    fn table(self, first: &[&str], last: &[&str]) -> Table {
        let names: Vec<&str> = [first, COUNTS.as_slice(), last].concat();
        let sorted = self.by.column();
        let at = |name: &&str| names.iter().position(|column| column.trim_start() == *name);
        let optional: Vec<usize> = OPTIONAL.iter().filter(|name| **name != sorted).filter_map(at).collect();
        let mark = |name: &&str| if *name == sorted { format!("{name}{SORTED}") } else { (*name).to_owned() };
        Table::new(names.iter().map(mark)).optional(&optional)
    }

    fn cells(self, counts: &Counts) -> [String; 7] {
        let stores = || count(counts.store_samples);
        [
            share(cost(counts)),
            share(remote_cost(counts)),
            share(counts.local_access_ratio),
            latency(counts.latency_mean_ns),
            count(counts.samples),
            share(Some(counts.share)),
            if self.by == By::Stores { stores() } else { share(writes(counts)) },
        ]
    }

    /// Objects, as a row for each site that allocates them.
    pub fn sites(self, rows: &[SiteRow]) -> String {
        let mut table = self.table(&["  site", "objects", "kind", "size"], &["threads", "by allocator"]);
        for row in rows {
            let SiteRow { site, kind, bytes: size, counts, facts, .. } = row;
            let first = [format!("{site:>6}"), row.objects_text(), kind_words(*kind).to_owned(), size_text(*size)];
            let last = [busy_threads(&facts.threads).to_string(), share(facts.by_allocating_thread)];
            table.noted(first.into_iter().chain(self.cells(counts)).chain(last), row.place());
        }
        self.layout.text(&table)
    }

    /// The objects of one site.
    pub fn objects(self, rows: &[ObjectRow]) -> String {
        let mut table = self.table(&["  object", "kind", "size"], &["threads", "by allocator"]);
        for ObjectRow { summary, source, counts, facts } in rows {
            let size = size_text(summary.bytes);
            let first = [format!("{:>8}", summary.object.to_string()), kind_words(summary.kind).to_owned(), size];
            let last = [busy_threads(&facts.threads).to_string(), share(facts.by_allocating_thread)];
            table.noted(first.into_iter().chain(self.cells(counts)).chain(last), origin(summary, source.as_deref()));
        }
        self.layout.text(&table)
    }

    /// Threads.
    pub fn threads(self, rows: &[ThreadRow]) -> String {
        let mut table = self.table(&["  thread"], &[]);
        for ThreadRow { summary, counts, .. } in rows {
            let (name, process) = (summary.name.as_deref().unwrap_or(""), &summary.process);
            let application = process.application.as_deref().unwrap_or("");
            let of = if name == application { String::new() } else { format!(" of {application}") };
            let first = [format!("{:>8}", summary.tid)];
            table.noted(first.into_iter().chain(self.cells(counts)), format!("{name}{of} ({})", process.pid));
        }
        self.layout.text(&table)
    }

    /// Processes.
    pub fn processes(self, rows: &[ProcessRow]) -> String {
        let mut table = self.table(&["  process"], &[]);
        for ProcessRow { summary, counts } in rows {
            let first = [format!("{:>9}", summary.pid)];
            table.noted(first.into_iter().chain(self.cells(counts)), summary.application.clone().unwrap_or_default());
        }
        self.layout.text(&table)
    }

    /// Functions.
    pub fn functions(self, rows: &[FunctionRow]) -> String {
        let mut table = self.table(&["   #"], &[]);
        for (FunctionRow { function, counts }, rank) in rows.iter().zip(1..) {
            let name = super::text::short(function, super::text::LONGEST_NAME);
            table.noted([format!("{rank:>4}")].into_iter().chain(self.cells(counts)), name);
        }
        self.layout.text(&table)
    }
}

impl SiteRow {
    /// Which object it is, or how many there are.
    pub(crate) fn objects_text(&self) -> String {
        match self.object {
            Some(object) if self.objects == 1 => format!("object {object}"),
            _ => format!("{} objects", self.objects),
        }
    }

    /// The code that allocates its objects; for a single one, also the thread.
    fn place(&self) -> String {
        place(&self.label, self.source.as_deref()) + &self.allocated_by.map_or_else(String::new, AllocatedBy::text)
    }
}

impl AllocatedBy {
    /// `, allocated by thread 7 on node 0`.
    pub(crate) fn text(self) -> String {
        let node = self.node.map_or_else(String::new, |node| format!(" on node {node}"));
        format!(", allocated by thread {}{node}", self.tid)
    }
}

/// The site of an object, and the thread that allocated it.
pub(crate) fn origin(summary: &ObjectSummary, source: Option<&str>) -> String {
    let by = AllocatedBy::of(summary);
    place(&summary.label, source) + &by.map_or_else(String::new, AllocatedBy::text)
}

fn size_text(size: u64) -> String {
    if size > 0 { size::rounded(size) } else { "-".to_owned() }
}

/// Sites by size, for a trace without samples.
pub(crate) fn sites_by_size(rows: &[SiteRow], layout: Layout) -> String {
    let mut table = Table::new(["  site", "kind", "objects", "size"]);
    for SiteRow { site, label, kind, source, objects, bytes: size, .. } in rows {
        let cells = [format!("{site:>6}"), kind_words(*kind).to_owned(), objects.to_string(), size::rounded(*size)];
        table.noted(cells, place(label, source.as_deref()));
    }
    layout.text(&table)
}

/// Objects by size, for a trace without samples.
pub(crate) fn objects_by_size(rows: &[ObjectRow], layout: Layout) -> String {
    let mut table = Table::new(["   #", "object", "kind", "size"]);
    for (ObjectRow { summary, source, .. }, rank) in rows.iter().zip(1..) {
        let object = summary.object.to_string();
        let cells = [format!("{rank:>4}"), object, kind_words(summary.kind).to_owned(), size::rounded(summary.bytes)];
        table.noted(cells, origin(summary, source.as_deref()));
    }
    layout.text(&table)
}

/// Objects that were only counted.
pub(crate) fn small_objects(rows: &[SmallRow], layout: Layout) -> String {
    let mut table = Table::new(["  site", "objects", "size"]);
    for SmallRow { site, label, source, objects, bytes: size, .. } in rows {
        table.noted([format!("{site:>6}"), count(*objects), size::rounded(*size)], place(label, source.as_deref()));
    }
    layout.text(&table)
}
