//! What a core waits for an access of a given latency, with several of them under way.

use crate::{AccessKind, LINE_BYTES, Level};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A core's accesses under way. Only its CPU's thread may use it.
///
/// A load of the unknown is waited for in full. Lines of a stream, which prefetchers ask for ahead of their use, and
/// stores, which wait in a buffer, overlap with each other and with the core's instructions: each keeps the core's
/// memory path busy for its share of the latency, and the core waits only when it runs ahead of that path.
pub(crate) struct Core {
    stream: Share,
    store: Share,
    /// Least time between two lines of streams from memory, ps.
    stream_line_ps: u64,
    /// Until when the shares so far keep the path busy, ps.
    busy_until_ps: AtomicU64,
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
    pub(crate) fn new(description: &machine::Core) -> Self {
        Self {
            stream: Share::one_of(description.stream_lines),
            store: Share::one_of(description.store_lines),
            stream_line_ps: (LINE_BYTES as f64 * 1e12 / description.stream_bandwidth_bytes_per_s).round() as u64,
            busy_until_ps: AtomicU64::new(0),
        }
    }

    /// What the core waits for an access that it makes at `time_ps` and that misses L1, ps. `stretched` is told how long
    /// the access keeps the path busy, and says how long that is beside the core's other CPUs.
    #[inline]
    pub(crate) fn stall_ps(
        &self,
        time_ps: u64,
        kind: AccessKind,
        in_stream: bool,
        level: Level,
        latency_ps: u32,
        stretched: impl FnOnce(u64) -> u64,
    ) -> u64 {
        let share_ps = match (in_stream, kind) {
            (true, _) if level == Level::Dram => self.stream.of(latency_ps).max(self.stream_line_ps),
            (true, _) => self.stream.of(latency_ps),
            (false, AccessKind::Store) => self.store.of(latency_ps),
            (false, AccessKind::Load | AccessKind::Instruction) => return u64::from(latency_ps),
        };
        let share_ps = stretched(share_ps);
        // An access was asked for at most one latency ago. Nor is the path ever busy beyond now, as the core waited for
        // it, unless time went back because a measurement began.
        let earliest = time_ps.saturating_sub(u64::from(latency_ps).max(share_ps));
        let busy_until_ps = self.busy_until_ps.load(Relaxed).clamp(earliest, time_ps) + share_ps;
        self.busy_until_ps.store(busy_until_ps, Relaxed);
        busy_until_ps.saturating_sub(time_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessKind::{Load, Store};

    fn core() -> Core {
        Core::new(&machine::Core {
            clock_hz: 1e9,
            instructions_per_cycle: 1.0,
            stream_bandwidth_bytes_per_s: 6.4e9,
            stream_lines: 16,
            store_lines: 8,
            source: None,
        })
    }

    /// Time of 1,000 accesses with as much work before each, ps an access.
    fn pace(kind: AccessKind, in_stream: bool, level: Level, latency_ps: u32, work_ps: u64) -> u64 {
        let (core, begin) = (core(), 1_000_000_000);
        let mut time = begin;
        for _ in 0..1000 {
            time += work_ps;
            time += core.stall_ps(time, kind, in_stream, level, latency_ps, |ps| ps);
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
        core.stall_ps(1_000_000_000_000, Load, true, Level::Dram, 100_000, |ps| ps);
        assert!(core.stall_ps(0, Load, true, Level::Dram, 100_000, |ps| ps) <= 10_000);
    }
}
