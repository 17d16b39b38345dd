//! The description of a machine. The same types are its TOML form: see `machines/` for examples and
//! `docs/machine-files.md` for the manual.

use crate::control::Control;
use crate::disk::Disk;
use crate::ids::{CpuId, NodeId, PackageId};
use crate::set::CpuSet;
use crate::source::Source;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A whole machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name; a preset's is its file name.
    pub name: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where the numbers come from: key to citation. [`Source`] refers to the keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// CPUs that share a core (SMT). CPUs that are not listed here are separate cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smt_cores: Vec<CpuSet>,
    /// The capabilities of one core. The lab's model needs them; discovery cannot determine them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<Core>,
    /// How caches of different nodes are kept coherent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coherence: Option<Coherence>,
    /// Hardware that limits what CPUs take from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// The disk for its files in the lab; without it, [`Disk::default`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// Idle latency from each node to each node's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The firmware's distances (SLIT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<Distances>,
    /// Packages, in ascending order of ID.
    #[serde(default, rename = "package", skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Package>,
    /// Nodes, in ascending order of ID.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Caches, one entry for all caches of the same shape.
    #[serde(default, rename = "cache", skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cache>,
    /// Data TLBs of a core.
    #[serde(default, rename = "tlb", skip_serializing_if = "Vec::is_empty")]
    pub tlbs: Vec<Tlb>,
    /// Links between nodes.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Routes that differ from the shortest path.
    #[serde(default, rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// The capabilities of one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Clock, Hz.
    pub clock_hz: f64,
    /// Instructions per cycle while nothing waits for memory.
    pub instructions_per_cycle: f64,
    /// Maximum sequential read bandwidth of one core from memory, bytes/s.
    pub stream_bandwidth_bytes_per_s: f64,
    /// Lines of a sequential stream in flight (hardware prefetch included).
    pub stream_lines: u32,
    /// Store misses in flight before the core stalls.
    pub store_lines: u32,
    /// Independent load misses in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_lines: Option<u32>,
    /// Size of the reorder window: instructions from the oldest unfinished one to the youngest started one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_instructions: Option<u32>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// How a line in another cache is found. Without this table no other cache ever has the line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coherence {
    /// Time for a node to supply a line that only its caches have, without the latency of request and transfer, ns.
    pub line_ns: f64,
    /// Latency of a line that another core with the same last-level cache has exclusively, ns; without it, that of the
    /// cache itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sibling_ns: Option<f64>,
    /// Delay of a memory's directory before it asks another node for a line, ns. Machines without a directory have
    /// `probes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_ns: Option<f64>,
    /// For machines without a directory: every miss asks all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Probes of a miss to all other nodes, and their answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Time for a node to answer that it does not have the line, without the latency of probe and answer, ns.
    pub answer_ns: f64,
    /// Probes or answers that each direction of a link can carry, beside its data, 1/s.
    pub per_second: f64,
}

/// Latency of a load that misses every cache: when idle, in exactly one of two forms, and how it grows with load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// By the number of hops of the route: local first, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hops_ns: Vec<f64>,
    /// By pair: rows are the accessing node and columns the memory's, in the order of [`Machine::nodes`], ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix_ns: Vec<Vec<f64>>,
    /// Relative increase over the idle latency as soon as there is a load, reached at a utilisation of a tenth: `a - 1`
    /// of the curve `a + b u / (1 - u)`. For a node's controller it applies to the node's own idle latency, for a link
    /// to the latency that the link adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_rise: Option<f64>,
    /// How steeply latency grows with utilisation: `b` of that curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_slope: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Firmware distances (SLIT): 10 is local. Rows are the accessing node, columns the memory's, in the order of
