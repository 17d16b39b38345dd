//! `nearside top`: which threads access which node's memory, live.

mod interval_report;
mod screen;

use crate::UsageError;
use crate::interrupt::interrupted;
use crate::options::machine_source;
use crate::options::process_name::{Named, processes};
use crate::options::regions::RegionsFile;
use crate::options::seconds::seconds;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use crate::verbs::record::Source;
use crate::verbs::record::observable;
use clap::Args;
use linux::{ChildSetup, Pid, Process};
use machine::Machine;
use observe::{Observer, Target, WatchError};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use report::TopReport;
use rustix::process::{Signal, kill_process_group};
use screen::{Screen, Wish};
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval at which rings are drained and keys are read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Watch which processes, threads and objects access which node's memory, live
///
/// Accesses are sampled by the processor if it can (AMD's IBS, Intel's PEBS, Arm's SPE, the lab's virtual PMU), or else
/// observed through the page faults of the kernel's NUMA balancing, if that is on and you are root. If neither is
/// available, it shows where the memory of processes is, and what is allocated on each node. This needs no privileges
/// for your own processes; root sees all. Below the table it says what is missing, and what to do.
///
/// Remote cost is the time spent waiting for memory of other nodes, as a share of all time spent waiting for memory;
/// without latencies, the share of all remote accesses. Local is the share of memory accesses that went to the node of
/// their CPU. Objects are mappings: files, stacks, heaps; to see single allocations, and the lines of source that make
/// them, use `nearside record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: ? all keys; p processes, H threads, o objects, Tab the next view; F6 or > and < the sort order; / a filter, Esc clears it; arrows, PgUp, \
PgDn, Home, End scroll; q, F10 or Ctrl-C end.

Examples:
  nearside top
  sudo nearside top
  nearside top --pid 4711
  nearside top --json --interval 1 -- ./program | jq '.rows[0]'

Exit codes: 0 it was ended, or the program has ended; 1 the kernel refused; 2 the command line is wrong.")]
pub struct Arguments {
    /// Watch these processes and their children: numbers or names, separated by commas
    #[arg(long, value_name = "PID", value_parser = processes, value_delimiter = ',', conflicts_with = "command")]
    pid: Vec<Named>,

    /// Source of memory access samples
    #[arg(long, value_enum, default_value = "auto")]
    source: Source,

    /// Length of an interval, in seconds
    #[arg(long, short, value_name = "SECONDS", default_value = "2", value_parser = seconds(0.1..=3600.0))]
    interval: Duration,

    /// Sampling rate per CPU, in samples per second, if the processor samples accesses [default: 1000]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,

    #[command(flatten)]
    names: RegionsFile,

    /// Print one interval and exit
    #[arg(long)]
    once: bool,

    /// Print each interval as one line of JSON
    #[arg(long)]
    json: bool,

    /// A program to start and watch, with its arguments; top ends when it ends. Its output is not shown
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    arguments.source.check_pace(arguments.rate.is_some())?;
    if arguments.source == Source::Counters {
        return Err(UsageError::boxed("top shows samples of accesses, and --source counters takes none"));
    }
    let (machine, _) = machine_source::running()?;
    let target = match (arguments.command.is_empty(), arguments.pid.as_slice()) {
        (false, _) => Target::Program,
        (true, []) => Target::System,
        (true, pids) => Target::Pids(observable::named(pids)?.iter().map(Process::pid).collect()),
    };
    let mut watched = Watched {
        observer: Observer::open(target, arguments.source.into(), arguments.rate, arguments.names.load()?)?,
        machine,
        program: None,
        stop: interrupted()?,
        interval: arguments.interval,
    };
    if let Some((program, rest)) = arguments.command.split_first() {
        let mut command = Command::new(program);
        command.args(rest).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.with_own_inheritance().spawn().map_err(|error| {
            format!("cannot start {}: {}", program.display(), linux::why_not_started(program, &error))
        })?;
        watched.observer.add_program(Pid(child.id()));
        watched.program = Some(Program(child));
    }
    if arguments.once || arguments.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        watched.print(arguments, terminal)?;
    } else {
        watched.show()?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Watched {
    observer: Observer,
    machine: Machine,
    program: Option<Program>,
    stop: Arc<AtomicBool>,
    interval: Duration,
}

/// The program; it and its children are killed when top ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        if let (Ok(None), Some(group)) = (self.0.try_wait(), rustix::process::Pid::from_raw(self.0.id().cast_signed()))
        {
            // The program may just have ended.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

impl Watched {
    fn is_over(&mut self) -> bool {
        let has_ended = |program: &mut Program| !matches!(program.0.try_wait(), Ok(None));
        self.stop.load(Relaxed) || self.program.as_mut().is_some_and(has_ended)
    }

    /// Ends an interval and reports it.
    fn report(&mut self) -> Result<TopReport, WatchError> {
        let interval = self.observer.end_interval()?;
        Ok(interval_report::report(&self.machine, interval, self.observer.stacks()))
    }

    /// Prints each interval.
    fn print(&mut self, arguments: &Arguments, terminal: Terminal) -> Result<(), Box<dyn Error>> {
        loop {
            let end = Instant::now() + self.interval;
            let mut over = false;
            while !over && Instant::now() < end {
                sleep(POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
                self.observer.look();
                over = self.is_over();
            }
            let report = self.report()?;
            let text = if arguments.json { json::line(&report)? } else { terminal.text(&report) + "\n" };
            if !output::write_more(&text)? || over || arguments.once {
                return Ok(());
            }
        }
    }

    /// Runs on the terminal, which is restored at the end, even after a panic.
    fn show(&mut self) -> Result<(), Box<dyn Error>> {
        let mut terminal = ratatui::try_init().map_err(|error| format!("cannot use the terminal: {error}"))?;
        let shown = self.draw(&mut terminal);
        ratatui::restore();
        shown
    }

    fn draw(&mut self, terminal: &mut ratatui::DefaultTerminal) -> Result<(), Box<dyn Error>> {
        let (mut screen, mut report) = (Screen::default(), TopReport::default());
        // The first interval is short.
        let mut end = Instant::now() + self.interval.min(Duration::from_millis(500));
        loop {
            terminal.draw(|frame| screen.draw(frame, &report))?;
            while !event::poll(POLL_INTERVAL)? {
                self.observer.look();
                if self.is_over() {
                    return Ok(());
                }
                if Instant::now() >= end {
                    report = self.report()?;
                    end = Instant::now() + self.interval;
                    terminal.draw(|frame| screen.draw(frame, &report))?;
                }
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && screen.key(key) == Wish::Quit
            {
                return Ok(());
            }
        }
    }
}
