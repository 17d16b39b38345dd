//! `nearside record`: records which objects, threads and nodes a program's memory accesses involve.

pub mod folder;
pub mod observable;
mod options;
pub mod program;
mod summary;

pub use options::{EXIT_CODES, RecordOptions, Source};

use crate::interrupt::interrupted;
use crate::options::machine_source;
use crate::options::process_name::{Named, processes};
use crate::options::usage_error::UsageError;
use crate::output;
use clap::Args;
use linux::Pid;
use observe::{Followed, Recorded, Recorder, Target};
use program::{NotStarted, Program};
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};
use trace::About;

/// Exit code of failures that are not the program's own; programs seldom use it.
pub const FAILED: u8 = 125;
/// The command line is wrong; clap's exit code.
const WRONG: u8 = 2;
/// Interval between two checks of a program that is no longer recorded.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The heading of the options of a recording, where others beside them are not for a command.
pub const RECORDING: &str = "Recording";

/// Record a program's memory accesses and the objects accessed
///
/// Starts the program with this terminal, environment and user, and writes a trace of it into a folder: sampled memory
/// accesses (thread, code, address, node, latency), and the lifetimes of its processes, threads, mappings and objects.
/// The program is not changed; its child processes are recorded, too.
///
/// With --pid, running processes are recorded until they end or Ctrl-C. Of their objects only static data, files and
/// stacks are known: heap objects are reported from inside a program, from its start on.
///
/// Ctrl-C is passed to the program, and the trace is complete when the program ends; a second one ends the recording at
/// once. The recording ends with the program: child processes still running are no longer recorded.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  nearside record -- ./program --its-options
  nearside record -o before --small-objects 256 -- make check
  nearside record --pid 4711 --duration 10
  nearside lab run --machine opteron-6164x2 --out traces -- nearside record -o traces/first -- ./program

{EXIT_CODES}

Environment: NEARSIDE_PRELOAD (the library that reports objects, if it is not installed beside nearside)."))]
pub struct Arguments {
    #[command(flatten)]
    options: RecordOptions,

    /// Write a summary as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Record running processes and their children: numbers or names, separated by commas
    #[arg(long, short, value_name = "PID", value_parser = processes, value_delimiter = ',', conflicts_with = "command")]
    pid: Vec<Named>,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "pid")]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let record = |()| if arguments.pid.is_empty() { record_program(arguments) } else { record_processes(arguments) };
    let status = arguments.options.check().and_then(record);
    ExitCode::from(status.unwrap_or_else(|error| failed(error.as_ref(), FAILED)))
}

/// Prints an error, and returns the exit code for it; `other` if it has none of its own.
pub fn failed(error: &(dyn Error + 'static), other: u8) -> u8 {
    crate::print_error(error);
    if error.is::<UsageError>() { WRONG } else { error.downcast_ref::<NotStarted>().map_or(other, NotStarted::status) }
}

impl Arguments {
    /// Records a command.
    pub fn new(options: RecordOptions, command: Vec<OsString>) -> Self {
        Self { options, json: None, pid: Vec::new(), command }
    }

    /// Records a running process.
    pub fn of_process(options: RecordOptions, pid: u32) -> Self {
        Self { options, json: None, pid: vec![Named::Number(pid)], command: Vec::new() }
    }
}

/// Records a program, and returns its exit code.
pub fn record_program(arguments: &Arguments) -> Result<u8, Box<dyn Error>> {
    let Arguments { options, command, .. } = arguments;
    let (mut recorder, library) = begin(arguments, &Target::Program)?;
    let variables = recorder.environment(library.as_deref());
    let mut program = match Program::start(command, |command| {
        command.envs(variables);
    }) {
        Ok(program) => program,
        Err(error) => {
            recorder.take_back()?;
            return Err(error.into());
        }
    };
    recorder.add_process(program.pid());
    let trace = recorder.follow(&mut program, options.duration);
    if let Err(error) = &trace {
        crate::print_error(error);
    }
    // A failure of the recording must not end the program.
    while !program.is_over() {
        program.wait(POLL_INTERVAL);
    }
    let Ok(trace) = trace else { return Ok(FAILED) };
    let status = program.status()?;
    // The trace is complete, and callers wait for the program's status.
    if let Err(error) = summary::print(options, arguments.json.as_deref(), &trace, status) {
        crate::print_error(error.as_ref());
    }
    Ok(program.exit_code())
}

/// Records running processes.
fn record_processes(arguments: &Arguments) -> Result<u8, Box<dyn Error>> {
    record_running(arguments, interrupted()?)?;
    Ok(0)
}

/// Records running processes until the flag is set.
pub fn record_running(arguments: &Arguments, interrupted: Arc<AtomicBool>) -> Result<Recorded, Box<dyn Error>> {
    let mut processes = observable::open(&arguments.pid, interrupted, arguments.options.quiet)?;
    let (mut recorder, _) = begin(arguments, &Target::Pids(processes.pids()))?;
    processes.pids().into_iter().for_each(|pid: Pid| recorder.add_process(pid));
    let trace = recorder.follow(&mut processes, arguments.options.duration)?;
    summary::print(&arguments.options, arguments.json.as_deref(), &trace, None)?;
    Ok(trace)
}

/// Opens all sources and begins the trace.
pub fn begin(arguments: &Arguments, target: &Target) -> Result<(Recorder, Option<PathBuf>), Box<dyn Error>> {
    let Arguments { options, command, json, .. } = arguments;
    json.as_deref().map_or(Ok(()), output::check)?;
    let folder = options.output.clone().unwrap_or_else(|| folder::unused(Path::new("")));
    let (machine, simulated) = machine_source::running()?;
    let (sources, library) = options.sources(target, command, &machine)?.open()?;
    Ok((Recorder::begin(sources, &folder, &machine, about(command, simulated))?, library))
}

fn about(command: &[OsString], simulated: bool) -> About {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    About {
        host: text(uname.nodename()),
        kernel: text(uname.release()),
        architecture: text(uname.machine()),
        began_unix_s: began.map_or(0, |began| began.as_secs()),
        simulated,
        ..About::of_command(command.iter().map(|part| part.to_string_lossy().into_owned()).collect())
    }
}
