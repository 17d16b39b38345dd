//! `nearside show`: where the memory of a process is and why; or the machine's memory.

use crate::options::system::System;
use crate::output::terminal::Terminal;
use crate::output::watch::Watch;
use crate::process::residences::{is_gone, mappings};
use clap::Args;
use linux::{
    CgroupError, Cgroups, EffectiveCpuset, NodeError, NodePages, NodeState, PolicyMark, Process, Switch, nodes,
    online_nodes, printable, threads, total_pages,
};
use machine::{NodeId, NodeSet, PciDevice, chain};
use report::{
    CpusetReport, MappingReport, NodeBytes, NodeReport, NodesReport, PagesOnNode, ProcessReport, ThreadReport,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

/// Show where a process's memory is, and the policies and affinities of its threads; or the machine's memory
///
/// For each mapping with pages, shows how many pages of which size are on which node, its policy, and how much of it
/// other processes map. Needs the process's user or root. The process keeps running: changes between two reads of /proc
/// are noted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside show                            the machine: CPUs and memory of its nodes
  nearside show $$                         this shell
  nearside show --watch=1 4711             once a second, until it ends or Ctrl-C
  nearside show --json 4711 | jq .nodes    bytes on each node
  nearside show --root /mnt/saved 4711     of a saved /proc and /sys

Policies are in the kernel's words: default (first touch), bind:0-1, interleave:0-3 and so on (man 7 numa). A mapping \
without its own policy has the first thread's.

Exit codes:
  0  all went well
  1  the process is gone, is no user program, or may not be looked at
  2  the command line is wrong")]
pub struct Arguments {
    /// The process: its number, or its name if it is the only one of that name; without it, the machine
    #[arg(value_name = "PID")]
    pid: Option<String>,

    /// As JSON, with every mapping and thread (see docs/show.md)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    watch: Watch,

    #[command(flatten)]
    system: System,
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { pid, json, watch, system } = arguments;
    match pid {
        Some(pid) => {
            let process = system.process(system.named(pid)?)?;
            let mut seen = false;
            watch.print(|| match look_at(system, &process) {
                // A process that ends under --watch is no error.
                Err(error) if seen && is_gone(error.as_ref()) => Ok(None),
                found => {
                    seen = true;
                    let found = found?;
                    Ok(Some(if *json { watch.json(&found)? } else { watch.text(&found, terminal) }))
                }
            })?;
        }
        None => watch.print(|| {
            let found = machine(system)?;
            Ok(Some(if *json { watch.json(&found)? } else { watch.text(&found, terminal) }))
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn machine(system: &System) -> Result<NodesReport, NodeError> {
    let switch = |path: &str| Switch::at(system.root().join(path)).value().ok();
    Ok(NodesReport {
        nodes: nodes(&system.sys())?.iter().map(NodeReport::new).collect(),
        numa_balancing: switch("proc/sys/kernel/numa_balancing"),
        transparent_huge_pages: switch("sys/kernel/mm/transparent_hugepage/enabled"),
        devices: PciDevice::all_of_sysfs(&system.sys()),
    })
}

fn look_at(system: &System, process: &Process) -> Result<ProcessReport, Box<dyn Error>> {
    let all_nodes = online_nodes(&system.sys())?;
    let node_of = NodeState::read(&system.sys())?.of_cpus();
    let found = mappings(system, process)?;
    let mut notes: Vec<String> = found.changes().into_iter().collect();
    let untold = found.mappings.iter().filter(|mapping| !mapping.huge_pages_told).count();
    if untold > 0 {
        notes.push(format!(
            "in {untold} mappings transparent huge pages are counted as base pages: the kernel reports on which nodes \
             they are only since Linux 6.7, and only if they do not change during the read"
        ));
    }
    let unseen = |error| system.unseen(process.pid(), &error);
    let threads = threads(process, PolicyMark::among(&found.mappings)).map_err(unseen)?;
    let status = process.status().map_err(unseen)?;
    let (cgroup, cpuset) = cgroup(system, process, &mut notes);
    let pages = total_pages(&found.mappings);
    Ok(ProcessReport {
        pid: process.pid().0,
        name: status.name,
        cgroup,
        cpuset,
        threads: threads.iter().map(|thread| ThreadReport::new(thread, &node_of)).collect(),
        nodes: node_bytes(&all_nodes, &pages),
        pages: pages.iter().map(PagesOnNode::from).collect(),
        mappings: found.mappings.iter().map(MappingReport::new).collect(),
        notes,
    })
}

/// The process's control group and its effective cpuset. A system without control groups is no error.
fn cgroup(system: &System, process: &Process, notes: &mut Vec<String>) -> (Option<String>, Option<CpusetReport>) {
    let found = Cgroups::find_in(system.root()).and_then(|cgroups| {
        let cgroup = cgroups.of(process)?;
        let cpuset = cgroups.effective_cpuset(&cgroup)?;
        Ok((cgroup, cpuset))
    });
    match found {
        Ok((name, cpuset)) => {
            let report = |EffectiveCpuset { cgroup, cpus, nodes }| CpusetReport {
                cgroup: printable(&cgroup),
                cpus,
                memory_nodes: nodes,
            };
            (Some(printable(&name)), cpuset.map(report))
        }
        Err(CgroupError::NotMounted) => (None, None),
        Err(error) => {
            notes.push(format!("control group not shown: {}", chain(&error)));
            (None, None)
        }
    }
}

fn node_bytes(nodes: &NodeSet, pages: &[NodePages]) -> Vec<NodeBytes> {
    let mut bytes: BTreeMap<NodeId, u64> = nodes.iter().map(|node| (node, 0)).collect();
    for pages in pages {
        let bytes = bytes.entry(pages.node).or_default();
        *bytes = bytes.saturating_add(pages.bytes());
    }
    bytes.into_iter().map(|(node, bytes)| NodeBytes { node, bytes }).collect()
}
