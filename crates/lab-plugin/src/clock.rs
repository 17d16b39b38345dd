//! The guest's clock. QEMU derives every clock and timer of the guest, except the TSC, from
//! `clock_gettime(CLOCK_MONOTONIC)`. This library is also in `LD_PRELOAD` and interposes that call.
//!
//! Before and after the measured command the clock follows the host's. While the command runs it stands still at a
//! simulated instant, which [`Pace`](crate::pace::Pace) moves, and a CPU that reads it gets its own time.

use crate::host;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A clock.
pub(crate) struct Clock {
    /// One word, so that a reader always sees a consistent state. If the top bit is set, the clock follows the host and
    /// the rest is the offset to the host's time; otherwise the word is the guest's time. Both in ns.
    state: AtomicU64,
    /// The clock's value when simulated time began, ns.
    epoch_ns: AtomicU64,
}

const WITH_HOST: u64 = 1 << 63;

impl Clock {
    /// A clock that follows the host's time.
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU64::new(WITH_HOST), epoch_ns: AtomicU64::new(0) }
    }

    /// Follows the host's clock from this value on: that of a saved machine when it stopped.
    pub(crate) fn continue_at(&self, ns: u64) {
        self.state.store(ns.wrapping_sub(host::now_ns()) | WITH_HOST, Relaxed);
    }

    /// The guest's time, ns.
    pub(crate) fn now_ns(&self) -> u64 {
        let word = self.state.load(Relaxed);
        if word & WITH_HOST == 0 { word } else { (host::now_ns().wrapping_add(word)) & !WITH_HOST }
    }

    /// The guest's time at a simulated instant, ns.
    pub(crate) fn at_ps(&self, ps: u64) -> u64 {
        self.epoch_ns.load(Relaxed) + ps / 1000
    }

    /// Whether time is simulated.
    pub(crate) fn stands(&self) -> bool {
        self.state.load(Relaxed) & WITH_HOST == 0
    }

    /// Begins simulated time: the clock stands still.
    pub(crate) fn stand(&self) {
        self.epoch_ns.store(self.now_ns(), Relaxed);
        self.set_ps(0);
    }

    /// Sets the clock to a simulated instant.
    pub(crate) fn set_ps(&self, ps: u64) {
        self.state.store(self.at_ps(ps) & !WITH_HOST, Relaxed);
    }

    /// Follows the host's clock again, starting from the current value.
    pub(crate) fn run_with_host(&self) {
        self.continue_at(self.now_ns());
    }
}

/// The one clock of this QEMU process.
pub(crate) static CLOCK: Clock = Clock::new();

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's: `time` points to a `timespec` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    if clock != libc::CLOCK_MONOTONIC || time.is_null() {
        // SAFETY: the caller's pointer goes to the kernel, which checks it.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
    }
    let now = crate::guest_clock_ns();
    let value =
        libc::timespec { tv_sec: (now / 1_000_000_000).cast_signed(), tv_nsec: (now % 1_000_000_000).cast_signed() };
    // SAFETY: the caller promises that `time` can be written.
    unsafe { time.write(value) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_and_runs_without_a_jump() {
        let clock = Clock::new();
        let before = clock.now_ns();
        assert!(clock.now_ns() - before < 1_000_000_000, "it runs with the host at first");
        clock.stand();
        let epoch = clock.now_ns();
        assert_eq!((clock.now_ns(), clock.at_ps(7000)), (epoch, epoch + 7));
        clock.set_ps(5_000_000_000_000_000);
        assert_eq!(clock.now_ns(), epoch + 5_000_000_000_000);
        clock.run_with_host();
        let after = clock.now_ns();
        assert!(after >= epoch + 5_000_000_000_000 && after < epoch + 5_001_000_000_000);
        // Saved on a host that had run for less time, or for more.
        for saved in [5, epoch + (1 << 60)] {
            clock.continue_at(saved);
            assert!(clock.now_ns() >= saved && clock.now_ns() < saved + 1_000_000_000);
        }
    }
}
