//! Axes: positions of times, values and addresses in a picture.

use crate::TraceFacts;
use profile::ProcessId;
use std::fmt;

/// A coordinate, to a tenth of a pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Px(pub f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Traces may contain infinite latencies.
        let text = format!("{:.1}", if self.0.is_finite() { self.0 } else { 0.0 });
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// A tick of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub at: Px,
    pub label: String,
}

/// Width of a picture with a time axis, px.
pub(super) const WIDTH: f64 = 960.0;
/// Where the plot of such a picture begins. All have the same, so that a time is at the same place in each of them.
pub(super) const LEFT: f64 = 196.0;
/// Where the plot ends; names of lines are to the right of it.
pub(super) const RIGHT: f64 = WIDTH - 70.0;
/// Dots at the edges are inside of the plot.
const INSET: f64 = 6.0;
/// Height of the axis: its ticks and its label.
pub(super) const AXIS_HEIGHT: f64 = 34.0;
/// The label of each time axis.
pub(super) const TIME_LABEL: &str = "time since the first access";

/// The time of a page, in ns of the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The time that is written as 0, as in all texts.
    pub start_ns: u64,
    /// The first and the last time that are drawn.
    pub drawn_ns: (u64, u64),
}

/// Times from left to right, the same in every picture of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimeAxis {
    span: Span,
    span_ns: f64,
}

impl Span {
    pub fn of(facts: &TraceFacts) -> Self {
        let until_ns = facts.from_ns.saturating_add(facts.duration_ns);
        Self { start_ns: facts.start_ns, drawn_ns: (facts.from_ns, until_ns) }
    }
}

impl TimeAxis {
    pub fn new(span: Span) -> Self {
        Self { span, span_ns: (span.drawn_ns.1.saturating_sub(span.drawn_ns.0) as f64).max(1.0) }
    }

    /// Times before the first are at the left edge, times after the last at the right edge.
    pub fn x(&self, time_ns: u64) -> Px {
        let part = time_ns.saturating_sub(self.span.drawn_ns.0) as f64 / self.span_ns;
        Self::at(part.min(1.0))
    }

    fn at(part: f64) -> Px {
        Px(LEFT + INSET + (RIGHT - LEFT - 2.0 * INSET) * part)
    }

    pub fn ticks(&self) -> Vec<Tick> {
        let (unit, factor) = match self.span_ns {
            span if span >= 1e9 => ("s", 1e9),
            span if span >= 1e6 => ("ms", 1e6),
            span if span >= 1e3 => ("µs", 1e3),
            _ => ("ns", 1.0),
        };
        let span = self.span_ns / factor;
        let first = self.span.drawn_ns.0.saturating_sub(self.span.start_ns) as f64 / factor;
        round_values_from(first, span, 8.0)
            .into_iter()
            .map(|(value, label)| Tick { at: Self::at((value - first) / span), label: format!("{label} {unit}") })
            .collect()
    }
}

/// About `about` round values from 0 up to `most`, with their text.
pub(super) fn round_values(most: f64, about: f64) -> Vec<(f64, String)> {
    round_values_from(0.0, most, about)
}

/// About `about` round values of at least `first` and at most `first + span`, with their text.
fn round_values_from(first: f64, span: f64, about: f64) -> Vec<(f64, String)> {
    let raw = (span / about).max(f64::MIN_POSITIVE);
    let magnitude = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|part| part * magnitude).into_iter().find(|step| *step >= raw);
    let step = step.unwrap_or(10.0 * magnitude);
    let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
    let begin = (first / step - 1e-9).ceil().max(0.0);
    let count = ((first + span) / step + 1e-9).floor() - begin;
    let value = |number: u32| (begin + f64::from(number)) * step;
    let count = count.clamp(0.0, 2.0 * about) as u32;
    (0..=count).map(value).map(|value| (value, format!("{value:.decimals$}"))).collect()
}

/// Most pieces of the axis.
const MOST_PIECES: usize = 24;
/// Smallest gap that is omitted, relative to what remains.
const WIDE_GAP: f64 = 0.06;
/// Smallest gap that is ever omitted, bytes.
const SMALL_GAP: u64 = 1 << 16;
/// Height of the smallest piece, px.
const LEAST_HEIGHT: f64 = 12.0;
/// Distance between two pieces, px.
const BETWEEN: f64 = 6.0;

/// Addresses of a process that are used, without wide gaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece {
    pub process: ProcessId,
    pub first: u64,
    pub last: u64,
    /// Position of its last address.
    pub top: f64,
    pub height: f64,
}

/// The used addresses of processes, from the lowest at the bottom to the highest at the top. Gaps are omitted: most
/// processes use less than a millionth of the address space.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AddressAxis {
    /// From the bottom to the top.
    pub pieces: Vec<Piece>,
    pub height: f64,
}

impl AddressAxis {
    /// An axis for these addresses, at least `height` px high, whose top is at 0.
    pub fn new(mut used: Vec<(ProcessId, u64)>, height: f64) -> Self {
        used.sort_unstable();
        let groups = pieces(&used);
        let between = groups.len().saturating_sub(1) as f64 * BETWEEN;
        let height = height.max(groups.len() as f64 * 2.0 * LEAST_HEIGHT + between);
        // The remaining height is divided by size and by use, so that neither large arrays nor hot pages vanish.
        let size = |group: &[(ProcessId, u64)]| ((last(group) - first(group)) as f64 + 64.0).sqrt();
        let sizes: f64 = groups.iter().map(|group| size(group)).sum();
        let spare = height - between - groups.len() as f64 * LEAST_HEIGHT;
        let mut bottom = height;
        let place = |group: &&[(ProcessId, u64)]| {
            let part = f64::midpoint(size(group) / sizes, group.len() as f64 / used.len() as f64);
            let height = LEAST_HEIGHT + spare * part;
            let piece = Piece {
                process: group.first().map_or(ProcessId(0), |(process, _)| *process),
                first: first(group),
                last: last(group),
                top: bottom - height,
                height,
            };
            bottom -= height + BETWEEN;
            piece
        };
        Self { pieces: groups.iter().map(place).collect(), height }
    }

