//! Counts that one thread writes and others read, by window of simulated time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Length of a window, ps: long enough to measure the load (a controller of 6 GB/s moves 940 lines), short against a
/// program's phases.
pub const WINDOW_PS: u64 = 30_000_000;

/// Windows in the ring: more than can be in use at a time (the open ones and the [`LAG`](crate::windows) that are determined).
pub(crate) const SLOTS: usize = 8;

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
}
