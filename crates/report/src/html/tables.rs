//! The rankings, as sortable tables.

use crate::escape::escape_name;
use crate::profile::advice::{kind_words, place};
use crate::profile::nodes::busy_threads;
use crate::profile::overview_text::of_all;
use crate::profile::rankings_text::{COUNTS, cost, remote_cost, writes};
use crate::profile::text::latency;
use crate::{AllocatedBy, By, ProfileReport, Ranked, SmallRow};
use machine::number::count;
use machine::size;
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
    /// Whether the rows are sorted by it, the largest first.
    pub sorted: bool,
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
    let by_stores = report.by == By::Stores;
    let objects = report.sites.first.iter().map(|row| {
        let by = row.allocated_by.map_or_else(String::new, AllocatedBy::text);
        let called = if row.called_from.is_empty() { String::new() } else { row.called_from.join(" < ") };
        let what = format!("{} of site {}, {}{by}", row.objects_text(), row.site, kind_words(row.kind));
        let called = if called.is_empty() { called } else { format!("; called from {called}") };
        let threads = busy_threads(&row.facts.threads);
        let first = [
            Cell::words(escape_name(&place(&row.label, row.source.as_deref())), escape_name(&(what + &called))),
            Cell::number(if row.bytes > 0 { size::rounded(row.bytes) } else { "-".to_owned() }, Some(row.bytes as f64)),
            Cell::number(threads.to_string(), Some(threads as f64)),
        ];
        first.into_iter().chain(counts(&row.counts, by_stores)).collect()
    });
    let threads = report.threads.first.iter().map(|row| {
        let process = &row.summary.process;
        let of = escape_name(process.application.as_deref().unwrap_or(""));
        let name = escape_name(row.summary.name.as_deref().unwrap_or("thread"));
        let nodes: Vec<String> = row.ran_on.keys().take(16).map(ToString::to_string).collect();
        let note = format!("of {of} ({}), ran on {}", process.pid, nodes.join(", "));
        let first =
            [Cell::words(name, note), Cell::number(row.summary.tid.to_string(), Some(f64::from(row.summary.tid)))];
        first.into_iter().chain(counts(&row.counts, by_stores)).collect()
    });
    let processes = report.processes.first.iter().map(|row| {
        let name = escape_name(row.summary.application.as_deref().unwrap_or(""));
        let first = [
            Cell::words(name, String::new()),
            Cell::number(row.summary.pid.to_string(), Some(f64::from(row.summary.pid))),
        ];
        first.into_iter().chain(counts(&row.counts, by_stores)).collect()
    });
    let functions = report.functions.first.iter().map(|row| {
        let first = [Cell::words(escape_name(&row.function), String::new())];
        first.into_iter().chain(counts(&row.counts, by_stores)).collect()
    });
    let words = |name| Column { name, words: true, sorted: false };
    let number = |name| Column { name, words: false, sorted: false };
    let table = |id, title: String, columns, rows: Vec<Vec<Cell>>| table(id, title, columns, rows, report.by);
    let ranked = |id: &'static str, ranking: String| capital(id.to_owned() + &ranking);
    let mut tables = vec![
        table(
            "objects",
            format!("Objects by the code that allocates them{}", of_all(&report.sites)),
            vec![words("objects"), number("size"), number("threads")],
            objects.collect(),
        ),
        table(
            "threads",
            ranked("threads", of_all(&report.threads)),
            vec![words("thread"), number("tid")],
            threads.collect(),
        ),
        table(
            "processes",
            ranked("processes", of_all(&report.processes)),
            vec![words("process"), number("pid")],
            processes.collect(),
        ),
        table(
            "functions",
            ranked("functions", of_all(&report.functions)),
            vec![words("function")],
            functions.collect(),
        ),
        small_objects(&report.small_objects),
    ];
    tables.retain(|table| if table.id == "processes" { table.rows.len() > 1 } else { !table.rows.is_empty() });
    tables
}

/// Objects that were only counted.
fn small_objects(small: &Ranked<SmallRow>) -> TablePart {
    let row = |row: &SmallRow| {
        let name = escape_name(&place(&row.label, row.source.as_deref()));
        vec![
            Cell::words(name, escape_name(&row.called_from.join(" < "))),
            Cell::number(count(row.objects), Some(row.objects as f64)),
            Cell::number(size::rounded(row.bytes), Some(row.bytes as f64)),
        ]
    };
    let columns = [("site", true), ("objects", false), ("size", false)];
    let columns = columns.map(|(name, words)| Column { name, words, sorted: name == "size" });
    let title = format!("Small objects, counted by site{}", of_all(small));
    TablePart { id: "small-objects", title, columns: columns.into(), rows: small.first.iter().map(row).collect() }
}

fn table(id: &'static str, title: String, mut columns: Vec<Column>, rows: Vec<Vec<Cell>>, by: By) -> TablePart {
    columns.extend(COUNTS.map(|name| Column { name, words: false, sorted: name == by.column() }));
    TablePart { id, title, columns, rows }
}

fn capital(mut title: String) -> String {
    title.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
    title
}

/// The columns of every ranking; writes are counted where the ranking is by them.
fn counts(counts: &Counts, by_stores: bool) -> [Cell; 7] {
    let shown = |share: Option<f64>| Cell::number(crate::profile::text::share(share), share);
    let bar = |share: Option<f64>| Cell { bar: share.map(|share| 100.0 * share.clamp(0.0, 1.0)), ..shown(share) };
    let number = |value: u64| Cell::number(count(value), Some(value as f64));
    [
        shown(cost(counts)),
        bar(remote_cost(counts)),
        shown(counts.local_access_ratio),
        Cell::number(latency(counts.latency_mean_ns), counts.latency_mean_ns),
        number(counts.samples),
        shown(Some(counts.share)),
        if by_stores { number(counts.store_samples) } else { shown(writes(counts)) },
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
