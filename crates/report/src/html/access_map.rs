//! The access map: accesses by address and time, with their kind and distance.

use super::axis::{AXIS_HEIGHT, AddressAxis, LEFT, Piece, Px, RIGHT, Span, TIME_LABEL, Tick, TimeAxis, WIDTH};
use super::marks::{Gathered, Look, Marks};
use crate::escape::escape_name;
use crate::subsample::subsample;
use askama::Template;
use machine::{NodeId, size};
use profile::{Access, ObjectId, ProcessId, View, leaves_caches};
use std::collections::{BTreeMap, BTreeSet};

/// Most accesses that are drawn.
const MOST_DOTS: usize = 8000;
/// Most processes that are drawn: those with the most accesses.
const MOST_PROCESSES: usize = 8;
/// Number of bars next to each other.
const LANES: usize = 4;
const LANE: f64 = 14.0;
/// Where bars begin: right of the address labels.
const BARS: f64 = LEFT - LANES as f64 * LANE - 8.0;
const HEIGHT: f64 = 420.0;
/// Length of a store's stroke, px.
const STROKE: f64 = 5.0;
/// Least distance of two address labels, px.
const LABEL: f64 = 12.0;

/// The picture, written by its template.
#[derive(Debug, Template)]
#[template(path = "access_map.svg")]
pub(super) struct AccessMap {
    width: Px,
    left: Px,
    plot_width: Px,
    height: Px,
    full_height: Px,
    tick_y: Px,
    middle: Px,
    time_label: &'static str,
    ticks: Vec<Tick>,
    areas: Vec<Area>,
    bars: Vec<Bar>,
    marks: Vec<Marks>,
    /// Number of accesses.
    pub all: usize,
    /// Number of accesses that are drawn.
    pub drawn: usize,
    /// Processes that are not drawn.
    pub left_out_processes: usize,
    /// Objects whose bars do not fit.
    pub left_out_bars: usize,
}

/// Used addresses.
#[derive(Debug)]
struct Area {
    y: Px,
    height: Px,
    labels: Vec<Tick>,
    hint: String,
}

/// The bar of a part of an object.
#[derive(Debug)]
struct Bar {
    x: Px,
    y: Px,
    height: Px,
    colour: String,
    /// Its number in the table of objects, if there is room.
    number: String,
    middle: Px,
    at: Px,
    hint: String,
}

impl AccessMap {
    /// Of a view, with bars of these objects, each with its number and name. None if no access left its core.
    pub fn new(view: &View, objects: &[(ObjectId, String)], span: Span) -> Option<Self> {
        let profile = view.profile();
        let process = |access: &Access| profile.threads().get(access.thread.0 as usize).map(|thread| thread.process);
        let mut counts: BTreeMap<ProcessId, usize> = BTreeMap::new();
        for process in view.accesses().filter(is_mapped).filter_map(|access| process(&access)) {
            *counts.entry(process).or_default() += 1;
        }
        let mut by_use: Vec<(ProcessId, usize)> = counts.into_iter().collect();
        by_use.sort_by_key(|&(process, count)| (std::cmp::Reverse(count), process));
        let left_out_processes = by_use.len().saturating_sub(MOST_PROCESSES);
        by_use.truncate(MOST_PROCESSES);
        let all: usize = by_use.iter().map(|(_, count)| count).sum();
        let shown: BTreeSet<ProcessId> = by_use.iter().map(|(process, _)| *process).collect();
        let is_drawn = |access: &Access| is_mapped(access) && process(access).is_some_and(|id| shown.contains(&id));
        let dots: Vec<(ProcessId, Access)> = subsample(view.accesses().filter(is_drawn), all, MOST_DOTS)
            .filter_map(|access| Some((process(&access)?, access)))
            .collect();
        dots.first()?;
        let times = TimeAxis::new(span);
        let axis = AddressAxis::new(dots.iter().map(|(process, access)| (*process, access.address)).collect(), HEIGHT);
        let mut gathered = Gathered::default();
        for (process, access) in &dots {
            if let Some(y) = axis.y(*process, access.address) {
                gathered.add(Look::new(access), times.x(access.time_ns), y, STROKE);
            }
        }
        let (bars, left_out_bars) = bars(view, objects, &axis);
        Some(Self {
            width: Px(WIDTH),
            left: Px(LEFT),
            plot_width: Px(RIGHT - LEFT),
            middle: Px(f64::midpoint(LEFT, RIGHT)),
            time_label: TIME_LABEL,
            height: Px(axis.height),
            full_height: Px(axis.height + AXIS_HEIGHT),
            tick_y: Px(axis.height + 14.0),
            ticks: times.ticks(),
            areas: areas(view, &axis, shown.len() > 1),
            bars,
            marks: gathered.marks(),
            all,
            drawn: dots.len(),
            left_out_processes,
            left_out_bars,
        })
    }
}

