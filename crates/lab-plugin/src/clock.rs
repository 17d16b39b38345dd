//! The guest's clock. QEMU derives every clock and timer of the guest, except the TSC, from
//! `clock_gettime(CLOCK_MONOTONIC)`. This library is also in `LD_PRELOAD` and answers that call.
//!
//! The clock either stands at a simulated instant, which the vCPUs move, or runs with the host's clock: before and
//! after the measured command, and while every vCPU is halted.

use crate::host;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One word, so that a reader always sees one state: the top bit says that the clock runs with the host and the rest
/// is what to add to the host's time; otherwise the word is the guest's time. Both in ns.
pub(crate) struct Clock(AtomicU64);

const WITH_HOST: u64 = 1 << 63;

impl Clock {
    /// A clock that shows the host's time.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(WITH_HOST))
    }

    /// The guest's time, ns.
    pub(crate) fn now_ns(&self) -> u64 {
        let word = self.0.load(Relaxed);
        if word & WITH_HOST == 0 { word } else { (host::now_ns().wrapping_add(word)) & !WITH_HOST }
    }

    /// Stands at an instant, ns, until told otherwise.
    pub(crate) fn stand_at(&self, guest_ns: u64) {
        self.0.store(guest_ns & !WITH_HOST, Relaxed);
    }

    /// Goes on with the host's clock from the instant it shows now.
    pub(crate) fn run_with_host(&self) {
        let offset = self.now_ns().wrapping_sub(host::now_ns());
        self.0.store(offset | WITH_HOST, Relaxed);
    }
}

/// The one clock of this QEMU process.
pub(crate) static CLOCK: Clock = Clock::new();

/// Stands in for the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's: `time` points to a `timespec` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    if clock != libc::CLOCK_MONOTONIC || time.is_null() {
        // SAFETY: the caller's pointer goes to the kernel, which checks it.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as libc::c_int;
    }
    let now = CLOCK.now_ns();
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
        clock.stand_at(before + 5_000_000_000_000);
        assert_eq!(clock.now_ns(), before + 5_000_000_000_000);
        clock.run_with_host();
        let after = clock.now_ns();
        assert!(after >= before + 5_000_000_000_000 && after < before + 5_001_000_000_000);
    }
}
