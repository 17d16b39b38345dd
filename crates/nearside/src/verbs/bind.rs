//! `nearside bind`: which CPUs the threads of a running process may use, with pages that follow them.

use crate::interrupt::interrupted;
use crate::options::places::{Cpus, Nodes, Places};
use crate::options::policy::note;
use crate::options::process_name::process;
use crate::options::seconds::seconds;
use crate::output;
use crate::output::json;
use crate::process::target::{Target, unseen};
use crate::process::threads;
use crate::process::trace_of_process::TraceOfProcess;
use clap::Args;
use linux::{
    Departure, Follower, MigrateError, Migration, NodeState, NumaMapping, Process, ProcessError, Route, Tid, Whose,
};
use machine::{CpuSet, NodeId, NodeSet, size};
use profile::ThreadHome;
use report::{BindByTraceReport, BindEvent, BindReport, NodeThreads, Threads};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Exit code: part of the request was not done.
const PARTIAL: u8 = 3;
/// Longest delay before Ctrl-C takes effect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Set the CPUs that the threads of a running process may use, and let its memory follow
///
/// Every thread of the process gets the CPUs. Threads that it starts later inherit them, unless the process sets their
/// affinity itself. With --follow, nearside keeps watching: threads with other CPUs get these too, and when the last
/// thread of the process has left a node, its private first-touch pages there follow that thread. Pages on a node where
/// other threads still run may be theirs and are left alone, as are pages that other processes map. With --trace, each
/// thread goes to the node whose memory it uses, according to a trace of nearside record.
#[derive(Debug, Args)]
#[command(after_help = "\
NODES and CPUS are written as for numactl: 0-3,5 or all, !0 (all but), +0 (the first that the process's cpuset allows); nodes \
also by a device: netdev:eth0, ip:HOST, file:PATH, block:sda, pci:3b:00.0. Both also by \
objects, as for hwloc-bind: l3:0, package:1.core:2, node:1-.

With --trace, each thread with more than 300 samples gets the CPUs of the node whose memory it accessed most; others keep theirs. The \
trace must be of this running process: nearside record --pid.

Privileges: the process's user, or CAP_SYS_NICE. --follow also needs the process's user, or CAP_SYS_PTRACE.

Examples:
  nearside bind 4711 --cpunodebind 1                  all its threads to the CPUs of node 1
  nearside bind 4711 --physcpubind 0-3 --intersect    each thread to those of its CPUs that are in 0-3
  nearside bind 4711 --physcpubind 5 --thread 4713    one thread
  nearside bind 4711 --cpunodebind 1 --follow         and watch it; memory follows at 100 MB/s
  nearside bind 4711 --cpunodebind 0,1 --follow --budget 500 --json
  nearside record --pid 4711 --duration 5 -o seen && nearside bind 4711 --trace seen
                                                      each thread to the node whose memory it uses

Exit codes:
  0  all threads have the CPUs, or the process has ended
  1  the kernel refused, or no thread got the CPUs; the message or the report says why and what to do
  2  the command line is wrong, or names a node, a CPU or a thread that does not exist
  3  some threads kept other CPUs: the report says which, and why")]
pub struct Arguments {
    /// The process: its number, or its name if it is the only one of that name
    #[arg(value_name = "PID", value_parser = process)]
    pid: u32,

    /// The nodes whose CPUs to run on
    #[arg(
        long,
        short = 'N',
        value_name = "NODES",
        conflicts_with = "physcpubind",
        required_unless_present_any = ["physcpubind", "trace"]
    )]
    cpunodebind: Option<Nodes>,

    /// The CPUs to run on
    #[arg(long, short = 'C', visible_alias = "cpus", value_name = "CPUS")]
    physcpubind: Option<Cpus>,

    /// Run each thread where the memory that it uses is, according to this trace
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["cpunodebind", "physcpubind", "thread", "follow"])]
    trace: Option<PathBuf>,

    /// Memory that the samples and events of the trace may take, such as 8G [default: as for nearside report]
    #[arg(long, value_name = "SIZE", requires = "trace", value_parser = size::parse)]
    max_memory: Option<u64>,

    /// Only this thread of it. May be repeated
    #[arg(long, value_name = "TID", conflicts_with = "follow")]
    thread: Vec<u32>,

    /// Restrict each thread to those of its current CPUs that are in the set; never add CPUs
    #[arg(long)]
    intersect: bool,

    /// Keep watching: bind new threads and let pages follow, until the process ends or Ctrl-C
    #[arg(long)]
    follow: bool,

    /// Let at most this many megabytes (10^6 bytes) follow per second
    #[arg(long, value_name = "MB/S", default_value_t = 100, requires = "follow", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    budget: u64,

    /// Interval between two checks of the threads, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", requires = "follow", value_parser = seconds(0.01..=3600.0))]
    interval: Duration,

    /// Print the report as JSON; with --follow, one line per event
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Target { process, status, mut places } = Target::open(arguments.pid)?;
    let pid = process.pid();
    if let Some(trace) = &arguments.trace {
        let trace = TraceOfProcess::read(trace, arguments.max_memory, &process)?;
        let report = by_trace(&trace, &process, status.name, arguments.intersect, &mut places)?;
        show(arguments, &report)?;
        return Ok(exit_code(report.nodes.iter().map(|node| &node.threads)));
    }
    let cpus = match (&arguments.cpunodebind, &arguments.physcpubind) {
        (Some(nodes), _) => places.cpus_of(nodes)?,
        (None, Some(cpus)) => places.cpus(cpus)?,
        (None, None) => CpuSet::new(), // clap requires one of them
    };
    let interrupted = interrupted()?;
    // Where threads are before they are bound: their pages will follow from there.
    let mut follower = Follower::default();
    let state = &places.situation.nodes;
    follower.look(&nodes_of_threads(&process, state).map_err(|error| unseen(pid, &error))?);
    let (threads, is_whole) = if arguments.thread.is_empty() {
        threads::bind_all(&process, &cpus, arguments.intersect, &interrupted)?
    } else {
        (threads::bind_these(&process, &cpus, arguments.intersect, &arguments.thread)?, true)
    };
    let code = exit_code([&threads]);
    let given_up = threads.refused.iter().map(|refused| Tid(refused.tid)).collect();
    let report = BindReport { pid: pid.0, name: status.name, threads };
    show(arguments, &report)?;
    if !is_whole {
        note("interrupted: threads that are not counted may have their CPUs as before");
        return Ok(ExitCode::from(PARTIAL));
    }
    if arguments.follow {
        note(&format!(
            "following process {pid} until it ends; Ctrl-C stops that, and leaves threads and pages where they are"
        ));
        let watch = Watch { process: &process, arguments, interrupted: &interrupted };
        watch.run(&mut follower, &cpus, given_up, state)?;
    }
    Ok(code)
}

