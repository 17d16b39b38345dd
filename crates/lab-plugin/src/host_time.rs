//! The host's own clock. This library answers `clock_gettime` with simulated time for the whole QEMU process, so
//! `std::time` is of no use here: the host must be asked by system call.

/// The host's monotonic clock, ns.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which lives across the call. It cannot fail for CLOCK_MONOTONIC.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
