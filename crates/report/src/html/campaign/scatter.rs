//! A metric and the time of each run.

use crate::RankingReport;
use crate::escape::escape_name;
use crate::html::axis::{Px, Tick};
use crate::profile::text::time;
use askama::Template;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = WIDTH - 30.0;
const HEIGHT: f64 = 300.0;
/// Distance of the outermost points from the edges.
const INSET: f64 = 12.0;
/// Most points drawn: each n-th of more.
const MOST: usize = 4000;

#[derive(Template)]
#[template(path = "campaign_scatter.svg")]
pub(super) struct Scatter {
    label: String,
    width: Px,
    height: Px,
    full_height: Px,
    left: Px,
    right: Px,
    middle: Px,
    tick_y: Px,
    label_y: Px,
    x_label: String,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    points: Vec<(Px, Px)>,
}

impl Scatter {
    /// `None` without points.
    pub(super) fn new(ranking: &RankingReport) -> Option<Self> {
        let xs = range(ranking.points.iter().map(|(x, _)| *x))?;
        let ys = range(ranking.points.iter().map(|(_, y)| *y))?;
        let x = |value: f64| Px(LEFT + INSET + (RIGHT - LEFT - 2.0 * INSET) * part(value, xs));
        let y = |value: f64| Px(HEIGHT - INSET - (HEIGHT - 2.0 * INSET) * part(value, ys));
        let at = |range: (f64, f64)| [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| range.0 + (range.1 - range.0) * part);
        let metric = escape_name(&ranking.metric);
        let step = ranking.points.len().div_ceil(MOST).max(1);
        Some(Self {
            label: format!("{metric} and time of each run"),
            width: Px(WIDTH),
            height: Px(HEIGHT),
            full_height: Px(HEIGHT + 40.0),
            left: Px(LEFT),
            right: Px(RIGHT),
            middle: Px(f64::midpoint(LEFT, RIGHT)),
            tick_y: Px(HEIGHT + 15.0),
            label_y: Px(HEIGHT + 33.0),
            x_label: metric,
            x_ticks: at(xs).map(|value| Tick { at: x(value), label: format!("{value:.3}") }).to_vec(),
            y_ticks: at(ys).map(|value| Tick { at: y(value), label: time((value * 1e9).round() as u64) }).to_vec(),
            points: ranking.points.iter().step_by(step).map(|(a, b)| (x(*a), y(*b))).collect(),
        })
    }
}

/// The least and the greatest value; wider if they are equal.
fn range(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let least = values.clone().min_by(f64::total_cmp)?;
    let most = values.max_by(f64::total_cmp)?;
    if !(least.is_finite() && most.is_finite()) {
        return None;
    }
    Some(if most > least { (least, most) } else { (least - least.abs() / 2.0 - 1e-9, most + most.abs() / 2.0 + 1e-9) })
}

fn part(value: f64, (least, most): (f64, f64)) -> f64 {
    ((value - least) / (most - least)).clamp(0.0, 1.0)
}
