//! How long a core stalls for an access of a given latency, with several accesses in flight.

use crate::reorder::Reorder;
use crate::{AccessKind, LINE_BYTES, Level};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The accesses in flight of a core. Only its CPU's thread may use it.
///
/// Unpredictable loads stall for their full latency, or overlap with later ones ([`Reorder`]). Lines of a stream, which
/// prefetchers request ahead of use, and stores, which wait in a buffer, overlap with each other and with the core's
/// instructions: each keeps the core's memory path busy for its share of the latency, and the core stalls only when it
/// runs ahead of that path.
pub(crate) struct Core {
    stream: Share,
    store: Share,
    /// Minimum time between two lines of streams from memory, ps.
    stream_line_ps: u64,
    /// Time until which the shares so far keep the path busy, ps.
    busy_until_ps: AtomicU64,
    pub reorder: Reorder,
}

/// An access that misses L1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub kind: AccessKind,
    pub in_stream: bool,
    pub level: Level,
    /// Latency of the line, ps.
    pub latency_ps: u32,
    /// Preceding address translation, ps.
    pub translation_ps: u32,
    /// When the value that the address is computed from is available, ps; 0 for any time in the past.
    pub after_ps: u64,
    /// Whether it overlaps with nothing, as the line is gone again when the core uses it next.
    pub alone: bool,
}

/// One n-th, as a factor in 2^-32.
pub(crate) struct Share(u64);

impl Share {
    pub(crate) fn one_of(lines: u32) -> Self {
        Self((1 << 32) / u64::from(lines.max(1)))
    }

    #[inline]
    pub(crate) fn of(&self, latency_ps: u32) -> u64 {
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

    /// Stall of the core for an access at `time_ps` that misses L1, ps. `stretched` maps the time that the access keeps
    /// the path busy to the time beside the core's other CPUs.
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
        // A store enters the buffer after its translation.
        let before_ps = if miss.in_stream {
            self.reorder.catch_up(time_ps)
        } else {
            self.translation_ps(time_ps, miss.translation_ps)
        };
        let time_ps = time_ps + before_ps;
        let share_ps = stretched(share_ps);
        // A prefetch starts at most one latency ago. The path is also never busy beyond now, as the core waited for it,
        // unless time went back because a measurement began.
        let earliest = time_ps.saturating_sub(u64::from(miss.latency_ps).max(share_ps));
        let busy_until_ps = self.busy_until_ps.load(Relaxed).clamp(earliest, time_ps) + share_ps;
        self.busy_until_ps.store(busy_until_ps, Relaxed);
        before_ps + busy_until_ps.saturating_sub(time_ps)
    }

    /// Stall of the core for an address translation alone, ps.
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

    /// Time per access over 1,000 accesses with this much work before each, ps.
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
