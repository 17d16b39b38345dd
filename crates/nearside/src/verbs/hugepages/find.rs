//! `nearside hugepages find`: records a program and shows its falsely shared huge pages.

use crate::interrupt::interrupted;
use crate::open_trace::Reading;
use crate::options::policy::note;
use crate::options::process_name::process;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::scratch::scratch_folder;
use crate::output::terminal::Terminal;
use crate::verbs::lab::{LabRecordArguments, MachineOptions, record_in_lab};
use crate::verbs::record::{self, RECORDING, RecordOptions, observable};
use clap::{Arg, Args, Command};
use linux::Pid;
use profile::Filter;
use report::HugePagesReport;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Exit code if something is found.
const FOUND: u8 = 3;
/// Exit code of failures that are not the program's own.
const FAILED: u8 = 125;
/// How long running processes are recorded, and at most, if too few samples are known by then.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(80);
/// The share of the samples in huge pages from which on enough huge pages have a verdict.
const ENOUGH: f64 = 0.9;

/// Show which huge pages are falsely shared, by whom, and what small pages would gain
///
/// Reads a trace, or records a program (here, or with --machine in the lab) or a running process. The first line is the
/// verdict; then follow the objects with their huge pages, and the falsely shared ones with the owner of each part. A
/// page needs 16 samples for a verdict, and 32 for a sure one; with --pid and without --duration, the recording is
/// repeated with twice the length, up to 80 seconds, until the pages with 90 % of the samples have a verdict.
#[derive(Debug, Args)]
#[command(
    mut_arg("machine", |machine| machine.required(false).help("Record on this machine of the lab: a preset or a file; or the machine \
        that a trace was recorded on")),
    mut_arg("output", |output| output.help("Keep the trace in this folder [default: it is removed]").conflicts_with("trace")),
    mut_arg("quiet", |quiet| quiet.help("Print nothing about the recording")),
    mut_args(|option| {
        let is_of_recording = option.get_help_heading() == Some(RECORDING) || is_of_lab(&option);
        if is_of_recording && option.get_id() != "machine" { option.conflicts_with("trace") } else { option }
    }),
    after_help = "\
Examples:
  nearside hugepages find -- ./program --its-options
  nearside hugepages find --machine xeon-6130x2 --numa-balancing off -- ./program
  nearside hugepages find --pid 4711
  nearside hugepages find trace --json - | jq '.blocks[] | select(.sharing == \"falsely_shared\")'

Exit codes:
  0  no falsely shared huge page that is worth a cure
  1  the trace cannot be read, or has no sample of an access
  2  the command line is wrong
  3  something was found
  125, 126, 127  the recording failed, the program cannot be run, there is no such program
  others  the program's own, if it failed: then nothing is shown")]
pub struct Arguments {
    /// A trace of nearside record, or a perf.data file
    #[arg(value_name = "TRACE", conflicts_with_all = ["command", "pid"])]
    trace: Option<PathBuf>,

    /// Record a running process and its children
    #[arg(long, short, value_name = "PID", value_parser = process, conflicts_with = "command")]
    pid: Option<u32>,

    /// Rows of each part
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// Write the result as JSON to this file (see docs/huge-pages.md); - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    machine: Option<MachineOptions>,

    #[command(flatten, next_help_heading = RECORDING)]
    recording: RecordOptions,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = None, required_unless_present_any = ["trace", "pid"])]
    command: Vec<OsString>,
}

