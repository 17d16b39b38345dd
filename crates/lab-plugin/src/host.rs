//! The host's own clock and scheduler. This library answers `clock_gettime` with simulated time for the whole QEMU
//! process, so `std::time` is of no use here: the host must be asked by system call.

/// The host's monotonic clock, ns.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which lives across the call. It cannot fail for CLOCK_MONOTONIC.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Tells the host's scheduler that the calling thread is not interactive: one that wakes up does not take the place of
/// one that runs, which may be the slowest, for which the others wait.
pub(crate) fn become_batch_work() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one sched_param, which lives across the call. A refusal only costs speed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) };
}