fn exit_code<'a>(all: impl IntoIterator<Item = &'a Threads>) -> ExitCode {
    let (bound, refused) = all
        .into_iter()
        .fold((0, 0), |(bound, refused), threads| (bound + threads.bound, refused + threads.refused.len()));
    match (bound, refused) {
        (_, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(PARTIAL),
    }
}

/// Binds each thread with enough samples to the node whose memory it uses.
fn by_trace(
    traced: &TraceOfProcess,
    process: &Process,
    name: String,
    intersect: bool,
    places: &mut Places,
) -> Result<BindByTraceReport, Box<dyn Error>> {
    let (sure, unsure): (Vec<ThreadHome>, Vec<_>) = traced.thread_homes().into_iter().partition(ThreadHome::is_sure);
    let mut threads_of: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for home in sure {
        threads_of.entry(home.node).or_default().push(home.tid.0);
    }
    let mut report = BindByTraceReport { pid: process.pid().0, name, nodes: Vec::new(), unsure: unsure.len() as u64 };
    for (node, tids) in threads_of {
        let cpus = places.cpus_of(&NodeSet::from_iter([node]).into())?;
        let mut threads = Threads { cpus, ..Threads::default() };
        for tid in tids {
            threads::bind(Tid(tid), process, intersect, &mut threads);
        }
        report.nodes.push(NodeThreads { node, threads });
    }
    Ok(report)
}

/// Prints a report or an event. Returns whether the reader is still there.
fn show<T: Serialize + Display>(arguments: &Arguments, told: &T) -> Result<bool, Box<dyn Error>> {
    let text = match (arguments.json, arguments.follow) {
        (true, false) => json::document(told)?,
        (true, true) => json::line(told)?,
        (false, _) => told.to_string(),
    };
    Ok(output::write_more(&text)?)
}

/// The node each thread ran on last. A thread that has slept since it was bound elsewhere will wake there, and counts
/// as being there.
fn nodes_of_threads(process: &Process, state: &NodeState) -> Result<BTreeMap<Tid, NodeId>, ProcessError> {
    let threads = linux::threads(process, None)?;
    let node = |thread: &linux::Thread| {
        let last = thread.cpu.filter(|cpu| thread.status.cpus.contains(*cpu)).map(|cpu| [cpu].into_iter().collect());
        state.nodes_of(last.as_ref().unwrap_or(&thread.status.cpus)).first()
    };
    Ok(threads.iter().filter_map(|thread| Some((thread.tid, node(thread)?))).collect())
}

/// A process being followed.
struct Watch<'a> {
    process: &'a Process,
    arguments: &'a Arguments,
    interrupted: &'a AtomicBool,
}

