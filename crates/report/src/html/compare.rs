//! A comparison as one self-contained page, in the style of a profile's page.

use super::axis::{Px, Tick, round_values};
use super::{MOST_DRAWN_NODES, cut};
use crate::compare::text::{HEADINGS, cells, duration, remarks};
use crate::escape::{escape_name, escape_sentence};
use crate::picture::{HeatMap, MEMORY, MachineText, heat_maps_in_page, machine_in_page};
use crate::{CompareReport, MemoryCounts, PolicyRuns, PolicySummary};
use askama::Template;
use machine::Machine;
use machine::number::percent;
use std::fmt;

const WIDTH: f64 = 960.0;
/// Width of the names.
const LEFT: f64 = 190.0;
/// Room for the speedup, right of the bars.
const RIGHT: f64 = 110.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;

/// A comparison as one HTML page. Fails only if memory runs out.
pub fn comparison_to_html(report: &CompareReport, machine: &Machine) -> Result<String, fmt::Error> {
    Page::new(report, machine).render().map_err(|_| fmt::Error)
}

/// The page, written by its template.
#[derive(Template)]
#[template(path = "compare.html")]
struct Page {
    title: String,
    heading: String,
    method: String,
    written_by: &'static str,
    is_decided: bool,
    verdict: String,
    interrupted: bool,
    columns: Vec<String>,
    rows: Vec<[String; 10]>,
    bars: Option<Bars>,
    maps: Vec<Map>,
    runs: Vec<[String; 6]>,
    /// What each policy means.
    facts: Vec<(String, String)>,
    remarks: Vec<String>,
    failures: Vec<Failure>,
    machine: String,
    machine_picture: Option<String>,
}

/// The node x node heat map under a policy.
struct Map {
    policy: String,
    picture: String,
}

struct Failure {
    title: String,
    output: String,
}

/// The times as bars, with their intervals and single runs.
#[derive(Template)]
#[template(path = "compare_bars.svg")]
struct Bars {
    width: Px,
    height: Px,
    full_height: Px,
    tick_y: Px,
    left: Px,
    ticks: Vec<Tick>,
    rows: Vec<Bar>,
}

struct Bar {
    name: String,
    hint: String,
    class: &'static str,
    y: Px,
    text_y: Px,
    middle: Px,
    length: Px,
    /// The ends of the interval, and where its marks begin and end.
    interval: Option<(Px, Px)>,
    whisker_top: Px,
    whisker_bottom: Px,
    runs: Vec<Px>,
    speedup: String,
    speedup_x: Px,
}

impl Page {
    fn new(report: &CompareReport, machine: &Machine) -> Self {
        let compared = &report.comparison;
        let pairs = || compared.policies.iter().zip(&report.summaries);
        let ran = || pairs().filter(|(_, summary)| summary.seconds.is_some());
        let against = format!("as fast as {}", escape_name(report.baseline.as_deref().unwrap_or("")));
        let column = |name: &str| if name.is_empty() { against.clone() } else { name.to_owned() };
        // One scale, so that the same colour is the same share under each policy.
        let shares = pairs().filter_map(|(_, summary)| summary.memory.as_ref()).filter_map(busiest_pair);
        let most = shares.fold(0.0, f64::max);
        let map = |(_, summary): (&PolicyRuns, &PolicySummary)| {
            let picture = map(summary.memory.as_ref()?, most)?;
            Some(Map { policy: escape_name(&summary.policy), picture })
        };
        let failure = |policy: &PolicyRuns| {
            let failed = policy.failed.as_ref()?;
            let title =
                format!("{}, run {}: {}", escape_name(&policy.policy), failed.index, escape_sentence(&failed.why));
            Some(Failure { title, output: cut(&failed.output) })
        };
        Self {
            title: escape_name(&compared.command.join(" ")),
            heading: report.heading(),
            method: report.method(),
            written_by: concat!("nearside ", env!("CARGO_PKG_VERSION")),
            is_decided: report.verdict.winner.is_some(),
            verdict: escape_sentence(&report.verdict.text),
            interrupted: compared.interrupted,
            columns: HEADINGS.map(column).to_vec(),
            rows: ran().map(|(_, summary)| cells(summary)).collect(),
            bars: Bars::new(&ran().collect::<Vec<_>>(), report.verdict.winner.as_deref()),
            maps: pairs().filter_map(map).collect(),
            runs: runs(&compared.policies),
            facts: pairs().map(|(policy, _)| (escape_name(&policy.policy), escape_sentence(&policy.means))).collect(),
            remarks: pairs()
                .flat_map(|(policy, _)| remarks(policy))
                .chain(compared.notes.iter().map(|note| escape_sentence(note)))
                .collect(),
            failures: compared.policies.iter().filter_map(failure).collect(),
            machine: cut(&MachineText::new(machine).to_string()),
            machine_picture: (machine.nodes.len() <= MOST_DRAWN_NODES).then(|| machine_in_page(machine)),
        }
    }
}

