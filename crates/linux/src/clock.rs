//! The processor's time stamp counter beside the kernel's clock. Arm's is the generic timer.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Whether the kernel itself tells the time by the time stamp counter, which then is the same on all CPUs and never
/// stops. Needs no rights.
pub fn tells_time_by_tsc() -> bool {
    fs::read_to_string(CLOCK_SOURCE).is_ok_and(|source| ["tsc", "arch_sys_counter"].contains(&source.trim()))
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
    let ticks = counter();
    compiler_fence(SeqCst);
    ticks
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 has the instruction; where programs may not use it, the C library's clock could not either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let ticks;
    // SAFETY: reads a register that Linux lets programs read, for the C library's clock, and touches nothing else.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
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
