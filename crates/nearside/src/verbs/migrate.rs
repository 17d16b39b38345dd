//! `nearside migrate`: moves the pages, and threads, of a running process.

use crate::interrupt::interrupted;
use crate::options::places::{Nodes, Places};
use crate::options::process_name::process;
use crate::options::regions::RegionsFile;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use crate::process::ranges;
use crate::process::target::{Target, unseen};
use crate::process::threads;
use crate::process::trace_of_process::TraceOfProcess;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use linux::{Attempt, Mapping, MigrateError, Migration, Pid, Route, SystemState, Tally, Whose, diagnose};
use machine::{NodeId, NodeSet, size};
use observe::Regions;
use report::MigrateReport;
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Exit code: part of the request was not done.
const PARTIAL: u8 = 3;

/// Move the memory of a running process to other nodes
///
/// Moves the pages that are in memory now, while the process runs: it loses no write, and waits for a page only while
/// that page is copied. Future pages still go where the process's own policy puts them. With --trace, memory goes to
/// the nodes that use it, according to a trace of nearside record. The report says what was moved, what was already
/// there, and what stayed and why. It is no error if the process ends, forks or executes another program in the
/// meantime.
#[derive(Debug, Args)]
#[command(after_help = "\
NODES are written as for numactl: 0-3,5 or all, !0 (all but), +0 (the first that the process's cpuset allows), or the node of \
a device: netdev:eth0, ip:HOST, file:PATH, block:sda, pci:3b:00.0.

With --from, pages of its first node go to the first node of --to, those of the second to the second, and so on, starting again if \
--to has fewer. Without it, pages on a node of --to stay, and all others are spread over these nodes by address.

With --trace, each 2 MiB of addresses goes to the node whose CPUs accessed it most; if less than nine of ten accesses are that node's, each of \
its pages goes to its own node. Pages without accesses in the trace stay. The trace must be of this \
running process: nearside record --pid.

Privileges: the process's user, or CAP_SYS_PTRACE. CAP_SYS_NICE for --shared, and for --threads of other users.

Examples:
  nearside migrate 4711 --to 1                            all its memory to node 1
  nearside migrate 4711 --from 0 --to 1                   what lies on node 0; the rest stays
  nearside migrate 4711 --to all                          what is on other nodes, evenly
  nearside migrate 4711 --to 1 --threads                  its threads to the CPUs of node 1 as well
  nearside migrate 4711 --to 1 --mapping '[heap]'         one mapping, by its name in /proc/PID/maps
  nearside migrate 4711 --to 1 --range 7f0000000000-7f0000200000 --range 7f0000400000
                                                          an address range, and a single page
  nearside migrate 4711 --to 1 --budget 200               at no more than 200 MB/s
  nearside record --pid 4711 --duration 5 -o seen && nearside migrate 4711 --trace seen
                                                          each part to the node that uses it
  nearside migrate 4711 --to 1 --json | jq .stayed

Exit codes:
  0  all pages are where they should be, or the process has ended
  1  the system refused; the message says why and what to do
  2  the command line is wrong, or names a node or a range that does not exist
  3  the result is partial: the report says which pages stayed, and why")]
#[allow(clippy::struct_excessive_bools, reason = "switches of their own, each")]
pub struct Arguments {
    /// The process: its number, or its name if it is the only one of that name
    #[arg(value_name = "PID", value_parser = process)]
    pid: u32,

    /// The nodes to move to
    #[arg(long, short, value_name = "NODES", required_unless_present = "trace")]
    to: Option<Nodes>,

    /// Move memory to the nodes that use it, according to this trace
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["to", "from", "range", "mapping", "threads"])]
    trace: Option<PathBuf>,

    /// Memory that the samples and events of the trace may take, such as 8G [default: as for nearside report]
    #[arg(long, value_name = "SIZE", requires = "trace", value_parser = size::parse)]
    max_memory: Option<u64>,

    /// Move only pages on these nodes [default: all]
    #[arg(long, short, value_name = "NODES")]
    from: Option<Nodes>,

    /// Move only this range of addresses, in hexadecimal: START-END, or one address for its page. May be repeated
    #[arg(long, value_name = "START[-END]", value_parser = ranges::parse)]
    range: Vec<std::ops::Range<u64>>,

    /// Move only the mappings of this name, as in /proc/PID/maps: a path, its last component, a name in brackets; or the
    /// range that the program or --regions gave this name. May be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "range")]
    mapping: Vec<String>,

    #[command(flatten)]
    names: RegionsFile,

    /// Also move pages that other processes map
    #[arg(long)]
    shared: bool,

    /// Restrict its threads to the CPUs of the nodes to move to
    #[arg(long)]
    threads: bool,

    /// Move at most this many megabytes (10^6 bytes) per second
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    budget: Option<u64>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.names.regions.is_some() && arguments.mapping.is_empty() {
        return Err(UsageError::boxed("--regions names what --mapping moves: give --mapping NAME as well"));
    }
    let Target { process, status, mut places } = Target::open(arguments.pid)?;
    let pid = process.pid();
    let mappings = process.mappings().map_err(|error| unseen(pid, &error))?;
    let plan = match &arguments.trace {
        Some(trace) => {
            let trace = TraceOfProcess::read(trace, arguments.max_memory, &process)?;
            Plan::by_trace(&trace, &mappings, &mut places)?
        }
        None => Plan::to_nodes(arguments, &mappings, &mut places)?,
    };
    let interrupted = interrupted()?;
    let begin = Instant::now();
    // Threads first: what they touch from now on is then already where the rest will go.
    let before = if arguments.threads { threads::affinities(&process) } else { BTreeMap::new() };
    let bound = arguments.to.as_ref().filter(|_| arguments.threads).map(|to| places.cpus_of(to)).transpose()?;
    let bound = bound.map(|cpus| threads::bind_all(&process, &cpus, false, &interrupted)).transpose()?;
    // An interrupt also ends the migration, which says so.
    let mut bound = bound.map(|(threads, _)| threads);
    let bar = (!arguments.quiet).then(|| Bar::begin(&plan.legs));
    let (mut tally, mut failed) = (Tally::default(), None);
    for (route, ranges) in plan.legs {
        let migration = Migration {
            ranges,
            route,
            whose: if arguments.shared { Whose::All } else { Whose::Private },
            budget_bytes_per_s: arguments.budget.map(|megabytes| megabytes * 1_000_000),
            most_bytes: None,
            most_time: None,
        };
        match migration.run(&process, &interrupted, |leg| bar.iter().for_each(|bar| bar.show(&tally, leg))) {
            Ok(leg) => tally.join(&leg),
            Err(error) => failed = Some(refused(pid, error, &migration)),
        }
        if tally.ended || tally.interrupted || failed.is_some() {
            break;
        }
    }
    drop(bar);
    // Threads without their memory would be worse off than before.
    if tally.moved().bytes == 0
        && (failed.is_some() || tally.interrupted)
        && let Some(bound) = bound.take()
    {
        threads::restore(&process, &before, &bound.cpus);
    }
    if let Some(failed) = failed.take_if(|_| tally.moved().bytes == 0) {
        return Err(failed);
    }
    let report = MigrateReport {
        from: plan.from,
        seconds: begin.elapsed().as_secs_f64(),
        unmapped_bytes: plan.unmapped_bytes,
        threads: bound,
        ..MigrateReport::new(pid.0, status.name, plan.to, &tally, &free_bytes())
    };
    let text = if arguments.json { json::document(&report)? } else { report.to_string() };
    output::write(&text, None)?;
    if let Some(failed) = failed {
        return Err(failed);
    }
    Ok(if report.is_partial() { ExitCode::from(PARTIAL) } else { ExitCode::SUCCESS })
}

