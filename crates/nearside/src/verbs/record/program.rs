//! The recorded program: finds and starts it, forwards signals, and waits for it.

use compare::ProgramTimes;
use linux::{BeginTime, ChildSetup, Process, first_thread_share, monotonic_ns, why_not_started};
use observe::Followed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, pidfd_open, waitid};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH,
};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Signals that are forwarded to the program: those that others send and programs handle, without those of faults, files,
/// children and job control, and without real-time ones.
const FORWARDED: [i32; 12] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGURG];
/// Signals that request the end. The second request ends a recording without waiting for the program.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// Signals within this time are one request, unless they are of keys or the later one is SIGQUIT: `timeout` and batch systems send them to a process
/// and then to its whole group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// The program, running.
pub struct Program {
    child: Child,
    /// Becomes readable when the program ends. Linux 5.3.
    ended: Option<OwnedFd>,
    signals: Signals,
    /// When a signal requested the end first, and which one.
    asked_to_end: Option<(Instant, i32)>,
    /// The second signal that requested the end.
    left_by: Option<i32>,
    status: Option<i32>,
    first_thread_share: Option<f64>,
    began_ns: u64,
    /// Writes its times when it ends.
    timekeeper: Option<JoinHandle<()>>,
    /// Whether signals end this process as they would without a program: handlers stay when their reader has gone.
    is_over: Arc<AtomicBool>,
}

/// Why the program does not run.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {}: {}", program.display(), why_not_started(program.as_os_str(), why))]
pub struct NotStarted {
    program: PathBuf,
    why: io::Error,
}

impl NotStarted {
    /// The exit codes that shells use.
    pub fn status(&self) -> u8 {
        if self.why.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

impl Program {
    /// Starts it with this process's streams and environment, and the given preparation.
    pub fn start(command: &[OsString], prepare: impl FnOnce(&mut Command)) -> Result<Self, NotStarted> {
        let (program, arguments) = command.split_first().map_or((OsStr::new(""), command), |(p, a)| (p.as_os_str(), a));
        let mut command = Command::new(program);
        command.args(arguments);
        prepare(&mut command);
        Self::spawn(command)
    }

    /// Starts a command.
    pub fn spawn(mut command: Command) -> Result<Self, NotStarted> {
        let program = PathBuf::from(command.get_program());
        let failed = |why| NotStarted { program: program.clone(), why };
        // Installed before the start, so that no signal ends this process instead of the program.
        let told = FORWARDED.into_iter().filter(|&signal| !linux::is_ignored(signal));
        let signals = Signals::new(told).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        for signal in ENDING.into_iter().filter(|&signal| !linux::is_ignored(signal)) {
            signal_hook::flag::register_conditional_default(signal, is_over.clone()).map_err(failed)?;
        }
        command.with_own_inheritance();
        let begin = BeginTime::new().and_then(|begin| command.note_begin(&begin).map(|_| begin));
        let child = command.spawn().map_err(failed)?;
        let began_ns = begin.and_then(|begin| begin.ns()).unwrap_or_else(|_| monotonic_ns());
        let ended = Pid::from_raw(child.id().cast_signed());
        let ended = ended.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let (asked_to_end, left_by, timekeeper) = (None, None, None);
        let (status, first_thread_share) = (None, None);
        Ok(Self {
            child,
            ended,
            signals,
            asked_to_end,
            left_by,
            status,
            first_thread_share,
            began_ns,
            timekeeper,
            is_over,
        })
    }

    /// Writes to this file when it began and ends, as soon as it ends; nothing without pidfd (before Linux 5.3) or
    /// where no thread can be made.
    pub fn write_times(&mut self, file: &Path) {
        let Some(ended) = self.ended.as_ref().and_then(|ended| ended.try_clone().ok()) else { return };
        let (file, began_ns) = (file.to_owned(), self.began_ns);
        let keep = move || {
            while poll(&mut [PollFd::new(&ended, PollFlags::IN)], None) == Err(Errno::INTR) {}
            // The comparison then counts this process's time.
            let _ = ProgramTimes { began_ns, ended_ns: Some(monotonic_ns()) }.write(&file);
        };
        self.timekeeper = thread::Builder::new().spawn(keep).ok();
    }

    pub fn pid(&self) -> linux::Pid {
        linux::Pid(self.child.id())
    }

    /// Its exit status, 128 + n where signal n ended it; none while it runs.
    pub fn status(&mut self) -> io::Result<Option<i32>> {
        if self.status.is_none() && self.is_to_be_waited_for() {
            let process = Process::open(self.pid()).ok();
            self.first_thread_share = process.as_ref().and_then(first_thread_share);
            let ended = self.child.try_wait()?;
            self.status = ended.map(|status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        Ok(self.status)
    }

    /// Whether it has ended. What the system knows of it is there until it is waited for.
    fn is_to_be_waited_for(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = Pid::from_raw(self.child.id().cast_signed());
        pid.is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), look), Ok(None)))
    }

    /// The part of its CPU time, and of its children's, that its first thread had; none while it runs.
    pub fn first_thread_share(&self) -> Option<f64> {
        self.first_thread_share
    }

    /// Nearside's exit code after it: the program's exit status, or 128 + n if signal n ended the recording.
    pub fn exit_code(&self) -> u8 {
        let left = self.left_by.map(|signal| 128 + signal);
        self.status.or(left).map_or(0, |status| (status & 0xff) as u8)
    }

    fn forward_signals(&mut self) {
        for number in self.signals.pending() {
            // For keys of a terminal, the terminal has signalled the program already.
            let by_keys = [SIGINT, SIGQUIT, SIGWINCH].contains(&number) && in_foreground();
            if ENDING.contains(&number) {
                match self.asked_to_end {
                    None => self.asked_to_end = Some((Instant::now(), number)),
                    Some((first, kind))
                        if !by_keys && first.elapsed() < ONE_REQUEST && (number != SIGQUIT || kind == SIGQUIT) => {}
                    Some(_) => self.left_by = Some(number),
                }
            }
            let signal = Signal::from_named_raw(number).filter(|_| !by_keys && self.status.is_none());
            if let (Some(signal), Some(pid)) = (signal, Pid::from_raw(self.child.id().cast_signed())) {
                // The program may just have ended; until `status` reaps it, its pid is not reused.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(timekeeper) = self.timekeeper.take().filter(|_| self.status.is_some()) {
            let _ = timekeeper.join();
        }
    }
}

impl Followed for Program {
    /// Also over when the user ends the recording while the program runs.
    fn is_over(&mut self) -> bool {
        self.has_ended() || self.left_by.is_some()
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.status(), Ok(None))
    }

    fn exit_status(&mut self) -> Option<i32> {
        self.status().ok().flatten()
    }

    /// Forwards signals as well.
    fn wait_for(&mut self, news: Option<BorrowedFd<'_>>, patience: Duration) {
        // Those that came before do not end the wait.
        self.forward_signals();
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let files = self.ended.iter().map(AsFd::as_fd).chain(news);
        let mut polled: Vec<PollFd<'_>> = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        // A signal ends the wait early; without the descriptor the program's end is noticed a little later.
        let _ = poll(&mut polled, Some(&patience));
        self.forward_signals();
    }
}

/// Whether this process is in its terminal's foreground group, which gets signals from keys.
fn in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}
