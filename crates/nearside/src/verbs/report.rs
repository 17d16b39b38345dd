//! `nearside report`: shows what is in a trace.

use crate::open_trace::{OpenTrace, Reading};
use crate::options::candidates;
use crate::options::trace_filter::FilterOptions;
use crate::options::usage_error::UsageError;
use crate::output::json;
use crate::output::pictures::Pictures;
use crate::output::terminal::Terminal;
use crate::output::{self, is_output};
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use linux::Tid;
use profile::{Filter, ObjectId, Predicate, SiteId, ThreadId, View};
use report::{By, DetailReport, ProfileDetail, ProfileReport, Subject, Wanted};
use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what a trace says: whether NUMA is the problem, which objects and threads cause it, and what to do
///
/// Reads a trace of nearside record or a perf.data file (perf mem record, perf record --data). It shows the verdict
/// with its numbers, then what was lost and what cannot be seen, advice for what costs most, and rankings of objects,
/// sites, threads, functions and nodes. Addresses outside all known objects count as unknown, and their share is shown.
/// Times of lab traces are simulated. Needs no privileges.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside report trace                              all of it, ten rows of each ranking
  nearside report perf.data --machine server.toml    a perf trace, with the machine it was recorded on
  nearside report trace --object 12                  one object: timeline, call chain, pages, functions
  nearside report trace --remote --user --dram       only the program's accesses to other nodes' memory
  nearside report trace --time 0.5-1 --from-node 0   in half a second, from CPUs of node 0
  nearside report trace --html trace.html            a page with pictures, for a browser
  nearside report trace --json | jq '.advice[0]'

Costs are shares of the time spent waiting for memory; remote cost is the part of accesses to other nodes. If a trace \
has no latencies, remote accesses are counted instead. Objects and sites keep their numbers whenever the same trace \
is read.

Exit codes:
  0  all went well
  1  the trace cannot be read; the message says why
  2  the command line is wrong, or names what the trace does not have")]
pub struct Arguments {
    /// The trace: a folder of nearside record, or a perf.data file
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// One object in detail, by its number
    #[arg(long, value_name = "OBJECT", group = "subject", add = ArgValueCompleter::new(candidates::objects))]
    object: Option<u32>,

    /// One thread in detail, by its kernel thread id
    #[arg(long, value_name = "TID", group = "subject")]
    thread: Option<u32>,

    /// One site in detail, by its number
    #[arg(long, value_name = "SITE", group = "subject", add = ArgValueCompleter::new(candidates::sites))]
    site: Option<u32>,

    /// One function in detail, by its name
    #[arg(long, value_name = "NAME", group = "subject")]
    function: Option<String>,

    /// Rows of each ranking
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// The key that rankings are sorted by
    #[arg(long, value_enum, default_value_t = Order::Cost)]
    by: Order,

    /// Maximum number of rows of a timeline
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,

    /// As JSON (see docs/report.md)
    #[arg(long)]
    json: bool,

    /// Write to this file instead of standard output, which is -
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    pictures: Pictures,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    filter: FilterOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// The time spent waiting for memory
    Cost,
    /// The time spent waiting for memory of other nodes
    RemoteCost,
    /// Observed accesses
    Samples,
    /// Observed writes
    Stores,
    /// The mean latency
    Latency,
}