/// What to move, and where to.
struct Plan {
    from: Option<NodeSet>,
    to: NodeSet,
    legs: Vec<(Route, Vec<Range<u64>>)>,
    /// Requested but not mapped, bytes.
    unmapped_bytes: u64,
}

impl Plan {
    /// The requested mappings and ranges, to the requested nodes.
    fn to_nodes(arguments: &Arguments, mappings: &[Mapping], places: &mut Places) -> Result<Self, Box<dyn Error>> {
        let to = arguments.to.as_ref().map(|nodes| places.memory(nodes)).transpose()?.unwrap_or_default();
        let from = arguments.from.as_ref().map(|nodes| places.sources(nodes)).transpose()?;
        let route = Route::new(from.clone(), &to).ok_or_else(|| UsageError::boxed("no node to move to"))?;
        let all = arguments.range.is_empty() && arguments.mapping.is_empty();
        let chosen = if all {
            Ok(ranges::own(mappings))
        } else {
            ranges::choose(mappings, &arguments.range, &arguments.mapping, &mut arguments.names.load()?)
                .map_err(UsageError::boxed)
        }?;
        Ok(Self { from, to, legs: vec![(route, chosen.ranges)], unmapped_bytes: chosen.unmapped_bytes })
    }

    /// Mapped memory that the trace has accesses to, to the nodes that use it.
    fn by_trace(traced: &TraceOfProcess, mappings: &[Mapping], places: &mut Places) -> Result<Self, Box<dyn Error>> {
        let mut plan = Self { from: None, to: NodeSet::new(), legs: Vec::new(), unmapped_bytes: 0 };
        for (node, used) in traced.memory_homes()? {
            let to = places.memory(&NodeSet::from_iter([node]).into())?;
            // Memory freed since the recording is not mapped.
            if let (Some(route), Ok(chosen)) =
                (Route::new(None, &to), ranges::choose(mappings, &used, &[], &mut Regions::default()))
            {
                plan.to.extend(to.iter());
                plan.legs.push((route, chosen.ranges));
            }
        }
        Ok(plan)
    }
}

/// Explains why pages cannot be moved.
pub fn refused(pid: Pid, error: MigrateError, migration: &Migration) -> Box<dyn Error> {
    match error {
        MigrateError::Process(error) => unseen(pid, &error).into(),
        MigrateError::Move(error) => {
            let attempt = Attempt::Move { to: migration.route.targets(), whose: migration.whose };
            let errno = error.raw_os_error().unwrap_or_default();
            let why = diagnose(attempt, errno, &SystemState::read(Some(pid)));
            format!("cannot move pages of process {pid} (move_pages: {error}): {why}").into()
        }
        MigrateError::Find(_) | MigrateError::Thread(_) => Box::new(error),
    }
}

/// Free memory of each node, bytes.
fn free_bytes() -> BTreeMap<NodeId, u64> {
    let free = |node: &linux::NodeFiles| node.memory.get("MemFree").map(|bytes| (node.node, *bytes));
    linux::nodes(Path::new("/sys")).iter().flatten().filter_map(free).collect()
}

/// Progress, on a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn begin(legs: &[(Route, Vec<Range<u64>>)]) -> Self {
        let ranges = legs.iter().flat_map(|(_, ranges)| ranges);
        let total = ranges.map(|range| range.end - range.start).sum();
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// `before` is the result of earlier legs.
    fn show(&self, before: &Tally, leg: &Tally) {
        self.0.set_position(before.passed_bytes + leg.passed_bytes);
        self.0.set_message(format!("{} moved", machine::size::rounded(before.moved().bytes + leg.moved().bytes)));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
