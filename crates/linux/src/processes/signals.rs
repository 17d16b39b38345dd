//! Signals: what was inherited from the parent process, and what threads do not get.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether SIGPIPE was ignored when this process was started. Rust's runtime ignores it in any case, before `main`.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section has functions of this type, which the dynamic linker calls, on one thread, before Rust's runtime.
// This one needs nothing of that: it makes one system call through the C library.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_pipe_signal;

extern "C" fn note_pipe_signal() {
    // SAFETY: all bytes zero are a `sigaction`, and without a new action the call only writes the old one.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
        action
    };
    PIPE_WAS_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Relaxed);
}

/// Whether this process was started with SIGPIPE ignored, as services of systemd are. Its programs should be, too.
pub(crate) fn pipe_was_ignored() -> bool {
    PIPE_WAS_IGNORED.load(Relaxed)
}

/// Whether this process was started with a signal ignored, as by `nohup` and by shells without job control. Such a
/// signal should stay ignored. Needs no privileges.
pub fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| parse_ignored(&status, signal))
}

fn parse_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

/// Does something while the calling thread gets no signals. Threads that are started meanwhile get none for their lives.
pub fn with_signals_blocked<T>(what: impl FnOnce() -> T) -> T {
    // SAFETY: a set of signals is plain data that `sigfillset` and `pthread_sigmask` fill.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the sets are valid.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let result = what();
    // SAFETY: the set is the one that the thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_status() {
        let text = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        let ignored: Vec<i32> = (-1..70).filter(|&signal| parse_ignored(text, signal)).collect();
        assert_eq!(ignored, [1, 13]);
        assert!(!parse_ignored("", 1));
    }
}
