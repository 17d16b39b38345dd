//! Squares: one axis in rows, another in columns, and a picture for each combination of the others.

use crate::escape::escape_name;
use crate::html::axis::{Px, Tick};
use crate::{CampaignReport, CellReport};
use askama::Template;

const LEFT: f64 = 200.0;
const SIDE: f64 = 90.0;
const ROW: f64 = 28.0;
const TOP: f64 = 22.0;
/// Most squares on a side, and most pictures: the table has all.
const MOST: usize = 12;

#[derive(Template)]
#[template(path = "campaign_matrix.svg")]
pub(super) struct Matrix {
    label: String,
    width: Px,
    height: Px,
    left: Px,
    side: Px,
    columns: Vec<Tick>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    y: Px,
    text_y: Px,
    squares: Vec<Square>,
}

struct Square {
    x: Px,
    middle: Px,
    share: String,
    hint: String,
    text: String,
}

impl Matrix {
    /// Rows are pinnings if there are some, else the last axis; columns are programs, else the first. None with one axis.
    pub(super) fn all(report: &CampaignReport) -> Vec<Self> {
        let find = |name: &str| report.axes.iter().position(|axis| axis == name);
        let last = report.axes.len().saturating_sub(1);
        let column_axis = find("app").unwrap_or(0);
        let row_axis = find("pinning").unwrap_or(if last == column_axis { 0 } else { last });
        if row_axis == column_axis || report.axes.len() < 2 {
            return Vec::new();
        }
        let rest = |cell: &CellReport| {
            let others = cell.labels.iter().enumerate().filter(|(axis, _)| *axis != row_axis && *axis != column_axis);
            others.map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(", ")
        };
        let labels = |axis: usize| distinct(report.cells.iter().filter_map(|cell| cell.labels.get(axis).cloned()));
        let (rows, columns) = (labels(row_axis), labels(column_axis));
        if rows.len() > MOST || columns.len() > MOST {
            return Vec::new();
        }
        let groups = distinct(report.cells.iter().map(rest));
        let groups = groups.into_iter().take(MOST);
        groups
            .map(|group| {
                let value = |row: &str, column: &str| {
                    let is_it = |cell: &&CellReport| {
                        cell.labels[row_axis] == row && cell.labels[column_axis] == column && rest(cell) == group
                    };
                    report.cells.iter().find(is_it)?.seconds.map(|seconds| seconds.mean)
                };
                Self::new(&group, &rows, &columns, value)
            })
            .collect()
    }

    fn new(label: &str, rows: &[String], columns: &[String], value: impl Fn(&str, &str) -> Option<f64>) -> Self {
        let best = |column: &str| rows.iter().filter_map(|row| value(row, column)).fold(f64::INFINITY, f64::min);
        let square = |row: &str, (index, column): (usize, &String)| {
            let ratio = value(row, column)? / best(column);
            let x = LEFT + index as f64 * SIDE;
            Some(Square {
                x: Px(x),
                middle: Px(x + SIDE / 2.0 - 1.0),
                // Twice the shortest time is the darkest.
                share: format!("{:.2}", (ratio - 1.0).clamp(0.05, 1.0)),
                hint: format!("{} {}: {ratio:.3}", escape_name(row), escape_name(column)),
                text: format!("{ratio:.2}"),
            })
        };
        let row = |(index, name): (usize, &String)| Row {
            name: escape_name(name),
            y: Px(TOP + index as f64 * ROW),
            text_y: Px(TOP + index as f64 * ROW + 17.0),
            squares: columns.iter().enumerate().filter_map(|column| square(name, column)).collect(),
        };
        let tick = |(index, name): (usize, &String)| Tick {
            at: Px(LEFT + (index as f64 + 0.5) * SIDE),
            label: escape_name(name),
        };
        Self {
            label: format!("Time over the shortest of the column. {}", escape_name(label)),
            width: Px(960.0_f64.max(LEFT + columns.len() as f64 * SIDE)),
            height: Px(TOP + rows.len() as f64 * ROW),
            left: Px(LEFT),
            side: Px(SIDE - 2.0),
            columns: columns.iter().enumerate().map(tick).collect(),
            rows: rows.iter().enumerate().map(row).collect(),
        }
    }
}

/// Each text once, in the order of its first appearance.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut known = Vec::new();
    for text in texts {
        if !known.contains(&text) {
            known.push(text);
        }
    }
    known
}
