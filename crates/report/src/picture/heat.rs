//! Heat maps of values by pair of nodes: a machine's latencies or, if those are unknown, its firmware distances; and
//! other values.

use super::facts::Facts;
use super::scene::{Rect, Shape, Style, text_area, text_width};
use super::units;
use machine::NodeId;

/// Above this many nodes a square shows the mean of several pairs.
const MOST_SQUARES: usize = 96;
/// Above this many nodes the squares are too small for a number.
const MOST_NUMBERS: usize = 24;
/// The firmware distance of an unreachable node.
const UNREACHABLE: f64 = 255.0;

/// Columns of maps of accesses to memory.
pub(crate) const MEMORY: &str = "memory of node";

/// A finished heat map with its own origin.
pub(super) struct Heat {
    pub area: Rect,
    pub shapes: Vec<Shape>,
}

/// Values by pair of nodes, drawn as coloured squares.
#[derive(Clone, Debug)]
pub struct HeatMap<'a> {
    /// The quantity, with its unit.
    pub title: &'a str,
    /// What the columns are, such as `memory of node`; rows are CPUs of nodes.
    pub columns: &'a str,
    /// The nodes of rows and columns.
    pub nodes: &'a [NodeId],
    /// Rows are the accessing nodes; `None` if unknown. Rows of which nothing is known are left out.
    pub values: Vec<Vec<Option<f64>>>,
    /// Whether larger values are better: bandwidth, not latency. Dark is bad.
    pub more_is_better: bool,
    /// The least and the greatest value of the scale; none to take those of the map. Maps that are compared share one.
    pub scale: Option<(f64, f64)>,
    /// Formats a value.
    pub show: fn(f64) -> String,
}

/// The heat map of a machine's picture.
pub(super) fn of_machine(facts: &Facts) -> Option<Heat> {
    let (title, values, show) = values(facts).filter(|_| facts.machine.nodes.len() > 1)?;
    let nodes: Vec<NodeId> = facts.machine.nodes.iter().map(|node| node.id).collect();
    draw(HeatMap { title, columns: MEMORY, nodes: &nodes, values, more_is_better: false, scale: None, show })
}

/// `None` if no value is known.
pub(super) fn draw(map: HeatMap) -> Option<Heat> {
    let HeatMap { title, columns, nodes: all, values, more_is_better, scale, show } = map;
    let nodes = values.len();
    let values = thinned(values);
    let squares = values.len();
    let block = block(nodes);
    let known = || values.iter().flatten().filter_map(|value| *value);
    let own = (known().min_by(f64::total_cmp)?, known().max_by(f64::total_cmp)?);
    let (least, most) = scale.unwrap_or(own);
    let widest = known().map(|value| show(value).len()).max().unwrap_or(2) as f64;
    let numbers = nodes <= MOST_NUMBERS;
    let font = if nodes <= 8 { 12.0 } else { 10.0 };
    let side =
        if numbers { (widest * font * 0.63 + 10.0).max(26.0) } else { (520.0 / squares as f64).floor().max(3.0) };
    // The darkest colour means the farthest memory, but at least twice the nearest (half the best): small differences
    // must look small.
    let (best, worst) = if more_is_better { (most, least) } else { (least, most) };
    let span = (most - least).max(if more_is_better { most / 2.0 } else { least }).max(f64::MIN_POSITIVE);
    let heat = |value: f64| (value - best).abs() / span;
    let ids: Vec<String> = all.iter().map(ToString::to_string).collect();
    let left = 60.0;
    let top = 62.0;
    let mut shapes = vec![
        Shape::text(0.0, 14.0, 13.0, Style::NodeTitle, title),
        Shape::text(left, 36.0, 11.0, Style::Note, columns),
        Shape::text(0.0, top - 8.0, 11.0, Style::Note, "CPUs of"),
    ];
    let is_known = |(_, row): &(usize, &Vec<Option<f64>>)| !numbers || row.iter().any(Option::is_some);
    let rows: Vec<(usize, &Vec<Option<f64>>)> = values.iter().enumerate().filter(is_known).collect();
    for (y, (r, row)) in rows.iter().enumerate().map(|(shown, row)| (top + shown as f64 * side, row)) {
        let r = *r;
        let mut column = 0;
        while let Some(&value) = row.get(column) {
            // Equal squares without numbers are merged into one stripe: a thousand nodes must not make a million
            // rectangles.
            let same = if numbers { 1 } else { row.iter().skip(column).take_while(|other| **other == value).count() };
            let gap = if numbers { 2.0 } else { 0.0 };
            let area = Rect { x: left + column as f64 * side, y, width: side * same as f64 - gap, height: side - gap };
            let text = value.map_or_else(|| "none".to_owned(), &show);
            let hint = match (ids.get(r), ids.get(column)) {
                (Some(from), Some(to)) if numbers => format!("CPUs of node {from}, {columns} {to}: {text}"),
                _ => String::new(),
            };
            shapes.push(Shape::Heat { area, heat: value.map(heat), hint });
            if numbers {
                let (x, y) = area.centre();
                let text = value.map_or_else(String::new, &show);
                shapes.push(Shape::HeatText { x, y: y + font * 0.35, size: font, heat: value.map(heat), text });
            }
            column += same;
        }
    }
    // IDs along the edges: all of them, or those that fit.
    let every = (if numbers { 1 } else { (34.0 / side).ceil() as usize }) * block;
    for (index, id) in ids.iter().enumerate().step_by(every.max(1)) {
        let at = (index / block.max(1)) as f64 * side + side / 2.0;
        shapes.push(Shape::text(left + at - 1.0, top - 8.0, 11.0, Style::Label, id).anchored(0.5));
        if !numbers {
            shapes.push(Shape::text(left - 8.0, top + at + 3.0, 11.0, Style::Label, id).anchored(1.0));
        }
    }
    for (shown, (row, _)) in rows.iter().enumerate().filter(|_| numbers) {
        let (y, id) = (top + (shown as f64 + 0.5) * side + 3.0, ids.get(*row).map_or("", String::as_str));
        shapes.push(Shape::text(left - 8.0, y, 11.0, Style::Label, &format!("node {id}")).anchored(1.0));
    }
    let below = top + rows.len() as f64 * side + 10.0;
    legend(&mut shapes, (left, below), &show(best), &show(worst), heat(worst));
    if block > 1 {
        let text = format!("each square: the mean of {block} x {block} pairs of nodes");
        shapes.push(Shape::text(left, below + 44.0, 11.0, Style::Note, &text));
    }
    let boxes = shapes.iter().filter_map(|shape| match shape {
        Shape::Heat { area, .. } => Some(*area),
        text => text_area(text),
    });
    Some(Heat { area: Rect::around(boxes)?, shapes })
}

