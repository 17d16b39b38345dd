//! Programs that begin one after another and go on until all of them are killed: how long their passes take once all work
//! (the benchmark of isolation of Razavi: Performance isolation on multicore hardware, 2011, section 7.3). Unlike programs
//! that start together and end one by one, all have the same neighbours while they are timed. While one begins, those
//! before it are stopped: the study lets them work, but nothing is timed then.

use crate::error::Error;
use crate::options::CrowdOptions;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Interval between looks at the files of passes.
const LOOK: Duration = Duration::from_millis(1);

/// Passes that are not counted once all work: one was stopped, and one finds the caches as others left them.
const SKIPPED: usize = 2;

/// A program that runs. Dropping it ends the program.
struct Member<'a> {
    command: &'a str,
    child: Child,
    /// The file with the times of its passes.
    passes: PathBuf,
}

/// How long a program's passes took.
#[derive(Debug, Serialize)]
struct Paced<'a> {
    command: &'a str,
    /// Passes that are counted.
    passes: usize,
    /// Mean time of a pass, s.
    seconds: f64,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Crowd<'a> {
    verb: &'static str,
    /// Sum of all programs' times, s: the study's formulas 7.1 and 7.2.
    seconds: f64,
    /// The same of the first ones, which are watched.
    watched_seconds: f64,
    members: Vec<Paced<'a>>,
}

/// Starts the programs in turn, and prints how long their passes take.
pub fn run(options: &CrowdOptions) -> Result<(), Error> {
    let folder = tempfile::tempdir().map_err(Error::System)?;
    let mut members: Vec<Member<'_>> = Vec::new();
    for (index, command) in options.commands.iter().enumerate() {
        let mut member = Member::start(command, folder.path().join(index.to_string())).map_err(Error::System)?;
        member.wait_for(1).and_then(|()| member.signal(Signal::STOP)).map_err(Error::System)?;
        members.push(member);
    }
    let before = members.iter().map(Member::times).collect::<io::Result<Vec<_>>>().map_err(Error::System)?;
    members.iter().try_for_each(|member| member.signal(Signal::CONT)).map_err(Error::System)?;
    let skipped: Vec<usize> = before.iter().map(|times| times.len() + SKIPPED).collect();
    for (member, skipped) in members.iter_mut().zip(&skipped) {
        member.wait_for(skipped + options.passes).map_err(Error::System)?;
    }
    let counted = members.iter().zip(&skipped).map(|(member, skipped)| member.counted(*skipped));
    let times = counted.collect::<io::Result<Vec<_>>>().map_err(Error::System)?;
    print(options, &Crowd::new(&times, options.watched)).map_err(Error::from)
}

impl<'a> Crowd<'a> {
    fn new(times: &[(&'a str, Vec<f64>)], watched: usize) -> Self {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let paced =
            |(command, times): &(&'a str, Vec<f64>)| Paced { command, passes: times.len(), seconds: mean(times) };
        let members: Vec<Paced<'_>> = times.iter().map(paced).collect();
        let sum = |count| members.iter().take(count).map(|member| member.seconds).sum();
        Self { verb: "crowd", seconds: sum(members.len()), watched_seconds: sum(watched), members }
    }
}

fn print(options: &CrowdOptions, crowd: &Crowd<'_>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    if options.json {
        serde_json::to_writer(&mut output, crowd)?;
        return writeln!(output);
    }
    for Paced { command, passes, seconds } in &crowd.members {
        writeln!(output, "{seconds:.6} s a pass, mean of {passes}: {command}")?;
    }
    writeln!(output, "{:.6} s a pass of all together", crowd.seconds)
}

impl<'a> Member<'a> {
    fn start(command: &'a str, passes: PathBuf) -> io::Result<Self> {
        let mut words = command.split_whitespace();
        let program = words.next().ok_or_else(|| io::Error::other("a command is empty"))?;
        let mut program = Command::new(program);
        program.args(words).arg("--passes").arg(&passes).stdin(Stdio::null()).stdout(Stdio::null());
        let child = program.spawn().map_err(|error| io::Error::other(format!("cannot start `{command}`: {error}")))?;
        Ok(Self { command, child, passes })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits until it has made that many passes.
    fn wait_for(&mut self, passes: usize) -> io::Result<()> {
        while self.times()?.len() < passes {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("`{}` ended: {status}", self.command)));
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Its command, and the times of its passes but the first ones.
    fn counted(&self, skipped: usize) -> io::Result<(&'a str, Vec<f64>)> {
        Ok((self.command, self.times()?.split_off(skipped)))
    }

    /// Times of its passes so far, s.
    fn times(&self) -> io::Result<Vec<f64>> {
        match fs::read_to_string(&self.passes) {
            Ok(text) => text.lines().map(|line| line.parse().map_err(io::Error::other)).collect(),
            // It has not come so far yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        // One that has ended by itself was reported when it was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_means_and_their_sum() {
        let crowd = Crowd::new(&[("a", vec![1.0, 3.0]), ("b", vec![0.5])], 1);
        assert_eq!((crowd.seconds, crowd.watched_seconds), (2.5, 2.0));
        assert_eq!((crowd.members[0].seconds, crowd.members[0].passes), (2.0, 2));
    }
}