impl Watch<'_> {
    /// Checks the process periodically until it ends, the user interrupts, or the reader closes the output. Threads
    /// that were refused once are not tried again.
    fn run(
        &self,
        follower: &mut Follower,
        cpus: &CpuSet,
        mut given_up: BTreeSet<Tid>,
        state: &NodeState,
    ) -> Result<(), Box<dyn Error>> {
        let mut next = Instant::now();
        loop {
            // Checks missed while pages were moving are not made up for.
            next = (next + self.arguments.interval).max(Instant::now());
            while !self.interrupted.load(Relaxed) && Instant::now() < next {
                sleep(POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
            }
            if self.interrupted.load(Relaxed) {
                show(self.arguments, &BindEvent::Interrupted)?;
                return Ok(());
            }
            let nodes = match nodes_of_threads(self.process, state) {
                Ok(nodes) if self.process.mappings().is_ok_and(|mappings| !mappings.is_empty()) => nodes,
                Err(error) if !matches!(error, ProcessError::Gone(_)) => {
                    return Err(unseen(self.process.pid(), &error).into());
                }
                _ => {
                    show(self.arguments, &BindEvent::Ended)?;
                    return Ok(());
                }
            };
            let mut bound = Threads { cpus: cpus.clone(), ..Threads::default() };
            given_up.retain(|thread| nodes.contains_key(thread));
            for &thread in nodes.keys().filter(|thread| !given_up.contains(thread)) {
                if linux::affinity(thread).is_ok_and(|own| !own.is_subset(cpus)) {
                    threads::bind(thread, self.process, self.arguments.intersect, &mut bound);
                }
            }
            given_up.extend(bound.refused.iter().map(|refused| Tid(refused.tid)));
            let is_news = bound.bound > 0 || !bound.refused.is_empty();
            if is_news && !show(self.arguments, &BindEvent::NewThreads(bound))? {
                return Ok(());
            }
            for departure in follower.look(&nodes) {
                let event = self.let_follow(departure)?;
                if !show(self.arguments, &event)? {
                    return Ok(());
                }
            }
        }
    }

    /// Moves the private first-touch pages from the node that was left.
    fn let_follow(&self, departure: Departure) -> Result<BindEvent, Box<dyn Error>> {
        let set = |node: NodeId| [node].into_iter().collect();
        let Some(route) = Route::new(Some(set(departure.from)), &set(departure.to)) else {
            return Ok(BindEvent::Ended); // both sets are non-empty
        };
        let migration = Migration {
            ranges: first_touch_ranges(self.process),
            route,
            whose: Whose::Private,
            budget_bytes_per_s: Some(self.arguments.budget * 1_000_000),
            most_bytes: None,
            most_time: None,
        };
        let tally = match migration.run(self.process, self.interrupted, |_| ()) {
            Err(MigrateError::Process(ProcessError::Gone(_))) => return Ok(BindEvent::Ended),
            // Its node may have no memory, or none for this process. Threads go on to others.
            Err(error @ MigrateError::Move(_)) => {
                let why = crate::verbs::migrate::refused(self.process.pid(), error, &migration).to_string();
                let Departure { thread, from, to } = departure;
                return Ok(BindEvent::PagesRefused { tid: thread.0, from, to, why });
            }
            tally => tally.map_err(|error| crate::verbs::migrate::refused(self.process.pid(), error, &migration))?,
        };
        let Departure { thread, from, to } = departure;
        let (moved, stayed) = (tally.moved().into(), tally.all_stayed().into());
        Ok(BindEvent::PagesFollowed { tid: thread.0, from, to, moved, stayed })
    }
}

/// Mappings that only this process writes to and that have no memory policy of their own. Empty once it has ended.
fn first_touch_ranges(process: &Process) -> Vec<std::ops::Range<u64>> {
    let Ok(mappings) = process.mappings() else { return Vec::new() };
    let policies =
        process.text("numa_maps").ok().and_then(|text| linux::parse_numa_maps(&text).ok()).unwrap_or_default();
    let first_touch = |mapping: &NumaMapping| mapping.policy == "default" || mapping.policy == "local";
    // By address, as the kernel writes them.
    let first_touch: Vec<u64> =
        policies.iter().filter(|mapping| first_touch(mapping)).map(|mapping| mapping.start).collect();
    let private = mappings.into_iter().filter(|mapping| !mapping.shared && mapping.write);
    private.map(|mapping| mapping.range).filter(|range| first_touch.binary_search(&range.start).is_ok()).collect()
}