/// Whether it says how the lab runs a program.
fn is_of_lab(option: &Arg) -> bool {
    let lab = MachineOptions::augment_args(Command::new("lab"));
    lab.get_arguments().any(|of_lab| of_lab.get_id() == option.get_id())
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> ExitCode {
    find(arguments, terminal).unwrap_or_else(|error| {
        let other = if arguments.trace.is_some() { 1 } else { FAILED };
        ExitCode::from(record::failed(error.as_ref(), other))
    })
}

fn find(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    arguments.recording.check()?;
    arguments.json.as_deref().map_or(Ok(()), output::check)?;
    if let Some(trace) = &arguments.trace {
        let machine = arguments.machine.as_ref().map(|options| options.machine().to_owned());
        return arguments.print(&arguments.report(trace, machine)?, terminal);
    }
    // Removed at the end, unless the trace is kept.
    let scratch = scratch_folder()?;
    let folder = arguments.recording.output.clone().unwrap_or_else(|| scratch.path().join("trace"));
    let is_scratch = arguments.recording.output.is_none();
    let options = RecordOptions { output: Some(folder.clone()), scratch: is_scratch, ..arguments.recording.clone() };
    match (arguments.pid, &arguments.machine) {
        (Some(_), Some(_)) => {
            Err(UsageError::boxed("--machine runs a program in the lab, where no process of this host is"))
        }
        (Some(pid), None) => arguments.print(&arguments.watch(pid, &options, scratch.path())?, terminal),
        (None, Some(lab)) => {
            let recording = LabRecordArguments::new(lab.clone(), options, arguments.command.clone());
            let status = record_in_lab(&recording);
            if status == ExitCode::SUCCESS {
                arguments.print(&arguments.report(&folder, None)?, terminal)
            } else {
                Ok(status)
            }
        }
        (None, None) => {
            let recording = record::Arguments::new(options, arguments.command.clone());
            match record::record_program(&recording)? {
                0 => arguments.print(&arguments.report(&folder, None)?, terminal),
                status => {
                    note(&format!("the command ended with exit code {status}, so nothing is shown"));
                    Ok(ExitCode::from(status))
                }
            }
        }
    }
}

impl Arguments {
    /// Records a running process until enough is known.
    fn watch(&self, pid: u32, options: &RecordOptions, scratch: &Path) -> Result<HugePagesReport, Box<dyn Error>> {
        let mut duration = options.duration.unwrap_or(FIRST);
        // A kept trace is recorded once, and so is a given time.
        let once = self.recording.duration.is_some() || self.recording.output.is_some();
        let interrupted = interrupted()?;
        let mut last = None;
        loop {
            let folder = options.output.clone().filter(|_| once);
            let folder = folder.unwrap_or_else(|| scratch.join(duration.as_secs().to_string()));
            let options = RecordOptions { output: Some(folder.clone()), duration: Some(duration), ..options.clone() };
            let recording = record::Arguments::of_process(options, pid);
            let recorded = match (record::record_running(&recording, interrupted.clone()), last) {
                // The process has ended since the recording before, which is what is known of it.
                (Err(_), Some(report)) if observable::has_ended(Pid(pid)) => return Ok(report),
                (recorded, _) => recorded?,
            };
            // There is no more to record.
            let is_cut = recorded.about.program_ended || interrupted.load(Relaxed);
            let report = self.report(&folder, None)?;
            let is_enough = report.huge_pages.all == 0 || report.decided_share() >= ENOUGH;
            if once || is_enough || is_cut || duration >= LONGEST {
                return Ok(report);
            }
            (duration, last) = (LONGEST.min(duration * 2), Some(report));
        }
    }

    fn report(&self, trace: &Path, machine: Option<String>) -> Result<HugePagesReport, Box<dyn Error>> {
        let recorded = Reading::of_machine(machine).read(trace)?;
        let view = recorded.profile.view(&Filter::default());
        Ok(HugePagesReport::new(&view, recorded.facts, self.top as usize))
    }

    fn print(&self, report: &HugePagesReport, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
        if let Some(json) = &self.json {
            output::write_to(&json::document(report)?, json)?;
        }
        if !self.json.as_deref().is_some_and(output::is_output) {
            terminal.print(report, None)?;
        }
        Ok(match report {
            _ if report.found => ExitCode::from(FOUND),
            _ if report.samples > 0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }
}
