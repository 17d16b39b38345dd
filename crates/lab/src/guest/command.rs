//! Runs the command under test and carries its streams.

use super::pmu::GuestPmu;
use super::{GuestError, Host, Tried};
use crate::protocol::{self, CHUNK, Ended, Task, ToGuest, ToHost};
use linux::{ChildSetup, Credentials};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long output that is still on its way may take after the command has ended. What it left running in the background
/// may hold its streams open for ever.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Runs the command between the start and the end of measurement. Returns the last message for the host.
pub(crate) fn run(task: &Task, host: &Host, from_host: File, pmu: &GuestPmu) -> Result<ToHost, GuestError> {
    let Some((program, arguments)) = task.command.split_first() else {
        return Ok(ToHost::NotStarted(rustix::io::Errno::INVAL.raw_os_error(), "no command was given".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(task.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(&task.directory);
    command.run_as(Credentials { uid: task.uid, gid: task.gid, groups: task.groups.clone() });
    command.new_session(task.terminal.is_some());
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
    host.tell(&ToHost::Started);
    pmu.switch(model::pmu::Command::Measure)?;
    let spawned = command.spawn();
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(why) => {
            pmu.switch(model::pmu::Command::Rest)?;
            let number = why.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            return Ok(ToHost::NotStarted(number, program.to_string_lossy().into_owned()));
        }
    };
    let ended = carry(&mut child, terminal, host, from_host).tried("start a thread");
    let status = child.wait().tried("wait for the command")?;
    pmu.switch(model::pmu::Command::Rest)?;
    let output = ended?;
    let deadline = Instant::now() + LAST_OUTPUT;
    while let Err(RecvTimeoutError::Timeout) = output.recv_timeout(Duration::from_millis(5)) {
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(ToHost::Ended(ended_as(status)))
}

fn ended_as(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exit(code),
        (None, Some(signal)) => Ended::Signal(signal),
        (None, None) => Ended::Exit(1),
    }
}

/// A terminal's two ends: ours and the command's.
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

/// Starts the threads that carry the streams. The receiver hangs up when all output has been sent.
fn carry(child: &mut Child, terminal: Option<OwnedFd>, host: &Host, from_host: File) -> io::Result<Receiver<()>> {
    let (running, finished) = channel::<()>();
    let forward = |stream: Option<OwnedFd>, message: fn(Vec<u8>) -> ToHost| -> io::Result<()> {
        let Some(stream) = stream else { return Ok(()) };
        let (host, running) = (host.clone(), running.clone());
        thread::Builder::new().spawn(move || {
            forward_output(&mut File::from(stream), &host, message);
            drop(running);
        })?;
        Ok(())
    };
    let input = match &terminal {
        Some(terminal) => {
            forward(Some(terminal.try_clone()?), ToHost::Output)?;
            Some(terminal.try_clone()?)
        }
        None => {
            forward(child.stdout.take().map(OwnedFd::from), ToHost::Output)?;
            forward(child.stderr.take().map(OwnedFd::from), ToHost::Error)?;
            child.stdin.take().map(OwnedFd::from)
        }
    };
    let host = host.clone();
    thread::Builder::new().spawn(move || forward_input(input.map(File::from), terminal, &host, from_host))?;
    Ok(finished)
}

fn forward_output(stream: &mut File, host: &Host, message: fn(Vec<u8>) -> ToHost) {
    let mut buffer = vec![0; CHUNK];
    // A terminal whose last user is gone answers with an error: that is its end.
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        host.tell(&message(buffer[..count].to_vec()));
    }
}

/// Standard input and the terminal's size. Asks for input only while there is somebody who may read it.
fn forward_input(mut input: Option<File>, terminal: Option<OwnedFd>, host: &Host, mut from_host: File) {
    host.tell(&ToHost::WantInput);
    while let Ok(Some(message)) = protocol::receive(&mut from_host) {
        match (message, &mut input) {
            (ToGuest::Input(bytes), Some(to)) if !bytes.is_empty() => {
                if to.write_all(&bytes).is_ok() {
                    host.tell(&ToHost::WantInput);
                } else {
                    input = None;
                }
            }
            (ToGuest::Input(_), _) => input = None,
            (ToGuest::Resize(rows, columns), _) => {
                if let Some(terminal) = &terminal {
                    let _ = resize(terminal, rows, columns);
                }
            }
        }
    }
}
