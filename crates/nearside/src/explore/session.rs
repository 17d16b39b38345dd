//! The cells that run on this machine, in rounds.

use super::run_unit::{Machines, UnitRunner};
use compare::NoRun;
use explore::{Campaign, Cell, Progress, Results, Store, StoreError, UnitOutcome};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs cells on this machine.
pub struct Session<'a> {
    pub campaign: &'a Campaign,
    pub store: &'a Store,
    /// The name of the host, which results have.
    pub host: &'a str,
    /// Set once the user interrupts.
    pub interrupted: Arc<AtomicBool>,
    /// Gets a sentence as each run ends.
    pub say: &'a (dyn Fn(&str) + Sync),
}

/// Why a session ends early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A result cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What every run needs is missing.
    #[error("{0}")]
    Setup(String),
}

/// What nearside in the lab prints before its first run, so that a machine that fails later has failed in a run.
pub const BEGUN: &str = "begun\n";
/// What it prints after its last run, or one that could not be kept: no run is to blame for what follows.
pub const ENDED: &str = "ended\n";
/// A folder that every user can open and lock, and that all processes of the machine see.
const MACHINE_LOCK: &str = "/sys/devices/system";
/// Interval between attempts to lock it.
const TURN: Duration = Duration::from_millis(20);

impl Session<'_> {
    /// Runs these cells until none has runs left. Returns whether the user interrupted.
    pub fn run(&self, cells: &[&Cell], results: &mut Results) -> Result<bool, SessionError> {
        let progress = Progress { campaign: self.campaign };
        if progress.next_round(results, cells).is_none() {
            return Ok(false);
        }
        let machines = Machines::here().map_err(SessionError::Setup)?;
        // In the lab, this clock has nothing to do with the time that a user waits.
        let mut speed = (!machines.simulated).then(Speed::default);
        let mut runner = UnitRunner::new(self.campaign, machines, self.host, self.say, self.interrupted.clone());
        while let Some(round) = progress.next_round(results, cells) {
            for cell in progress.round(results, cells, round) {
                let Ok(_turn) = self.turn() else { return Ok(true) };
                let began = Instant::now();
                let unit = match runner.run(cell, round) {
                    Ok(unit) => unit,
                    Err(NoRun::Interrupted) => return Ok(true),
                    Err(error) => return Err(SessionError::Setup(machine::chain(&error))),
                };
                self.store.keep(&unit)?;
                if let Some(speed) = &mut speed {
                    speed.add(began.elapsed());
                }
                let result = match &unit.outcome {
                    UnitOutcome::Measured(measured) => format!("{:.6} s", measured.seconds),
                    UnitOutcome::Failed { why, .. } => why.clone(),
                };
                results.add(unit);
                let (least, most) = progress.left(results, cells);
                let runs = if least == most { least.to_string() } else { format!("{least} to {most}") };
                let time = speed.as_ref().map(|speed| speed.left(least)).unwrap_or_default();
                (self.say)(&format!("{}, run {}: {result}; {runs} left{time}", cell.name, round + 1));
            }
        }
        Ok(false)
    }

    /// Waits until no other campaign runs a program on this machine: they would measure each other. Ends when the file is
    /// dropped. Fails if the user interrupts. Without the folder there is nothing to wait for.
    fn turn(&self) -> Result<Option<File>, NoRun> {
        let Ok(folder) = File::open(MACHINE_LOCK) else { return Ok(None) };
        let mut is_first = true;
        while let Err(Errno::WOULDBLOCK) = flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            if self.interrupted.load(Relaxed) {
                return Err(NoRun::Interrupted);
            }
            if is_first {
                (self.say)("another nearside explore runs a program on this machine: waiting for its end");
            }
            is_first = false;
            sleep(TURN);
        }
        Ok(Some(folder))
    }
}

/// How long runs take.
#[derive(Default)]
struct Speed {
    runs: u32,
    time: Duration,
}

impl Speed {
    fn add(&mut self, time: Duration) {
        self.runs += 1;
        self.time += time;
    }

    /// The time that this number of runs takes, in words.
    fn left(&self, runs: usize) -> String {
        let mean_s = self.time.as_secs_f64() / f64::from(self.runs.max(1));
        format!(", about {}", minutes(mean_s * runs as f64))
    }
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// The host's load average of one minute.
pub fn load() -> Option<f64> {
    let text = machine::bounded::text(std::path::Path::new("/proc/loadavg"));
    text.ok()?.split_whitespace().next()?.parse().ok()
}

/// Exit status of a boot that could not be started, as an error of the system.
pub fn failed_start(error: &io::Error) -> String {
    format!("cannot start nearside for the lab: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_runs_so_far() {
        let mut speed = Speed::default();
        speed.add(Duration::from_secs(2));
        speed.add(Duration::from_secs(4));
        assert_eq!((speed.left(10).as_str(), speed.left(100).as_str()), (", about 30 s", ", about 5 min"));
    }
}
