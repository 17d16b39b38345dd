//! Independent load misses of one CPU: a core starts many instructions before the oldest has finished, so such loads
//! overlap. A load whose address depends on a miss in flight waits for it.
//!
//! Dependencies are inferred from values: an address that lies closely after a value loaded from a missed line (a
//! pointer), or an instruction whose address steps are steps of such values times a constant (an index). Any other
//! address is assumed to be independent, which is wrong for addresses that are computed from loaded values in other
//! ways.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of loads in flight in the model; cores have 8 to 64.
const MAX_LINES: usize = 64;
/// Number of remembered values.
const VALUES: usize = 8;
/// Maximum offset of a member from its pointer, bytes.
const REACH: u64 = 4096;
/// Number of instructions whose last address is remembered.
const INSTRUCTIONS: usize = 32;
/// Maximum size of an array element, bytes.
const MAX_ELEMENT: u64 = 4096;

/// The loads of one CPU. Only its own thread may use it.
pub(crate) struct Reorder {
    /// Maximum number of loads in flight; 0 if the machine file has none: then each load waits.
    lines: usize,
    /// How far the core runs ahead of the oldest load, ps.
    window_ps: u64,
    /// Total stall of the core so far, ps.
    waited_ps: AtomicU64,
    /// The loads in flight, oldest first, starting at `first`: when each began, minus the core's total stall by then,
    /// and when it is done.
    under_way: [[AtomicU64; 2]; MAX_LINES],
    first: AtomicU64,
    count: AtomicU64,
    /// When the last load to finish is done, ps.
    latest_done_ps: AtomicU64,
    /// Values of missed lines, and when each is available, ps; the latest is before `next_value`.
    values: [[AtomicU64; 2]; VALUES],
    next_value: AtomicU64,
    last: [LastAddress; INSTRUCTIONS],
}

/// An instruction's last address.
#[derive(Default)]
struct LastAddress {
    instruction: AtomicU64,
    address: AtomicU64,
    /// Its difference from the one before.
    step: AtomicU64,
    /// The latest two values before that.
    values: [AtomicU64; 2],
    /// Address step per value step; 0 if unknown.
    elements: [AtomicU64; 2],
}

impl Reorder {
    pub(crate) fn new(core: &machine::Core, ps_per_instruction: f64) -> Self {
        let instructions = f64::from(core.reorder_instructions.unwrap_or(0));
        Self {
            lines: core.load_lines.map_or(0, |lines| (lines as usize).min(MAX_LINES)),
            window_ps: (instructions * ps_per_instruction).round() as u64,
            waited_ps: AtomicU64::new(0),
            under_way: [const { [const { AtomicU64::new(0) }; 2] }; MAX_LINES],
            first: AtomicU64::new(0),
            count: AtomicU64::new(0),
            latest_done_ps: AtomicU64::new(0),
            values: Default::default(),
            next_value: AtomicU64::new(0),
            last: Default::default(),
        }
    }

    /// Whether loads overlap at all.
    pub(crate) fn overlaps(&self) -> bool {
        self.lines > 0
    }

    /// Stall of the core by `time_ps` for loads that it cannot run further ahead of, ps.
    pub(crate) fn catch_up(&self, time_ps: u64) -> u64 {
        let mut now = time_ps;
        while self.count.load(Relaxed) > 0 {
            let [began, done] = self.at(0);
            // Work after a wait counts from the end of the wait.
            let began = began.wrapping_add(self.waited_ps.load(Relaxed));
            // Unless time went back because a measurement began.
            if began <= now {
                let until = began + self.window_ps;
                if now < until.min(done) {
                    break;
                }
                now += self.wait(done.saturating_sub(until));
            }
            self.drop_oldest();
        }
        now - time_ps
    }

    fn wait(&self, ps: u64) -> u64 {
        self.waited_ps.store(self.waited_ps.load(Relaxed).wrapping_add(ps), Relaxed);
        ps
    }