impl From<Order> for By {
    fn from(order: Order) -> Self {
        match order {
            Order::Cost => Self::Cost,
            Order::RemoteCost => Self::RemoteCost,
            Order::Samples => Self::Samples,
            Order::Stores => Self::Stores,
            Order::Latency => Self::Latency,
        }
    }
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    arguments.check_output()?;
    let mut recorded = arguments.reading.read(&arguments.trace)?;
    arguments.filter.check(&[&recorded.profile])?;
    recorded.facts = arguments.filter.facts(recorded.facts);
    let filter = arguments.filter.filter(&recorded.profile);
    let view = recorded.profile.view(&filter);
    if let Some(subject) = arguments.subject(&view)? {
        arguments.print(&detail(arguments, &recorded, &view, filter, &subject)?, terminal)?;
    } else {
        let Arguments { top, by, .. } = arguments;
        let wanted = Wanted { top: *top as usize, by: (*by).into(), filter: arguments.filter.words() };
        arguments.pictures.draw(&view, &recorded.facts, &wanted)?;
        if arguments.pictures.on_output() == 0 || arguments.output.is_some() {
            arguments.print(&ProfileReport::new(&view, recorded.facts, wanted), terminal)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The single requested subject, as what its accesses have in common.
enum Only {
    Object(ObjectId),
    Thread(ThreadId),
    Site(SiteId),
    Function(String),
}

impl Arguments {
    /// Rejects several outputs to standard output. A picture replaces the text there, but JSON and `--output -` were
    /// requested explicitly.
    fn check_output(&self) -> Result<(), Box<dyn Error>> {
        output::check_names(self.pictures.files().chain(self.output.as_deref()))?;
        let told = self.output.as_deref().map_or(self.json, is_output);
        if self.pictures.on_output() + usize::from(told) < 2 {
            return Ok(());
        }
        Err(UsageError::boxed("only one of these can go to standard output: name a file instead of - for the others"))
    }

    fn print<T: serde::Serialize + Display>(&self, report: &T, terminal: Terminal) -> Result<(), Box<dyn Error>> {
        let file = self.output.as_deref().filter(|file| !is_output(file));
        if self.json {
            output::write_private(&json::document(report)?, file)?;
        } else {
            terminal.print(report, file)?;
        }
        Ok(())
    }

    fn subject(&self, view: &View) -> Result<Option<Only>, Box<dyn Error>> {
        let profile = view.profile();
        if let Some(object) = self.object {
            let there = profile.objects().len();
            if object as usize >= there {
                return Err(UsageError::boxed(format!(
                    "the trace has no object {object}: they are numbered from 0 to {}, and `nearside report` lists the costliest",
                    there.saturating_sub(1)
                )));
            }
            return Ok(Some(Only::Object(ObjectId(object))));
        }
        if let Some(site) = self.site {
            if profile.site(SiteId(site)).is_none() {
                return Err(UsageError::boxed(format!(
                    "the trace has no site {site}: they are numbered from 0 to {}",
                    profile.site_ids().len().saturating_sub(1)
                )));
            }
            return Ok(Some(Only::Site(SiteId(site))));
        }
        if let Some(tid) = self.thread {
            return Ok(Some(Only::Thread(thread(view, Tid(tid))?)));
        }
        Ok(self.function.clone().map(Only::Function))
    }
}

/// The thread with a given number, among those that did any of the accesses.
fn thread(view: &View, tid: Tid) -> Result<ThreadId, Box<dyn Error>> {
    let threads = view.profile().threads();
    let has = |thread: &ThreadId| threads.get(thread.0 as usize).is_some_and(|thread| thread.tid == tid);
    let found: Vec<ThreadId> = view.threads().into_iter().map(|(thread, _)| thread).filter(has).collect();
    match found.as_slice() {
        [] => Err(UsageError::boxed(format!(
            "no thread {} did any of these accesses: `nearside report` lists those that did",
            tid.0
        ))),
        [one] => Ok(*one),
        several => Err(UsageError::boxed(format!(
            "{} threads had the number {} one after the other: --time FROM-TO or --pid chooses one",
            several.len(),
            tid.0
        ))),
    }
}

fn detail(
    arguments: &Arguments,
    recorded: &OpenTrace,
    all: &View,
    filter: Filter,
    only: &Only,
) -> Result<DetailReport, Box<dyn Error>> {
    let predicate = match only {
        Only::Object(object) => Predicate::Object(*object),
        Only::Thread(thread) => Predicate::Thread(*thread),
        Only::Site(site) => Predicate::OfSite(*site),
        Only::Function(name) => Predicate::Function(name.clone()),
    };
    let view = recorded.profile.view(&Filter([filter.0, vec![predicate]].concat()));
    let top = arguments.top as usize;
    let subject = match only {
        Only::Object(object) => Subject::object(&view, *object),
        Only::Thread(thread) => Subject::thread(&view, *thread),
        Only::Site(site) => Subject::site(&view, *site),
        Only::Function(name) if view.tally().samples == 0 => {
            return Err(UsageError::boxed(format!(
                "no function `{name}` did any of these accesses: give the whole name; --by-function finds parts of names"
            )));
        }
        Only::Function(name) => Some(Subject::function(&view, name, top)),
    };
    let subject = subject.ok_or("the trace changed while it was read")?;
    let detail =
        ProfileDetail { top, by: arguments.by.into(), rows: arguments.rows as usize, filter: arguments.filter.words() };
    Ok(DetailReport::new(subject, &view, all.tally(), recorded.facts.clone(), detail))
}
