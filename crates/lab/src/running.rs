//! A virtual machine that runs: its messages, streams and end.

use crate::LabError;
use crate::console::Console;
use crate::kernel_module::KernelModule;
use crate::protocol::{Start, ToGuest, ToHost, receive, send};
use crate::qemu_files::QemuFiles;
use crate::run::{Event, Outcome, Run, Stage};
use crate::saved_boot::{SavedBoot, Saving, Slot};
use crate::setup::Assets;
use crate::signals::{SignalWatch, SignalledMachine};
use crate::streams::{self, Closed, forward_input, terminal_size};
use linux::SharedWords;
use model::Measured;
use model::pmu::{self, Pmu};
use rustix::process::{PidfdFlags, pidfd_open};
use rustix::rand::{GetRandomFlags, getrandom};
use signal_hook::consts::{SIGKILL, SIGQUIT, SIGTERM};
use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Limit of host time for booting: a busy host with few cores needs a minute for 48 CPUs.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// The same for continuing a saved boot, which takes a few seconds: after it the machine boots.
const CONTINUE_LIMIT: Duration = Duration::from_secs(60);
/// Host time that a command gets to end once it is asked to. Half of it after the first signal, it gets another one.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Host time that a slow reader of the command's output gets from then on.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// What helps a guest that takes too long.
const MORE_TIME: &str = ": give it more time with --timeout, fewer CPUs, or a less busy host";
/// Longest sleep of the run. Samples leave the ring at least at this interval, so that it only overflows if they arrive
/// faster.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Capacity of the message queue. If this program cannot write the command's output, the guest has to wait, too.
const MESSAGES_WAITING: usize = 16;
const KILLED: &str = "\nthis host may have run out of memory: ask for less with --memory-per-node";

/// The state in which a virtual machine begins.
pub(crate) enum Origin {
    /// Switched off. Once it has booted, its state is saved here.
    Boot(Option<Slot>),
    /// Booted.
    Saved(SavedBoot),
}

/// What does not depend on whether the machine boots.
pub(crate) struct Attempt<'a> {
    pub(crate) assets: &'a Assets,
    pub(crate) run: &'a Run,
    pub(crate) signals: SignalWatch,
    pub(crate) started: Instant,
}

/// Why a machine did not run its command.
pub(crate) struct Failed {
    pub(crate) why: LabError,
    /// Whether it was a saved boot's state that failed, and there is time for a boot.
    pub(crate) may_boot: bool,
}

impl Attempt<'_> {
    /// Runs the machine.
    pub(crate) fn make(
        &self,
        files: &QemuFiles,
        origin: Origin,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Outcome, Failed> {
        let is_saved = matches!(origin, Origin::Saved(_));
        let mut stage = if is_saved { Stage::Continuing } else { Stage::Booting };
        tell(Event::Stage(stage));
        let mut machine = Running::start(self, files, origin).map_err(|why| Failed { why, may_boot: false })?;
        let result = machine.follow(self, &mut stage, files.pmu_words(), tell);
        machine.end();
        machine.wait_until_saved(self);
        result.map_err(|why| {
            let is_states = match (stage, &why) {
                (Stage::Continuing, why) => !matches!(why, LabError::Interrupted(_)),
                (Stage::Preparing, LabError::Qemu { .. } | LabError::Panic { .. } | LabError::Timeout { .. }) => {
                    is_saved
                }
                _ => false,
            };
            Failed { why, may_boot: is_states && self.has_time() }
        })
    }

    fn has_time(&self) -> bool {
        self.run.timeout.is_none_or(|limit| self.started.elapsed() < limit)
    }
}

/// A virtual machine and its threads. Dropping it ends the machine, and with it the threads, but for one that waits for
/// standard input.
struct Running {
    qemu: Child,
    port: UnixStream,
    console: Console,
    messages: Receiver<io::Result<Option<ToHost>>>,
    to_guest: SyncSender<ToGuest>,
    input_wanted: SyncSender<()>,
    /// How its state is saved once it has booted.
    saving: Option<Saving>,
    /// Compresses that state.
    saved: Option<JoinHandle<()>>,
}

