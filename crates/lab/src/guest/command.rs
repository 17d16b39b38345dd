//! Runs the command under test and forwards its streams.

use super::pmu::GuestPmu;
use super::shake::Shaking;
use super::{GuestError, Host, Tried};
use crate::protocol::{self, CHUNK, Ended, Task, ToGuest, ToHost};
use linux::{ChildSetup, Credentials, SharedWords};
use model::pmu::Pmu;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the streams stay open after the command has ended, and how much more data is accepted: processes that it
/// left running may hold them open for ever, and the last output may be late on a busy host. The amount is the largest
/// pipe that a user may have (Linux, fs.pipe-max-size), so that all output of the command itself arrives.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
const LAST_BYTES: usize = 1 << 20;

/// Runs the command between the start and the end of measurement. Returns the last message for the host.
pub(crate) fn run(task: &Task, host: &Host, from_host: File, pmu: &GuestPmu) -> Result<ToHost, GuestError> {
    let Some((program, arguments)) = task.command.split_first() else {
        return Ok(ToHost::NotStarted(Errno::INVAL.raw_os_error(), "no command was given".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    if task.time_scale > 1 {
        // A value set by the user takes precedence.
        command.env(crate::TIME_SCALE, task.time_scale.to_string());
    }
    command.envs(task.environment.iter().map(|(name, value)| (name, value)));
    command.run_as(Credentials { uid: task.uid, gid: task.gid, groups: task.groups.clone() });
    command.new_session(task.terminal.is_some());
    // The command inherits both.
    if let Err(why) = std::env::set_current_dir(&task.directory) {
        return Ok(ToHost::NoDirectory(error_number(&why)));
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(task.umask));
    let terminal = task.terminal.map(open_terminal).transpose().tried("open a terminal")?;
    let terminal = if let Some((ours, theirs)) = terminal {
        let copy = || theirs.try_clone().map(Stdio::from).tried("open a terminal");
        command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
        Some(ours)
    } else {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        None
    };

    let registers = pmu.pmu()?;
    registers.set_with_names(task.sample_names);
    registers.set_period(task.sample_period);
    host.send(&ToHost::Started);
    pmu.switch(model::pmu::Command::Measure)?;
    let spawned = command.spawn();
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(why) => {
            pmu.switch(model::pmu::Command::Rest)?;
            return Ok(ToHost::NotStarted(error_number(&why), program.to_string_lossy().into_owned()));
        }
    };
    let shaking = task.shake.map(Shaking::start).transpose()?;
    let carried = carry(&mut child, terminal, host, from_host, pmu.words()).tried("start a thread");
    let ended = wait_for(&child).tried("wait for the command")?;
    pmu.switch(model::pmu::Command::Rest)?;
    if let Some(shaking) = shaking {
        host.send(&ToHost::Shaken(shaking.end()?));
    }
    carried?.end();
    Ok(ToHost::Ended(ended))
}

pub(crate) fn error_number(why: &io::Error) -> i32 {
    why.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

/// Waits for the end of the command. This is the guest's first process, and so the parent of all processes whose parent
/// has ended: unless it waits for them, they stay zombies.
fn wait_for(command: &Child) -> io::Result<Ended> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == command.id() => {
                return Ok(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ended::Exit(code),
                    (None, Some(signal)) => Ended::Signal(signal),
                    (None, None) => Ended::Exit(1),
                });
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// The two ends of a terminal: nearside's and the command's.
fn open_terminal((rows, columns): (u16, u16)) -> io::Result<(OwnedFd, File)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let theirs = File::options().read(true).write(true).open(name.to_string_lossy().as_ref())?;
    resize(&ours, rows, columns)?;
    Ok((ours, theirs))
}

fn resize(terminal: impl AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

/// The threads that forward the command's output.
struct Carried {
    threads: Vec<JoinHandle<()>>,
    /// Closed to signal that the command has ended.
    running: OwnedFd,
}

impl Carried {
    /// Waits until all output of the ended command has reached the host.
    fn end(self) {
        drop(self.running);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Starts the threads that forward the streams.
fn carry(
    child: &mut Child,
    terminal: Option<OwnedFd>,
    host: &Host,
    from_host: File,
    pmu: Arc<SharedWords>,
) -> io::Result<Carried> {
    // A terminal's input comes from a person, and simulated time must not stop for it.
    let pmu = terminal.is_none().then_some(pmu);
    let (ended, running) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let unheard = Unheard::default();
    let mut threads = Vec::new();
    let mut forward = |stream: Option<OwnedFd>, message: fn(Vec<u8>) -> ToHost, unheard: &Arc<AtomicBool>| {
        let Some(stream) = stream else { return Ok(()) };
        let (host, unheard, ended) = (host.clone(), unheard.clone(), ended.try_clone()?);
        let forward = move || forward_output(&mut File::from(stream), &ended, &unheard, &host, message);
        threads.push(thread::Builder::new().spawn(forward)?);
        io::Result::Ok(())
    };
    let input = if let Some(terminal) = &terminal {
        forward(Some(terminal.try_clone()?), ToHost::Output, &unheard.output)?;
        Some(terminal.try_clone()?)
    } else {
        forward(child.stdout.take().map(OwnedFd::from), ToHost::Output, &unheard.output)?;
        forward(child.stderr.take().map(OwnedFd::from), ToHost::Error, &unheard.error)?;
        child.stdin.take().map(OwnedFd::from)
    };
    let (parts, from_host_parts) = channel();
    let host = host.clone();
    let ask = move || {
        host.send(&ToHost::WantInput);
        // After the request: simulated time stands still from here on.
        if let Some(pmu) = pmu.as_ref().and_then(|words| Pmu::open(words).ok()) {
            pmu.ask_for_input();
        }
    };
    thread::Builder::new().spawn(move || forward_input(input.map(File::from), &from_host_parts, &ask))?;
    let command = rustix::process::Pid::from_child(child);
    // It can be signalled until it is waited for, and no other process instead of it.
    let command = pidfd_open(command, PidfdFlags::empty())?;
    thread::Builder::new().spawn(move || listen(from_host, &parts, terminal.as_ref(), (&unheard, &command)))?;
    Ok(Carried { threads, running })
}

/// Streams whose reader on the host has closed them.
#[derive(Default)]
struct Unheard {
    output: Arc<AtomicBool>,
    error: Arc<AtomicBool>,
}

/// Sends what the command writes, until all writers have closed the stream, its reader has, or the command has ended
/// and its remaining output is sent. The command gets SIGPIPE if it writes on.
fn forward_output(
    stream: &mut File,
    ended: &OwnedFd,
    unheard: &AtomicBool,
    host: &Host,
    message: fn(Vec<u8>) -> ToHost,
) {
    let mut buffer = vec![0; CHUNK];
    let mut deadline = None;
    let mut left = LAST_BYTES;
    while left > 0 && wait_for_output(stream, ended, &mut deadline) {
        // A terminal whose last user has closed it returns an error, which means end of file.
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        if unheard.load(Relaxed) {
            return;
        }
        host.send(&message(buffer[..count].to_vec()));
        if deadline.is_some() {
            left = left.saturating_sub(count);
        }
    }
}

/// Waits until there is input or an end of file. Returns false if the command has ended and nothing more arrived in
/// time; the deadline is set once the end is known.
fn wait_for_output(stream: &File, ended: &OwnedFd, deadline: &mut Option<Instant>) -> bool {
    loop {
        let mut polled = vec![PollFd::new(stream, PollFlags::IN)];
        let patience = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if deadline.is_none() {
            polled.push(PollFd::new(ended, PollFlags::IN));
        }
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        match poll(&mut polled, patience.as_ref()) {
            Err(Errno::INTR) => continue,
            Err(_) => return false,
            Ok(_) => {}
        }
        if !polled[0].revents().is_empty() {
            return true;
        }
        if deadline.is_some() {
            return false;
        }
        *deadline = Some(Instant::now() + LAST_OUTPUT);
    }
}

/// Receives the host's messages, which must never wait for the command.
fn listen(
    mut from_host: File,
    parts: &Sender<Vec<u8>>,
    terminal: Option<&OwnedFd>,
    (unheard, command): (&Unheard, &OwnedFd),
) {
    while let Ok(Some(message)) = protocol::receive(&mut from_host) {
        match message {
            ToGuest::Continue | ToGuest::Start(_) => {}
            ToGuest::Input(bytes) => drop(parts.send(bytes)),
            ToGuest::OutputClosed => unheard.output.store(true, Relaxed),
            ToGuest::ErrorClosed => unheard.error.store(true, Relaxed),
            ToGuest::Resize(rows, columns) => {
                if let Some(terminal) = terminal {
                    let _ = resize(terminal, rows, columns);
                }
            }
            ToGuest::Signal(number) => {
                // It may have ended.
                let _ = Signal::from_named_raw(number).map(|signal| pidfd_send_signal(command, signal));
            }
        }
    }
}

/// Standard input. Requests more only when the command has read the last part.
fn forward_input(input: Option<File>, parts: &Receiver<Vec<u8>>, ask: &dyn Fn()) {
    let Some(mut input) = input else { return };
    ask();
    // An empty part means end of file.
    while let Ok(bytes) = parts.recv() {
        if bytes.is_empty() || input.write_all(&bytes).is_err() {
            break;
        }
        ask();
    }
}
