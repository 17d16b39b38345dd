//! `nearside compare`: one program under several policies, side by side.

mod in_lab;

use crate::interrupt::interrupted;
use crate::options::candidates;
use crate::options::machine_source;
use crate::options::policy::note;
use crate::options::thresholds::ThresholdOptions;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use crate::verbs::lab::MachineOptions;
use clap::Args;
use clap_complete::ArgValueCompleter;
use compare::{Candidate, CompareError, Host, Progress, Request, Seconds};
use in_lab::Compared;
use linux::program_file;
use machine::Machine;
use report::{CompareReport, Comparison, comparison_to_html};
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Run a program under several memory and thread policies, and compare
///
/// The program runs the given number of times under each policy, on this machine or, with --machine, in the lab.
/// Policies take turns, and each round begins with another one. Standard input is empty, and output is shown only if
/// the program fails. A table shows the run time with the 95 % confidence interval of its mean, the speed-up over first
/// touch, where memory accesses went, how many pages were moved and what the policy itself cost. A sentence names the
/// fastest policy, if the difference is significant.
///
/// Where accesses went is counted by the lab's virtual PMU, for the whole machine; on a real machine it is not known.
/// Pages moved are all those that the kernel moved, for any program and reason, also within a node (`pgmigrate_success`).
/// Before each run the page cache is emptied, free memory is compacted, and every file that the program opens is read,
/// so that no run pays for reading them; a first, unmeasured run shows which files those are. This needs root;
/// --keep-caches skips it. The kernel's NUMA balancing is switched off for every policy but `kernel` and restored at the
/// end, which also needs root. Without privileges, rows say what could not be done.
#[derive(Debug, Args)]
#[command(mut_arg("machine", |arg| arg.required(false)))]
#[command(after_help = format!("\
Policies:
{}

NODES are as in `nearside run`, without commas: 0-3, all, !0. Policies that place threads, and carrefour, are carried out by \
`nearside place`: see its manual for what they need.

Examples:
  nearside compare --policies first-touch,interleave,oracle -- ./program
  nearside compare --machine opteron-6164x2 --repeat 5 --html result.html -- ./program
  nearside compare -m small-4x2 --time-scale 20 --seconds /seconds -- nearside-workloads streamcluster --json
  nearside compare --seconds '{{}}s total' -- gm benchmark convert photo.bmp -negate null:

Exit codes: 0 all runs went well; 1 one did not, or the system refused; 124 after --timeout; 125 the lab failed, or --machine is not one; 127 there is no such program; 2 the \
command line is wrong. Ctrl-C ends the program, restores everything, and reports the runs so far.

Environment: with --machine, as of `nearside lab run`.", Candidate::list()))]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct Arguments {
    #[command(flatten)]
    machine: Option<MachineOptions>,

    /// The policies, separated by commas
    #[arg(
        long,
        short,
        value_name = "POLICY,…",
        value_delimiter = ',',
        default_value = "first-touch,kernel,numad,interleave,carrefour,predict", add = ArgValueCompleter::new(candidates::compared))]
    policies: Vec<Candidate>,

    /// Runs of the program under each policy
    #[arg(long, short, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,

    /// Unmeasured runs of the program under each policy before those [default: 1; in the lab, where the page cache is the
    /// same before each run, 0 unless with --keep-caches]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    warm_ups: Option<u32>,

    /// Take the time in seconds from what the program prints, instead of from its `exec` to its end: a JSON pointer into a
    /// line of JSON (/seconds), or a text with {} for the number ('{}s total'). Where the same JSON has `began_ns`, the
    /// `CLOCK_MONOTONIC` time at which the measured part began, memory accesses are counted from then on
    #[arg(long, value_name = "PATTERN")]
    seconds: Option<Seconds>,

    /// Static bindings that `oracle` tries, one run each, before the best one runs as often as the others: interleaved,
    /// a node's CPUs with its memory, all CPUs with one node's memory, and so on in turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    oracle_runs: u32,

    #[command(flatten)]
    thresholds: ThresholdOptions,

    /// Let nearside's own policies also place memory that several processes map, as `nearside place --shared` does
    #[arg(long)]
    shared: bool,

    /// Leave the page cache and free memory as each run leaves them
    #[arg(long)]
    keep_caches: bool,

    /// Write the comparison as JSON to this file; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with pictures to this file: self-contained, in light and dark
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print nothing as each run ends
    #[arg(long, short)]
    quiet: bool,

    /// In the lab: write the JSON after each run, and print no table.
    #[arg(long, hide = true, requires = "json")]
    inside: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<OsString>,
}

