//! Latency of each node's memory over time, with its times of saturation.

use super::axis::{AXIS_HEIGHT, LEFT, Px, RIGHT, Span, TIME_LABEL, Tick, TimeAxis, WIDTH, round_values};
use crate::profile::text::time;
use askama::Template;
use machine::NodeId;
use profile::{LatencyPart, saturations};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most nodes that are drawn: more lines are not distinguishable.
const MOST_NODES: usize = 8;
const HEIGHT: f64 = 220.0;
/// Height of a node's row of saturation, px.
const ROW: f64 = 13.0;

/// The picture, written by its template.
#[derive(Debug, Template)]
#[template(path = "latency_chart.svg")]
pub(super) struct LatencyChart {
    width: Px,
    left: Px,
    right: Px,
    plot_width: Px,
    height: Px,
    full_height: Px,
    tick_y: Px,
    middle: Px,
    label_x: Px,
    label_y: Px,
    time_label: &'static str,
    ticks: Vec<Tick>,
    values: Vec<Tick>,
    lines: Vec<Line>,
    rows: Vec<Row>,
    /// Nodes with accesses that are not drawn.
    pub left_out: usize,
    /// Times of saturation as text, longest first.
    pub saturated: Vec<String>,
}

#[derive(Debug)]
struct Line {
    node: NodeId,
    colour: usize,
    path: String,
    idle_path: String,
    /// Position of the node's name, right of its line.
    name_y: Px,
}

/// A time in which a node's memory was saturated.
#[derive(Debug)]
struct Row {
    node: NodeId,
    colour: usize,
    y: Px,
    text_y: Px,
    times: Vec<Saturated>,
}

#[derive(Debug)]
struct Saturated {
    x: Px,
    width: Px,
    hint: String,
}

impl LatencyChart {
    /// For latencies over time; none if there are none.
    pub fn new(parts: &[LatencyPart], span: Span) -> Option<Self> {
        let mut of_nodes: BTreeMap<NodeId, Vec<LatencyPart>> = BTreeMap::new();
        for part in parts {
            of_nodes.entry(part.node).or_default().push(*part);
        }
        let mut nodes: Vec<(NodeId, Vec<LatencyPart>)> = of_nodes.into_iter().collect();
        // Saturated nodes first, then those with the most accesses.
        let rank = |parts: &[LatencyPart]| {
            let saturated = parts.iter().filter(|part| part.saturated).count();
            let samples: u64 = parts.iter().map(|part| part.samples).sum();
            std::cmp::Reverse((saturated, samples))
        };
        nodes.sort_by_key(|(node, parts)| (rank(parts), *node));
        let left_out = nodes.len().saturating_sub(MOST_NODES);
        nodes.truncate(MOST_NODES);
        nodes.sort_by_key(|(node, _)| *node);
        let all = || nodes.iter().flat_map(|(_, parts)| parts);
        all().next()?;
        let most = all().map(|part| part.latency_mean_ns).fold(0.0, f64::max) * 1.08;
        let most = if most.is_finite() { most.max(1.0) } else { f64::MAX };
        let times = TimeAxis::new(span);
        let y = |ns: f64| Px(HEIGHT - (HEIGHT - 8.0) * (ns / most).clamp(0.0, 1.0));
        // A node has the same colour in every picture, if there are enough colours.
        let few = nodes.iter().all(|(node, _)| (node.0 as usize) < MOST_NODES);
        let mut lines = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        let mut saturated = Vec::new();
        for (index, (node, parts)) in nodes.iter().enumerate() {
            let colour = if few { node.0 as usize } else { index };
            lines.push(Line {
                node: *node,
                colour,
                path: path(parts, &times, |part| Some(y(part.latency_mean_ns))),
                idle_path: path(parts, &times, |part| part.idle_ns.map(y)),
                name_y: Px(y(parts.last()?.latency_mean_ns).0 + 4.0),
            });
            let found = saturations(parts);
            let time = |found: &profile::Saturation| Saturated {
                x: times.x(found.from_ns),
                width: Px((times.x(found.until_ns).0 - times.x(found.from_ns).0).max(1.0)),
                hint: format!("node {node}: {:.0} ns on average, {} samples", found.latency_mean_ns, found.samples),
            };
            if !found.is_empty() {
                let y = HEIGHT + AXIS_HEIGHT + 4.0 + rows.len() as f64 * ROW;
                let times = found.iter().map(time).collect();
                rows.push(Row { node: *node, colour, y: Px(y), text_y: Px(y + 9.0), times });
            }
            saturated.extend(found.into_iter().map(|found| (found.until_ns.saturating_sub(found.from_ns), found)));
        }
        keep_apart(&mut lines);
        saturated.sort_by_key(|(length, found)| (std::cmp::Reverse(*length), found.node, found.from_ns));
        let in_words = |(length, found): &(u64, profile::Saturation)| {
            let from = time(found.from_ns.saturating_sub(span.start_ns));
            format!("node {}: {} from {from} on, {:.0} ns", found.node, time(*length), found.latency_mean_ns)
        };
        let value = |(value, label): (f64, String)| Tick { at: y(value), label: format!("{label} ns") };
        Some(Self {
            width: Px(WIDTH),
            left: Px(LEFT),
            right: Px(RIGHT),
            plot_width: Px(RIGHT - LEFT),
            middle: Px(f64::midpoint(LEFT, RIGHT)),
            label_x: Px(LEFT - 6.0),
            label_y: Px(HEIGHT + 29.0),
            time_label: TIME_LABEL,
            height: Px(HEIGHT),
            full_height: Px(HEIGHT + AXIS_HEIGHT + 4.0 + rows.len() as f64 * ROW),
            tick_y: Px(HEIGHT + 15.0),
            ticks: times.ticks(),
            values: round_values(most, 6.0).into_iter().map(value).collect(),
            lines,
            rows,
            left_out,
            saturated: saturated.iter().take(8).map(in_words).collect(),
        })
    }
}

/// A step line with gaps where there are no accesses.
fn path(parts: &[LatencyPart], times: &TimeAxis, y: impl Fn(&LatencyPart) -> Option<Px>) -> String {
    let mut path = String::new();
    let mut end = None;
    for part in parts {
        let Some(y) = y(part) else { continue };
        let begin = if end == Some(part.from_ns) { 'L' } else { 'M' };
        // Writing to a string cannot fail.
        let _ = write!(path, "{begin}{} {y}H{}", times.x(part.from_ns), times.x(part.until_ns));
        end = Some(part.until_ns);
    }
    path
}

/// Separates the names of lines that end at similar heights.
fn keep_apart(lines: &mut [Line]) {
    let mut by_height: Vec<&mut Line> = lines.iter_mut().collect();
    by_height.sort_by(|one, other| other.name_y.0.total_cmp(&one.name_y.0));
    let mut free = HEIGHT + 4.0;
    for line in by_height {
        line.name_y = Px(line.name_y.0.min(free));
        free = line.name_y.0 - 12.0;
    }
}
