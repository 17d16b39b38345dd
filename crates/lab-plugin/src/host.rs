//! The host's own clock and scheduler. This library answers `clock_gettime` with simulated time for the whole QEMU
//! process, so `std::time` cannot be used here: the host's time needs a system call.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Wakes a thread that polls files.
pub(crate) struct WakeUp(OwnedFd);

impl WakeUp {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// The file that becomes readable on a wake-up.
    pub(crate) fn file(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(crate) fn wake(&self) {
        // This fails only after 2^64 pending wake-ups.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Consumes the wake-up.
    pub(crate) fn take(&self) {
        // There is nothing to read if another thread has consumed it.
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

/// Marks the calling thread as non-interactive for the host's scheduler: when it wakes up it does not preempt a running
/// thread, which may be the slowest CPU, for which the others wait.
pub(crate) fn become_batch_work() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one sched_param, which lives across the call. A refusal only costs speed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) };
}

/// The calling thread's id on the host.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no precondition, and it cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// The total number of times that the other threads of this process went to sleep, if all of them sleep now: two equal
/// results mean that none has run in between. A thread that is runnable but has no host CPU does not sleep, nor does
/// one that waits for the host's disk or is stopped.
pub(crate) fn sleeps_of_other_threads() -> Option<u64> {
    let own = thread_id().to_string();
    let others = std::fs::read_dir("/proc/self/task").ok()?.flatten().filter(|thread| thread.file_name() != *own);
    // A thread that has ended in the meantime has run.
    others.map(|thread| sleeps(&std::fs::read_to_string(thread.path().join("status")).ok()?)).sum()
}

/// How many times a thread went to sleep, if it sleeps now, from `/proc/PID/task/TID/status`.
fn sleeps(status: &str) -> Option<u64> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("State:")?.starts_with('S').then_some(())?;
    field("voluntary_ctxt_switches:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_thread_that_waits_sleeps_and_one_that_works_does_not() {
        let status = |thread: u32| std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        assert_eq!(sleeps(&status(thread_id())), None);
        let ((tell, told), (wake, woken)) = (channel(), channel::<()>());
        let other = thread::Builder::new().name("State:\tR".into()).spawn(move || {
            tell.send(thread_id()).unwrap();
            while woken.recv().is_ok() {}
        });
        let other_id = told.recv().unwrap();
        let asleep = || loop {
            if let Some(sleeps) = sleeps(&status(other_id)) {
                return sleeps;
            }
            thread::yield_now();
        };
        let before = asleep();
        assert_eq!(asleep(), before, "it has not run");
        wake.send(()).unwrap();
        while asleep() == before {
            thread::yield_now();
        }
        drop(wake);
        other.unwrap().join().unwrap();
        for status in ["", "State:\tS", "State:\tT\nvoluntary_ctxt_switches:\t7"] {
            assert_eq!(sleeps(status), None, "{status}");
        }
        assert_eq!(sleeps("State:\tS (sleeping)\nvoluntary_ctxt_switches:\t7"), Some(7));
    }
}
