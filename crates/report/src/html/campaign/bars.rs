//! Horizontal bars with intervals and single values.

use crate::compare::text::duration;
use crate::escape::escape_name;
use crate::explore::text::change;
use crate::html::axis::{Px, Tick, round_values};
use crate::{CampaignReport, CellReport, RankingReport};
use askama::Template;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = WIDTH - 90.0;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
/// Most bars in a picture; the table has all.
const MOST: usize = 120;

#[derive(Template)]
#[template(path = "campaign_bars.svg")]
pub(super) struct Bars {
    label: &'static str,
    width: Px,
    height: Px,
    full_height: Px,
    tick_y: Px,
    left: Px,
    right: Px,
    ticks: Vec<Tick>,
    rows: Vec<Bar>,
}

struct Bar {
    name: String,
    hint: String,
    class: &'static str,
    x: Px,
    y: Px,
    length: Px,
    text_y: Px,
    middle: Px,
    top: Px,
    bottom: Px,
    runs: Vec<Px>,
    interval: Option<(Px, Px)>,
    note: String,
}

/// What a bar shows, in the axis' unit.
struct Value {
    name: String,
    hint: String,
    mean: f64,
    runs: Vec<f64>,
    interval: Option<(f64, f64)>,
    note: String,
}

impl Bars {
    /// The mean time of each cell; `None` without runs.
    pub(super) fn times(report: &CampaignReport) -> Option<Self> {
        let value = |cell: &CellReport| {
            let seconds = cell.seconds?;
            let name = escape_name(&cell.name);
            Some(Value {
                hint: format!("{name}: {}", duration(seconds.mean)),
                name,
                mean: seconds.mean,
                runs: cell.runs.clone(),
                interval: seconds.interval,
                note: cell.relative.map(|ratio| change(ratio.mean)).unwrap_or_default(),
            })
        };
        let values: Vec<Value> = report.cells.iter().filter_map(value).take(MOST).collect();
        let longest = values.iter().flat_map(|value| &value.runs).copied().fold(0.0, f64::max);
        if longest <= 0.0 || !longest.is_finite() {
            return None;
        }
        let (unit, factor) = if longest >= 1.0 { ("s", 1.0) } else { ("ms", 1e3) };
        let ticks = round_values(longest * 1.02 * factor, 8.0);
        let ticks = ticks.into_iter().map(|(at, text)| (at / factor, format!("{text} {unit}"))).collect();
        Some(Self::new("Mean time of each cell", values, (0.0, longest * 1.02), ticks))
    }

    /// The correlation of each metric.
    pub(super) fn ranking(ranking: &RankingReport) -> Option<Self> {
        let value = |ranked: &explore::Ranked| {
            let name = escape_name(&ranked.metric);
            Value {
                hint: format!("{name}: {:.3}", ranked.found.r),
                name,
                mean: ranked.found.r,
                runs: Vec::new(),
                interval: ranked.found.interval,
                note: format!("{:.3}", ranked.found.r),
            }
        };
        let values: Vec<Value> = ranking.metrics.iter().map(value).take(MOST).collect();
        let ticks = [-1.0, -0.5, 0.0, 0.5, 1.0].map(|at| (at, at.to_string())).to_vec();
        (!values.is_empty()).then(|| Self::new("Correlation of each metric with the time", values, (-1.0, 1.0), ticks))
    }

    fn new(label: &'static str, values: Vec<Value>, scale: (f64, f64), ticks: Vec<(f64, String)>) -> Self {
        let part = |value: f64| ((value - scale.0) / (scale.1 - scale.0)).clamp(0.0, 1.0);
        let x = |value: f64| Px(LEFT + (RIGHT - LEFT) * part(value));
        let height = values.len() as f64 * ROW;
        let bar = |(index, value): (usize, Value)| {
            let y = index as f64 * ROW + (ROW - BAR) / 2.0;
            let (from, to) = (x(value.mean.min(0.0)), x(value.mean.max(0.0)));
            Bar {
                name: value.name,
                hint: value.hint,
                class: if value.mean < 0.0 { "k2" } else { "k0" },
                x: from,
                y: Px(y),
                length: Px(to.0 - from.0),
                text_y: Px(y + BAR / 2.0 + 4.0),
                middle: Px(y + BAR / 2.0),
                top: Px(y + BAR / 2.0 - 4.0),
                bottom: Px(y + BAR / 2.0 + 4.0),
                runs: value.runs.iter().map(|run| x(*run)).collect(),
                interval: value.interval.map(|(low, high)| (x(low), x(high))),
                note: value.note,
            }
        };
        Self {
            label,
            width: Px(WIDTH),
            height: Px(height),
            full_height: Px(height + 22.0),
            tick_y: Px(height + 15.0),
            left: Px(LEFT),
            right: Px(RIGHT),
            ticks: ticks.into_iter().map(|(at, label)| Tick { at: x(at), label }).collect(),
            rows: values.into_iter().enumerate().map(bar).collect(),
        }
    }
}