fn is_mapped(access: &Access) -> bool {
    leaves_caches(access.served) && !machine::is_kernel_address(access.address)
}

fn areas(view: &View, axis: &AddressAxis, name_processes: bool) -> Vec<Area> {
    // The lowest label so far.
    let mut free = f64::INFINITY;
    let area = |piece: &Piece| {
        let summary = view.profile().process_summary(piece.process);
        let pid = summary.as_ref().map_or(0, |summary| summary.pid);
        let mut texts = vec![format!("{:#x}", piece.first)];
        if name_processes {
            texts.push(format!("process {pid}"));
        }
        texts.push(size(piece));
        let mut y = piece.top + piece.height - 2.0;
        let mut labels = Vec::new();
        for label in texts {
            if y - LABEL + 2.0 < piece.top - 4.0 || y > free - LABEL {
                break;
            }
            free = y;
            labels.push(Tick { at: Px(y), label });
            y -= LABEL;
        }
        let name = summary.and_then(|summary| summary.application).map_or_else(String::new, |name| escape_name(&name));
        let hint = format!("process {pid} {name}: {:#x} to {:#x}, {}", piece.first, piece.last, size(piece));
        Area { y: Px(piece.top), height: Px(piece.height), labels, hint }
    };
    axis.pieces.iter().map(area).collect()
}

fn size(piece: &Piece) -> String {
    size::rounded((piece.last - piece.first).saturating_add(1))
}

/// The bars, and the number of objects whose bars do not fit.
fn bars(view: &View, objects: &[(ObjectId, String)], axis: &AddressAxis) -> (Vec<Bar>, usize) {
    let profile = view.profile();
    let mut lanes: Vec<Vec<(ProcessId, u64, u64)>> = vec![Vec::new(); LANES];
    let (mut found, mut left_out) = (Vec::new(), 0);
    for (id, name) in objects {
        let Some(object) = profile.objects().get(id.0 as usize).filter(|object| object.bytes > 0) else { continue };
        let (process, first) = (object.process, object.start);
        let last = first.saturating_add(object.bytes - 1);
        let touches = |piece: &&Piece| piece.process == process && piece.first <= last && first <= piece.last;
        let mut pieces = axis.pieces.iter().filter(touches).peekable();
        if pieces.peek().is_none() {
            continue;
        }
        // Objects overlap where an address was reused, and where one is a part of another.
        let is_free = |lane: &Vec<(ProcessId, u64, u64)>| {
            lane.iter().all(|&(other, start, end)| other != process || end < first || last < start)
        };
        let Some((lane, taken)) = lanes.iter_mut().enumerate().find(|(_, lane)| is_free(lane)) else {
            left_out += 1;
            continue;
        };
        taken.push((process, first, last));
        // Bars begin beside the map.
        let x = BARS + (LANES - 1 - lane) as f64 * LANE;
        let node = object.allocated_on.and_then(|cpu| profile.node_of_cpu(cpu));
        let mut number = name.split(' ').next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (top, bottom) = (piece.y(last).0, piece.y(first).0);
            let height = (bottom - top).max(2.0);
            let number = if height >= 10.0 { std::mem::take(&mut number) } else { String::new() };
            found.push(Bar {
                x: Px(x),
                middle: Px(x + 6.0),
                y: Px(top),
                height: Px(height),
                colour: node.map_or_else(|| "other".to_owned(), |NodeId(node)| format!("k{}", node % 8)),
                at: Px(f64::midpoint(top, bottom) + 3.0),
                number,
                hint: name.clone(),
            });
        }
    }
    (found, left_out)
}
