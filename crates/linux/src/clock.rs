//! The processor's time stamp counter beside the kernel's clock.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Whether the kernel itself tells the time by the time stamp counter, which then is the same on all CPUs and never
/// stops. Needs no rights.
pub fn tells_time_by_tsc() -> bool {
    fs::read_to_string(CLOCK_SOURCE).is_ok_and(|source| source.trim() == "tsc")
}

/// `CLOCK_MONOTONIC`, ns.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// The time stamp counter, and what `CLOCK_MONOTONIC` was at that moment, ns: the nearest of some tries.
pub fn tsc_and_monotonic_ns() -> (u64, u64) {
    let try_once = || {
        let (before, ns, after) = (tsc(), monotonic_ns(), tsc());
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), ns)
    };
    let (_, ticks, ns) = (1..4).fold(try_once(), |best, _| best.min(try_once()));
    (ticks, ns)
}

/// The time stamp counter, neither before nor after what the program's text has before and after it; the processor may
/// still be some ten instructions ahead.
pub fn tsc() -> u64 {
    compiler_fence(SeqCst);
    // SAFETY: every x86-64 has the instruction; where programs may not use it, the C library's clock could not either.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    compiler_fence(SeqCst);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_go_on() {
        let (first, second) = (tsc_and_monotonic_ns(), tsc_and_monotonic_ns());
        assert!(second.1 >= first.1 && monotonic_ns() >= second.1);
        assert!(!tells_time_by_tsc() || second.0 > first.0);
    }
}
