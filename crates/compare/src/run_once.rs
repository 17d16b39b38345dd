//! One run of the program: start, watch, end.

use crate::guard::Guard;
use crate::numad::Numad;
use crate::program_times::ProgramTimes;
use explore::Seconds;
use linux::{BeginTime, ChildSetup, Pid, Switch, monotonic_ns, system_events};
use model::Measured;
use observe::{LabCount, LabCounters};
use report::MemoryCounts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between counter readings: a program may report later that only some milliseconds of it count.
const COUNTERS_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between checks for Ctrl-C, and of the size of the output, when no counters are read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for a program to end once it is asked to.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for new counters to appear.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(5);
/// Most that a program may print, as its output is kept in memory until its end.
const MOST_PRINTED: u64 = 64 << 20;
/// Of each stream of a program that failed, bytes that are kept: a progress bar is one long line.
const MOST_LAST: usize = 16 << 10;
/// Maximum number of readings kept; beyond it, every second one is dropped.
const MOST_COUNTS: usize = 4096;

/// Runs programs, one at a time.
pub struct Runner {
    counters: Option<LabCounters>,
    interrupted: Arc<AtomicBool>,
    guard: Option<Guard>,
}

/// Result of a run.
pub struct RunOutput {
    /// Its exit status.
    pub status: ExitStatus,
    /// From its `exec` to its end.
    pub wall_seconds: f64,
    /// Standard output.
    pub printed: String,
    /// Standard error.
    pub complained: String,
    /// Pages that the kernel moved during the run.
    pub pages_moved: Option<u64>,
    /// CPU time that numad used.
    pub numad_seconds: Option<f64>,
    began_ns: u64,
    ended_ns: u64,
    counts: Vec<LabCount>,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum NoRun {
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: String,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// The process could not be registered with the daemon.
    #[error("{0}")]
    Numad(String),
    /// It printed more than it may, and was ended.
    #[error(
        "it was ended because it had printed more than {}: write what is not needed to a file, or /dev/null",
        machine::size::format(MOST_PRINTED)
    )]
    Loud,
    /// It ran longer than it may, and was ended.
    #[error("it was ended after {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The kernel stopped it, as no program of a comparison has the terminal.
    #[error("it was stopped as it uses the terminal, which programs have no part of here: give it its input in a file")]
    Terminal,
    /// The kernel's NUMA balancing is not as it was at the start.
    #[error(
        "kernel.numa_balancing was {before} at its start and {after} at its end: something else changed it meanwhile"
    )]
    Switched {
        /// The value at its start.
        before: String,
        /// The value at its end.
        after: String,
    },
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Environment variables to set, or to remove.
    pub environment: &'a [(String, Option<String>)],
    /// Longest time until its end.
    pub timeout: Option<Duration>,
}

impl<'a> Invocation<'a> {
    /// This command in nearside's own environment, for as long as it takes.
    pub fn plain(command: &'a [OsString]) -> Self {
        Self { command, environment: &[], timeout: None }
    }
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> NoRun {
    move |why| NoRun::System { what: what.into(), why }
}

impl Runner {
    /// A runner that reads the lab's counters, if there are any, and ends programs once `interrupted` is set.
    pub fn new(counters: Option<LabCounters>, interrupted: Arc<AtomicBool>) -> Self {
        Self { counters, interrupted, guard: None }
    }

    /// Whether the user has interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Runs a program to its end, with empty standard input. If the user interrupts, the program and its children are
    /// ended.
    pub fn run(&mut self, invocation: &Invocation<'_>) -> Result<RunOutput, NoRun> {
        self.run_with(invocation, None)
    }

