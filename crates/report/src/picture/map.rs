//! Positions of node boxes, package frames and links.
//!
//! Without links the packages fill rows like words fill lines. With links the nodes are in two rows with a channel in
//! between, where every link between nodes that are not neighbours in a row has a path that crosses no box.

use super::block::columns;
use super::links::{self, Ends, Wire};
use super::scene::Rect;
use machine::PackageId;

const GAP: f64 = 20.0;
/// Gap between neighbours joined by a link: room for its label.
const LINK_GAP: f64 = 92.0;
const FRAME_PAD: f64 = 12.0;
const FRAME_LABEL: f64 = 20.0;
/// The channel grows by this much until every label fits, …
const CHANNEL_STEP: f64 = 30.0;
/// … up to this many times.
const CHANNEL_STEPS: u32 = 12;

/// Nodes (by index) that are drawn together; those of a package have a frame with its ID.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub package: Option<PackageId>,
    pub nodes: Vec<usize>,
}

/// The positions of all parts.
pub(super) struct Places {
    /// By index of the node.
    pub nodes: Vec<Rect>,
    pub frames: Vec<(Rect, PackageId)>,
    pub wires: Vec<Wire>,
    /// The second row's frames have their label below, away from the channel.
    second_row: Option<f64>,
}

impl Places {
    pub fn label_below(&self, frame: Rect) -> bool {
        self.second_row.is_some_and(|y| frame.y > y)
    }
}

pub(super) fn arrange(sizes: &[(f64, f64)], groups: &[Group], ends: &[Ends]) -> Places {
    if ends.is_empty() { without_links(sizes, groups) } else { with_links(sizes, groups, ends) }
}

fn without_links(sizes: &[(f64, f64)], groups: &[Group]) -> Places {
    // Each group as a grid of equal cells, at the origin.
    let grids: Vec<Grid> = groups.iter().map(|group| grid(sizes, group)).collect();
    let area: f64 = grids.iter().map(|(_, (width, height))| (width + GAP) * (height + GAP)).sum();
    let widest = grids.iter().map(|(_, (width, _))| *width).fold(0.0, f64::max);
    let line = (area * 1.5).sqrt().max(widest);
    let mut places = Places { nodes: blank(sizes), frames: Vec::new(), wires: Vec::new(), second_row: None };
    let (mut x, mut y, mut row_height) = (0.0, 0.0, 0.0_f64);
    for (group, (cells, (width, height))) in groups.iter().zip(grids) {
        if x > 0.0 && x + width > line * 1.05 {
            (x, y, row_height) = (0.0, y + row_height + GAP, 0.0);
        }
        for (node, cell) in cells {
            places.nodes.get_mut(node).into_iter().for_each(|place| *place = cell.moved(x, y));
        }
        let frame = Rect { x, y, width, height };
        places.frames.extend(group.package.map(|id| (frame, id)));
        x += width + GAP;
        row_height = row_height.max(height);
    }
    places
}

/// Nodes with their areas in a group's grid, and the grid's width and height.
type Grid = (Vec<(usize, Rect)>, (f64, f64));

fn grid(sizes: &[(f64, f64)], group: &Group) -> Grid {
    let sizes: Vec<(usize, (f64, f64))> =
        group.nodes.iter().filter_map(|&node| Some((node, *sizes.get(node)?))).collect();
    let width = sizes.iter().map(|(_, size)| size.0).fold(0.0, f64::max);
    let tallest = sizes.iter().map(|(_, size)| size.1).fold(0.0, f64::max);
    let (pad, label) = if group.package.is_some() { (FRAME_PAD, FRAME_LABEL) } else { (0.0, 0.0) };
    let columns = columns(sizes.len(), width + GAP, tallest + GAP, 1.6).max(1);
    let rows = sizes.len().div_ceil(columns);
    let place = |(i, (node, (_, height))): (usize, &(usize, (f64, f64)))| {
        let (column, row) = ((i % columns) as f64, (i / columns) as f64);
        let (x, y) = (pad + column * (width + GAP), label + row * (tallest + GAP));
        (*node, Rect { x, y, width, height: *height })
    };
    let cells = sizes.iter().enumerate().map(place).collect();
    let total = (columns as f64 * (width + GAP) - GAP + 2.0 * pad, rows as f64 * (tallest + GAP) - GAP + pad + label);
    (cells, total)
}

