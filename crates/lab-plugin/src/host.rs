//! The host's own clock and scheduler. This library answers `clock_gettime` with simulated time for the whole QEMU
//! process, so `std::time` is of no use here: the host must be asked by system call.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Wakes a thread that waits for files.
pub(crate) struct WakeUp(OwnedFd);

impl WakeUp {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// The file that can be read once it has been woken.
    pub(crate) fn file(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(crate) fn wake(&self) {
        // It can only fail when it has been woken 2^64 times.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// It has been woken.
    pub(crate) fn take(&self) {
        // There is nothing to read where another one has taken it.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

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

/// The calling thread's number on the host.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no precondition, and it cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Whether a thread of this process sleeps: a thread that runs, or would if the host had a CPU for it, does not.
pub(crate) fn sleeps(thread_id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread_id}/stat"));
    // The name, in brackets, may hold anything.
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_thread_that_waits_sleeps_and_one_that_works_does_not() {
        assert!(!sleeps(thread_id()));
        assert!(!sleeps(u32::MAX), "there is no such thread");
        let ((tell, told), (end, ended)) = (channel(), channel::<()>());
        let other = thread::Builder::new().name("a) R (b".into()).spawn(move || {
            tell.send(thread_id()).unwrap();
            let _ = ended.recv();
        });
        let other_id = told.recv().unwrap();
        while !sleeps(other_id) {
            thread::yield_now();
        }
        drop(end);
        other.unwrap().join().unwrap();
    }
}