impl Running {
    fn start(attempt: &Attempt<'_>, files: &QemuFiles, origin: Origin) -> Result<Self, LabError> {
        let Attempt { assets, run, ref signals, .. } = *attempt;
        let (port, guest_port) = socket_for_qemu()?;
        let copy = || port.try_clone().map_err(LabError::host("copy a socket"));
        let (mut from_port, mut to_port, closed_by_signal) = (copy()?, copy()?, copy()?);
        let is_saved = matches!(origin, Origin::Saved(_));
        let (mut qemu, saving) = match origin {
            Origin::Boot(slot) => {
                let (monitor, theirs) = socket_for_qemu()?;
                let saving = slot.and_then(|slot| Saving::new(monitor, slot));
                (files.boot(assets, run, &guest_port, saving.as_ref().map(|_| &theirs))?, saving)
            }
            Origin::Saved(saved) => (files.continue_saved(assets, run, &guest_port, saved)?, None),
        };
        drop(guest_port);

        let console = Console::follow(qemu.stdout.take(), qemu.stderr.take());
        let (sender, messages) = sync_channel(MESSAGES_WAITING);
        let (to_guest, for_guest) = sync_channel::<ToGuest>(MESSAGES_WAITING);
        // The guest requests one part at a time; further requests are ignored.
        let (input_wanted, wanted) = sync_channel(1);
        let machine = rustix::process::Pid::from_raw(qemu.id().cast_signed());
        let machine = machine.and_then(|qemu| pidfd_open(qemu, PidfdFlags::empty()).ok());
        signals.follow(SignalledMachine { port: closed_by_signal, to_guest: to_guest.clone(), qemu: machine });
        let words = files.pmu_words();
        let threads = [
            thread::Builder::new().spawn(move || {
                loop {
                    let message = receive(&mut from_port);
                    let last = !matches!(message, Ok(Some(_)));
                    if sender.send(message).is_err() || last {
                        break;
                    }
                }
            }),
            thread::Builder::new().spawn({
                let words = words.clone();
                move || send_all(&for_guest, &mut to_port, &words)
            }),
            thread::Builder::new().spawn({
                let (to_guest, words) = (to_guest.clone(), words.clone());
                move || forward_input(&wanted, &to_guest, &|questions| answer_input(&words, questions))
            }),
        ];
        let mut machine = Self { qemu, port, console, messages, to_guest, input_wanted, saving, saved: None };
        for thread in threads {
            if let Err(why) = thread {
                machine.end();
                return Err(LabError::Host { what: "start a thread", why });
            }
        }
        if is_saved {
            machine.send(ToGuest::Continue);
        }
        Ok(machine)
    }

    fn send(&self, message: ToGuest) {
        // If the machine has ended, the next message from it says so.
        let _ = self.to_guest.send(message);
    }

    /// Saves the state of the machine, which has booted, and lets it continue.
    fn save(&mut self, attempt: &Attempt<'_>) -> Result<(), LabError> {
        let Attempt { run, ref signals, started, .. } = *attempt;
        if let Some(saving) = self.saving.take() {
            let limit = limit(Stage::Booting, run);
            match saving.save(&|| signals.asked().is_none() && started.elapsed() < limit) {
                Ok(saved) => self.saved = saved,
                Err(why) => {
                    self.time_left(Stage::Booting, attempt, &mut None)?;
                    let runs = matches!(self.qemu.try_wait(), Ok(None));
                    let is_cut_off = matches!(why.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe);
                    return Err(match why {
                        why if runs && !is_cut_off => LabError::Host { what: "save the booted machine", why },
                        _ => self.died(Stage::Booting, signals),
                    });
                }
            }
        }
        self.send(ToGuest::Continue);
        Ok(())
    }

