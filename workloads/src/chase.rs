//! Latency: loads that each wait for the one before.

use crate::error::Error;
use crate::memory::{filled, share};
use crate::random::Random;
use crate::team::{Round, Team};
use crossbeam_utils::atomic::AtomicCell;
use serde::Serialize;
use std::fmt;
use std::hint::black_box;

const SEED: u64 = 1;
/// Loads in one pass of the loop: the loop's own add, compare and jump are then less than 0.1 instructions a load.
const UNROLLED: usize = 64;

/// One cache line, which holds nothing but the way to the next. A step is one load, with no bounds to check: hence a
/// reference and not an index. The cell, a plain load on every 64-bit machine, is what allows to close the cycle.
#[repr(align(64))]
struct Line {
    next: AtomicCell<&'static Line>,
}

/// Where a line leads before the cycle is laid: to itself.
static NOWHERE: Line = Line { next: AtomicCell::new(&NOWHERE) };

/// How long a load took, over all threads and steps of a round.
#[derive(Debug, Serialize)]
pub struct Latency {
    /// Loads of one thread in one round.
    loads: usize,
    /// Nanoseconds a load, in the fastest round.
    best_ns: f64,
    /// Nanoseconds a load, mean of all rounds.
    mean_ns: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ns a load (best round {:.2} ns)", self.mean_ns, self.best_ns)
    }
}

/// Measures the latency of an array of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Latency, Error> {
    let (lines, starts) = team.touch(|| {
        let lines = lines(size / size_of::<Line>())?;
        let order = cycle(lines.len(), &mut Random(SEED))?;
        lay(lines, &order);
        let start = |thread| order[share(order.len(), team.threads, thread).start];
        Ok((lines, (0..team.threads).map(start).collect::<Vec<_>>()))
    })?;
    let loads = lines.len().next_multiple_of(UNROLLED);
    let parts = starts.into_iter().map(|start| &lines[start as usize]).collect();
    let rounds = team.rounds(parts, repeat, |line, _| *line = walk(line, loads))?;
    let ns = |round: &Round| round.busy.as_secs_f64() * 1e9 / (loads * team.threads) as f64;
    let best_ns = rounds.iter().map(ns).fold(f64::INFINITY, f64::min);
    let mean_ns = rounds.iter().map(ns).sum::<f64>() / rounds.len() as f64;
    Ok(Latency { loads, best_ns, mean_ns })
}

/// Lines that are never freed: a process measures once, and references that last for ever need no owner.
fn lines(count: usize) -> Result<&'static [Line], Error> {
    Ok(filled(count, |_| Line { next: AtomicCell::new(&NOWHERE) })?.leak())
}

/// All numbers below `count` in random order, each order as likely as any other.
fn cycle(count: usize, random: &mut Random) -> Result<Vec<u32>, Error> {
    let mut order = filled(count, |line| line as u32)?;
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    Ok(order)
}

/// Makes each line lead to the one that follows it in `order`, and the last to the first.
fn lay(lines: &'static [Line], order: &[u32]) {
    for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
        lines[*from as usize].next.store(&lines[*to as usize]);
    }
}

/// Follows the cycle for `loads` steps, a multiple of [`UNROLLED`].
#[inline(never)]
fn walk(mut line: &'static Line, loads: usize) -> &'static Line {
    for _ in 0..loads / UNROLLED {
        for _ in 0..UNROLLED {
            line = line.next.load();
        }
    }
    black_box(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::ptr;

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
        assert!(AtomicCell::<&'static Line>::is_lock_free());
    }

    #[test]
    fn the_walk_is_one_cycle_over_all_lines() {
        for count in [1, 2, 3, 64, 1000] {
            let lines = lines(count).unwrap();
            lay(lines, &cycle(count, &mut Random(count as u64)).unwrap());
            let mut seen = HashSet::new();
            let mut line = &lines[0];
            for _ in 0..count {
                assert!(seen.insert(ptr::from_ref(line)), "{count} lines: back before all were seen");
                line = line.next.load();
            }
            assert!(ptr::eq(line, &raw const lines[0]));
        }
    }

    #[test]
    fn a_walk_takes_as_many_steps_as_it_is_told() {
        let lines = lines(100).unwrap();
        let order: Vec<u32> = (0..100).collect();
        lay(lines, &order);
        assert!(ptr::eq(walk(&lines[0], 2 * UNROLLED), &raw const lines[28]));
    }

    #[test]
    fn the_order_is_random() {
        let order = cycle(10_000, &mut Random(SEED)).unwrap();
        let near = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 16).count();
        assert!(near < 100, "{near} of 9,999 steps lead to a line within 1 KiB");
    }
}
