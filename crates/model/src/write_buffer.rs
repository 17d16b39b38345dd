//! The lines that a CPU is writing back. No access waits for one, but a CPU has room for only as many as it has lines of
//! a stream under way: it waits with its next miss while more are. So what is written back is, like what is read, a
//! flow with a limited number of lines in flight, which slows down where a controller or link is full
//! ([`crate::queues`]).

use crate::core::Share;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A CPU's buffer of lines on their way back. Only the CPU's own thread may use it.
pub(crate) struct WriteBuffer {
    share: Share,
    /// When there is room again, if every line so far keeps the buffer busy for its share of its latency, ps.
    full_until_ps: AtomicU64,
}

impl WriteBuffer {
    pub(crate) fn new(lines: u32) -> Self {
        Self { share: Share::one_of(lines), full_until_ps: AtomicU64::new(0) }
    }

    /// Adds a line that takes this long to reach memory, ps.
    #[inline]
    pub(crate) fn add(&self, time_ps: u64, latency_ps: u32) {
        // A buffer that was empty for a latency takes all its lines at once, and is never full for longer than that.
        let (earliest, latest) = (time_ps.saturating_sub(latency_ps.into()), time_ps + u64::from(latency_ps));
        let full_until_ps = self.full_until_ps.load(Relaxed).clamp(earliest, latest) + self.share.of(latency_ps);
        self.full_until_ps.store(full_until_ps, Relaxed);
    }

    /// Empties it: time begins anew, with no CPU running.
    pub(crate) fn clear(&self) {
        self.full_until_ps.store(0, Relaxed);
    }

    /// How long a CPU that needs room waits, ps.
    #[inline]
    pub(crate) fn wait_ps(&self, time_ps: u64) -> u64 {
        self.full_until_ps.load(Relaxed).saturating_sub(time_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time per line over 1,000 lines with this much work before each, ps.
    fn pace(latency_ps: u32, work_ps: u64) -> u64 {
        let (buffer, begin_ps) = (WriteBuffer::new(16), 1_000_000_000);
        let mut time_ps = begin_ps;
        for _ in 0..1000 {
            time_ps += work_ps + buffer.wait_ps(time_ps);
            buffer.add(time_ps, latency_ps);
        }
        (time_ps - begin_ps) / 1000
    }

    #[test]
    fn no_more_lines_are_on_their_way_than_there_is_room_for() {
        for (latency_ps, work_ps, expected) in
            [(160_000, 0, 10_000), (160_000, 7_000, 10_000), (160_000, 12_000, 12_000)]
        {
            let pace = pace(latency_ps, work_ps);
            assert!((expected * 98 / 100..=expected).contains(&pace), "{pace} instead of {expected}");
        }
    }

    #[test]
    fn time_may_begin_anew() {
        let buffer = WriteBuffer::new(16);
        buffer.add(1_000_000_000_000, 160_000);
        buffer.clear();
        assert_eq!(buffer.wait_ps(0), 0);
    }
}
