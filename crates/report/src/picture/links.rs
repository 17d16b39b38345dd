//! Paths of links between boxes, and positions of their labels.

use super::scene::{Rect, text_width};
use machine::number::bandwidth;
use machine::{LinkDirection, Machine};
use std::cmp::Ordering;

/// A cubic Bézier curve: start, its control point, the end's control point, end.
pub(super) type Points = [(f64, f64); 4];

pub(super) const LABEL_FONT: f64 = 11.0;
const LABEL_HEIGHT: f64 = 17.0;
/// Distance between parallel links of neighbours.
const PARALLEL: f64 = 28.0;
/// Above this many links, labels would hide the picture: widths and colours must suffice.
const MOST_LABELS: usize = 40;

/// A link to draw: its index in the machine's list, its ends as indexes of nodes, and the width of its label.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub link: usize,
    pub nodes: [usize; 2],
    pub label_width: f64,
}

/// A link's path and the area of its label, if there was room.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub link: usize,
    pub points: Points,
    pub label: Option<Rect>,
}

impl Wire {
    /// Whether this is a straight line between two neighbours.
    pub fn is_level(&self) -> bool {
        self.points.iter().all(|point| point.1.total_cmp(&self.points[0].1).is_eq())
    }
}

/// The links that join two of the machine's nodes.
pub(super) fn ends(machine: &Machine) -> Vec<Ends> {
    let index = |id| machine.nodes.iter().position(|node| node.id == id);
    let ends = |(i, link): (usize, &machine::Link)| {
        let [a, b] = link.nodes;
        let label_width = text_width(&bandwidth(link.bandwidth_bytes_per_s), LABEL_FONT) + 8.0;
        Some(Ends { link: i, nodes: [index(a)?, index(b)?], label_width }).filter(|ends| ends.nodes[0] != ends.nodes[1])
    };
    machine.links.iter().enumerate().filter_map(ends).collect()
}

