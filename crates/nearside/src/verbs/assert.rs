//! `nearside assert`: fails if a trace, or a program, exceeds limits.

use super::record::{self, RECORDING, RecordOptions};
use crate::open_trace::Reading;
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::scratch::scratch_folder;
use crate::output::terminal::Terminal;
use clap::Args;
use profile::Filter;
use report::{AssertReport, Limits};
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Fail if a program's memory accesses exceed limits, for continuous integration
///
/// Compares the metrics of a trace with limits, and fails if one does not hold or cannot be decided, because it is not
/// known or fewer than 10 samples reached memory. Instead of a trace it takes a command, which it records first; the
/// trace is removed afterwards, unless --output names a folder. If the command itself fails, or failed when its trace was
/// recorded, its exit code is returned and nothing is compared. Reading a trace needs no privileges; recording needs those of nearside record.
#[derive(Debug, Args)]
#[command(
    override_usage = "nearside assert [OPTIONS] LIMITS [TRACE] [-- <CMD>...]",
    mut_arg("output", |output| output.help("Keep the trace in this folder [default: it is removed]")),
    mut_args(|option| match option.get_help_heading() {
        Some(RECORDING) if option.get_id() != "quiet" => option.conflicts_with("trace"),
        _ => option,
    }),
)]
#[command(after_help = "\
Examples:
  nearside assert --local 95% trace
  nearside assert --local 95% --imbalance 0.3 --latency 150 --junit numa.xml -- ./tests
  nearside lab run -m opteron-6164x2 -- nearside assert --local 90% -- ./tests
  nearside assert --local 95% --markdown - trace >> $GITHUB_STEP_SUMMARY

Exit codes:
  0  all limits hold
  1  a limit does not hold or cannot be decided, or the trace cannot be read
  2  the command line is wrong
  125  the command could not be recorded
Also the exit code of a command that fails, and with a command those of nearside record.")]
pub struct Arguments {
    /// A trace of nearside record, or a perf.data file
    #[arg(value_name = "TRACE", conflicts_with = "command")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    limits: LimitOptions,

    /// As JSON (see docs/assert.md)
    #[arg(long, conflicts_with = "markdown", help_heading = OUTPUT)]
    json: bool,

    /// Write a table in Markdown to this file; - is standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    markdown: Option<PathBuf>,

    #[arg(long, value_name = "FILE", help_heading = OUTPUT, help = "Write a JUnit file, with a test case for each limit")]
    junit: Option<PathBuf>,

    #[command(flatten, next_help_heading = RECORDING)]
    record: RecordOptions,

    #[command(flatten)]
    reading: Reading,

    /// The program to record, and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = None, required_unless_present = "trace")]
    command: Vec<OsString>,
}

const OUTPUT: &str = "Output";

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
#[command(next_help_heading = "Limits")]
struct LimitOptions {
    /// Least share of accesses to memory of the CPU's own node, such as 95% or 0.95
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    local: Option<f64>,

    /// Most imbalance of the nodes' memory: the standard deviation of their loads over their mean
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    imbalance: Option<f64>,

    /// Most mean latency of accesses that reach memory, ns
    #[arg(long, value_name = "NS", value_parser = parse_ratio)]
    latency: Option<f64>,

    /// Most mean latency of the slowest node's memory, relative to an idle machine
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio)]
    latency_over_idle: Option<f64>,

    /// Most of its bandwidth that the busiest node's memory may carry, such as 60%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    controller_load: Option<f64>,

    /// Most of its bandwidth that the busiest direction of a link may carry, such as 60%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    link_load: Option<f64>,
}

impl Arguments {
    /// The number of files that are standard output.
    fn on_output(&self) -> usize {
        let files = [&self.markdown, &self.junit].into_iter().flatten();
        files.filter(|file| output::is_output(file)).count()
    }
}