/// Between two messages about how long the rest takes.
const BETWEEN: Duration = Duration::from_secs(5);
/// No such program; the exit code that shells use.
const NO_PROGRAM: u8 = 127;

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(repeated) = arguments.request(&[]).repeated_candidate() {
        return Err(UsageError::boxed(format!("the policy {repeated} is named twice")));
    }
    let files = || [&arguments.json, &arguments.html].into_iter().flatten().map(PathBuf::as_path);
    output::check_names(files())?;
    files().try_for_each(output::check)?;
    let path = std::env::var_os("PATH");
    let program = arguments.command.first().cloned().unwrap_or_default();
    if program_file(&program, path.as_deref()).is_none_or(|file| !file.is_file()) {
        crate::print_error(&*Box::<dyn Error>::from(format!("there is no program {}", program.display())));
        return Ok(ExitCode::from(NO_PROGRAM));
    }
    let compared = match &arguments.machine {
        Some(options) => in_lab::compare(arguments, options)?,
        None => Compared { results: Some(here(arguments)?), exit_code: None },
    };
    let Some((comparison, machine)) = compared.results else {
        return Ok(compared.exit_code.unwrap_or(ExitCode::FAILURE));
    };
    let code = print_report(arguments, &CompareReport::new(comparison), &machine, terminal)?;
    Ok(compared.exit_code.unwrap_or(code))
}

impl Arguments {
    /// The options of `nearside place`.
    fn place_options(&self) -> Vec<String> {
        self.thresholds.words().into_iter().chain(self.shared.then(|| "--shared".to_owned())).collect()
    }

    fn request<'a>(&'a self, place_options: &'a [String]) -> Request<'a> {
        Request {
            command: &self.command,
            candidates: &self.policies,
            repeat: self.repeat as usize,
            warm_ups: self.warm_ups.map(|runs| runs as usize),
            seconds: self.seconds.as_ref(),
            oracle_tries: self.oracle_runs as usize,
            keep_caches: self.keep_caches,
            place_options,
        }
    }
}

/// Compares on this machine.
fn here(arguments: &Arguments) -> Result<(Comparison, Machine), Box<dyn Error>> {
    let (machine, simulated) = machine_source::running()?;
    let host = Host { machine, simulated, nearside: std::env::current_exe()? };
    let say = |text: &str| {
        if !arguments.quiet {
            note(text);
        }
    };
    let (mut began, mut told) = (Instant::now(), Instant::now());
    let so_far = |comparison: &Comparison| {
        if arguments.inside {
            // A failure to write is reported at the end. The host knows how long runs take there.
            let _ = arguments.json.as_deref().map(|file| in_lab::hand_over(comparison, file));
            return;
        }
        let progress = Progress::of(&comparison.policies, comparison.repeat);
        if progress.ended == 0 {
            // What came before the measured runs is none of them.
            began = Instant::now();
        }
        let text = progress.text(progress.ended, began.elapsed()).filter(|_| told.elapsed() >= BETWEEN);
        if let Some(text) = text {
            say(&text);
            told = Instant::now();
        }
    };
    let place_options = arguments.place_options();
    let comparison =
        arguments.request(&place_options).run(&host, interrupted()?, &say, so_far).map_err(|error| match error {
            CompareError::Policy(why) => UsageError::boxed(why),
            CompareError::Nodes(why) => why.into(),
        })?;
    Ok((comparison, host.machine))
}

fn print_report(
    arguments: &Arguments,
    report: &CompareReport,
    machine: &Machine,
    terminal: Terminal,
) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.inside {
        let file = arguments.json.as_deref().unwrap_or(Path::new("-"));
        in_lab::hand_over(&report.comparison, file)?;
    } else {
        let on_output = arguments.json.as_deref().is_some_and(output::is_output);
        // First: of what took so long, something is there where a file cannot be written.
        if !on_output {
            terminal.print(report, None)?;
        }
        if let Some(file) = &arguments.json {
            let json = json::document(report)?;
            output::write_private(&json, Some(file.as_path()).filter(|_| !on_output))?;
        }
        if let Some(file) = &arguments.html {
            output::write_private(&comparison_to_html(report, machine)?, Some(file))?;
        }
    }
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
