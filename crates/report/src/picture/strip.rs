//! Address ranges as strips of cells, coloured by the node of their memory.

use super::scene::{MARGIN, Rect, Scene, Shape, Style, text_area};
use super::svg::MIXED;
use machine::NodeId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

const CELL: f64 = 10.0;
const CELL_HEIGHT: f64 = 16.0;
/// Left edge of the cells, right of the addresses.
const LEFT: f64 = 112.0;
/// Height of a row of cells and of a heading.
const ROW: f64 = 20.0;
/// Height of a note, below its heading.
const NOTE: f64 = 16.0;
/// Width of a legend entry, and entries per line.
const ENTRY: f64 = 96.0;
const ENTRIES: usize = 8;

/// The node of a cell's memory. In JSON the node's number, or `mixed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// More than half of it is on this node.
    Node(NodeId),
    /// It is on several nodes, with at most half on any of them.
    Mixed,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Mixed => f.write_str("mixed"),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Node(node) => node.serialize(serializer),
            Self::Mixed => serializer.serialize_str("mixed"),
        }
    }
}

/// A range of addresses, as rows of cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    /// The title of the range.
    pub title: String,
    /// A note, in smaller letters.
    pub note: String,
    /// The address at which each row begins, as text, and the place of each of its cells; `None` if there is no memory.
    pub rows: Vec<(String, Vec<Option<Place>>)>,
}

/// All strips below each other, with a legend of the nodes.
pub(super) fn of_strips(title: &str, summary: &str, strips: &[Strip]) -> Scene {
    let mut shapes =
        vec![Shape::text(0.0, 18.0, 20.0, Style::Heading, title), Shape::text(0.0, 38.0, 12.0, Style::Note, summary)];
    let cells = || strips.iter().flat_map(|strip| &strip.rows).flat_map(|(_, cells)| cells);
    // A node has the same colour in every picture.
    let colour = |place: &Place| match place {
        Place::Node(node) => node.0 as usize,
        Place::Mixed => MIXED,
    };
    let colours: BTreeMap<Place, usize> = cells().flatten().map(|place| (*place, colour(place))).collect();
    for (entry, (place, &colour)) in colours.iter().enumerate() {
        let (x, y) = ((entry % ENTRIES) as f64 * ENTRY, 54.0 + (entry / ENTRIES) as f64 * ROW);
        let area = Rect { x, y, width: CELL_HEIGHT, height: CELL_HEIGHT };
        shapes.push(Shape::Cell { area, colour, hint: place.to_string() });
        shapes.push(Shape::text(x + 22.0, y + 12.0, 11.0, Style::Label, &place.to_string()));
    }
    let mut y = 62.0 + colours.len().div_ceil(ENTRIES) as f64 * ROW;
    for strip in strips {
        shapes.push(Shape::text(0.0, y + 12.0, 12.0, Style::NodeTitle, &strip.title));
        shapes.push(Shape::text(LEFT, y + 28.0, 11.0, Style::Note, &strip.note));
        y += ROW + NOTE;
        for (label, cells) in &strip.rows {
            shapes.push(Shape::text(LEFT - 8.0, y + 12.0, 11.0, Style::Label, label).anchored(1.0));
            let width = cells.len() as f64 * CELL;
            let behind = Rect { x: LEFT, y, width, height: CELL_HEIGHT };
            shapes.push(Shape::Box { area: behind, style: Style::Absent });
            shapes.extend(row(cells, y, &colours));
            y += ROW;
        }
        y += 8.0;
    }
    let areas = shapes.iter().filter_map(|shape| match shape {
        Shape::Box { area, .. } => Some(*area),
        text => text_area(text),
    });
    let width = Rect::around(areas).map_or(0.0, Rect::right);
    let shapes = shapes.into_iter().map(|shape| shape.moved(MARGIN, MARGIN)).collect();
    let (title, summary) = (title.to_owned(), summary.to_owned());
    Scene { title, summary, width: width + 2.0 * MARGIN, height: y + 2.0 * MARGIN, shapes }
}

/// Neighbouring cells of one place are one rectangle.
fn row(cells: &[Option<Place>], y: f64, colours: &BTreeMap<Place, usize>) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut before = 0;
    for same in cells.chunk_by(|one, next| one == next) {
        let place = same.first().copied().flatten();
        if let Some((place, &colour)) = place.and_then(|place| colours.get_key_value(&place)) {
            let area = Rect { x: LEFT + before as f64 * CELL, y, width: same.len() as f64 * CELL, height: CELL_HEIGHT };
            shapes.push(Shape::Cell { area, colour, hint: place.to_string() });
        }
        before += same.len();
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::super::strips_to_svg;
    use super::*;

    #[test]
    fn neighbours_share_a_rectangle_and_each_node_has_a_colour() {
        let cells = [0, 0, 7, 7, 0].map(|node| Some(Place::Node(NodeId(node))));
        let strips = [Strip {
            title: "7f00-7f05 <heap>".into(),
            note: "five & three cells".into(),
            rows: vec![
                ("7f00".into(), cells.to_vec()),
                ("7f05".into(), vec![None, Some(Place::Node(NodeId(7))), Some(Place::Mixed)]),
            ],
        }];
        let scene = of_strips("process 7", "", &strips);
        let cells = |colour| {
            let is = |shape: &&Shape| matches!(shape, Shape::Cell { colour: other, .. } if *other == colour);
            scene.shapes.iter().filter(is).count()
        };
        // One of each belongs to the legend.
        assert_eq!((cells(0), cells(7), cells(MIXED), cells(1)), (3, 3, 2, 0));
        let inside = Rect { x: 0.0, y: 0.0, width: scene.width, height: scene.height };
        for shape in &scene.shapes {
            let area = match shape {
                Shape::Cell { area, .. } => Some(*area),
                text => text_area(text),
            };
            assert!(
                area.is_none_or(
                    |area| inside.contains((area.x, area.y)) && inside.contains((area.right(), area.bottom()))
                )
            );
        }
        let svg = strips_to_svg("process 7", "", &strips);
        assert!(
            svg.contains("&lt;heap&gt;")
                && svg.contains("five &amp; three")
                && svg.contains("<title>mixed</title>")
                && svg.matches("<title>node 7</title>").count() == 3,
            "{svg}"
        );
    }
}