/// The width of a link's line, px, in proportion to the fastest link's.
pub(super) fn width(machine: &Machine, bandwidth: f64) -> f64 {
    let fastest = machine.links.iter().map(|link| link.bandwidth_bytes_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let slowest_arrow = machine.links.iter().any(|link| link.direction == LinkDirection::Forward);
    let least: f64 = if slowest_arrow { 2.0 } else { 1.5 };
    least + (5.0 - least) * (bandwidth / fastest).clamp(0.0, 1.0)
}

/// Draws the path of every link between boxes in one or two rows, and finds positions for the labels.
pub(super) fn route(nodes: &[Rect], rows: &[Vec<usize>], ends: &[Ends]) -> Vec<Wire> {
    let spots = spots(nodes, rows);
    let mut wires: Vec<Wire> = Vec::with_capacity(ends.len());
    let ports = ports(&spots, ends);
    let mut parallel: Vec<[usize; 2]> = Vec::new();
    for (i, link) in ends.iter().enumerate() {
        let [Some(a), Some(b)] = link.nodes.map(|node| spots.get(node).copied().flatten()) else { continue };
        let points = if a.is_neighbour(b) {
            let pair = [link.nodes[0].min(link.nodes[1]), link.nodes[0].max(link.nodes[1])];
            let twins = ends.iter().filter(|other| pair.iter().all(|node| other.nodes.contains(node))).count();
            let rank = parallel.iter().filter(|other| **other == pair).count();
            parallel.push(pair);
            across(a.area, b.area, (rank as f64 - (twins as f64 - 1.0) / 2.0) * PARALLEL)
        } else {
            let port =
                |end: usize| ports.iter().find(|port| port.link == i && port.end == end).map_or(0.0, |port| port.x);
            through(a, b, port(0), port(1), rows)
        };
        wires.push(Wire { link: link.link, points, label: None });
    }
    if ends.len() <= MOST_LABELS {
        place_labels(&mut wires, ends, nodes);
    }
    wires
}

/// A box and its position in the rows.
#[derive(Clone, Copy)]
struct Spot {
    area: Rect,
    row: usize,
    column: usize,
}

impl Spot {
    fn is_neighbour(self, other: Self) -> bool {
        self.row == other.row && self.column.abs_diff(other.column) == 1
    }
}

fn spots(nodes: &[Rect], rows: &[Vec<usize>]) -> Vec<Option<Spot>> {
    let mut spots = vec![None; nodes.len()];
    for (row, members) in rows.iter().enumerate() {
        for (column, &node) in members.iter().enumerate() {
            if let (Some(spot), Some(&area)) = (spots.get_mut(node), nodes.get(node)) {
                *spot = Some(Spot { area, row, column });
            }
        }
    }
    spots
}

/// Where one end of a link leaves its box.
struct Port {
    link: usize,
    end: usize,
    x: f64,
}

/// A link's end at a box, with its sort key.
struct Leaving {
    class: u8,
    order: f64,
    link: usize,
    end: usize,
}

/// Spreads the links of each box over its edge at the channel, in an order that avoids crossings at the box: first
/// those to the left in the same row (nearest first), then those to the other row from left to right, then those to the
/// right (farthest first).
fn ports(spots: &[Option<Spot>], ends: &[Ends]) -> Vec<Port> {
    let mut ports = Vec::new();
    for (node, spot) in spots.iter().enumerate() {
        let Some(spot) = spot else { continue };
        let mut leaving: Vec<Leaving> = Vec::new();
        for (link, Ends { nodes, .. }) in ends.iter().enumerate() {
            let Some(end) = nodes.iter().position(|&n| n == node) else { continue };
            let other = spots.get(nodes[1 - end]).copied().flatten().filter(|other| !spot.is_neighbour(*other));
            let Some(other) = other else { continue };
            let dx = other.area.centre().0 - spot.area.centre().0;
            let (class, order) = match (spot.row == other.row, dx < 0.0) {
                (true, true) => (0, -dx),
                (false, _) => (1, dx),
                (true, false) => (2, -dx),
            };
            leaving.push(Leaving { class, order, link, end });
        }
        leaving.sort_by(|a, b| a.class.cmp(&b.class).then(a.order.total_cmp(&b.order)).then(a.link.cmp(&b.link)));
        let step = spot.area.width / (leaving.len() as f64 + 1.0);
        let port = |(place, leaving): (usize, Leaving)| {
            let x = spot.area.x + step * (place as f64 + 1.0);
            Port { link: leaving.link, end: leaving.end, x }
        };
        ports.extend(leaving.into_iter().enumerate().map(port));
    }
    ports
}

/// A straight line through the gap between neighbours.
fn across(a: Rect, b: Rect, offset: f64) -> Points {
    let y = f64::midpoint(a.y.max(b.y), a.bottom().min(b.bottom())) + offset;
    let (from, to) = if a.x < b.x { (a.right(), b.x) } else { (a.x, b.right()) };
    let third = (to - from) / 3.0;
    [(from, y), (from + third, y), (to - third, y), (to, y)]
}

/// A curve through the channel that leaves each box at a right angle.
fn through(a: Spot, b: Spot, from: f64, to: f64, rows: &[Vec<usize>]) -> Points {
    let edge = |spot: Spot| if spot.row == 0 { spot.area.bottom() } else { spot.area.y };
    let (start, end) = (edge(a), edge(b));
    if a.row == b.row {
        let most = rows.iter().map(Vec::len).max().unwrap_or(2).max(2) as f64;
        let down = if a.row == 0 { 1.0 } else { -1.0 };
        // The farther apart the boxes, the deeper the arc; a cubic reaches 3/4 of its control points' depth.
        let depth = down * (50.0 + 130.0 * (a.column.abs_diff(b.column) as f64 / most));
        return [(from, start), (from, start + depth), (to, end + depth), (to, end)];
    }
    let pull = (end - start) * 0.22;
    [(from, start), (from, start + pull), (to, end - pull), (to, end)]
}

/// The point of a curve at `t` from 0 to 1.
pub(super) fn point(points: &Points, t: f64) -> (f64, f64) {
    let u = 1.0 - t;
    let weights = [u * u * u, 3.0 * u * u * t, 3.0 * u * t * t, t * t * t];
    points.iter().zip(weights).fold((0.0, 0.0), |(x, y), (point, weight)| (x + point.0 * weight, y + point.1 * weight))
}

/// Places labels on their lines: never on a box or another label, on other lines only if unavoidable, and as near to
/// the middle as possible.
fn place_labels(wires: &mut [Wire], ends: &[Ends], nodes: &[Rect]) {
    let samples: Vec<Vec<(f64, f64)>> =
        wires.iter().map(|wire| (0..=120).map(|step| point(&wire.points, f64::from(step) / 120.0)).collect()).collect();
    let mut taken: Vec<Rect> = Vec::new();
    for (i, (wire, link)) in wires.iter_mut().zip(ends).enumerate() {
        let area = |t: f64| {
            let (x, y) = point(&wire.points, t);
            // Between neighbours the line is short: its label is above it, elsewhere on it.
            let y = if wire.is_level() { y - LABEL_HEIGHT / 2.0 - 3.0 } else { y };
            Rect {
                x: x - link.label_width / 2.0,
                y: y - LABEL_HEIGHT / 2.0,
                width: link.label_width,
                height: LABEL_HEIGHT,
            }
        };
        let crossed = |area: Rect| {
            samples
                .iter()
                .enumerate()
                .filter(|(j, line)| *j != i && line.iter().any(|&p| area.grown(5.0).contains(p)))
                .count()
        };
        let candidates = (0..=24).map(|step| {
            let off = 0.03 * f64::from((step + 1) / 2);
            (off, area(0.5 + if step % 2 == 0 { off } else { -off }))
        });
        let free =
            candidates.filter(|(_, area)| !taken.iter().chain(nodes).any(|other| area.grown(2.0).overlaps(*other)));
        let cost = |(off, area): &(f64, Rect)| off + crossed(*area) as f64;
        let best = free.min_by(|a, b| cost(a).partial_cmp(&cost(b)).unwrap_or(Ordering::Equal));
        wire.label = best.map(|(_, area)| area);
        taken.extend(wire.label);
    }
}
