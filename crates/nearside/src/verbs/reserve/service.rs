//! How a program does, by the lines of a command.

use crate::options::policy::note;
use clap::Args;
use reserve::Service;
use rustix::process::{Pid, Signal, kill_process_group};
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// Longest line that is read, in bytes.
const MOST_BYTES: u64 = 256;
/// Lines that wait to be read. A command that prints more waits.
const MOST_LINES: usize = 64;

/// The command that says how the program does.
#[derive(Debug, Args)]
pub struct ServiceOptions {
    /// Let the rest of the machine have less while the program misses its target, and more again later. The shell's command
    /// runs beside the program, and prints a line with a number of ms at the end of each period of its own (10 ms and more).
    /// After 5 s without a line the rest slowly gets everything back
    #[arg(long, value_name = "COMMAND", requires = "slo_target_ms")]
    slo_command: Option<String>,
    /// The most that the command's numbers are to be
    #[arg(long, value_name = "MS", value_parser = target, requires = "slo_command")]
    slo_target_ms: Option<f64>,
}

fn target(text: &str) -> Result<f64, String> {
    let target_ms = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    let checked = Service { latency_ms: 0.0, target_ms }.check();
    checked.map(|service| service.target_ms).map_err(|error| error.to_string())
}

impl ServiceOptions {
    /// The command, if there is one.
    pub fn watched(&self) -> Option<Watched<'_>> {
        Some(Watched { command: self.slo_command.as_deref()?, target_ms: self.slo_target_ms? })
    }
}

/// A command that says how a program does, and what is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    command: &'a str,
    target_ms: f64,
}

impl Watched<'_> {
    /// Starts the command.
    pub fn start(self) -> Result<SaidService, Box<dyn Error>> {
        let mut shell = Command::new("/bin/sh");
        let started =
            shell.args(["-c", self.command]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn();
        let mut child = started.map_err(|error| format!("cannot start --slo-command (/bin/sh): {error}"))?;
        let (sender, lines) = sync_channel(MOST_LINES);
        let output = child.stdout.take();
        thread::spawn(move || output.map(|output| for_each_line(output, |line| sender.send(line).is_ok())));
        Ok(SaidService { child, lines, target_ms: self.target_ms, has_noted: false, has_ended: false })
    }
}

/// Reads lines until the end, or until they are not wanted. Of a long line only the beginning counts.
fn for_each_line(output: ChildStdout, mut is_wanted: impl FnMut(String) -> bool) {
    let mut output = BufReader::new(output);
    let (mut line, mut is_rest) = (Vec::new(), false);
    while output.by_ref().take(MOST_BYTES).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let is_whole = line.ends_with(b"\n");
        if !is_rest && !is_wanted(String::from_utf8_lossy(&line).into_owned()) {
            return;
        }
        is_rest = !is_whole;
        line.clear();
    }
}

/// What a command says. It is killed when this is dropped, with what it has started.
#[derive(Debug)]
pub struct SaidService {
    child: Child,
    lines: Receiver<String>,
    target_ms: f64,
    has_noted: bool,
    has_ended: bool,
}

impl SaidService {
    /// What it has said since the last call.
    pub fn next(&mut self) -> Vec<Service> {
        let mut said = Vec::new();
        while !self.has_ended && said.len() < MOST_LINES {
            match self.lines.try_recv() {
                Ok(line) => match read(&line, self.target_ms) {
                    Some(service) => said.push(service),
                    None if self.has_noted => {}
                    None => {
                        let line = linux::printable(line.trim());
                        note(&format!(
                            "--slo-command has printed `{line}`, which is no number of ms: such lines are left out"
                        ));
                        self.has_noted = true;
                    }
                },
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    note("--slo-command has ended: the rest of the machine slowly gets back what it had");
                    self.has_ended = true;
                }
            }
        }
        said
    }
}

impl Drop for SaidService {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn read(line: &str, target_ms: f64) -> Option<Service> {
    let latency_ms = line.trim().parse().ok()?;
    Service { latency_ms, target_ms }.check().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn numbers_are_heard_and_the_command_is_killed() {
        let command = "echo 1.5; echo x; echo -3; echo NaN; head -c 1000 /dev/zero; echo; echo 2; exec sleep 1000";
        let mut said = Watched { command, target_ms: 3.0 }.start().unwrap();
        let (mut heard, began) = (Vec::new(), Instant::now());
        while heard.len() < 2 && began.elapsed() < Duration::from_secs(30) {
            heard.extend(said.next());
            thread::sleep(Duration::from_millis(5));
        }
        let of = |latency_ms| Service { latency_ms, target_ms: 3.0 };
        assert_eq!((heard.as_slice(), said.has_noted, said.has_ended), ([of(1.5), of(2.0)].as_slice(), true, false));
        let pid = Pid::from_child(&said.child);
        drop(said);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn targets_are_figures() {
        assert_eq!(target("2.5"), Ok(2.5));
        for wrong in ["0", "-1", "NaN", "inf", "x", ""] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