    /// A load at `time_ps` with `latency_ps`. `after_ps` is when its dependency is available ([`Reorder::producer`]).
    /// Returns the stall of the core, ps.
    pub(crate) fn load(&self, time_ps: u64, latency_ps: u64, after_ps: u64) -> u64 {
        let mut now = time_ps + self.catch_up(time_ps);
        if self.count.load(Relaxed) as usize >= self.lines {
            // The oldest makes room. Younger ones may have finished before, but they are few.
            now += self.wait(self.at(0)[1].saturating_sub(now));
            self.drop_oldest();
        }
        let done = now.max(after_ps) + latency_ps;
        let index = (self.first.load(Relaxed) + self.count.load(Relaxed)) as usize % MAX_LINES;
        self.under_way[index][0].store(now.wrapping_sub(self.waited_ps.load(Relaxed)), Relaxed);
        self.under_way[index][1].store(done, Relaxed);
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
        self.latest_done_ps.store(done, Relaxed);
        now - time_ps
    }

    /// Passes a value that was loaded from the last missed line.
    pub(crate) fn loaded(&self, value: u64) {
        let next = self.next_value.load(Relaxed) as usize % VALUES;
        self.values[next][0].store(value, Relaxed);
        self.values[next][1].store(self.latest_done_ps.load(Relaxed), Relaxed);
        self.next_value.store(next as u64 + 1, Relaxed);
    }

    /// When the value that this instruction's address comes from is available, ps; 0 without a dependency in flight.
    pub(crate) fn producer(&self, instruction: u64, address: u64) -> u64 {
        let by_index = self.index(instruction, address);
        let by_pointer = (0..VALUES).map(|age| self.value(age)).find(|[value, _]| address.wrapping_sub(*value) < REACH);
        by_pointer.map_or(0, |[_, done]| done).max(by_index)
    }

    /// When the value that is this instruction's index is available, ps.
    fn index(&self, instruction: u64, address: u64) -> u64 {
        let last = &self.last[(instruction ^ instruction >> 5) as usize % INSTRUCTIONS];
        let known = last.instruction.swap_relaxed(instruction) == instruction;
        let step = address.wrapping_sub(last.address.swap_relaxed(address));
        // Equal steps come from a counter, whatever values it passes.
        let counts = last.step.swap_relaxed(step) == step;
        let mut done = 0;
        for age in 0..2 {
            let [value, value_done] = self.value(age);
            let by = value.wrapping_sub(last.values[age].swap_relaxed(value));
            let element = element(step, by).filter(|_| known && !counts).unwrap_or(0);
            if last.elements[age].swap_relaxed(element) == element && element != 0 {
                done = done.max(value_done);
            }
        }
        done
    }

    fn at(&self, age: u64) -> [u64; 2] {
        let index = (self.first.load(Relaxed) + age) as usize % MAX_LINES;
        [self.under_way[index][0].load(Relaxed), self.under_way[index][1].load(Relaxed)]
    }