    /// The same, under numad.
    pub(crate) fn run_with(&mut self, invocation: &Invocation<'_>, numad: Option<&Numad>) -> Result<RunOutput, NoRun> {
        let balancing = || Switch::numa_balancing().value().ok();
        let balancing_before = balancing();
        let command = invocation.command;
        let (program, arguments) = command.split_first().map_or((OsStr::new(""), command), |(p, a)| (p.as_os_str(), a));
        let stream = |name| memfd_create(name, MemfdFlags::CLOEXEC).map(File::from).map_err(io::Error::from);
        let [mut output, mut error] = [
            stream("output").map_err(system("make a file in memory"))?,
            stream("error").map_err(system("make a file in memory"))?,
        ];
        let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(system("make a file in memory"));
        let mut start = Command::new(program);
        start.args(arguments).stdin(Stdio::null()).stdout(copy(&output)?).stderr(copy(&error)?);
        for (name, value) in invocation.environment {
            match value {
                Some(value) => start.env(name, value),
                None => start.env_remove(name),
            };
        }
        // Ctrl-C is for nearside, which ends the program.
        let begin = BeginTime::new().map_err(system("make a pipe"))?;
        start.process_group(0).die_with_parent().with_own_inheritance();
        start.note_begin(&begin).map_err(system("make a pipe"))?;
        let mut counts = Vec::new();
        self.take_counts_after(monotonic_ns(), &mut counts);
        if self.guard.is_none() {
            self.guard = Some(Guard::start().map_err(system("start sh"))?);
        }
        let moved_before = pages_moved();
        let failed = system(format!("start `{}`", start.get_program().display()));
        let mut child = start.spawn().map_err(failed)?;
        let began_ns = begin.ns().unwrap_or_else(|_| monotonic_ns());
        // Of a killed nearside, the kernel ends the program, and the guard its children.
        let guard = |runner: &mut Self, group| runner.guard.iter_mut().for_each(|guard| guard.guard(group));
        guard(self, Some(child.id()));
        let told = numad.map_or(Ok(()), |numad| numad.add(Pid(child.id()))).map_err(NoRun::Numad);
        let ended = told.and_then(|()| self.wait(&mut child, invocation.timeout, [&output, &error], &mut counts));
        let ended_ns = monotonic_ns();
        let status = match ended {
            Ok(status) => status,
            Err(why) => {
                end(&mut child);
                guard(self, None);
                return Err(why);
            }
        };
        guard(self, None);
        let switched = balancing_before.zip(balancing()).filter(|(before, after)| before != after);
        if let Some((before, after)) = switched {
            return Err(NoRun::Switched { before, after });
        }
        let pages_moved = moved_before.zip(pages_moved()).map(|(before, after)| after.saturating_sub(before));
        let numad_seconds = numad.and_then(Numad::cpu_seconds);
        self.take_counts_after(ended_ns, &mut counts);
        Ok(RunOutput {
            status,
            wall_seconds: seconds_between(began_ns, ended_ns),
            printed: text(&mut output).map_err(system("read what the program printed"))?,
            complained: text(&mut error).map_err(system("read what the program printed"))?,
            pages_moved,
            numad_seconds,
            began_ns,
            ended_ns,
            counts,
        })
    }

    /// Waits for its end, and reads counters while it runs.
    fn wait(
        &mut self,
        child: &mut Child,
        timeout: Option<Duration>,
        outputs: [&File; 2],
        counts: &mut Vec<LabCount>,
    ) -> Result<ExitStatus, NoRun> {
        let began = Instant::now();
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed());
        // Without the descriptor (before Linux 5.3) its end is noticed a little later.
        let ended = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let patience = if self.counters.is_some() { COUNTERS_INTERVAL } else { POLL_INTERVAL };
        let patience = Timespec::try_from(patience).unwrap_or_default();
        loop {
            let mut polled: Vec<PollFd<'_>> = ended.iter().map(|ended| PollFd::new(ended, PollFlags::IN)).collect();
            // A signal interrupts the sleep.
            let _ = poll(&mut polled, Some(&patience));
            let state = pid.map_or(Waited::Unknown, waited);
            if state == Waited::WantsTerminal {
                return Err(NoRun::Terminal);
            }
            if let Some(pid) = pid.filter(|_| state == Waited::Ended) {
                // What the program left running would disturb the next run. Its number is its own until it is reaped.
                let _ = kill_process_group(pid, Signal::KILL);
            }
            let reaped =
                if state == Waited::Runs { None } else { child.try_wait().map_err(system("wait for the program"))? };
            if let Some(status) = reaped {
                let is_ending = status.signal().and_then(Signal::from_named_raw);
                let is_ending =
                    is_ending.is_some_and(|signal| [Signal::HUP, Signal::INT, Signal::TERM].contains(&signal));
                let since = Instant::now();
                while is_ending && !self.is_interrupted() && since.elapsed() < SIGNAL_DELAY {
                    sleep(COUNTERS_INTERVAL);
                }
                return Ok(status);
            }
            if self.is_interrupted() {
                return Err(NoRun::Interrupted);
            }
            if outputs.iter().any(|output| output.metadata().is_ok_and(|file| file.len() > MOST_PRINTED)) {
                return Err(NoRun::Loud);
            }
            if let Some(timeout) = timeout.filter(|timeout| began.elapsed() >= *timeout) {
                return Err(NoRun::Late(timeout));
            }
            counts.extend(self.counters.as_mut().and_then(LabCounters::news));
            if counts.len() > MOST_COUNTS {
                let mut index = 0;
                counts.retain(|_| (index % 2 == 0, index += 1).0);
            }
        }
    }

