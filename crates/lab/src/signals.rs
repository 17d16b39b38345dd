//! Signals during a run.

use crate::LabError;
use crate::protocol::ToGuest;
use crate::streams::terminal_size;
use rustix::process::{Signal, pidfd_send_signal};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::sync::mpsc::SyncSender;

/// Signals that end a run.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals that a run handles.
pub(crate) fn watched_signals() -> Result<Signals, LabError> {
    let ending = ENDING.into_iter().filter(|&signal| !linux::is_ignored(signal));
    // The kernel does not stop others at Ctrl-Z.
    let stops = Some(SIGTSTP).filter(|signal| !linux::is_ignored(*signal) && linux::is_of_parents_session());
    let others = [SIGWINCH].into_iter().chain(stops);
    Signals::new(ending.chain(others)).map_err(LabError::host("watch for signals"))
}

/// Restores the default action of signals that ask this process to end. Call it after a run; no further run is possible
/// then.
pub fn default_signals() -> io::Result<Vec<SigId>> {
    let ending = ENDING.into_iter().filter(|&signal| !linux::is_ignored(signal));
    ending.map(|signal| register_conditional_default(signal, Arc::new(AtomicBool::new(true)))).collect()
}

/// Notes a signal that asks this program to end, and closes the port, which ends the run, unless `waits` is set. A second
/// signal ends the program at once; QEMU ends with it. Ctrl-Z stops QEMU as long as this program.
pub(crate) fn watch_signals(
    mut signals: Signals,
    (noted, waits): (&AtomicI32, &AtomicBool),
    port: &UnixStream,
    (to_guest, qemu): (&SyncSender<ToGuest>, Option<&OwnedFd>),
) {
    for signal in &mut signals {
        if signal == SIGWINCH {
            if let Some((rows, columns)) = terminal_size() {
                let _ = to_guest.try_send(ToGuest::Resize(rows, columns));
            }
        } else if signal == SIGTSTP {
            // Where QEMU has ended, so does this program.
            let _ = qemu.map(|qemu| pidfd_send_signal(qemu, Signal::STOP));
            let _ = emulate_default_handler(signal);
            let _ = qemu.map(|qemu| pidfd_send_signal(qemu, Signal::CONT));
        } else if noted.swap(signal, SeqCst) == 0 {
            if !waits.load(SeqCst) {
                let _ = port.shutdown(Shutdown::Both);
            }
        } else {
            let _ = emulate_default_handler(signal);
        }
    }
}
