//! `nearside memory`: memory use of nodes, processes and control groups, once or repeatedly.

use crate::options::system::System;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::terminal::Terminal;
use crate::output::watch::Watch;
use crate::process::residences::{is_gone, mappings};
use clap::{Args, ValueEnum};
use linux::{Cgroups, Process, nodes, system_events};
use report::{CgroupReport, History, MemoryReport, MemoryText, NodeMemory, OpenMetrics, ProcessMemory, is_numa_event};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Show how much memory of each node is used, and by which processes and control groups
///
/// Like numastat, but with pages of every size counted correctly. With --watch, counters are shown per second, and the
/// use of each node over time. Needs no privileges, except for processes of other users.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside memory                          as numastat and numastat -m
  nearside memory 4711 4712                as numastat -p, by kind of memory
  nearside memory --cgroup /system.slice   a control group
  nearside memory --watch=5                rates, and a history
  nearside memory --watch=5 --json >> memory.jsonl
  nearside memory --format openmetrics > /var/lib/node_exporter/textfile/nearside.prom

Allocation counters are the kernel's: numa_hit (allocated on the intended node), numa_miss (allocated here, as the intended node \
was full), numa_foreign (intended for here, allocated elsewhere), interleave_hit, local_node and other_node (by a CPU of this \
node, of another node).

Exit codes:
  0  all went well
  1  something could not be read, such as another user's process
  2  the command line is wrong, or there is no such control group")]
pub struct Arguments {
    /// Processes to show as well: their numbers, or names that only one process has
    #[arg(value_name = "PID")]
    pids: Vec<String>,

    /// A control group (version 2) to show as well, by its path from the top of the hierarchy
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<String>,

    /// In text, show all node counters of the kernel; JSON always has them
    #[arg(long)]
    all: bool,

    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    #[command(flatten)]
    watch: Watch,

    #[command(flatten)]
    system: System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people
    Text,
    /// Everything (see docs/show.md)
    Json,
    /// Metrics for Prometheus and the like; a single reading, without --watch
    Openmetrics,
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { pids, watch, system, .. } = arguments;
    let format = if arguments.json { Format::Json } else { arguments.format };
    if format == Format::Openmetrics {
        if watch.is_on() {
            return Err(UsageError::boxed(
                "--format openmetrics is a single reading: the monitoring system reads again, and computes rates",
            ));
        }
        let report = look(arguments, &mut opened(system, pids)?)?;
        output::write(&OpenMetrics(&report).to_string(), None)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut processes = opened(system, pids)?;
    let mut before: Option<(MemoryReport, Instant)> = None;
    let mut history = History::default();
    watch.print(|| {
        let now = Instant::now();
        let mut report = look(arguments, &mut processes)?;
        if let Some((before, then)) = &before {
            report.since(before, now - *then);
        }
        history.add(&report);
        let text = match format {
            Format::Json => watch.json(&report)?,
            _ => watch.text(&MemoryText { report: &report, history: &history, all: arguments.all }, terminal),
        };
        before = Some((report, now));
        Ok(Some(text))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn opened(system: &System, pids: &[String]) -> Result<Vec<Process>, Box<dyn Error>> {
    pids.iter().map(|pid| Ok(system.process(system.named(pid)?)?)).collect()
}

/// One reading. Processes that have ended are removed from the list.
fn look(arguments: &Arguments, processes: &mut Vec<Process>) -> Result<MemoryReport, Box<dyn Error>> {
    let system = &arguments.system;
    let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut report = MemoryReport { time_s, ..MemoryReport::default() };
    report.nodes = nodes(&system.sys())?.into_iter().map(NodeMemory::new).collect();
    report.events = system_events(&system.proc())?;
    report.events.retain(|name, _| is_numa_event(name));
    let mut there = Vec::new();
    for process in processes.drain(..) {
        match of_process(system, &process) {
            Ok((memory, notes)) => {
                report.processes.push(memory);
                report.notes.extend(notes);
                there.push(process);
            }
            Err(error) if is_gone(error.as_ref()) => report.notes.push(format!("process {} has ended", process.pid())),
            Err(error) => return Err(error),
        }
    }
    *processes = there;
    if !arguments.cgroup.is_empty() {
        let cgroups = Cgroups::find_in(system.root())?;
        report.cgroups = arguments.cgroup.iter().map(|path| of_cgroup(&cgroups, path)).collect::<Result<_, _>>()?;
    }
    Ok(report)
}

fn of_process(system: &System, process: &Process) -> Result<(ProcessMemory, Vec<String>), Box<dyn Error>> {
    let found = mappings(system, process)?;
    let name = process.status().map_err(|error| system.unseen(process.pid(), &error))?.name;
    let of_it = |note| format!("process {}: {note}", process.pid());
    let memory = ProcessMemory::new(process.pid().0, name, &found.mappings);
    Ok((memory, found.changes().map(of_it).into_iter().collect()))
}

fn of_cgroup(cgroups: &Cgroups, path: &str) -> Result<CgroupReport, Box<dyn Error>> {
    // Accept a path copied from the file system.
    let path = Path::new(path);
    let inside = path.strip_prefix(cgroups.folder()).map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest));
    let name = Path::new("/").join(&inside).display().to_string();
    let folder = cgroups.folder_of(&name);
    if !folder.is_dir() {
        return Err(UsageError::boxed(format!("there is no control group {name}: no folder {}", folder.display())));
    }
    let no_memory = || {
        if let Err(why) = cgroups.requires("memory") {
            return machine::chain(&why);
        }
        format!(
            "control group {name} does not count its memory: the controller is not enabled (write +memory to \
             cgroup.subtree_control of the group above), or Linux is older than 5.9"
        )
    };
    Ok(CgroupReport::new(name.clone(), cgroups.memory(&name)?.ok_or_else(no_memory)?))
}
