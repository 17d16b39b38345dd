//! Signals during a run.

use crate::LabError;
use crate::protocol::ToGuest;
use crate::streams::terminal_size;
use rustix::process::{Signal, pidfd_send_signal};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Signals that end a run.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Restores the default action of signals that ask this process to end. Call it after a run; no further run is possible
/// then.
pub fn default_signals() -> io::Result<Vec<SigId>> {
    ending().map(|signal| register_conditional_default(signal, Arc::new(AtomicBool::new(true)))).collect()
}

fn ending() -> impl Iterator<Item = i32> {
    ENDING.into_iter().filter(|&signal| !linux::is_ignored(signal))
}

/// What signals concern: the machine that runs.
pub(crate) struct SignalledMachine {
    pub(crate) port: UnixStream,
    pub(crate) to_guest: SyncSender<ToGuest>,
    /// QEMU's pidfd. Without it (before Linux 5.3) Ctrl-Z does not stop the machine.
    pub(crate) qemu: Option<OwnedFd>,
}

#[derive(Default)]
struct State {
    /// The signal that has asked this program to end, or 0.
    asked: AtomicI32,
    /// Whether such a signal does not close the port.
    waits: AtomicBool,
    machine: Mutex<Option<SignalledMachine>>,
}

/// Watches signals for the whole of a run.
pub(crate) struct SignalWatch {
    state: Arc<State>,
    handle: Handle,
}

impl SignalWatch {
    pub(crate) fn start() -> Result<Self, LabError> {
        // The kernel does not stop others at Ctrl-Z.
        let stops = Some(SIGTSTP).filter(|signal| !linux::is_ignored(*signal) && linux::is_of_parents_session());
        let signals = Signals::new(ending().chain([SIGWINCH]).chain(stops));
        let mut signals = signals.map_err(LabError::host("watch for signals"))?;
        let watch = Self { state: Arc::default(), handle: signals.handle() };
        let state = watch.state.clone();
        let spawned = thread::Builder::new().spawn(move || signals.forever().for_each(|signal| state.handle(signal)));
        spawned.map_err(LabError::host("start a thread"))?;
        Ok(watch)
    }

    /// From now on signals concern this machine.
    pub(crate) fn follow(&self, machine: SignalledMachine) {
        *self.state.machine.lock().unwrap_or_else(PoisonError::into_inner) = Some(machine);
    }

    /// The signal that has asked this program to end.
    pub(crate) fn asked(&self) -> Option<i32> {
        Some(self.state.asked.load(SeqCst)).filter(|&signal| signal != 0)
    }

    /// Leaves the end of the machine to the caller.
    pub(crate) fn wait(&self, waits: bool) {
        self.state.waits.store(waits, SeqCst);
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl State {
    /// Notes a signal that asks this program to end, and closes the port, which ends the run, unless `waits` is set. A second
    /// signal ends the program at once; QEMU ends with it. Ctrl-Z stops QEMU as long as this program.
    fn handle(&self, signal: i32) {
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let to_qemu = |signal| {
            // Where QEMU has ended, so does this program.
            let qemu = machine.as_ref().and_then(|machine| machine.qemu.as_ref());
            let _ = qemu.map(|qemu| pidfd_send_signal(qemu, signal));
        };
        if signal == SIGWINCH {
            if let (Some(machine), Some((rows, columns))) = (&*machine, terminal_size()) {
                let _ = machine.to_guest.try_send(ToGuest::Resize(rows, columns));
            }
        } else if signal == SIGTSTP {
            to_qemu(Signal::STOP);
            let _ = emulate_default_handler(signal);
            to_qemu(Signal::CONT);
        } else if self.asked.swap(signal, SeqCst) != 0 {
            let _ = emulate_default_handler(signal);
        } else if let (Some(machine), false) = (&*machine, self.waits.load(SeqCst)) {
            let _ = machine.port.shutdown(Shutdown::Both);
        }
    }
}
