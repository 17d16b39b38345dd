//! What a core waits for an access of a given latency, with several of them under way.

use crate::reorder::Reorder;
use crate::{AccessKind, LINE_BYTES, Level};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A core's accesses under way. Only its CPU's thread may use it.
///
/// Loads of the unknown are waited for in full, or overlap with those that follow ([`Reorder`]). Lines of a stream, which
/// prefetchers ask for ahead of their use, and stores, which wait in a buffer, overlap with each other and with the
/// core's instructions: each keeps the core's memory path busy for its share of the latency, and the core waits only
/// when it runs ahead of that path.
pub(crate) struct Core {
    stream: Share,
    store: Share,
    /// Least time between two lines of streams from memory, ps.
    stream_line_ps: u64,
    /// Until when the shares so far keep the path busy, ps.
    busy_until_ps: AtomicU64,
    pub reorder: Reorder,
}

/// An access that L1 did not serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub kind: AccessKind,
    pub in_stream: bool,
    pub level: Level,
    /// How long the line takes, ps.
    pub latency_ps: u32,
    /// How long it took before that to find the page's frame, ps.
    pub translation_ps: u32,
    /// When the value is there that the address comes from, ps; 0 for any time past.
    pub after_ps: u64,
    /// It overlaps with nothing: the line is gone again when the core uses it next.
    pub alone: bool,
}

/// One n-th, as a factor in 2^-32.
struct Share(u64);

impl Share {
    fn one_of(lines: u32) -> Self {
        Self((1 << 32) / u64::from(lines.max(1)))
    }

    #[inline]
    fn of(&self, latency_ps: u32) -> u64 {
        (u64::from(latency_ps) * self.0 + (1 << 31)) >> 32
    }
}

impl Core {
    pub(crate) fn new(description: &machine::Core, ps_per_instruction: f64) -> Self {
        Self {
            stream: Share::one_of(description.stream_lines),
            store: Share::one_of(description.store_lines),
            stream_line_ps: (LINE_BYTES as f64 * 1e12 / description.stream_bandwidth_bytes_per_s).round() as u64,
            busy_until_ps: AtomicU64::new(0),
            reorder: Reorder::new(description, ps_per_instruction),
        }
    }

    /// What the core waits for an access that it makes at `time_ps` and that misses L1, ps. `stretched` is told how long
    /// the access keeps the path busy, and says how long that is beside the core's other CPUs.
    #[inline]
    pub(crate) fn stall_ps(&self, time_ps: u64, miss: &Miss, stretched: impl FnOnce(u64) -> u64) -> u64 {
        let whole_ps = miss.latency_ps.saturating_add(miss.translation_ps);
        let share_ps = match (miss.in_stream, miss.kind) {
            (true, _) if miss.level == Level::Dram => self.stream.of(whole_ps).max(self.stream_line_ps),
            (true, _) => self.stream.of(whole_ps),
            (false, AccessKind::Store) => self.store.of(miss.latency_ps),
            (false, AccessKind::Load | AccessKind::Instruction) if miss.alone => {
                return self.reorder.catch_up(time_ps) + u64::from(whole_ps);
            }
            (false, AccessKind::Load | AccessKind::Instruction) => {
                return self.load_ps(time_ps, whole_ps, miss.after_ps);
            }
        };
        // A store enters the buffer when its frame is known.
        let before_ps = if miss.in_stream {
            self.reorder.catch_up(time_ps)
        } else {
            self.translation_ps(time_ps, miss.translation_ps)
        };
        let time_ps = time_ps + before_ps;
        let share_ps = stretched(share_ps);
        // An access was asked for at most one latency ago. Nor is the path ever busy beyond now, as the core waited for
        // it, unless time went back because a measurement began.
        let earliest = time_ps.saturating_sub(u64::from(miss.latency_ps).max(share_ps));
        let busy_until_ps = self.busy_until_ps.load(Relaxed).clamp(earliest, time_ps) + share_ps;
        self.busy_until_ps.store(busy_until_ps, Relaxed);
        before_ps + busy_until_ps.saturating_sub(time_ps)
    }

    /// What the core waits for a frame alone, ps.
    pub(crate) fn translation_ps(&self, time_ps: u64, translation_ps: u32) -> u64 {
        if translation_ps == 0 { self.reorder.catch_up(time_ps) } else { self.load_ps(time_ps, translation_ps, 0) }
    }

    fn load_ps(&self, time_ps: u64, latency_ps: u32, after_ps: u64) -> u64 {
        let latency_ps = u64::from(latency_ps);
        if self.reorder.overlaps() { self.reorder.load(time_ps, latency_ps, after_ps) } else { latency_ps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessKind::{Load, Store};

    fn core() -> Core {
        Core::new(
            &machine::Core {
                clock_hz: 1e9,
                instructions_per_cycle: 1.0,
                stream_bandwidth_bytes_per_s: 6.4e9,
                stream_lines: 16,
                store_lines: 8,
                load_lines: None,
                reorder_instructions: None,
                source: None,
            },
            1000.0,
        )
    }

    fn miss(kind: AccessKind, in_stream: bool, level: Level, latency_ps: u32) -> Miss {
        Miss { kind, in_stream, level, latency_ps, translation_ps: 0, after_ps: 0, alone: false }
    }

    /// Time of 1,000 accesses with as much work before each, ps an access.
    fn pace(kind: AccessKind, in_stream: bool, level: Level, latency_ps: u32, work_ps: u64) -> u64 {
        let (core, begin) = (core(), 1_000_000_000);
        let mut time = begin;
        for _ in 0..1000 {
            time += work_ps;
            time += core.stall_ps(time, &miss(kind, in_stream, level, latency_ps), |ps| ps);
        }
        (time - begin) / 1000
    }

    #[test]
    fn random_loads_take_their_latency_and_the_rest_overlaps() {
        assert_eq!(pace(Load, false, Level::Dram, 100_000, 0), 100_000);
        assert_eq!(pace(Load, false, Level::L2, 5_000, 300), 5_300);
        // The first few find the path free for one latency.
        for (kind, in_stream, level, latency, expected) in [
            (Store, false, Level::Dram, 100_000, 12_500),
            (Load, true, Level::Dram, 100_000, 10_000), // the core's bandwidth
            (Store, true, Level::Dram, 320_000, 20_000), // lines under way
            (Load, true, Level::L3, 32_000, 2_000),
        ] {
            let pace = pace(kind, in_stream, level, latency, 0);
            assert!((expected - u64::from(latency) / 1000..=expected).contains(&pace), "{pace} instead of {expected}");
        }
    }

    #[test]
    fn work_hides_what_overlaps() {
        assert_eq!(pace(Load, true, Level::Dram, 100_000, 11_000), 11_000);
        assert_eq!(pace(Store, false, Level::Dram, 100_000, 13_000), 13_000);
    }

    #[test]
    fn time_may_begin_anew() {
        let core = core();
        let miss = miss(Load, true, Level::Dram, 100_000);
        core.stall_ps(1_000_000_000_000, &miss, |ps| ps);
        assert!(core.stall_ps(0, &miss, |ps| ps) <= 10_000);
    }
}