impl From<&LimitOptions> for Limits {
    fn from(options: &LimitOptions) -> Self {
        Self {
            local: options.local,
            imbalance: options.imbalance,
            latency_ns: options.latency,
            latency_over_idle: options.latency_over_idle,
            controller_load: options.controller_load,
            link_load: options.link_load,
        }
    }
}

/// Exit code if the command could not be recorded, as of `nearside record`.
const NOT_RECORDED: u8 = 125;

pub fn run(arguments: &Arguments, terminal: Terminal) -> ExitCode {
    let on_output = usize::from(arguments.json) + arguments.on_output();
    let status = match (&arguments.trace, arguments.command.as_slice()) {
        _ if on_output > 1 => {
            Err(UsageError::boxed("only one of these can go to standard output: name a file instead of -"))
        }
        (Some(trace), _) => compare(arguments, trace, terminal),
        (None, command) => record_and_compare(arguments, command, terminal),
    };
    ExitCode::from(status.unwrap_or_else(|error| record::failed(error.as_ref(), 1)))
}

fn record_and_compare(arguments: &Arguments, command: &[OsString], terminal: Terminal) -> Result<u8, Box<dyn Error>> {
    for file in [&arguments.markdown, &arguments.junit].into_iter().flatten() {
        output::check(file)?;
    }
    let unnamed = match scratch_folder() {
        Ok(folder) => folder,
        Err(error) => return Ok(record::failed(error.as_ref(), record::FAILED)),
    };
    let trace = arguments.record.output.clone().unwrap_or_else(|| unnamed.path().join("trace"));
    let scratch = arguments.record.output.is_none();
    let options = RecordOptions { output: Some(trace.clone()), scratch, ..arguments.record.clone() };
    match record::record_program(&record::Arguments::new(options, command.to_vec())) {
        Ok(0) => compare(arguments, &trace, terminal),
        Ok(status) => {
            let failed = if status == NOT_RECORDED { "the recording failed, or " } else { "" };
            note(&format!("{failed}the command ended with exit code {status}, so no limit was compared"));
            Ok(status)
        }
        Err(error) => Ok(record::failed(error.as_ref(), NOT_RECORDED)),
    }
}

fn compare(arguments: &Arguments, trace: &Path, terminal: Terminal) -> Result<u8, Box<dyn Error>> {
    let opened = arguments.reading.read(trace)?;
    // As of a command that is recorded now.
    if let Some(status) = opened.facts.failure() {
        note(&format!("the recorded command ended with exit code {status}, so no limit was compared"));
        return Ok(u8::try_from(status).unwrap_or(1));
    }
    // Filters are left out: a limit on a part of the accesses hides the others, and --local is a filter's name.
    let view = opened.profile.view(&Filter::default());
    let report = AssertReport::new(&view, &opened.facts, &Limits::from(&arguments.limits));
    if let Some(file) = &arguments.junit {
        output::write_to(&report.junit()?, file)?;
    }
    if let Some(file) = &arguments.markdown {
        output::write_to(&report.markdown(), file)?;
    }
    if arguments.on_output() == 0 {
        let json = arguments.json.then(|| json::document(&report)).transpose()?;
        output::write(&json.unwrap_or_else(|| terminal.text(&report)), None)?;
    }
    Ok(u8::from(!report.passed))
}

/// A share, as `95%` or `0.95`.
fn parse_share(text: &str) -> Result<f64, String> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    value.ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "a share, such as 95% or 0.95".to_owned())
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "a number, 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percents_or_fractions() {
        for (text, share) in [
            ("95%", Some(0.95)),
            ("0.95", Some(0.95)),
            ("100 %", Some(1.0)),
            ("95", None),
            ("-1%", None),
            ("nan", None),
            ("%", None),
        ] {
            assert_eq!(parse_share(text).ok(), share, "{text}");
        }
        assert_eq!(parse_ratio("150").ok(), Some(150.0));
        assert!(parse_ratio("inf").is_err() && parse_ratio("-1").is_err() && parse_ratio("").is_err());
    }
}
