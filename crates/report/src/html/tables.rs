//! The rankings, as sortable tables.

use crate::escape::escape_name;
use crate::profile::advice::{kind_words, place};
use crate::profile::overview_text::remote_cost;
use crate::profile::text::{latency, share};
use crate::{ProfileReport, Ranked, SmallRow, bytes, count};
use profile::Counts;

/// A ranking.
pub(super) struct TablePart {
    pub id: &'static str,
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

/// A column of numbers or text.
pub(super) struct Column {
    pub name: &'static str,
    pub words: bool,
}

/// A cell.
#[derive(Default)]
pub(super) struct Cell {
    pub text: String,
    /// A smaller line below it.
    pub note: String,
    /// The sort key.
    pub value: f64,
    pub words: bool,
    /// Length of its bar, percent.
    pub bar: Option<f64>,
}

/// All rankings of a report.
pub(super) fn of(report: &ProfileReport) -> Vec<TablePart> {
    let objects = report.objects.first.iter().zip(1_u32..).map(|(row, rank)| {
        let summary = &row.summary;
        let by = match (summary.allocated_by_tid, summary.allocated_on_node) {
            (Some(tid), Some(node)) => format!(", allocated by thread {tid} on node {node}"),
            (Some(tid), None) => format!(", allocated by thread {tid}"),
            _ => String::new(),
        };
        let note = format!("object {}, {}{by}", summary.object, kind_words(summary.kind));
        let name = escape_name(&place(&summary.label, row.source.as_deref(), 160));
        let size = if summary.bytes > 0 { bytes(summary.bytes) } else { "-".to_owned() };
        let threads = row.facts.threads.len();
        let first = [
            Cell::number(rank.to_string(), Some(f64::from(rank))),
            Cell::words(name, note),
            Cell::number(size, Some(summary.bytes as f64)),
            Cell::number(threads.to_string(), Some(threads as f64)),
        ];
        first.into_iter().chain(counts(&row.counts)).collect()
    });
    let sites = report.sites.first.iter().map(|row| {
        let called = if row.called_from.is_empty() { String::new() } else { row.called_from.join(" < ") };
        let note = format!("{} {}", kind_words(row.kind), escape_name(&called));
        let name = escape_name(&place(&row.label, row.source.as_deref(), 160));
        let first = [
            Cell::words(name, note),
            Cell::number(row.objects.to_string(), Some(row.objects as f64)),
            Cell::number(if row.bytes > 0 { bytes(row.bytes) } else { "-".to_owned() }, Some(row.bytes as f64)),
        ];
        first.into_iter().chain(counts(&row.counts)).collect()
    });
    let threads = report.threads.first.iter().map(|row| {
        let process = &row.summary.process;
        let of = escape_name(process.application.as_deref().unwrap_or(""));
        let name = escape_name(row.summary.name.as_deref().unwrap_or("thread"));
        let nodes: Vec<String> = row.ran_on.keys().take(16).map(ToString::to_string).collect();
        let note = format!("of {of} ({}), ran on {}", process.pid, nodes.join(", "));
        let first =
            [Cell::words(name, note), Cell::number(row.summary.tid.to_string(), Some(f64::from(row.summary.tid)))];
        first.into_iter().chain(counts(&row.counts)).collect()
    });
    let processes = report.processes.first.iter().map(|row| {
        let name = escape_name(row.summary.application.as_deref().unwrap_or(""));
        let first = [
            Cell::words(name, String::new()),
            Cell::number(row.summary.pid.to_string(), Some(f64::from(row.summary.pid))),
        ];
        first.into_iter().chain(counts(&row.counts)).collect()
    });
    let functions = report.functions.first.iter().map(|row| {
        let first = [Cell::words(escape_name(&row.function), String::new())];
        first.into_iter().chain(counts(&row.counts)).collect()
    });
    let words = |name| Column { name, words: true };
    let number = |name| Column { name, words: false };
    let mut tables = vec![
        table(
            "objects",
            &report.objects,
            vec![number("#"), words("object"), number("size"), number("threads")],
            objects,
        ),
        table("sites", &report.sites, vec![words("site"), number("objects"), number("size")], sites),
        table("threads", &report.threads, vec![words("thread"), number("tid")], threads),
        table("processes", &report.processes, vec![words("process"), number("pid")], processes),
        table("functions", &report.functions, vec![words("function")], functions),
        small_objects(&report.small_objects),
    ];
    tables.retain(|table| if table.id == "processes" { table.rows.len() > 1 } else { !table.rows.is_empty() });
    tables
}

/// Objects that were only counted.
fn small_objects(small: &Ranked<SmallRow>) -> TablePart {
    let row = |row: &SmallRow| {
        let name = escape_name(&place(&row.label, row.source.as_deref(), 160));
        vec![
            Cell::words(name, escape_name(&row.called_from.join(" < "))),
            Cell::number(count(row.objects), Some(row.objects as f64)),
            Cell::number(bytes(row.bytes), Some(row.bytes as f64)),
        ]
    };
    let columns = [("site", true), ("objects", false), ("size", false)].map(|(name, words)| Column { name, words });
    let title = title("small objects, counted by site", small);
    TablePart { id: "small-objects", title, columns: columns.into(), rows: small.first.iter().map(row).collect() }
}

fn table<T>(
    id: &'static str,
    ranked: &Ranked<T>,
    mut columns: Vec<Column>,
    rows: impl Iterator<Item = Vec<Cell>>,
) -> TablePart {
    let names = ["samples", "of all", "local", "latency", "remote cost", "writes"];
    columns.extend(names.map(|name| Column { name, words: false }));
    TablePart { id, title: title(id, ranked), columns, rows: rows.collect() }
}

fn title<T>(name: &str, Ranked { all, first }: &Ranked<T>) -> String {
    let of_all = if first.len() < *all { format!(", {} of {all}", first.len()) } else { String::new() };
    let mut title = name.to_owned() + &of_all;
    title.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
    title
}

/// The columns of every ranking.
fn counts(counts: &Counts) -> [Cell; 6] {
    let known = counts.load_samples + counts.store_samples;
    let writes = (known > 0).then(|| counts.store_samples as f64 / known as f64);
    let remote = remote_cost(counts);
    let bar = |cell: Cell, share: Option<f64>| Cell { bar: share.map(|share| 100.0 * share.clamp(0.0, 1.0)), ..cell };
    [
        Cell::number(count(counts.samples), Some(counts.samples as f64)),
        Cell::number(share(Some(counts.share)), Some(counts.share)),
        Cell::number(share(counts.local_access_ratio), counts.local_access_ratio),
        Cell::number(latency(counts.latency_mean_ns), counts.latency_mean_ns),
        bar(Cell::number(share(remote), remote), remote),
        Cell::number(share(writes), writes),
    ]
}

impl Cell {
    fn words(text: String, note: String) -> Self {
        Self { text, note, words: true, ..Self::default() }
    }

    /// Unknown values are sorted below all known ones.
    fn number(text: String, value: Option<f64>) -> Self {
        Self { text, value: value.unwrap_or(-1.0), ..Self::default() }
    }
}
