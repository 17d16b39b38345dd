//! The whole picture as positioned shapes, in drawing order. Independent of SVG.
//!
//! The files of this folder use each other, because sizes and positions depend on each other: the parts are measured
//! and drawn as this file's shapes, and this file asks each part for its size before it places any.

use super::block::{self, Block};
use super::facts::Facts;
use super::heat::{self, Heat, HeatMap};
use super::{links, map};
use crate::columns;
use machine::number::{bandwidth, counted};
use machine::{LinkDirection, Machine};

/// Above this many nodes boxes are unreadable: only the heat map and a summary are drawn.
const MOST_BOXES: usize = 32;
pub(super) const MARGIN: f64 = 24.0;
/// The shape, width over height, that fits a page or a screen: it determines whether the heat map is beside or below
/// the nodes.
const ASPECT: f64 = 1.5;

/// An axis-parallel rectangle, px.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn right(self) -> f64 {
        self.x + self.width
    }

    pub fn bottom(self) -> f64 {
        self.y + self.height
    }

    pub fn centre(self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.x < other.right() && other.x < self.right() && self.y < other.bottom() && other.y < self.bottom()
    }

    pub fn contains(self, (x, y): (f64, f64)) -> bool {
        self.x <= x && x <= self.right() && self.y <= y && y <= self.bottom()
    }

    pub fn grown(self, by: f64) -> Self {
        Self { x: self.x - by, y: self.y - by, width: self.width + 2.0 * by, height: self.height + 2.0 * by }
    }

    pub fn moved(self, x: f64, y: f64) -> Self {
        Self { x: self.x + x, y: self.y + y, ..self }
    }

    /// The smallest rectangle that contains all of these.
    pub fn around(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|a, b| {
            let (x, y) = (a.x.min(b.x), a.y.min(b.y));
            Self { x, y, width: a.right().max(b.right()) - x, height: a.bottom().max(b.bottom()) - y }
        })
    }
}

/// The meaning of a shape; the writer chooses its colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Package,
    Node,
    Memory,
    Absent,
    Shared,
    Private,
    Core,
    Link,
    OneWay,
    Behind,
    Heading,
    NodeTitle,
    Label,
    Note,
}

/// One thing to draw.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A rounded rectangle.
    Box { area: Rect, style: Style },
    /// One line of text; `anchor` 0 is its left end at `x`, 1 its right end, 0.5 its middle; `y` is the baseline.
    Text { x: f64, y: f64, size: f64, anchor: f64, style: Style, text: String },
    /// A cubic Bézier curve, with an arrow head at its end if `arrow`.
    Curve { points: links::Points, width: f64, style: Style, arrow: bool },
    /// A square of the heat map; `heat` is 0 for the nearest, 1 for the farthest, `None` if the value is unknown or the
    /// node unreachable.
    Heat { area: Rect, heat: Option<f64>, hint: String },
    /// A piece of a strip; `colour` is an index in the order of colours.
    Cell { area: Rect, colour: usize, hint: String },
    /// A text on a heat square.
    HeatText { x: f64, y: f64, size: f64, heat: Option<f64>, text: String },
}

impl Shape {
    pub fn text(x: f64, y: f64, size: f64, style: Style, text: &str) -> Self {
        Self::Text { x, y, size, anchor: 0.0, style, text: text.to_owned() }
    }

    pub fn anchored(mut self, to: f64) -> Self {
        if let Self::Text { anchor, .. } = &mut self {
            *anchor = to;
        }
        self
    }
}

/// Upper bound of a text's width, px: the widest common sans-serif font (`DejaVu` Sans) has 0.63 em per character on
/// average; wide characters have twice that.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    columns::width(text) as f64 * size * 0.63
}

/// A finished picture.
pub(super) struct Scene {
    pub title: String,
    pub summary: String,
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
}