    /// Position of an address; none in a gap.
    pub fn y(&self, process: ProcessId, address: u64) -> Option<Px> {
        let found = |piece: &&Piece| piece.process == process && piece.first <= address && address <= piece.last;
        self.pieces.iter().find(found).map(|piece| piece.y(address))
    }
}

impl Piece {
    /// Position of an address; at the edge if it is outside.
    pub fn y(&self, address: u64) -> Px {
        let size = (self.last - self.first).max(1) as f64;
        let part = (address.clamp(self.first, self.last) - self.first) as f64 / size;
        // Dots at the edges are inside.
        Px(self.top + 2.0 + (self.height - 4.0) * (1.0 - part))
    }
}

fn first(group: &[(ProcessId, u64)]) -> u64 {
    group.first().map_or(0, |(_, address)| *address)
}

fn last(group: &[(ProcessId, u64)]) -> u64 {
    group.last().map_or(0, |(_, address)| *address)
}

/// Splits sorted addresses at the widest gaps. Each omitted gap is large relative to what remains, so there are few.
fn pieces(used: &[(ProcessId, u64)]) -> Vec<&[(ProcessId, u64)]> {
    let mut found: Vec<&[(ProcessId, u64)]> = Vec::new();
    let processes = || used.chunk_by(|(one, _), (other, _)| one == other);
    let spare = MOST_PIECES.saturating_sub(processes().count());
    let mut cuts = 0;
    for of_process in processes() {
        let gap = |at: usize| of_process.get(at).map_or(0, |(_, next)| next - last(&of_process[..at]));
        let mut gaps: Vec<usize> = (1..of_process.len()).filter(|&at| gap(at) > SMALL_GAP).collect();
        gaps.sort_by_key(|&at| (std::cmp::Reverse(gap(at)), at));
        let mut rest = (last(of_process) - first(of_process)) as f64;
        let mut ends = Vec::new();
        for at in gaps {
            rest -= gap(at) as f64;
            if cuts >= spare || (gap(at) as f64) < WIDE_GAP * rest {
                break;
            }
            ends.push(at);
            cuts += 1;
        }
        ends.push(of_process.len());
        ends.sort_unstable();
        let mut start = 0;
        for end in ends {
            found.extend(of_process.get(start..end));
            start = end;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_end_with_the_time() {
        let texts = |span| -> Vec<String> { TimeAxis::new(span).ticks().into_iter().map(|tick| tick.label).collect() };
        let labels = |span_ns| texts(Span { start_ns: 5, drawn_ns: (5, 5 + span_ns) });
        assert_eq!(labels(3_200_000_000), ["0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s", "2.5 s", "3.0 s"]);
        assert_eq!(labels(70_000), ["0 µs", "10 µs", "20 µs", "30 µs", "40 µs", "50 µs", "60 µs", "70 µs"]);
        // A part of the time has the times of the whole.
        let part = Span { start_ns: 5, drawn_ns: (500_000_005, 900_000_005) };
        assert_eq!(
            texts(part),
            ["500 ms", "550 ms", "600 ms", "650 ms", "700 ms", "750 ms", "800 ms", "850 ms", "900 ms"]
        );
        assert!([0, 1, u64::MAX - 5].iter().all(|span_ns| (1..18).contains(&labels(*span_ns).len())));
    }

    #[test]
    fn gaps_are_left_out_and_places_keep_their_order() {
        let one = ProcessId(1);
        let heap = (0..100).map(|at| (one, 0x5555_0000_0000 + at * 0x8000));
        let array = (0..1000).map(|at| (one, 0x7f00_0000_0000 + at * 0x20_0000));
        let other = [(ProcessId(2), 0x7f00_0000_0000)];
        let axis = AddressAxis::new(heap.chain(array).chain(other).collect(), 400.0);
        assert_eq!(axis.pieces.len(), 3);
        let y = |process, address| axis.y(process, address).map(|y| y.0);
        assert_eq!(y(one, 0x6000_0000_0000), None);
        assert!(y(one, 0x5555_0000_0000) > y(one, 0x5555_0001_0000));
        assert!(y(one, 0x5555_0001_0000) > y(one, 0x7f00_0000_0000));
        assert!(y(one, 0x7f00_0000_0000) > y(ProcessId(2), 0x7f00_0000_0000));
        assert!(axis.pieces.iter().all(|piece| piece.top >= -1e-9 && piece.top + piece.height <= axis.height + 1e-9));
    }

    #[test]
    fn any_addresses_make_few_pieces() {
        let apart = |process: u32| (0..64).map(move |bit| (ProcessId(process), 1_u64 << bit));
        for processes in [0, 1, 8] {
            let axis = AddressAxis::new((0..processes).flat_map(apart).collect(), 400.0);
            assert!(axis.pieces.len() <= MOST_PIECES && axis.height.is_finite());
        }
        let ends = AddressAxis::new(vec![(ProcessId(0), 0), (ProcessId(0), u64::MAX)], 400.0);
        assert_eq!(ends.pieces.len(), 2);
    }
}