    fn drop_oldest(&self) {
        self.first.store((self.first.load(Relaxed) + 1) % MAX_LINES as u64, Relaxed);
        self.count.store(self.count.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// A value and when it is available; age 0 is the latest.
    fn value(&self, age: usize) -> [u64; 2] {
        let [value, done] = &self.values[(self.next_value.load(Relaxed) as usize + 2 * VALUES - 1 - age) % VALUES];
        [value.load(Relaxed), done.load(Relaxed)]
    }
}

/// Address step per value step, if it may be the size of an element.
fn element(step: u64, by: u64) -> Option<u64> {
    let (step, by) = (step.cast_signed(), by.cast_signed());
    let size = step.checked_div(by).filter(|size| size.checked_mul(by) == Some(step))?;
    u64::try_from(size).ok().filter(|size| (1..=MAX_ELEMENT).contains(size))
}

trait SwapRelaxed {
    /// Stores a value and returns the previous one. Only one thread writes, so this need not be atomic.
    fn swap_relaxed(&self, value: u64) -> u64;
}

impl SwapRelaxed for AtomicU64 {
    fn swap_relaxed(&self, value: u64) -> u64 {
        let before = self.load(Relaxed);
        self.store(value, Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 lines; 100 instructions of a nanosecond.
    fn reorder() -> Reorder {
        let core = machine::Core {
            clock_hz: 1e9,
            instructions_per_cycle: 1.0,
            stream_bandwidth_bytes_per_s: 6.4e9,
            stream_lines: 16,
            store_lines: 8,
            load_lines: Some(8),
            reorder_instructions: Some(100),
            source: None,
        };
        Reorder::new(&core, 1000.0)
    }

    const LATENCY: u64 = 100_000;

    /// Time per load over 1,000 loads with work in between, ps.
    fn pace(work_ps: u64, mut address: impl FnMut(u64) -> (u64, u64)) -> u64 {
        let reorder = reorder();
        let mut time = 1_000_000;
        let begin = time;
        for i in 0..1000 {
            time += work_ps;
            let (address, value) = address(i);
            let after = reorder.producer(7, address);
            time += reorder.load(time, LATENCY, after);
            reorder.loaded(value);
        }
        time += reorder.catch_up(time + 1_000_000);
        (time - begin) / 1000
    }

    fn random(i: u64) -> u64 {
        let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
    }

    #[test]
    fn loads_that_wait_for_none_overlap() {
        let pace = pace(1000, |i| (random(i), random(i + 5000)));
        assert!((12_000..14_000).contains(&pace), "8 lines of 100 ns each: {pace}");
    }

    #[test]
    fn the_window_limits_what_overlaps() {
        // 100 instructions include the next 3 loads.
        let pace = pace(30_000, |i| (random(i), random(i + 5000)));
        assert!((30_000..36_000).contains(&pace), "{pace}");
        // No further load fits: the core runs on for 100 ns, and its remaining work ends with the load.
        let pace = self::pace(150_000, |i| (random(i), random(i + 5000)));
        assert!((149_000..152_000).contains(&pace), "{pace}");
    }

    #[test]
    fn a_long_latency_beyond_the_window_is_waited_for() {
        let reorder = reorder();
        reorder.load(0, 500_000, 0);
        assert_eq!(reorder.catch_up(99_000), 0);
        assert_eq!(reorder.catch_up(300_000), 400_000, "100 ns of work were hidden");
        assert_eq!(reorder.catch_up(700_000), 0);
    }

    #[test]
    fn pointers_wait_for_each_other() {
        let pace = pace(1000, |i| (random(i) + 24, random(i + 1)));
        assert!((99_000..=101_000).contains(&pace), "{pace}");
    }

    #[test]
    fn indices_wait_for_each_other() {
        for element in [4, 8, 24, 64] {
            let pace = pace(1000, |i| (0x7000_0000 + element * (random(i) % 100_000), random(i + 1) % 100_000));
            assert!((98_000..=101_000).contains(&pace), "{element}: {pace}");
        }
    }

    #[test]
    fn what_counts_waits_for_nothing() {
        let pace = pace(1000, |i| (4096 * i, 7 * i));
        assert!((12_000..14_000).contains(&pace), "{pace}");
    }

    #[test]
    fn chains_side_by_side_overlap() {
        let pace = pace(1000, |i| (random(i), random(i + 4)));
        assert!((24_000..27_000).contains(&pace), "{pace}");
    }

    #[test]
    fn time_may_begin_anew() {
        let reorder = reorder();
        for time in 0..8 {
            reorder.load(1_000_000_000 + time, LATENCY, 0);
        }
        assert_eq!(reorder.load(10, LATENCY, 0), 0);
        assert_eq!(reorder.catch_up(5), 0);
    }
}