/// All runs, in chronological order.
fn runs(policies: &[PolicyRuns]) -> Vec<[String; 6]> {
    let mut runs: Vec<_> =
        policies.iter().flat_map(|policy| policy.runs.iter().map(move |run| (policy, run))).collect();
    runs.sort_by_key(|(_, run)| run.index);
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |(policy, run): (&PolicyRuns, &crate::OneRun)| {
        let memory = run.memory.as_ref();
        [
            run.index.to_string(),
            escape_name(&policy.policy),
            duration(run.seconds),
            or(memory.and_then(MemoryCounts::local_access_ratio).map(percent)),
            or(memory.and_then(|memory| memory.latency_mean_ns).map(|latency| format!("{latency:.0} ns"))),
            or(run.pages_moved.map(|pages| pages.to_string())),
        ]
    };
    runs.into_iter().map(row).collect()
}

/// The greatest share of all accesses that a pair of nodes has.
fn busiest_pair(memory: &MemoryCounts) -> Option<f64> {
    let most = memory.accesses_by_node.iter().flatten().max()?;
    Some(*most as f64 / memory.accesses() as f64).filter(|share| share.is_finite())
}

/// Shares of all accesses, if there are any, in the colours of a scale from 0 to `most`.
fn map(memory: &MemoryCounts, most: f64) -> Option<String> {
    let all = Some(memory.accesses()).filter(|all| *all > 0)? as f64;
    let share = |cell: &u64| Some(*cell as f64 / all);
    let shares = HeatMap {
        title: "Share of accesses that reached memory",
        columns: MEMORY,
        nodes: &memory.nodes,
        values: memory.accesses_by_node.iter().map(|row| row.iter().map(share).collect()).collect(),
        more_is_better: false,
        scale: Some((0.0, most)),
        show: percent,
    };
    Some(heat_maps_in_page(vec![shares]))
}

impl Bars {
    /// None if nothing ran.
    fn new(ran: &[(&PolicyRuns, &PolicySummary)], winner: Option<&str>) -> Option<Self> {
        let ends = ran.iter().flat_map(|(policy, summary)| {
            let interval = summary.seconds.and_then(|seconds| seconds.interval).map(|(_, high)| high);
            policy.runs.iter().map(|run| run.seconds).chain(interval)
        });
        let longest = ends.clone().fold(0.0, f64::max);
        // The interval of two different runs may be much longer than the bars; it is clipped, and the table has its
        // ends.
        let longest_run = ran.iter().flat_map(|(policy, _)| &policy.runs).map(|run| run.seconds).fold(0.0, f64::max);
        let most = longest.min(1.5 * longest_run) * 1.02;
        if most <= 0.0 || !most.is_finite() {
            return None;
        }
        let x = |seconds: f64| Px(LEFT + (WIDTH - LEFT - RIGHT) * (seconds / most).clamp(0.0, 1.0));
        let bar = |(index, (policy, summary)): (usize, &(&PolicyRuns, &PolicySummary))| {
            let seconds = summary.seconds?;
            let y = index as f64 * ROW + (ROW - BAR) / 2.0;
            let interval = seconds.interval;
            let between =
                interval.map_or(String::new(), |(low, high)| format!(" ({} to {})", duration(low), duration(high)));
            Some(Bar {
                name: escape_name(&summary.policy),
                hint: format!("{}: {}{between}", escape_name(&summary.policy), duration(seconds.mean)),
                class: if winner == Some(summary.policy.as_str()) { "k2" } else { "k0" },
                y: Px(y),
                text_y: Px(y + BAR / 2.0 + 4.0),
                middle: Px(y + BAR / 2.0),
                length: Px(x(seconds.mean).0 - LEFT),
                interval: interval.map(|(low, high)| (x(low), x(high))),
                whisker_top: Px(y + BAR / 2.0 - 5.0),
                whisker_bottom: Px(y + BAR / 2.0 + 5.0),
                runs: policy.runs.iter().map(|run| x(run.seconds)).collect(),
                speedup: summary.speedup.map_or(String::new(), |speedup| format!("{:.2} x", speedup.mean)),
                speedup_x: Px(WIDTH - RIGHT + 12.0),
            })
        };
        let rows: Vec<Bar> = ran.iter().enumerate().filter_map(bar).collect();
        let height = ran.len() as f64 * ROW;
        let (unit, factor) = if most >= 1.0 { ("s", 1.0) } else { ("ms", 1e3) };
        let ticks = round_values(most * factor, 8.0).into_iter();
        Some(Self {
            width: Px(WIDTH),
            height: Px(height),
            full_height: Px(height + 22.0),
            tick_y: Px(height + 15.0),
            left: Px(LEFT),
            ticks: ticks.map(|(at, text)| Tick { at: x(at / factor), label: format!("{text} {unit}") }).collect(),
            rows,
        })
    }
}