fn with_links(sizes: &[(f64, f64)], groups: &[Group], ends: &[Ends]) -> Places {
    let rows = rows(sizes, groups);
    let height = |row: &[(usize, Option<PackageId>)]| {
        row.iter().filter_map(|(node, _)| sizes.get(*node)).map(|size| size.1).fold(0.0, f64::max)
    };
    let joined = |a: usize, b: usize| ends.iter().any(|ends| ends.nodes == [a, b] || ends.nodes == [b, a]);
    // Columns are aligned; the gap after a column is the widest that a row needs there.
    let column_count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let boxes = rows.iter().filter_map(|row| sizes.get(row.get(column)?.0));
        boxes.map(|size| size.0).fold(0.0, f64::max)
    };
    let gap = |column: usize| {
        let pairs = rows.iter().filter_map(|row| row.get(column).zip(row.get(column + 1)));
        let gaps = pairs.map(|((a, framed), (b, other))| {
            let frames = if framed == other { 0 } else { u8::from(framed.is_some()) + u8::from(other.is_some()) };
            f64::from(frames) * FRAME_PAD + if joined(*a, *b) { LINK_GAP } else { GAP }
        });
        gaps.fold(0.0, f64::max)
    };
    let columns: Vec<(f64, f64)> = (0..column_count)
        .scan(0.0, |x, column| {
            let left = *x;
            *x += width(column) + gap(column);
            Some((left, width(column)))
        })
        .collect();
    let top_height = rows.first().map_or(0.0, |row| height(row));
    // A channel that no link needs is as narrow as a gap.
    let neighbours = |ends: &&Ends| {
        rows.iter().any(|row| row.windows(2).any(|pair| pair.iter().all(|(node, _)| ends.nodes.contains(node))))
    };
    let through = ends.len() - ends.iter().filter(neighbours).count();
    let framed =
        if groups.iter().any(|group| group.package.is_some()) && groups.len() > 1 { 2.0 * FRAME_PAD } else { 0.0 };
    let place = |channel: f64| {
        let mut nodes = blank(sizes);
        for (r, row) in rows.iter().enumerate() {
            for ((node, _), (x, width)) in row.iter().zip(&columns) {
                let height = sizes.get(*node).map_or(0.0, |size| size.1);
                let y = if r == 0 { top_height - height } else { top_height + channel };
                nodes.get_mut(*node).into_iter().for_each(|place| *place = Rect { x: *x, y, width: *width, height });
            }
        }
        nodes
    };
    let order: Vec<Vec<usize>> = rows.iter().map(|row| row.iter().map(|(node, _)| *node).collect()).collect();
    let mut channel = if through == 0 { GAP + framed } else { 90.0 + framed + 8.0 * through as f64 };
    let mut nodes = place(channel);
    let mut wires = links::route(&nodes, &order, ends);
    for _ in 0..CHANNEL_STEPS {
        if wires.iter().all(|wire| wire.label.is_some()) {
            break;
        }
        channel += CHANNEL_STEP;
        nodes = place(channel);
        wires = links::route(&nodes, &order, ends);
    }
    let middle = top_height + channel / 2.0;
    let frame = |group: &Group| {
        let id = group.package?;
        let inner = Rect::around(group.nodes.iter().filter_map(|&node| nodes.get(node)).copied())?.grown(FRAME_PAD);
        let y = if inner.y > middle { inner.y } else { inner.y - (FRAME_LABEL - FRAME_PAD) };
        Some((Rect { y, height: inner.height + FRAME_LABEL - FRAME_PAD, ..inner }, id))
    };
    Places { frames: groups.iter().filter_map(frame).collect(), nodes, wires, second_row: Some(middle) }
}

/// A row of nodes, each with the package of its frame.
type Row = Vec<(usize, Option<PackageId>)>;

/// The nodes in at most two rows: whole groups if there are several, split so that the wider row is as narrow as
/// possible.
fn rows(sizes: &[(f64, f64)], groups: &[Group]) -> Vec<Row> {
    let all: Row = groups.iter().flat_map(|group| group.nodes.iter().map(|&node| (node, group.package))).collect();
    if all.len() <= 2 {
        return vec![all];
    }
    let ends = groups.iter().scan(0, |end, group| {
        *end += group.nodes.len();
        Some(*end)
    });
    let width = |row: &[(usize, Option<PackageId>)]| {
        row.iter().filter_map(|(node, _)| sizes.get(*node)).map(|size| size.0 + GAP).sum::<f64>()
    };
    let wider = |cut: usize| {
        let (first, second) = all.split_at(cut);
        width(first).max(width(second))
    };
    let cut = ends.filter(|&cut| cut < all.len()).min_by(|&a, &b| wider(a).total_cmp(&wider(b)));
    let (first, second) = all.split_at(cut.unwrap_or(all.len().div_ceil(2)));
    vec![first.to_vec(), second.to_vec()]
}

fn blank(sizes: &[(f64, f64)]) -> Vec<Rect> {
    sizes.iter().map(|&(width, height)| Rect { x: 0.0, y: 0.0, width, height }).collect()
}
