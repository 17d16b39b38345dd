//! QEMU's main loop, which runs timers and devices, and waits for its next timer in `ppoll`. This library, which is in
//! `LD_PRELOAD`, interposes that call, and `write`, by which other threads signal work to the main loop. While there is
//! work, simulated time stands still, and timers are due by simulated time.

use crate::thread_role::{self, Role};
use crate::times::{Idle, Times};
use crate::{LAB, Lab, host};
use libc::{c_int, c_uint, c_void, nfds_t, pollfd, sigset_t, size_t, ssize_t, timespec};
use std::ptr::null_mut;

/// Writes of this size signal work between QEMU's threads (`eventfd`).
const EVENT_BYTES: usize = 8;

/// The files that the main loop polls, and its signal mask.
struct Wanted<'a> {
    files: &'a mut [pollfd],
    signals: *const sigset_t,
}

impl Wanted<'_> {
    /// As the kernel's call, for at most this many ns. It also ends when this library wakes the main loop. Returns the
    /// number of ready files, or the error.
    fn poll(&mut self, lab: &Lab, ns: Option<u64>) -> c_int {
        let wake_up = lab.pace.main_loop_wake_up();
        let mut files: Vec<pollfd> = self.files.to_vec();
        files.push(pollfd { fd: wake_up.file(), events: libc::POLLIN, revents: 0 });
        let mut time = ns.map(|ns| timespec {
            tv_sec: (ns / 1_000_000_000).cast_signed(),
            tv_nsec: (ns % 1_000_000_000).cast_signed(),
        });
        let time = time.as_mut().map_or(null_mut(), |time| &raw mut *time);
        // SAFETY: the kernel reads and writes these files and this time, which live across the call; the signals are
        // the caller's. The last number is the size of the kernel's signal set.
        let ready = unsafe {
            libc::syscall(libc::SYS_ppoll, files.as_mut_ptr(), files.len(), time, self.signals, size_of::<u64>())
        } as c_int;
        let woken = files.pop().is_some_and(|own| own.revents != 0);
        if woken {
            wake_up.take();
        }
        if ready < 0 {
            return ready;
        }
        self.files.copy_from_slice(&files);
        ready - c_int::from(woken)
    }

    /// Whether output of the guest waits for its reader.
    fn writes(&self) -> bool {
        self.files.iter().any(|file| file.events & libc::POLLOUT != 0)
    }
}

impl Lab {
    /// Waits for the main loop's next work. Returns the number of ready files.
    fn wait_for_events(&self, mut wanted: Wanted<'_>, ns: Option<u64>) -> c_int {
        if !self.pace.look(Times::measuring) {
            return wanted.poll(self, ns);
        }
        let timer_ps = ns.map(|ns| self.pace.look(Times::now_ps).saturating_add(ns.saturating_mul(1000)));
        loop {
            let calls = self.pace.look(Times::calls);
            let ready = wanted.poll(self, Some(0));
            if ready != 0 || ns == Some(0) || !self.pace.look(Times::measuring) {
                return ready;
            }
            if wanted.writes() {
                // The guest's output waits for its reader, which takes no simulated time.
                self.pace.change(&self.model, |times| times.set_output(true));
                let ready = wanted.poll(self, None);
                self.pace.change(&self.model, |times| times.set_output(false));
                return ready;
            }
            let (ready, idle_ns) = match self.pace.main_loop_waits(timer_ps, calls, &self.model) {
                Idle::Over => return 0,
                Idle::Called => continue,
                Idle::Wait => (wanted.poll(self, None), 0),
                Idle::WithHost(ns) => {
                    let begun_ns = host::now_ns();
                    (wanted.poll(self, Some(ns)), host::now_ns() - begun_ns)
                }
            };
            self.pace.main_loop_works(idle_ns);
            if ready != 0 {
                return ready;
            }
        }
    }
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    files: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    signals: *const sigset_t,
) -> c_int {
    match LAB.get() {
        Some(lab) if thread_role::own() == Role::MainLoop && !(files.is_null() && count > 0) => {
            // SAFETY: the caller promises `count` files, and a time or null.
            let (files, time) = unsafe {
                let files = if count == 0 { &mut [] } else { std::slice::from_raw_parts_mut(files, count as usize) };
                (files, time.as_ref())
            };
            let ns = time.map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
            lab.wait_for_events(Wanted { files, signals }, ns)
        }
        // SAFETY: the caller's pointers go to the kernel, which checks them.
        _ => unsafe { libc::syscall(libc::SYS_ppoll, files, count, time, signals, size_of::<u64>()) as c_int },
    }
}

/// Interposes liburing's function in the whole QEMU process: it fails, as on hosts without `io_uring`, so that QEMU's
/// main loop waits for all of its files in `ppoll`.
#[unsafe(no_mangle)]
pub extern "C" fn io_uring_queue_init(_: c_uint, _: *mut c_void, _: c_uint) -> c_int {
    -libc::ENOSYS
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller's pointer goes to the kernel, which checks it.
    let written = unsafe { libc::syscall(libc::SYS_write, file, bytes, count) } as ssize_t;
    if count == EVENT_BYTES
        && written > 0
        && let Some(lab) = LAB.get()
    {
        match thread_role::own() {
            Role::Cpu(_) => lab.pace.call_main_loop(lab.own_ps()),
            Role::Worker => lab.pace.call_main_loop(None),
            Role::MainLoop | Role::Other => {}
        }
    }
    written
}
