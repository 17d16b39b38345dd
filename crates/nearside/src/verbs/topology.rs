//! `nearside topology`: describes a machine.

use crate::options::candidates;
use crate::options::machine_source::{self, SourceError};
use crate::output;
use crate::output::json;
use crate::output::terminal::Terminal;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use machine::{CpuSet, IdSet, Machine, NodeId, PackageId, PciDevice, Routes};
use report::{MachineText, machine_to_svg};
use serde::Serialize;
use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show a machine: its nodes, CPUs, caches, distances, latencies and links
///
/// Without --from, the machine is this host, as reported by Linux in /sys.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside topology                                    this host
  nearside topology --from opteron-8380x4 --sources    a preset, and its sources
  nearside topology --format svg --output host.svg     a picture for a README
  nearside topology --format toml --output host.toml   a machine file to edit
  nearside topology --json | jq .derived.core_count    for scripts
  nearside topology --from /mnt/backup                 a saved system with its /sys
  nearside topology --from machine.tar.gz              the same, packed
  nearside topology --from lstopo.xml                  what `lstopo lstopo.xml` saved

Exit codes:
  0  all went well
  1  no machine could be read, or the output could not be written
  2  the command line is wrong")]
pub struct Arguments {
    /// The machine to show
    ///
    /// One of:
    ///   the name of a preset, such as opteron-8380x4;
    ///   objects from the outermost to the innermost, as for hwloc, such as 'node:2(4G) l3:1(32M) core:4 pu:2';
    ///   a machine file (TOML), or XML that hwloc 2 or 3 has written;
    ///   a sysfs tree, or the root of a saved system that has one at sys/;
    ///   an archive of either (tar, tar.gz, tar.bz2, tar.xz), as hwloc-gather-topology writes them;
    ///   a folder of ACPI tables in files SRAT and, if any, SLIT and HMAT (as root: /sys/firmware/acpi/tables).
    ///
    /// The contents of a file or folder decide its kind, not its name. For a file that is named like a preset, use
    /// ./NAME.
    #[arg(long, value_name = "PRESET|FILE", verbatim_doc_comment, add = ArgValueCompleter::new(candidates::machines))]
    from: Option<String>,

    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// In text, show where each number comes from; JSON and TOML always do
    #[arg(long)]
    sources: bool,

    /// Write to this file instead of standard output, which is -
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables for people. A large machine is summarized, in no more than a page or two
    Text,
    /// The whole description, as in a machine file, with derived facts under "derived" (see docs/topology.md)
    Json,
    /// XML for hwloc's tools: `lstopo -i FILE`. hwloc has no elements for links, routes and sources
    HwlocXml,
    /// A picture: nodes with caches and cores, links with bandwidth, and a heat map of latencies or distances
    Svg,
    /// A machine file, for --from and the lab
    Toml,
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let (machine, simulated) = shown(arguments.from.as_deref())?;
    let format = if arguments.json { Format::Json } else { arguments.format };
    let devices = machine_source::devices(arguments.from.as_deref());
    let text = match format {
        Format::Text => {
            let text = MachineText::new(&machine).simulated(simulated);
            let text = text.with_devices(&devices).with_sources(arguments.sources);
            if arguments.output.is_some() { text.to_string() } else { terminal.text(&text) }
        }
        Format::Json => json::document(&Document::new(&machine, devices))?,
        Format::HwlocXml => machine.to_hwloc_xml()?,
        Format::Svg => machine_to_svg(&machine),
        Format::Toml => machine.to_toml()?,
    };
    output::write(&text, arguments.output.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The machine to show, and whether it is simulated. In the lab, it is what Linux reports there under the name of the
/// machine that the lab simulates: the firmware only knows QEMU's.
fn shown(from: Option<&str>) -> Result<(Machine, bool), SourceError> {
    if from.is_some() {
        return Ok((machine_source::read(from)?, false));
    }
    let (running, simulated) = machine_source::running()?;
    if !simulated {
        return Ok((running, false));
    }
    let Machine { name, description, .. } = running;
    Ok((Machine { name, description, ..machine_source::read(None)? }, true))
}

/// The JSON form: the fields of a machine file, and facts derived from them.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    machine: &'a Machine,
    /// Devices on PCI; absent if the machine has none, or is described by anything but a sysfs tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<PciDevice>,
    derived: Derived,
}

/// Derived facts, so that readers of a description need not compute them. Documented in `docs/topology.md`.
#[derive(Serialize)]
struct Derived {
    node_count: usize,
    cpu_count: usize,
    core_count: usize,
    package_count: usize,
    memory_bytes: u64,
    nodes: Vec<DerivedNode>,
    /// Number of links on the route from the row's node to the column's; absent without links, `null` without a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    hops: Option<Vec<Vec<Option<usize>>>>,
    /// Idle latency, ns; rows are the accessing nodes. Absent if no latencies are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns: Option<Vec<Vec<Option<f64>>>>,
}

#[derive(Serialize)]
struct DerivedNode {
    id: NodeId,
    /// The CPUs of each core.
    cores: Vec<CpuSet>,
    /// The packages that contain the node's CPUs.
    packages: IdSet<PackageId>,
}

impl<'a> Document<'a> {
    fn new(machine: &'a Machine, devices: Vec<PciDevice>) -> Self {
        let routes = Routes::new(machine).ok();
        let table = |known: bool| routes.as_ref().filter(|_| known);
        let nodes = derived_nodes(machine);
        let derived = Derived {
            node_count: machine.nodes.len(),
            cpu_count: machine.nodes.iter().map(|node| node.cpus.len()).sum(),
            core_count: nodes.iter().map(|node| node.cores.len()).sum(),
            package_count: machine.packages.len(),
            memory_bytes: machine.nodes.iter().fold(0, |sum, node| node.memory_bytes.saturating_add(sum)),
            nodes,
            hops: table(!machine.links.is_empty())
                .map(|routes| by_pair(machine, |from, to| routes.hop_count(from, to))),
            latency_ns: table(machine.latency.is_some())
                .map(|routes| by_pair(machine, |from, to| routes.latency_ns(machine, from, to))),
        };
        Self { machine, devices, derived }
    }
}

fn by_pair<T>(machine: &Machine, value: impl Fn(NodeId, NodeId) -> T) -> Vec<Vec<T>> {
    let row = |from: NodeId| machine.nodes.iter().map(|to| value(from, to.id)).collect();
    machine.nodes.iter().map(|node| row(node.id)).collect()
}

fn derived_nodes(machine: &Machine) -> Vec<DerivedNode> {
    let cpus = || machine.nodes.iter().enumerate().flat_map(|(i, node)| node.cpus.iter().map(move |cpu| (cpu, i)));
    let node_of: HashMap<_, _> = cpus().collect();
    let empty = |node: &machine::Node| DerivedNode { id: node.id, cores: Vec::new(), packages: IdSet::new() };
    let mut nodes: Vec<DerivedNode> = machine.nodes.iter().map(empty).collect();
    for core in machine.cores() {
        let home = core.first().and_then(|cpu| node_of.get(&cpu));
        if let Some(node) = home.and_then(|&home| nodes.get_mut(home)) {
            node.cores.push(core);
        }
    }
    for (cpu, package) in machine.packages.iter().flat_map(|package| package.cpus.iter().map(|cpu| (cpu, package.id))) {
        if let Some(node) = node_of.get(&cpu).and_then(|&home| nodes.get_mut(home)) {
            node.packages.insert(package);
        }
    }
    nodes
}
