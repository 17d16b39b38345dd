//! Time stamp and CPU of an event.

use core::arch::asm;
use core::arch::x86_64::_mm_lfence;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};
use rings::{Clock, NO_CPU};

static TSC: AtomicBool = AtomicBool::new(false);
/// Offset from the thread pointer to each thread's `struct rseq`, where the kernel stores its CPU; 0 if unavailable.
static RSEQ: AtomicIsize = AtomicIsize::new(0);

/// Must be called once, before the others; `rseq` is the value of the C library's `__rseq_offset` (2.35).
pub fn choose(clock: Clock, rseq: Option<isize>) {
    TSC.store(clock == Clock::Tsc, Relaxed);
    RSEQ.store(rseq.unwrap_or(0), Relaxed);
}

/// The current time, not later than the caller's next stores become visible to other threads.
#[inline]
pub fn now() -> u64 {
    if TSC.load(Relaxed) { ticks() } else { monotonic() }
}

/// The time stamp counter; in the lab, the CPU's own time: see `linux::tsc`, which encodes the instruction in the same
/// way.
#[inline]
fn ticks() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: every x86-64 has the instruction, and the recorder chooses this clock only if programs may use it.
    unsafe { asm!(".byte 0x48, 0x0f, 0x31", out("rax") low, out("rdx") high, options(nostack, preserves_flags)) };
    high << 32 | low
}

/// The current time, not earlier than the caller's previous loads: memory freed by another thread is seen only after it
/// was freed.
#[inline]
pub fn now_after_reads() -> u64 {
    // SAFETY: every x86-64 has the instruction. Without it the processor may read the clock ahead of earlier loads.
    unsafe { _mm_lfence() };
    now()
}

/// `CLOCK_MONOTONIC`, ns.
#[cold]
pub fn monotonic() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the clock exists on every Linux, so this writes one timespec.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// The CPU that this thread runs on.
#[inline]
pub fn cpu() -> u32 {
    let rseq = RSEQ.load(Relaxed);
    if rseq == 0 {
        return slow_cpu();
    }
    let cpu: u32;
    // SAFETY: the C library guarantees a `struct rseq` in every thread's area; its second word is the CPU.
    unsafe {
        asm!("mov {cpu:e}, dword ptr fs:[{rseq} + 4]", cpu = out(reg) cpu, rseq = in(reg) rseq,
            options(nostack, readonly, preserves_flags));
    }
    // Negative if the kernel could not register the thread.
    if cpu.cast_signed() < 0 { NO_CPU } else { cpu }
}

#[cold]
fn slow_cpu() -> u32 {
    // SAFETY: it takes no arguments, and sets errno only if the kernel lacks the call.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(NO_CPU)
}