    /// Waits until the saved state is compressed, so that it is not lost with this process.
    fn wait_until_saved(&mut self, attempt: &Attempt<'_>) {
        if let Some(saved) = self.saved.take() {
            while !saved.is_finished() && attempt.signals.asked().is_none() && attempt.has_time() {
                thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Tells the guest what to run.
    fn send_task(&self, run: &Run) -> Result<(), LabError> {
        let mut entropy = [0; 32];
        getrandom(&mut entropy, GetRandomFlags::empty()).map_err(LabError::host("draw random numbers"))?;
        let mut task = run.task.clone();
        // It may have changed while the machine booted.
        let terminal = task.terminal.and(terminal_size()).or(task.terminal);
        task.terminal = terminal;
        self.send(ToGuest::Start(Box::new(Start {
            task,
            modules: run.kernel_modules.iter().map(KernelModule::for_guest).collect(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            entropy,
        })));
        // Sizes that were sent before it are lost.
        if let Some((rows, columns)) = terminal.and(terminal_size()).filter(|size| Some(*size) != terminal) {
            self.send(ToGuest::Resize(rows, columns));
        }
        Ok(())
    }

    /// Handles messages from the first to the last.
    fn follow(
        &mut self,
        attempt: &Attempt<'_>,
        stage: &mut Stage,
        words: &SharedWords,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Outcome, LabError> {
        let Attempt { run, ref signals, started, .. } = *attempt;
        let saved_boot = matches!(stage, Stage::Continuing);
        let (mut began, mut boot) = (started, Duration::ZERO);
        let mut output = Output { to: io::stdout(), closed: ToGuest::OutputClosed, open: true };
        let mut error = Output { to: io::stderr(), closed: ToGuest::ErrorClosed, open: true };
        let mut ending: Option<Ending> = None;
        loop {
            let limit = limit(*stage, run);
            let left = self.time_left(*stage, attempt, &mut ending)?;
            let message = self.messages.recv_timeout(left.min(POLL_INTERVAL));
            if run.task.sample_period != 0 {
                pass_samples(words, tell);
            }
            let message = match message {
                Ok(Ok(Some(message))) => message,
                Err(RecvTimeoutError::Timeout) => continue,
                Ok(Err(why)) if why.kind() == io::ErrorKind::InvalidData => {
                    return Err(LabError::Host { what: "understand the guest", why });
                }
                Ok(Ok(None) | Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.died(*stage, signals)),
            };
            // Output with a slow reader must not outlast the run.
            let over = Cell::new(ending.as_ref().map(|ending| ending.since));
            let go_on = || {
                if over.get().is_none() && signals.asked().is_none() && started.elapsed() < limit {
                    return true;
                }
                let since = over.get().unwrap_or_else(Instant::now);
                over.set(Some(since));
                run.asks_to_end && since.elapsed() < LAST_OUTPUT
            };
            match message {
                ToHost::Booted => self.save(attempt)?,
                ToHost::Preparing => {
                    *stage = Stage::Preparing;
                    tell(Event::Stage(*stage));
                    self.send_task(run)?;
                }
                ToHost::Started => {
                    (began, boot) = (Instant::now(), started.elapsed());
                    *stage = Stage::Running;
                    signals.wait(run.asks_to_end);
                    tell(Event::Stage(*stage));
                }
                ToHost::WantInput => drop(self.input_wanted.try_send(())),
                ToHost::Output(bytes) => output.write(&bytes, &self.to_guest, &go_on)?,
                ToHost::Error(bytes) => error.write(&bytes, &self.to_guest, &go_on)?,
                ToHost::NotStarted(number, command) => {
                    return Err(LabError::NotStarted { command, why: io::Error::from_raw_os_error(number) });
                }
                ToHost::NoDirectory(number) => {
                    let path = PathBuf::from(&run.task.directory);
                    return Err(LabError::NoDirectory { path, why: io::Error::from_raw_os_error(number) });
                }
                ToHost::NotKept(number) => {
                    let path = PathBuf::from(run.task.out.as_deref().unwrap_or_default());
                    return Err(LabError::NotKept { path, why: io::Error::from_raw_os_error(number) });
                }
                ToHost::Shaken(shaken) => tell(Event::Shaken(shaken)),
                ToHost::WriterKilled => tell(Event::WriterKilled),
                ToHost::Failed(what) => return Err(LabError::Guest { what, console: self.console.tail() }),
                ToHost::Ended(ended) => {
                    if run.task.sample_period != 0 {
                        pass_samples(words, tell);
                    }
                    let ((measured, samples_dropped), ran) = (last_measured(words)?, began.elapsed());
                    let out_of_memory = self.console.out_of_memory();
                    let cut_short = ending.map(|ending| ending.why);
                    return Ok(Outcome {
                        ended,
                        measured,
                        samples_dropped,
                        out_of_memory,
                        boot,
                        saved_boot,
                        ran,
                        cut_short,
                    });
                }
            }
        }
    }

    /// How long to wait for the next message at most. Fails if the run has to end: see [`Run::asks_to_end`].
    fn time_left(
        &self,
        stage: Stage,
        attempt: &Attempt<'_>,
        ending: &mut Option<Ending>,
    ) -> Result<Duration, LabError> {
        let Attempt { run, ref signals, started, .. } = *attempt;
        let limit = limit(stage, run);
        let left = limit.saturating_sub(started.elapsed());
        let (signal, why) = match signals.asked() {
            Some(signal) => (signal, LabError::Interrupted(signal)),
            None if left.is_zero() => (SIGTERM, self.timed_out(stage, limit)),
            None => return Ok(left),
        };
        if !run.asks_to_end || stage != Stage::Running {
            return Err(why);
        }
        let mut now = ending.take().unwrap_or_else(|| Ending { signal, why, since: Instant::now(), sent: 0 });
        if !now.go_on(&self.to_guest) {
            return Err(now.why);
        }
        *ending = Some(now);
        Ok(END_LIMIT)
    }

    /// The port was closed, by a signal handler or because QEMU ended.
    fn died(&mut self, stage: Stage, signals: &SignalWatch) -> LabError {
        if let Some(signal) = signals.asked() {
            return LabError::Interrupted(signal);
        }
        // A machine that only closed the port still has to be ended; one that has ended has an exit status.
        thread::sleep(Duration::from_millis(100));
        let ours = matches!(self.qemu.try_wait(), Ok(None));
        let _ = self.qemu.kill();
        let ended = self.qemu.wait();
        let killed = ended.as_ref().is_ok_and(|status| status.signal() == Some(SIGKILL));
        let advice = if killed && !ours { KILLED } else { "" };
        let status = ended.map_or_else(|why| why.to_string(), |status| status.to_string());
        self.console.wait();
        let when = when(stage);
        match self.console.panic() {
            Some(reason) => LabError::Panic { when, reason, console: self.console.tail() },
            None => LabError::Qemu { when, status, advice, said: self.console.tail() },
        }
    }

    fn timed_out(&self, stage: Stage, limit: Duration) -> LabError {
        let (not_done, advice) = match stage {
            Stage::Continuing => ("did not continue its saved boot", MORE_TIME),
            Stage::Booting => ("did not boot", MORE_TIME),
            Stage::Preparing => ("did not begin the command", MORE_TIME),
            Stage::Running => ("did not end the command", ", as --timeout asks"),
        };
        LabError::Timeout { state: not_done, limit, advice, console: self.console.tail() }
    }

    /// Ends QEMU.
    fn end(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = self.port.shutdown(Shutdown::Both);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Two connected sockets: this program's, and one that QEMU inherits.
fn socket_for_qemu() -> Result<(UnixStream, UnixStream), LabError> {
    let (ours, theirs) = UnixStream::pair().map_err(LabError::host("make a pair of sockets"))?;
    // The other is close-on-exec, as every file that Rust opens.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(LabError::host("pass a socket on"))?;
    Ok((ours, theirs))
}

/// A command that was asked to end.
struct Ending {
    /// The first signal for it. The second is SIGQUIT, which `nearside record` takes for a second request, however little time
    /// has passed in the guest.
    signal: i32,
    why: LabError,
    since: Instant,
    /// Signals sent so far.
    sent: u32,
}

impl Ending {
    /// Sends the signals that are due. Returns whether there is time left.
    fn go_on(&mut self, to_guest: &SyncSender<ToGuest>) -> bool {
        let is_due = self.since.elapsed() >= END_LIMIT / 2 * self.sent;
        // The queue may be full for a moment.
        let signal = if self.sent == 0 { self.signal } else { SIGQUIT };
        if is_due && self.sent < 2 && to_guest.try_send(ToGuest::Signal(signal)).is_ok() {
            self.sent += 1;
        }
        self.since.elapsed() < END_LIMIT
    }
}

/// An output stream of the command, on the host's side.
struct Output<S> {
    to: S,
    /// The message to the guest once the reader has closed it.
    closed: ToGuest,
    open: bool,
}

impl<S: AsFd> Output<S> {
    fn write(
        &mut self,
        bytes: &[u8],
        to_guest: &SyncSender<ToGuest>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        if self.open {
            match streams::write(self.to.as_fd(), bytes, go_on) {
                Ok(()) => return Ok(()),
                Err(Closed::ByReader) => self.open = false,
                Err(Closed::ByError(why)) => return Err(LabError::Host { what: "write the command's output", why }),
            }
        }
        // The queue may be full; further output will retry.
        let _ = to_guest.try_send(self.closed.clone());
        Ok(())
    }
}

/// Sends each part as it comes, until the guest has ended.
fn send_all(messages: &Receiver<ToGuest>, port: &mut UnixStream, words: &SharedWords) {
    let mut parts = 0;
    while let Ok(message) = messages.recv()
        && send(port, &message).is_ok()
    {
        // The guest requests one part at a time, and gets it.
        parts += u64::from(matches!(message, ToGuest::Input(_)));
        answer_input(words, parts);
    }
}

/// Resumes the guest's simulated time: this many of its requests for input are answered.
fn answer_input(words: &SharedWords, questions: u64) {
    if let Ok(pmu) = Pmu::open(words) {
        pmu.answer_input(questions);
    }
}

/// Drains the sample ring, unless the guest itself takes the samples. A guest that fills it faster than it drains must
/// not keep this loop running for ever.
fn pass_samples(words: &SharedWords, tell: &mut dyn FnMut(Event)) {
    if let Ok(pmu) = Pmu::open(words) {
        std::iter::from_fn(|| pmu.pop()).take(pmu::SLOTS as usize).for_each(|sample| tell(Event::Sample(sample)));
    }
}

/// What the model has measured from the command's start to its end, and the number of samples that found no room.
fn last_measured(words: &SharedWords) -> Result<(Measured, u64), LabError> {
    let pmu = Pmu::open(words).map_err(io::Error::other).map_err(LabError::host("read the PMU"))?;
    let published = pmu.last_counters_json().map_err(LabError::host("read the counters"))?;
    let measured = serde_json::from_slice(&published.json).map_err(LabError::host("read the counters"))?;
    Ok((measured, pmu.dropped()))
}

/// The limit of host time from the start of the run to the end of a phase.
fn limit(stage: Stage, run: &Run) -> Duration {
    match (stage, run.timeout) {
        (Stage::Running, limit) => limit.unwrap_or(Duration::MAX),
        (Stage::Continuing, limit) => limit.unwrap_or(Duration::MAX).min(CONTINUE_LIMIT),
        (_, limit) => limit.unwrap_or(BOOT_LIMIT),
    }
}

fn when(stage: Stage) -> &'static str {
    match stage {
        Stage::Continuing => "while the guest continued its saved boot",
        Stage::Booting => "while the guest booted",
        Stage::Preparing => "before the command began",
        Stage::Running => "while the command ran",
    }
}
