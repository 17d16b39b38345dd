//! The processor's time stamp counter (on Arm, the generic timer) beside the kernel's clock.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Whether the kernel's clock source is the time stamp counter, which is then synchronized between CPUs and never
/// stops. Needs no privileges. False in the lab, where the CPUs' [`tsc`] differ by some microseconds.
pub fn keeps_time_by_tsc() -> bool {
    let source = fs::read_to_string(CLOCK_SOURCE);
    !is_emulated() && source.is_ok_and(|source| ["tsc", "arch_sys_counter"].contains(&source.trim()))
}

/// Whether QEMU emulates the processor, as in the lab.
#[cfg(target_arch = "x86_64")]
fn is_emulated() -> bool {
    /// CPUID leaf with the hypervisor's name.
    const NAME_LEAF: u32 = 0x4000_0000;
    let name = core::arch::x86_64::__cpuid(NAME_LEAF);
    [name.ebx, name.ecx, name.edx]
        == [u32::from_le_bytes(*b"TCGT"), u32::from_le_bytes(*b"CGTC"), u32::from_le_bytes(*b"GTCG")]
}

#[cfg(not(target_arch = "x86_64"))]
fn is_emulated() -> bool {
    false
}

/// `CLOCK_MONOTONIC`, ns.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// The time stamp counter and `CLOCK_MONOTONIC` (ns) at the same moment: the closest pair of several tries.
pub fn tsc_and_monotonic_ns() -> (u64, u64) {
    let try_once = || {
        let (before, ns, after) = (tsc(), monotonic_ns(), tsc());
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), ns)
    };
    let (_, ticks, ns) = (1..4).fold(try_once(), |best, _| best.min(try_once()));
    (ticks, ns)
}

/// The time stamp counter. The compiler does not move the read; the processor may still be about ten instructions
/// ahead. In the lab this is the CPU's own simulated time, which may be ahead of other CPUs: a plain `rdtsc` would wait
/// for them.
pub fn tsc() -> u64 {
    compiler_fence(SeqCst);
    let ticks = counter();
    compiler_fence(SeqCst);
    ticks
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    let (low, high): (u64, u64);
    // `rdtsc` with a prefix that processors ignore here and that no compiler emits, so that the lab's plugin recognizes
    // it. SAFETY: every x86-64 has the instruction; if programs could not use it, the C library's clock would not work
    // either.
    unsafe { core::arch::asm!(".byte 0x48, 0x0f, 0x31", out("rax") low, out("rdx") high, options(nomem, nostack)) };
    high << 32 | low
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let ticks;
    // SAFETY: reads a register that Linux exposes to programs for the C library's clock, and has no other effect.
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
        assert!(!keeps_time_by_tsc() || second.0 > first.0);
    }
}