pub(super) fn of(machine: &Machine) -> Scene {
    let facts = Facts::new(machine);
    let mut shapes = Vec::new();
    let summary = facts.summary();
    let nodes = nodes(&facts, &mut shapes);
    // Up to here the origin is the map's; the header's height depends on the width available for text.
    let heat = heat::of_machine(&facts);
    let gap = if nodes.width > 0.0 { 48.0 } else { 0.0 };
    let beside = heat.as_ref().is_none_or(|Heat { area, .. }| {
        let beside = (nodes.width + gap + area.width) / (nodes.height.max(area.height) + 100.0);
        let below = nodes.width.max(area.width) / (nodes.height + gap + area.height + 100.0);
        (beside / ASPECT).ln().abs() <= (below / ASPECT).ln().abs()
    });
    let width = match &heat {
        Some(heat) if beside => nodes.width + gap + heat.area.width,
        Some(heat) => nodes.width.max(heat.area.width),
        None => nodes.width,
    };
    let width = width.max(360.0);
    let header = header(machine, &summary, width);
    let top = Rect::around(header.iter().filter_map(text_area)).map_or(0.0, Rect::bottom) + 20.0;
    let mut bottom = top + nodes.height;
    let mut all = header;
    all.extend(shapes.into_iter().map(|shape| shape.moved(-nodes.x, top - nodes.y)));
    if let Some(heat) = heat {
        let (x, y) = if beside { ((nodes.width + gap).round(), top.round()) } else { (0.0, (bottom + 32.0).round()) };
        bottom = bottom.max(y + heat.area.height);
        all.extend(heat.shapes.into_iter().map(|shape| shape.moved(x - heat.area.x, y - heat.area.y)));
    }
    let shapes = all.into_iter().map(|shape| shape.moved(MARGIN, MARGIN)).collect();
    Scene { title: machine.name.clone(), summary, width: width + 2.0 * MARGIN, height: bottom + 2.0 * MARGIN, shapes }
}

/// Heat maps alone, in rows that make the picture about as wide as a page.
pub(super) fn of_heat_maps(title: &str, summary: &str, maps: Vec<HeatMap>) -> Scene {
    let heats: Vec<Heat> = maps.into_iter().filter_map(heat::draw).collect();
    let widest = heats.iter().map(|heat| heat.area.width).fold(0.0, f64::max);
    let columns = (heats.len() as f64 * ASPECT).sqrt().ceil().max(1.0) as usize;
    let gap = 48.0;
    let mut shapes =
        vec![Shape::text(0.0, 18.0, 20.0, Style::Heading, title), Shape::text(0.0, 38.0, 12.0, Style::Note, summary)];
    let mut bottom: f64 = 58.0;
    for row in heats.chunks(columns) {
        let top = bottom;
        for (column, heat) in row.iter().enumerate() {
            let x = column as f64 * (widest + gap);
            bottom = bottom.max(top + heat.area.height + gap);
            shapes.extend(heat.shapes.iter().map(|shape| shape.clone().moved(x - heat.area.x, top - heat.area.y)));
        }
    }
    let width = Rect::around(shapes.iter().filter_map(text_area)).map_or(360.0, Rect::right);
    let width = width.max(heats.len().min(columns) as f64 * (widest + gap) - gap);
    let shapes = shapes.into_iter().map(|shape| shape.moved(MARGIN, MARGIN)).collect();
    let (title, summary) = (title.to_owned(), summary.to_owned());
    Scene { title, summary, width: width + 2.0 * MARGIN, height: bottom + 2.0 * MARGIN - gap, shapes }
}

/// Name, description and summary, the description wrapped.
fn header(machine: &Machine, summary: &str, width: f64) -> Vec<Shape> {
    let mut shapes = vec![Shape::text(0.0, 18.0, 20.0, Style::Heading, &machine.name)];
    let mut y = 38.0;
    let mut line = String::new();
    let words = machine.description.split_whitespace().map(Some).chain([None]);
    for word in words {
        let full = word.is_none_or(|word| text_width(&line, 12.0) + text_width(word, 12.0) > width);
        if full && !line.is_empty() {
            shapes.push(Shape::text(0.0, y, 12.0, Style::Label, line.trim_end()));
            line.clear();
            y += 16.0;
        }
        line += &word.map(|word| format!("{word} ")).unwrap_or_default();
    }
    shapes.push(Shape::text(0.0, y, 12.0, Style::Note, summary));
    shapes
}