/// The scale from the best value to the worst.
fn legend(shapes: &mut Vec<Shape>, (x, y): (f64, f64), best: &str, worst: &str, hottest: f64) {
    if hottest <= 0.0 {
        return;
    }
    let steps = 24;
    let first = x + text_width(best, 11.0) + 8.0;
    shapes.push(Shape::text(x, y + 10.0, 11.0, Style::Label, best));
    for step in 0..steps {
        let area = Rect { x: first + f64::from(step) * 5.0, y, width: 5.0, height: 12.0 };
        shapes.push(Shape::Heat {
            area,
            heat: Some(hottest * f64::from(step) / f64::from(steps - 1)),
            hint: String::new(),
        });
    }
    shapes.push(Shape::text(first + f64::from(steps) * 5.0 + 8.0, y + 10.0, 11.0, Style::Label, worst));
}

type Values = Vec<Vec<Option<f64>>>;
type Show = fn(f64) -> String;

fn values(facts: &Facts) -> Option<(&'static str, Values, Show)> {
    if let Some(latency) = facts.latency_ns() {
        return Some(("Idle memory latency, ns", latency, units::ns));
    }
    let distances = &facts.machine.distances.as_ref()?.matrix;
    let value = |&distance: &u32| Some(f64::from(distance)).filter(|distance| *distance < UNREACHABLE);
    let has_cpus = facts.machine.nodes.iter().map(|node| !node.cpus.is_empty());
    let row =
        |(row, has_cpus): (&Vec<u32>, bool)| row.iter().map(|distance| value(distance).filter(|_| has_cpus)).collect();
    let rows = distances.iter().zip(has_cpus).map(row).collect();
    Some(("Firmware distances, 10 is local", rows, |value| format!("{value:.0}")))
}

/// The number of rows and columns per square: a power of two, like the numbers of nodes of large machines.
fn block(nodes: usize) -> usize {
    nodes.div_ceil(MOST_SQUARES).next_power_of_two()
}

/// At most [`MOST_SQUARES`] rows and columns: each the mean of a block's known values.
fn thinned(values: Values) -> Values {
    let block = block(values.len());
    if block <= 1 {
        return values;
    }
    let row = |rows: &[Vec<Option<f64>>]| {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0).div_ceil(block);
        let square = |column: usize| {
            let cells =
                rows.iter().flat_map(|row| row.iter().skip(column * block).take(block)).filter_map(|value| *value);
            let (count, sum) = cells.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
            (count > 0).then(|| sum / f64::from(count))
        };
        (0..columns).map(square).collect()
    };
    values.chunks(block).map(row).collect()
}