    /// Waits until there are counters at least this recent, ns.
    fn take_counts_after(&mut self, time_ns: u64, counts: &mut Vec<LabCount>) {
        let Some(counters) = &mut self.counters else { return };
        let since = Instant::now();
        while since.elapsed() < COUNTERS_TIMEOUT && counts.last().is_none_or(|count| count.time_ns < time_ns) {
            match counters.news() {
                Some(count) => counts.push(count),
                None => sleep(Duration::from_millis(1)),
            }
        }
    }
}

fn seconds_between(began_ns: u64, ended_ns: u64) -> f64 {
    ended_ns.saturating_sub(began_ns) as f64 / 1e9
}

/// What is known of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    Runs,
    /// It is stopped, as it read from the terminal or changed it in the background.
    WantsTerminal,
    /// It stays to be reaped.
    Ended,
    /// The kernel has reaped it, as where SIGCHLD is ignored.
    Unknown,
}

fn waited(pid: rustix::process::Pid) -> Waited {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => match status.stopping_signal().and_then(Signal::from_named_raw) {
            Some(Signal::TTIN | Signal::TTOU) => Waited::WantsTerminal,
            // A user may stop it, and continue it.
            Some(_) => Waited::Runs,
            None if status.stopped() => Waited::Runs,
            None => Waited::Ended,
        },
        Ok(None) => Waited::Runs,
        Err(_) => Waited::Unknown,
    }
}

/// A signal to a whole job, as of batch systems, may reach this process that much later than the program.
const SIGNAL_DELAY: Duration = Duration::from_millis(500);

/// Ends a program and its children, by SIGKILL if necessary.
fn end(child: &mut Child) {
    let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) else { return };
    // Processes that have ended need no signal.
    let _ = kill_process_group(group, Signal::TERM);
    // What is stopped gets no other signal.
    let _ = kill_process_group(group, Signal::CONT);
    let since = Instant::now();
    while since.elapsed() < END_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
        sleep(COUNTERS_INTERVAL);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// What was written to a file, as text.
fn text(file: &mut File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(2 * MOST_PRINTED).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Pages migrated since boot, between nodes, or within one to make room for huge pages. Since Linux 3.8.
fn pages_moved() -> Option<u64> {
    system_events(Path::new("/proc")).ok()?.get("pgmigrate_success").copied()
}

impl RunOutput {
    /// What the machine's memory did in a part of the run, from `began_ns` on for `seconds`; or in all of it.
    pub fn memory(&self, part: Option<(u64, f64)>) -> Option<MemoryCounts> {
        let (before, after) = self.counted(part)?;
        MemoryCounts::between(&before, &after)
    }

    /// The lab's counters at the start and the end of a part of the run, or of all of it.
    pub fn counted(&self, part: Option<(u64, f64)>) -> Option<(Measured, Measured)> {
        let (from, until) = part.map_or((self.began_ns, self.ended_ns), |(began_ns, seconds)| {
            (began_ns, began_ns.saturating_add((seconds * 1e9) as u64))
        });
        let before = self.counts.iter().rfind(|count| count.time_ns <= from).or(self.counts.first())?;
        let after = self.counts.iter().find(|count| count.time_ns >= until).or(self.counts.last())?;
        Some((before.measured()?, after.measured()?))
    }

    /// Counts the program's own time alone, where another verb of nearside started it.
    pub(crate) fn limit_to(&mut self, times: ProgramTimes) {
        (self.began_ns, self.ended_ns) = times.within(self.began_ns, self.ended_ns);
        self.wall_seconds = seconds_between(self.began_ns, self.ended_ns);
    }

    /// Why the run failed; `None` if its status is 0.
    pub fn failure(&self) -> Option<String> {
        match (self.status.code(), self.status.signal()) {
            (Some(0), _) => None,
            (Some(code), _) => Some(format!("exit status {code}")),
            (None, Some(signal)) => Some(format!("signal {signal} ended it")),
            (None, None) => Some("it ended without a status".to_owned()),
        }
    }

    /// The time that the program printed, on either stream, and when that began, ns, where the same JSON has it.
    pub fn printed_time(&self, pattern: &Seconds) -> Option<(f64, Option<u64>)> {
        let of = |text: &String| Some((pattern.find_in(text)?, pattern.began_ns(text)));
        [&self.printed, &self.complained].into_iter().find_map(of)
    }

    /// The last lines of both streams, of each at most [`MOST_LAST`] bytes.
    pub fn last_lines(&self, most: usize) -> String {
        let lines = |text: &str| {
            let first = text.len().saturating_sub(MOST_LAST);
            let text = (first..text.len()).find_map(|at| text.get(at..)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines.get(lines.len().saturating_sub(most)..).unwrap_or_default().join("\n")
        };
        let [printed, complained] = [lines(&self.printed), lines(&self.complained)];
        if printed.is_empty() || complained.is_empty() { printed + &complained } else { printed + "\n" + &complained }
    }
}
