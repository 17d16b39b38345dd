//! `nearside measure`: measures this machine's memory.

use crate::interrupt::interrupted;
use crate::options::machine_source;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use machine::size;
use measure::{Host, MeasureError, Options, Part, Plan, Progress, calibrated, plan};
use report::{MeasureText, measure_svg};
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code: the result is incomplete.
const PARTIAL: u8 = 3;

/// Measure this machine: latency, bandwidth, contention and caches of its nodes
///
/// Needs no privileges, but an idle machine: a number whose repeats spread too much is left out. Ctrl-C ends it early
/// and keeps what is complete.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside measure                                 everything, with the expected time
  nearside measure --quick                         less of everything, faster
  nearside measure --only latency,bandwidth        some of it
  nearside measure --output host.toml              a machine file, for nearside topology and the lab
  nearside measure --format svg > host.svg         heat maps of latency and bandwidth
  nearside measure --json | jq .latency_ns         for scripts
  nearside lab run --machine small-4x2 -- nearside measure --quick --only latency

Exit codes:
  0  all went well
  1  nothing could be measured, or the output could not be written
  2  the command line is wrong
  3  the result is partial: it says what is missing, and why")]
pub struct Arguments {
    /// Less of everything: under a minute on four nodes
    #[arg(long)]
    quick: bool,

    /// Measure only these [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,...")]
    only: Vec<Choice>,

    /// Measurements of each number, of which the median is reported; more are made where they spread [default: 7;
    /// quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeats: Option<u16>,

    /// Memory to work on: each node gets one array for latencies and one for bandwidths, each of this size; both together
    /// take at most half of the node's free memory [default: four times the largest node's caches, at least 64 MiB and at
    /// most 2 GiB, or less where less is free]
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,

    /// The largest spread, as interquartile range over median, at which a number is reported
    #[arg(long, value_name = "RATIO", default_value_t = 0.1, value_parser = parse_spread)]
    max_spread: f64,

    /// Pages to request
    #[arg(long, value_enum, default_value_t = Pages::Huge)]
    pages: Pages,

    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Also write a machine file with the measured numbers; with -, to standard output in place of the text
    #[arg(long, short, value_name = "FILE.toml")]
    output: Option<PathBuf>,

    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

/// The parts of a measurement; see [`Part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Idle latency of every pair of nodes
    Latency,
    /// Read, write and copy bandwidth of every pair of nodes, with one core and with all cores of the node, and of the
    /// whole machine
    Bandwidth,
    /// Latency of each controller's memory under rising load
    Loaded,
    /// Latency of lines that are in another core's cache, clean and modified
    CacheToCache,
    /// How the cores of a node share the path to another node's memory
    Links,
    /// Sizes and latencies of the caches, and the clock
    Caches,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pages {
    /// Huge pages where available: latencies without TLB misses
    Huge,
    /// Base pages only
    Base,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// Every number with its spread (see docs/measure.md)
    Json,
    /// Heat maps of latency and bandwidth
    Svg,
}

impl From<Choice> for Part {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Latency => Self::Latency,
            Choice::Bandwidth => Self::Bandwidth,
            Choice::Loaded => Self::Loaded,
            Choice::CacheToCache => Self::CacheToCache,
            Choice::Links => Self::Links,
            Choice::Caches => Self::Caches,
        }
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        bytes if (2 << 20..=128 << 30).contains(&bytes) => Ok(bytes),
        _ => Err("from 2M to 128G".to_owned()),
    }
}

fn parse_spread(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if ratio > 0.0 && ratio <= 10.0 => Ok(ratio),
        _ => Err("a ratio above 0, such as 0.1 for 10 %".to_owned()),
    }
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    if let Some(file) = &arguments.output {
        if output::is_output(file) && (arguments.json || arguments.format != Format::Text) {
            let why = "--output - takes the place of the text: give it a file, or leave --json and --format out";
            return Err(UsageError::boxed(why));
        }
        output::check(file)?;
    }
    let (described, simulated) = machine_source::running()?;
    let mut host = Host::find()?;
    if simulated {
        host.instructions_per_cycle = described.core.as_ref().map(|core| core.instructions_per_cycle);
    }
    let parts = if arguments.only.is_empty() { Choice::value_variants() } else { &arguments.only };
    let options = Options {
        quick: arguments.quick,
        parts: parts.iter().copied().map(Part::from).collect(),
        repeats: arguments.repeats.map(usize::from),
        size_bytes: arguments.size,
        max_spread: arguments.max_spread,
        huge_pages: arguments.pages == Pages::Huge,
    };
    let plan = plan(&host, &options)?;
    let interrupted = interrupted()?;
    let line = (!arguments.quiet).then(|| Line::begin(&plan));
    let mut results =
        measure::run(&host, &plan, &interrupted, |progress| line.iter().for_each(|line| line.show(progress)));
    drop(line);
    (results.machine, results.simulated) = (described.name, simulated);
    let format = if arguments.json { Format::Json } else { arguments.format };
    let text = match format {
        Format::Text => terminal.text(&MeasureText(&results)),
        Format::Json => json::document(&results)?,
        Format::Svg => measure_svg(&results),
    };
    if !arguments.output.as_deref().is_some_and(output::is_output) {
        output::write(&text, None)?;
    }
    if let Some(file) = &arguments.output {
        let machine = calibrated(&host.machine, &results)?;
        let text = machine.to_toml().map_err(MeasureError::from)?;
        output::write(&text, Some(file))?;
    }
    if !results.partial {
        return Ok(ExitCode::SUCCESS);
    }
    let count = results.missing.len();
    let (first, more) = match results.missing.as_slice() {
        [first, ..] => (format!("{}: {}", first.what, first.why), format!("; {} more", count - 1)),
        [] => (String::new(), String::new()),
    };
    let more = if count > 1 { more } else { String::new() };
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(io::stderr(), "nearside: the result is partial: {first}{more}");
    Ok(ExitCode::from(PARTIAL))
}

/// Progress: a bar on a terminal, otherwise one line with the expected time.
struct Line(Option<ProgressBar>);

impl Line {
    fn begin(plan: &Plan) -> Self {
        let seconds = plan.expected_s().ceil();
        if !io::stderr().is_terminal() {
            let steps = plan.steps.len();
            let steps = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
            let _ = writeln!(io::stderr(), "measuring for about {seconds} s: {steps}");
            return Self(None);
        }
        let bar = ProgressBar::new(1000);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} of about {prefix} s: {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(seconds.to_string());
        bar.set_message("placing memory");
        bar.enable_steady_tick(Duration::from_secs(1));
        Self(Some(bar))
    }

    fn show(&self, progress: Progress) {
        if let Some(bar) = &self.0 {
            bar.set_position((progress.done_s / progress.expected_s * 1000.0) as u64);
            bar.set_message(progress.step.to_string());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}
