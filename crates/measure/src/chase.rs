//! Latency: dependent loads over a random cycle of cache lines that no prefetcher can predict.

use crossbeam_utils::atomic::AtomicCell;
use machine::Random;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Loads per pass of the loop: the loop's own add, compare and jump then add less than 0.1 instructions per load.
pub const UNROLLED: usize = 64;

/// One cache line, which points to the next. A step is one load without bounds checks: hence a reference and not an
/// index. The cell, a plain load on every 64-bit machine, allows the cycle to be closed.
#[derive(Debug)]
#[repr(align(64))]
pub struct Line {
    next: AtomicCell<&'static Line>,
    mark: AtomicU64,
}

/// Where a line points before the cycle is created: to itself.
static NOWHERE: Line = Line { next: AtomicCell::new(&NOWHERE), mark: AtomicU64::new(0) };

impl Line {
    /// A line that is not in a cycle yet.
    pub fn new() -> Self {
        Self { next: AtomicCell::new(&NOWHERE), mark: AtomicU64::new(0) }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

/// Shuffles the items; all orders are equally likely.
pub fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last + 1));
    }
}

/// Makes each line point to the one that follows it in `order`, and the last to the first.
///
/// # Panics
///
/// When `order` names a line that does not exist.
pub fn lay(lines: &'static [Line], order: &[u32]) {
    for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
        lines[*from as usize].next.store(&lines[*to as usize]);
    }
}

/// Follows the cycle for `loads` steps, a multiple of [`UNROLLED`], and returns the line reached.
#[inline(never)]
pub fn walk(mut line: &'static Line, loads: usize) -> &'static Line {
    for _ in 0..loads / UNROLLED {
        for _ in 0..UNROLLED {
            line = line.next.load();
        }
    }
    black_box(line)
}

/// Like [`walk`], and writes to each line: this CPU's caches then have the only valid copies.
#[inline(never)]
pub(crate) fn walk_writing(mut line: &'static Line, loads: usize) -> &'static Line {
    for _ in 0..loads {
        line.mark.store(1, Relaxed);
        line = line.next.load();
    }
    black_box(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::ptr;

    fn lines(count: usize) -> &'static [Line] {
        (0..count).map(|_| Line::new()).collect::<Vec<_>>().leak()
    }

    fn cycle(count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        shuffle(&mut order, &mut Random(count as u64));
        order
    }

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
        assert!(AtomicCell::<&'static Line>::is_lock_free());
    }

    #[test]
    fn the_walk_is_one_cycle_over_all_lines() {
        for count in [1, 2, 3, 64, 1000] {
            let lines = lines(count);
            lay(lines, &cycle(count));
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
    fn a_walk_takes_the_given_number_of_steps() {
        let lines = lines(100);
        let order: Vec<u32> = (0..100).collect();
        lay(lines, &order);
        assert!(ptr::eq(walk(&lines[0], 2 * UNROLLED), &raw const lines[28]));
        assert!(ptr::eq(walk_writing(&lines[0], 30), &raw const lines[30]));
        let marked = lines.iter().filter(|line| line.mark.load(Relaxed) == 1).count();
        assert_eq!(marked, 30);
    }

    #[test]
    fn the_order_is_random() {
        let near = cycle(10_000).windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 16).count();
        assert!(near < 100, "{near} of 9,999 steps lead to a line within 1 KiB");
    }
}