/// [`Machine::nodes`]; they may be asymmetric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    /// The table.
    pub matrix: Vec<Vec<u32>>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// The contents of one socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Its number.
    pub id: PackageId,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// A NUMA node: CPUs, memory, or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its CPUs; empty for a memory-only node.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// Its memory, bytes; 0 for a CPU-only node. In TOML also a text such as `"12 GiB"`.
    #[serde(deserialize_with = "crate::size::deserialize")]
    pub memory_bytes: u64,
    /// Bandwidth of its controller, bytes/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Time of its controller for a written line, relative to a read line; 1 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cost: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Caches of one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 1, 2, 3 …
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Size of each, bytes. In TOML also a text such as `"512 KiB"`.
    #[serde(deserialize_with = "crate::size::deserialize")]
    pub size_bytes: u64,
    /// Associativity; 0 if unknown.
    #[serde(default)]
    pub ways: u32,
    /// Line size, bytes.
    pub line_bytes: u32,
    /// Load-to-use latency, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// The CPUs that share one of them.
    pub shared_by: Sharing,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// 1 or 2.
    pub level: u8,
    /// The page sizes that share it.
    pub pages: Vec<PageSize>,
    /// The number of entries.
    pub entries: u32,
    /// Associativity; equal to `entries` if fully associative.
    pub ways: u32,
    /// Latency that a hit here adds to an access, ns; nothing at level 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageSize {
    /// 4 KiB.
    #[serde(rename = "4 KiB")]
    Small,
    /// 2 MiB.
    #[serde(rename = "2 MiB")]
    Huge,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// The CPUs behind one cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// One cache per core.
    Core,
    /// One per node with CPUs.
    Node,
    /// One per package.
    Package,
    /// One for each of these sets.
    #[serde(untagged)]
    Cpus(Vec<CpuSet>),
}

/// A link between two nodes. Each direction has the full bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its two ends.
    pub nodes: [NodeId; 2],
    /// The directions in which it carries accesses.
    #[serde(default)]
    pub direction: LinkDirection,
    /// Bandwidth of each direction, bytes/s.
    pub bandwidth_bytes_per_s: f64,
    /// Latency that crossing it adds to an access, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// The direction in which a link carries accesses of the first node's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkDirection {
    /// Both directions.
    #[default]
    Both,
    /// Only accesses of the first node's CPUs to the second node's memory (and traffic that passes through).
    Forward,
}

/// The nodes that accesses of one node's CPUs to another node's memory pass through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The accessing node.
    pub from: NodeId,
    /// The memory's node.
    pub to: NodeId,
    /// The nodes in between, in order; empty for the direct link.
    #[serde(default)]
    pub via: Vec<NodeId>,
}

/// The line size of caches for which there is none: that of nearly every processor.
pub(crate) const USUAL_LINE_BYTES: u32 = 64;

impl Distances {
    /// Whether this can be a node's row, with 10 for the node itself and no more than the firmware's table can hold.
    pub(crate) fn is_row(row: &[u32], node: usize, nodes: usize) -> bool {
        row.len() == nodes && row.get(node) == Some(&10) && row.iter().all(|distance| (10..=255).contains(distance))
    }
}

impl Machine {
    /// The node with this ID.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Every CPU of every node, in ascending order.
    pub fn cpus(&self) -> CpuSet {
        self.nodes.iter().flat_map(|node| node.cpus.iter()).collect()
    }

    /// The node that a CPU belongs to.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.id)
    }

    /// The cores, each as the set of its CPUs, ordered by their first CPU.
    pub fn cores(&self) -> Vec<CpuSet> {
        let shared: CpuSet = self.smt_cores.iter().flat_map(CpuSet::iter).collect();
        let alone = self.cpus();
        let alone = alone.iter().filter(|&cpu| !shared.contains(cpu)).map(|cpu| CpuSet::from_iter([cpu]));
        let mut cores: Vec<CpuSet> = self.smt_cores.iter().cloned().chain(alone).collect();
        cores.sort_by_key(CpuSet::first);
        cores
    }

    /// The CPUs of each cache that an entry describes.
    pub fn cache_instances(&self, cache: &Cache) -> Vec<CpuSet> {
        self.sets_sharing(&cache.shared_by)
    }

    /// The CPUs of each cache that is shared like this.
    pub(crate) fn sets_sharing(&self, shared_by: &Sharing) -> Vec<CpuSet> {
        match shared_by {
            Sharing::Core => self.cores(),
            Sharing::Node => self.nodes.iter().map(|n| n.cpus.clone()).filter(|cpus| !cpus.is_empty()).collect(),
            Sharing::Package => self.packages.iter().map(|p| p.cpus.clone()).collect(),
            Sharing::Cpus(sets) => sets.clone(),
        }
    }
}
