//! Workloads of several processes: each executes this program again, with an internal verb.

use crate::error::Error;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process's message when its memory is filled.
const READY: &str = "ready";

/// A process of a workload. Dropping it ends the process.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one, with options separated by single spaces.
    pub fn start(verb: &str, options: &str) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(verb).args(options.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a process was started without pipes"));
        };
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// The next line of its output.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(io::Error::other(format!("a process of the workload ended early: {}", self.child.wait()?)));
        }
        Ok(line)
    }

    /// Waits until its memory is filled.
    pub fn wait_until_ready(&mut self) -> io::Result<()> {
        let line = self.line()?;
        if line.trim_end() == READY { Ok(()) } else { Err(io::Error::other(format!("a process said `{line}`"))) }
    }

    /// Starts its work.
    pub fn go(&mut self) -> io::Result<()> {
        writeln!(self.input)
    }

    /// The result of its work.
    pub fn answer<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has answered ends by itself; one that has not is no longer useful.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In such a process: reports that its memory is filled, and waits for the start signal. It ends when its owner ends,
/// however that happens.
pub fn wait_for_start() -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|why| Error::System(why.into()))?;
    let mut output = io::stdout().lock();
    writeln!(output, "{READY}")?;
    output.flush()?;
    drop(output);
    if io::stdin().read(&mut [0])? == 0 {
        return Err(Error::System(io::Error::other(
            "no process waits for the answers: this verb is started by another one",
        )));
    }
    Ok(())
}
