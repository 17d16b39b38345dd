//! Lost events: their number, time range and address range, so that the recorder knows which objects it can no longer
//! rely on.

use crate::clock;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use rings::loss;

/// An event that concerns no object.
pub const NOTHING: (usize, usize) = (0, 0);

/// Counts a lost event that concerns `bytes` bytes from an address on, in the words of [`rings::loss`]. `seen` is the
/// count that the recorder has seen; once it has, the ranges start afresh. With two threads at once, the ranges may be
/// too small.
#[cold]
pub fn lose(word: impl Fn(usize) -> *const AtomicU64, seen: *const AtomicU64, (address, bytes): (usize, usize)) {
    // SAFETY: the caller's words are in a page that is never unmapped.
    let word = |number| unsafe { &*word(number) };
    // SAFETY: as above.
    let seen = unsafe { &*seen };
    let time = clock::now();
    let count = word(loss::COUNT);
    if seen.load(Acquire) == count.load(Relaxed) {
        word(loss::FIRST).store(time, Relaxed);
        word(loss::LOW).store(u64::MAX, Relaxed);
        word(loss::END).store(0, Relaxed);
    }
    if (address, bytes) != NOTHING {
        word(loss::LOW).fetch_min(address as u64, Relaxed);
        word(loss::END).fetch_max(address.saturating_add(bytes.max(1)) as u64, Relaxed);
    }
    word(loss::LAST).store(time, Relaxed);
    count.fetch_add(1, Release);
}
