//! When and where: the time and the CPU of an event.

use core::arch::asm;
use core::arch::x86_64::_mm_lfence;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};
use rings::{Clock, NO_CPU};

static TSC: AtomicBool = AtomicBool::new(false);
/// Where the kernel tells each thread its CPU, from the thread pointer; 0 where it does not.
static RSEQ: AtomicIsize = AtomicIsize::new(0);

/// To be called once, before the others; `rseq` is what the C library (2.35) says in `__rseq_offset`.
pub fn choose(clock: Clock, rseq: Option<isize>) {
    TSC.store(clock == Clock::Tsc, Relaxed);
    RSEQ.store(rseq.unwrap_or(0), Relaxed);
}

/// Now, no later than what the caller does next becomes visible to others.
#[inline]
pub fn now() -> u64 {
    if TSC.load(Relaxed) { ticks() } else { monotonic() }
}

/// The time stamp counter, in the lab the CPU's own time: see `linux::tsc`, which writes the instruction in the same way.
#[inline]
fn ticks() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: every x86-64 has the instruction, and the recorder chooses it only where programs may use it.
    unsafe { asm!(".byte 0x48, 0x0f, 0x31", out("rax") low, out("rdx") high, options(nostack, preserves_flags)) };
    high << 32 | low
}

/// Now, and no earlier than what the caller has read: memory that another thread has freed is seen only after it was.
#[inline]
pub fn now_after_reads() -> u64 {
    // SAFETY: every x86-64 has the instruction. Without it the processor may read its clock ahead of earlier loads.
    unsafe { _mm_lfence() };
    now()
}

/// `CLOCK_MONOTONIC`, ns.
#[cold]
pub fn monotonic() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the clock exists on every Linux, so that this writes one timespec.
    let time = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// The CPU that this thread is on.
#[inline]
pub fn cpu() -> u32 {
    let rseq = RSEQ.load(Relaxed);
    if rseq == 0 {
        return slow_cpu();
    }
    let cpu: u32;
    // SAFETY: the C library says that a `struct rseq` is there in every thread's own area; its second word is the CPU.
    unsafe {
        asm!("mov {cpu:e}, dword ptr fs:[{rseq} + 4]", cpu = out(reg) cpu, rseq = in(reg) rseq,
            options(nostack, readonly, preserves_flags));
    }
    // Negative where the kernel refused to tell.
    if cpu.cast_signed() < 0 { NO_CPU } else { cpu }
}

#[cold]
fn slow_cpu() -> u32 {
    // SAFETY: it takes nothing, and sets errno only where the kernel lacks the call.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(NO_CPU)
}