/// Draws the nodes and links (or, for large machines, a summary of them); returns their area.
fn nodes(facts: &Facts, shapes: &mut Vec<Shape>) -> Rect {
    let machine = facts.machine;
    if machine.nodes.len() > MOST_BOXES {
        for (i, group) in facts.alike(false).iter().take(MOST_BOXES).enumerate() {
            let mut parts = vec![counted(group.look.cpus, "CPU")];
            parts.extend(
                [&group.look.memory, &group.look.bandwidth].into_iter().filter(|part| !part.is_empty()).cloned(),
            );
            let line = format!("{} of {}", counted(group.nodes.len(), "node"), parts.join(", "));
            shapes.push(Shape::text(0.0, 12.0 + 18.0 * i as f64, 12.0, Style::Label, &line));
        }
        let links = counted(machine.links.len(), "link");
        let y = shapes.len() as f64 * 18.0 + 12.0;
        shapes.extend((!machine.links.is_empty()).then(|| Shape::text(0.0, y, 12.0, Style::Label, &links)));
        return Rect::around(shapes.iter().filter_map(text_area)).unwrap_or(Rect {
            x: 0.0,
            y: 0.0,
            width: 0.0,
            height: 0.0,
        });
    }
    let blocks = block::of_nodes(facts);
    let sizes = alike_widths(&blocks);
    let ends = links::ends(machine);
    let places = map::arrange(&sizes, &facts.node_groups(), &ends);
    for (area, id) in &places.frames {
        shapes.push(Shape::Box { area: *area, style: Style::Package });
        let y = if places.label_below(*area) { area.bottom() - 6.0 } else { area.y + 14.0 };
        shapes.push(Shape::text(area.x + 10.0, y, 11.0, Style::Note, &format!("package {id}")));
    }
    for wire in &places.wires {
        let Some(link) = machine.links.get(wire.link) else { continue };
        let one_way = link.direction == LinkDirection::Forward;
        let style = if one_way { Style::OneWay } else { Style::Link };
        let width = links::width(machine, link.bandwidth_bytes_per_s);
        shapes.push(Shape::Curve { points: wire.points, width, style, arrow: one_way });
    }
    for (wire, area) in places.wires.iter().filter_map(|wire| Some((wire, wire.label?))) {
        let Some(link) = machine.links.get(wire.link) else { continue };
        shapes.extend((!wire.is_level()).then_some(Shape::Box { area, style: Style::Behind }));
        let (x, y) = area.centre();
        shapes.push(
            Shape::text(x, y + 4.0, links::LABEL_FONT, Style::Label, &bandwidth(link.bandwidth_bytes_per_s))
                .anchored(0.5),
        );
    }
    blocks.iter().zip(&places.nodes).for_each(|(block, area)| block.place(*area, shapes));
    let mut area = Rect::around(places.nodes.iter().copied().chain(places.frames.iter().map(|(area, _)| *area)))
        .unwrap_or(Rect { x: 0.0, y: 0.0, width: 0.0, height: 0.0 });
    for line in legend(facts, &places) {
        let y = area.bottom() + 24.0;
        let text = Shape::text(area.x, y, 11.0, Style::Note, &line);
        area = Rect::around([Some(area), text_area(&text)].into_iter().flatten()).unwrap_or(area);
        shapes.push(text);
    }
    area
}

/// The sizes of the nodes' boxes: those with CPUs are equally wide, and so are those without.
fn alike_widths(blocks: &[Block]) -> Vec<(f64, f64)> {
    let sizes: Vec<_> = blocks.iter().map(|block| (block.children.is_empty(), block.size())).collect();
    let width =
        |bare: bool| sizes.iter().filter(|(other, _)| *other == bare).map(|(_, size)| size.0).fold(0.0, f64::max);
    let (full, bare) = (width(false), width(true));
    sizes.iter().map(|(is_bare, size)| (if *is_bare { bare } else { full }, size.1)).collect()
}

/// What the boxes and lines do not show by themselves.
fn legend(facts: &Facts, places: &map::Places) -> Vec<String> {
    let mut lines = facts.caches_beyond_nodes();
    if !places.wires.is_empty() {
        let one_way = facts.machine.links.iter().any(|link| link.direction == LinkDirection::Forward);
        let arrows = if one_way { ", an arrow where it carries accesses one way only" } else { "" };
        let labels = if places.wires.iter().any(|wire| wire.label.is_none()) { "; some labels left out" } else { "" };
        lines.push(format!("line: a link, as wide as its bandwidth each way{arrows}{labels}"));
    }
    lines
}

/// Upper bound of a text's area.
pub(super) fn text_area(shape: &Shape) -> Option<Rect> {
    let Shape::Text { x, y, size, anchor, text, .. } = shape else { return None };
    let width = text_width(text, *size);
    Some(Rect { x: x - anchor * width, y: y - size, width, height: size * 1.3 })
}

impl Shape {
    pub(super) fn moved(mut self, dx: f64, dy: f64) -> Self {
        match &mut self {
            Self::Box { area, .. } | Self::Heat { area, .. } | Self::Cell { area, .. } => *area = area.moved(dx, dy),
            Self::Text { x, y, .. } | Self::HeatText { x, y, .. } => (*x, *y) = (*x + dx, *y + dy),
            Self::Curve { points, .. } => *points = points.map(|(x, y)| (x + dx, y + dy)),
        }
        self
    }
}
