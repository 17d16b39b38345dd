//! `nearside diff`: two traces beside each other.

use crate::open_trace::{OpenTrace, Reading};
use crate::options::trace_filter::FilterOptions;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use clap::{Args, ValueEnum};
use report::{Change, Compared, DiffReport};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show two traces side by side: what got better, what got worse, and what is noise
///
/// First comes whether the second is better or worse. The time of the run decides if both traces have a whole run and
/// it changed by more than 6 %; or else the mean latency, or the share of remote accesses where latencies are not known.
/// Then, for both traces (of nearside record, or perf.data files), the verdict, the share of local accesses and the mean
/// latency; allocation sites, matched by functions, callers and lines rather than addresses, so that the program may
/// have been rebuilt; threads by name, and nodes. Better and worse of these refer to accesses. A difference with a
/// p-value of 0.05 or more is marked as noise: record longer, or with a shorter period. Needs no privileges.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside diff before after
  nearside diff before after --remote --top 30
  nearside diff before after --fail-on worse
  nearside diff before after --json | jq '.sites[] | select(.change == \"worse\")'

Exit codes:
  0  all went well, whatever the traces say without --fail-on
  1  a trace cannot be read, and the message says why; or with --fail-on, what it names has happened, or there is nothing to compare
  2  the command line is wrong, or names what neither trace has")]
pub struct Arguments {
    /// The first trace: before
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The second trace: after
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Rows of each part
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// Exit with code 1 if this has happened
    #[arg(long, value_enum, value_name = "CHANGE")]
    fail_on: Option<FailOn>,

    /// As JSON (see docs/report.md)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    filter: FilterOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// The second run takes longer by more than noise, or its accesses are worse and it is not faster by more
    Worse,
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { a, b, top, fail_on, json, reading, filter } = arguments;
    let (a, b) = (reading.read(a)?, reading.read(b)?);
    [&a, &b].into_iter().for_each(OpenTrace::note_losses);
    filter.check(&[&a.profile, &b.profile])?;
    let (view_a, view_b) = (a.profile.view(&filter.filter(&a.profile)), b.profile.view(&filter.filter(&b.profile)));
    let (a, b) = (
        Compared { view: &view_a, trace: filter.facts(a.facts) },
        Compared { view: &view_b, trace: filter.facts(b.facts) },
    );
    let report = DiffReport::new(a, b, *top as usize, filter.words());
    if *json {
        output::write(&json::document(&report)?, None)?;
    } else {
        terminal.print(&report, None)?;
    }
    Ok(match fail_on {
        Some(FailOn::Worse) if report.overall == Change::Worse || !report.is_comparable() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}
