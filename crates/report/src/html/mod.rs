//! A profile as one self-contained page: no network access, no external fonts or scripts, light and dark, for screen
//! and print.
//!
//! The text and tables are those of [`ProfileReport`]. `access_map`, `latency_chart` and `timeline` compute positions
//! only; the templates in `templates/` draw, and escape every text. The size of the page does not depend on the length
//! of the trace: a uniform selection is drawn, and the page says how much was left out.

mod access_map;
mod axis;
mod campaign;
mod compare;
mod heat;
mod latency_chart;
mod lines;
mod marks;
mod objects;
mod tables;
mod timeline;

pub use campaign::campaign_to_html;
pub use compare::comparison_to_html;

use crate::ProfileReport;
use crate::TraceFacts;
use crate::escape::{escape_name, escape_sentence};
use crate::picture::{MachineText, machine_in_page};
use crate::profile::advice::{self, AdviceRow};
use crate::profile::metrics;
use crate::profile::trace_facts::TraceText;
use access_map::AccessMap;
use askama::Template;
use axis::Span;
use latency_chart::LatencyChart;
use lines::{Line, lines};
use objects::ObjectPart;
use profile::{Metric, ObjectId, Problem, View};
use std::fmt;
use tables::TablePart;

/// Most objects with a bar in the access map.
const MOST_BARS: usize = 16;
/// Most objects with a timeline.
const MOST_TIMELINES: usize = 8;
/// Most nodes for which the machine is drawn: the picture would be larger than all others.
const MOST_DRAWN_NODES: usize = 32;

/// A view and its report as one HTML page. Fails only if memory runs out.
pub fn profile_to_html(view: &View, report: &ProfileReport) -> Result<String, fmt::Error> {
    Page::new(view, report).render().map_err(|_| fmt::Error)
}

/// The page, written by its template.
#[derive(Template)]
#[template(path = "profile.html")]
struct Page {
    title: String,
    written_by: &'static str,
    facts: Vec<Line>,
    verdict_class: &'static str,
    verdict: String,
    metrics: Vec<MetricRow>,
    advice: Vec<AdviceCard>,
    left_alone: Vec<Line>,
    /// What is said of sites with too few samples.
    of_few_samples: Option<String>,
    /// Sites to act on together.
    together: Vec<String>,
    heat: Option<String>,
    heat_note: String,
    access_map: Option<AccessMap>,
    latency: Option<LatencyChart>,
    objects: Vec<ObjectPart>,
    tables: Vec<TablePart>,
    machine: String,
    machine_picture: Option<String>,
}

struct MetricRow {
    name: String,
    value: String,
    threshold: String,
    state: &'static str,
    meaning: &'static str,
    is_bad: bool,
    counted: bool,
}

struct AdviceCard {
    title: String,
    lines: Vec<Line>,
}

impl Page {
    fn new(view: &View, report: &ProfileReport) -> Self {
        let machine = view.profile().machine();
        let name = |row: &crate::ObjectRow| {
            let place = escape_name(&advice::place(&row.summary.label, row.source.as_deref()));
            (row.summary.object, format!("{} {place}", row.summary.object))
        };
        let bars: Vec<(ObjectId, String)> = report.objects.first.iter().map(name).take(MOST_BARS).collect();
        let command = report.trace.command.join(" ");
        let (heat, heat_note) = heat::map(machine, &report.nodes);
        let is_of_few = |row: &&AdviceRow| !row.acts() && row.is_of_few_samples();
        let known = report.advice.iter().filter(|row| !row.acts() && !row.is_of_few_samples());
        let facts = TraceText {
            facts: &report.trace,
            counts: &report.counts,
            unknown_share: report.verdict.unknown_share,
            waiting: &report.waiting,
            filter: &report.filter,
            kernel: &report.kernel,
        };
        Self {
            title: escape_name(if command.is_empty() { "programs that already ran" } else { &command }),
            written_by: concat!("nearside ", env!("CARGO_PKG_VERSION")),
            facts: lines(facts.lines()),
            verdict_class: verdict_class(report.verdict.problem),
            verdict: escape_sentence(&report.verdict.text),
            metrics: report.verdict.metrics.iter().map(metric).collect(),
            advice: report
                .advice
                .iter()
                .filter(|row| row.acts())
                .zip(1..)
                .map(|(row, rank)| card(row, rank, &report.trace))
                .collect(),
            left_alone: known.map(left_alone).collect(),
            of_few_samples: advice::few_text(report.advice.iter().filter(is_of_few).count(), report.advice.len()),
            together: report.together.iter().map(|of| escape_sentence(&advice::together_text(of))).collect(),
            heat,
            heat_note,
            access_map: AccessMap::new(view, &bars, Span::of(&report.trace)),
            latency: LatencyChart::new(&report.latency_over_time, Span::of(&report.trace)),
            objects: objects::parts(view, report, MOST_TIMELINES),
            tables: tables::of(report),
            machine: cut(&MachineText::new(machine).to_string()),
            machine_picture: (machine.nodes.len() <= MOST_DRAWN_NODES).then(|| machine_in_page(machine)),
        }
    }
}

fn verdict_class(problem: Problem) -> &'static str {
    match problem {
        Problem::Contention | Problem::Distance | Problem::SharedLines => "bad",
        Problem::Unknown => "unsure",
        Problem::NotMemoryBound | Problem::None | Problem::Bandwidth => "",
    }
}

fn metric(metric: &Metric) -> MetricRow {
    MetricRow {
        name: metrics::name(metric),
        value: metrics::value(metric, metric.value),
        threshold: metrics::value(metric, Some(metric.threshold)),
        state: metrics::state(metric),
        meaning: metric.meaning,
        is_bad: metric.is_bad,
        counted: metric.counted,
    }
}

fn card(row: &AdviceRow, rank: usize, trace: &TraceFacts) -> AdviceCard {
    let place = escape_name(&advice::place(&row.advice.label, row.source.as_deref()));
    AdviceCard {
        title: format!("{rank}. {}: {place}", advice::words(row.advice.action)),
        lines: lines(row.lines(trace)),
    }
}

fn left_alone(row: &AdviceRow) -> Line {
    let why = escape_sentence(&row.why_not());
    (escape_name(&advice::place(&row.advice.label, row.source.as_deref())), why)
}

/// A text of several lines, limited in number: a hostile description may have any number.
fn cut(text: &str) -> String {
    const MOST: usize = 40_000;
    let clean = text.lines().map(escape_name).collect::<Vec<_>>().join("\n");
    clean.chars().take(MOST).collect()
}
