//! `nearside replay`: repeats the decisions of a decision log.

use crate::options::thresholds::ThresholdOptions;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use clap::Args;
use machine::{bounded, system_words};
use placement::{Again, LogLine, PolicyName, Replay, Start, Step};
use report::{ReplayDifference, ReplayReport};
use rustix::io::Errno;
use std::error::Error;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Repeat the decisions of a decision log, with the same policy or another
///
/// Reads a log of `nearside place --log`, lets the policy decide again on the same input, and shows each step that
/// differs, with its reason. The same policy on the same log decides the same. Of another policy, or of other thresholds, only the first rounds
/// show what it would have done: later rounds depend on what was done then.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside place --policy carrefour --log decisions -- ./program
  nearside replay decisions
  nearside replay decisions --policy interleave
  nearside replay decisions --threshold imbalance_min=0.5

Exit codes: 0 all decisions are the same; 1 some decision differs, or the log cannot be read; 2 the command line is wrong.")]
pub struct Arguments {
    /// The decision log
    log: PathBuf,

    /// Decide by this policy instead of the log's; `nearside place --help` lists them
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    #[command(flatten)]
    thresholds: ThresholdOptions,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let policy = arguments.policy.as_deref().map(str::parse::<PolicyName>).transpose().map_err(UsageError::boxed)?;
    let report = replay(arguments, policy)?;
    let text = if arguments.json { json::document(&report)? } else { report.to_string() };
    output::write(&text, None)?;
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(arguments: &Arguments, policy: Option<PolicyName>) -> Result<ReplayReport, Box<dyn Error>> {
    let path = arguments.log.display();
    let failed = |error: std::io::Error| {
        let why = system_words(&error);
        format!("cannot read the decision log {path}: {why}; `nearside place --log FILE -- COMMAND` writes one")
    };
    let file = bounded::open(&arguments.log).map_err(failed)?;
    // Folders can be opened, and fail as their first line is read.
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(failed(Errno::ISDIR.into()).into());
    }
    let mut reader = BufReader::new(file);
    // A line has as many pages and threads as a round considers.
    let next = || bounded::line(&mut reader, bounded::MOST_BYTES).transpose();
    let mut lines = std::iter::from_fn(next).enumerate().map(|(index, line)| {
        let number = index + 1;
        let line = line.map_err(|error| format!("cannot read line {number} of {path}: {error}"))?;
        match serde_json::from_slice::<LogLine>(&line) {
            // The last line of an unfinished log may be incomplete.
            Err(_) if number > 1 && line.last() != Some(&b'\n') => Ok(None),
            read => read
                .map(Some)
                .map_err(|error| format!("line {number} of {path} is not part of a decision log: {error}; `nearside place --log FILE -- COMMAND` writes one")),
        }
    });
    let first = lines.next().ok_or_else(|| format!("{path} is empty"))??;
    let Some(first @ LogLine::Begin { policy: logged, settings, .. }) = &first else {
        return Err(
            format!("{path} does not begin as a decision log does: its first line says which policy decides").into()
        );
    };
    let name = policy.as_ref().unwrap_or(logged);
    let mut report =
        ReplayReport { logged_policy: logged.to_string(), policy: name.to_string(), ..ReplayReport::default() };
    // A log starts with the line that `of` needs.
    let mut settings = settings.clone();
    if let Some((name, least)) = settings.thresholds.violations().first() {
        return Err(
            format!("the first line of {path} has a threshold {name} that is not a number from {least} up").into()
        );
    }
    arguments.thresholds.apply(&mut settings.thresholds);
    let Some(replay) = Replay::from_first_line(first, policy, Some(settings)) else { return Ok(report) };
    let mut replay = replay.map_err(UsageError::boxed)?;
    for line in lines {
        let Some(line) = line? else {
            report.cut_off = true;
            break;
        };
        let again = replay.take(&line);
        match (&line, again) {
            (LogLine::Round { decision, .. }, Some(Again::Decision(now))) => {
                report.rounds += 1;
                let at = format!("round {}", decision.round);
                report.differences.extend(ReplayDifference::between(at, &decision.steps, &now.steps, told));
            }
            (LogLine::Admitted { process, thread, start }, Some(Again::Start(now))) => {
                report.starts += 1;
                let at = format!("thread {} of process {}", thread.tid, process.pid);
                report.differences.extend(ReplayDifference::between(at, &[start], &[&now], |start| begins(start)));
            }
            _ => {}
        }
    }
    Ok(report)
}

/// A step with its first page, so that steps that differ only in pages can be distinguished.
fn told(step: &Step) -> String {
    let first = step.action.first_page().map_or_else(String::new, |page| format!(", from {page:#x} on"));
    format!("{step}{first}")
}

fn begins(start: &Start) -> String {
    let cpus = start.cpus.as_ref().map_or_else(|| "any".to_owned(), ToString::to_string);
    let memory = start.memory.as_ref().map_or_else(|| "as it asks".to_owned(), ToString::to_string);
    let why = start.cpus_reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("begin on CPUs {cpus}, memory {memory}{why}")
}
