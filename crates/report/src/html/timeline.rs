//! The timeline of an object: loads and stores by thread.

use super::axis::{AXIS_HEIGHT, LEFT, Px, RIGHT, Span, TIME_LABEL, Tick, TimeAxis, WIDTH};
use super::marks::{Gathered, Look, Marks};
use crate::columns;
use crate::escape::escape_name;
use crate::subsample::subsample;
use askama::Template;
use machine::NodeId;
use profile::{Facts, Flow, Object, ThreadId, ThreadUse, Usage};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most threads with a lane of their own: those with the most accesses.
const MOST_LANES: usize = 24;
/// Most accesses that are drawn per object.
const MOST_MARKS: usize = 2000;
const LANE: f64 = 14.0;
/// Length of a store's stroke, px.
const STROKE: f64 = 10.0;
/// Columns of a thread's name that fit left of its lane, beside its number and its node.
const MOST_NAME_COLUMNS: usize = 15;
/// Where lanes begin: below the phases.
const TOP: f64 = 24.0;

/// The picture, written by its template.
#[derive(Debug, Template)]
#[template(path = "timeline.svg")]
pub(super) struct Timeline {
    width: Px,
    left: Px,
    right: Px,
    plot_width: Px,
    top: Px,
    height: Px,
    lanes_height: Px,
    full_height: Px,
    tick_y: Px,
    middle: Px,
    label_x: Px,
    time_label: &'static str,
    life_x: Px,
    life_width: Px,
    phases: Vec<PhaseArea>,
    lanes: Vec<Lane>,
    ticks: Vec<Tick>,
    marks: Vec<Marks>,
    /// Number of accesses.
    pub all: usize,
    /// Number of accesses that are drawn.
    pub drawn: usize,
    /// Threads without a lane.
    pub left_out: usize,
}

#[derive(Debug)]
struct PhaseArea {
    x: Px,
    width: Px,
    class: &'static str,
    hint: String,
}

#[derive(Debug)]
struct Lane {
    y: Px,
    text_y: Px,
    label: String,
    hint: String,
}

impl Timeline {
    /// For an object's flow and facts, over the time of the whole view.
    pub fn new(flow: &Flow, facts: &Facts, object: &Object, span: Span) -> Self {
        let times = TimeAxis::new(span);
        let mut shown: Vec<&ThreadUse> = facts.threads.iter().take(MOST_LANES).collect();
        shown.sort_by_key(|used| used.thread);
        let lane_of: BTreeMap<ThreadId, usize> =
            shown.iter().zip(0..).map(|(used, lane)| (used.thread, lane)).collect();
        let middle = |lane: usize| Px(TOP + lane as f64 * LANE + LANE / 2.0);
        let accesses = || flow.accesses().filter_map(|access| Some((*lane_of.get(&access.thread)?, access)));
        let all = accesses().count();
        let mut gathered = Gathered::default();
        for (lane, access) in subsample(accesses(), all, MOST_MARKS) {
            gathered.add(Look::new(&access), times.x(access.time_ns), middle(lane), STROKE);
        }
        let nodes = nodes_of_threads(flow);
        let lane = |(used, lane): (&&ThreadUse, usize)| Lane {
            y: Px(TOP + lane as f64 * LANE),
            text_y: Px(middle(lane).0 + 3.5),
            label: short(used, nodes.get(&used.thread)),
            hint: thread_hint(used),
        };
        let height = TOP + shown.len() as f64 * LANE;
        let phase = |phase: profile::Phase| PhaseArea {
            x: times.x(phase.from_ns),
            width: Px((times.x(phase.until_ns).0 - times.x(phase.from_ns).0).max(1.0)),
            class: usage(phase.usage).0,
            hint: phase_hint(&phase),
        };
        let life = (times.x(object.from_ns), object.until_ns.map_or(Px(RIGHT), |until_ns| times.x(until_ns)));
        Self {
            width: Px(WIDTH),
            left: Px(LEFT),
            right: Px(RIGHT),
            top: Px(TOP),
            plot_width: Px(RIGHT - LEFT),
            middle: Px(f64::midpoint(LEFT, RIGHT)),
            label_x: Px(LEFT - 6.0),
            time_label: TIME_LABEL,
            height: Px(height),
            lanes_height: Px(height - TOP),
            full_height: Px(height + AXIS_HEIGHT),
            tick_y: Px(height + 13.0),
            life_x: life.0,
            life_width: Px((life.1.0 - life.0.0).max(1.0)),
            phases: flow.phases().into_iter().map(phase).collect(),
            lanes: shown.iter().zip(0..).map(lane).collect(),
            ticks: times.ticks(),
            marks: gathered.marks(),
            all,
            drawn: all.min(MOST_MARKS),
            left_out: facts.threads.len() - shown.len(),
        }
    }
}

/// Style class and text.
fn usage(usage: Usage) -> (&'static str, &'static str) {
    match usage {
        Usage::Read => ("reads", "read"),
        Usage::Write => ("writes", "written"),
        Usage::ReadAndWrite => ("both", "read and written"),
        Usage::Unknown => ("elsewhere", "used"),
    }
}

fn phase_hint(phase: &profile::Phase) -> String {
    let threads = if phase.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", phase.threads) };
    let node = phase.node.map_or_else(String::new, |node| format!(", nearly all from node {node}"));
    format!("{} by {threads}{node}: {} samples", usage(phase.usage).1, phase.samples)
}

/// The nodes that each thread ran on, with the number of accesses from there.
fn nodes_of_threads(flow: &Flow) -> BTreeMap<ThreadId, BTreeMap<NodeId, u64>> {
    let mut nodes: BTreeMap<ThreadId, BTreeMap<NodeId, u64>> = BTreeMap::new();
    for (thread, node) in flow.accesses().filter_map(|access| Some((access.thread, access.from?))) {
        *nodes.entry(thread).or_default().entry(node).or_default() += 1;
    }
    nodes
}

/// As much of the name as fits, then what tells lanes apart: the TID, and the node that the thread mostly ran on.
fn short(used: &ThreadUse, nodes: Option<&BTreeMap<NodeId, u64>>) -> String {
    let name = escape_name(used.name.as_deref().unwrap_or("thread"));
    let name = columns::beginning(&name, MOST_NAME_COLUMNS);
    let most = nodes.and_then(|nodes| nodes.iter().max_by_key(|(node, count)| (**count, Reverse(**node))));
    let others = if nodes.is_some_and(|nodes| nodes.len() > 1) { "+" } else { "" };
    most.map_or_else(|| format!("{name} {}", used.tid), |(node, _)| format!("{name} {}, node {node}{others}", used.tid))
}

fn thread_hint(used: &ThreadUse) -> String {
    let name = escape_name(used.name.as_deref().unwrap_or("thread"));
    format!("{name} {} of process {}: {} samples", used.tid, used.pid, used.counts.samples)
}
