//! The timeline of an object: loads and stores by thread.

use super::axis::{Px, Tick, TimeAxis};
use super::marks::{Gathered, Look, Marks};
use crate::escape::escape_name;
use crate::subsample::subsample;
use askama::Template;
use profile::{Facts, Flow, Object, ThreadId, ThreadUse, Usage};
use std::collections::BTreeMap;

/// Most threads with a lane of their own: those with the most accesses.
const MOST_LANES: usize = 24;
/// Most accesses that are drawn per object.
const MOST_MARKS: usize = 2000;
const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const LANE: f64 = 14.0;
/// Length of a store's stroke, px.
const STROKE: f64 = 10.0;
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
    pub fn new(flow: &Flow, facts: &Facts, object: &Object, span: (u64, u64)) -> Self {
        let times = TimeAxis::new(span, LEFT, WIDTH - LEFT - 24.0);
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
        let lane = |(used, lane): (&&ThreadUse, usize)| Lane {
            y: Px(TOP + lane as f64 * LANE),
            text_y: Px(middle(lane).0 + 3.5),
            label: short(used),
            hint: thread_hint(used),
        };
        let height = TOP + shown.len() as f64 * LANE;
        let phase = |phase: profile::Phase| PhaseArea {
            x: times.x(phase.from_ns),
            width: Px((times.x(phase.until_ns).0 - times.x(phase.from_ns).0).max(1.0)),
            class: usage(phase.usage).0,
            hint: phase_hint(&phase),
        };
        let life = (times.x(object.from_ns), object.until_ns.map_or(Px(WIDTH - 24.0), |until_ns| times.x(until_ns)));
        Self {
            width: Px(WIDTH),
            left: Px(LEFT),
            right: Px(WIDTH - 24.0),
            top: Px(TOP),
            plot_width: Px(WIDTH - 24.0 - LEFT),
            height: Px(height),
            lanes_height: Px(height - TOP),
            full_height: Px(height + 18.0),
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

/// The TID, which identifies the thread, and as much of the name as fits.
fn short(used: &ThreadUse) -> String {
    let name: String = escape_name(used.name.as_deref().unwrap_or("thread")).chars().take(12).collect();
    format!("{name} {}", used.tid)
}

fn thread_hint(used: &ThreadUse) -> String {
    let name = escape_name(used.name.as_deref().unwrap_or("thread"));
    format!("{name} {} of process {}: {} samples", used.tid, used.pid, used.counts.samples)
}
