//! The description of a machine. The same types are its TOML form: see `machines/` for examples and
//! `docs/machine-files.md` for the manual.

use crate::disk::Disk;
use crate::ids::{CpuId, NodeId, PackageId};
use crate::set::CpuSet;
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
    /// CPUs that share a core (SMT). CPUs that are named nowhere here are a core each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smt_cores: Vec<CpuSet>,
    /// What one core can have under way; the lab's model needs it, discovery cannot know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<Core>,
    /// How caches of different nodes are kept coherent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coherence: Option<Coherence>,
    /// The disk that its files are on, in the lab; without it, [`Disk::default`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// Idle latency from each node to each node's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// What the firmware says of distances (SLIT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<Distances>,
    /// Packages, in ascending order of id.
    #[serde(default, rename = "package", skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Package>,
    /// Nodes, in ascending order of id.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// Caches, one entry for all caches of the same shape.
    #[serde(default, rename = "cache", skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cache>,
    /// Translation buffers of a core, for data.
    #[serde(default, rename = "tlb", skip_serializing_if = "Vec::is_empty")]
    pub tlbs: Vec<Tlb>,
    /// Links between nodes.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Routes that differ from the shortest path.
    #[serde(default, rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// The source of the numbers of one table: one key of [`Machine::sources`] for all of them, or one a field, where `*`
/// stands for the fields not named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Source {
    /// One source for every number of the table.
    All(String),
    /// Field name to source.
    ByField(BTreeMap<String, String>),
}

/// What one core can do at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Clock, Hz.
    pub clock_hz: f64,
    /// Instructions a cycle while nothing waits for memory.
    pub instructions_per_cycle: f64,
    /// Most that one core draws from memory when it reads sequentially, bytes/s.
    pub stream_bandwidth_bytes_per_s: f64,
    /// Lines of a sequential stream under way at once (hardware prefetch included).
    pub stream_lines: u32,
    /// Store misses under way at once before the core waits.
    pub store_lines: u32,
    /// Load misses under way at once, of those that wait for no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_lines: Option<u32>,
    /// Instructions from the oldest that is not finished to the youngest that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder_instructions: Option<u32>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// How a line is found that another cache may have. Without this table none ever has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coherence {
    /// What a node takes to give a line that its caches alone have, the ways of question and line not included, ns.
    pub line_ns: f64,
    /// What a line takes that another core of the same last cache has for itself, ns; without it as long as one of that
    /// cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sibling_ns: Option<f64>,
    /// What a memory's directory adds before it asks another node for a line, ns. Machines without one have `probes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_ns: Option<f64>,
    /// Where no directory knows who has a line: every miss asks all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Questions of a miss to all other nodes, and their answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// What a node takes to answer that it does not have the line, the ways not included, ns.
    pub answer_ns: f64,
    /// Questions or answers that each direction of a link carries, beside its data, 1/s.
    pub per_second: f64,
}

/// Latency of a load that misses every cache: idle, in exactly one of two forms, and how it grows with load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// By the number of hops of the route: local first, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_hops_ns: Vec<f64>,
    /// By pair, rows are the accessing node and columns the memory's, in the order of [`Machine::nodes`], ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix_ns: Vec<Vec<f64>>,
    /// By what part of its idle latency an access takes longer as soon as there is a load: reached at a utilisation of a
    /// tenth. `a - 1` of the curve `a + b u / (1 - u)`. A node's controller has it of the node's own idle latency, a
    /// link of what it adds to that.
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

/// What goes into one socket.
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
    /// Its CPUs; empty for a node of memory only.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// Its memory, bytes; 0 for a node of CPUs only. In TOML also a text such as `"12 GiB"`.
    #[serde(deserialize_with = "crate::size::deserialize")]
    pub memory_bytes: u64,
    /// What its controller can deliver, bytes/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// How many times the time of a line that is read its controller needs for one that is written; 1 where it is not
    /// told.
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
    /// Size of one of them, bytes. In TOML also a text such as `"512 KiB"`.
    #[serde(deserialize_with = "crate::size::deserialize")]
    pub size_bytes: u64,
    /// Associativity; 0 where it is unknown.
    #[serde(default)]
    pub ways: u32,
    /// Line, bytes.
    pub line_bytes: u32,
    /// Load-to-use latency, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Who shares one of them.
    pub shared_by: Sharing,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A translation buffer: which pages a core knows the frames of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// 1 or 2.
    pub level: u8,
    /// The sizes of pages that share it.
    pub pages: Vec<PageSize>,
    /// How many pages.
    pub entries: u32,
    /// Associativity; as many as `entries` where a page may be in any place.
    pub ways: u32,
    /// What finding a page here adds to an access, ns; nothing at level 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// A size of pages.
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
    /// One a core.
    Core,
    /// One a node that has CPUs.
    Node,
    /// One a package.
    Package,
    /// One for each of these sets.
    #[serde(untagged)]
    Cpus(Vec<CpuSet>),
}

/// A link between two nodes. Each direction has the whole bandwidth for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its two ends.
    pub nodes: [NodeId; 2],
    /// Which way it carries data.
    #[serde(default)]
    pub direction: LinkDirection,
    /// Bandwidth of each direction, bytes/s.
    pub bandwidth_bytes_per_s: f64,
    /// What crossing it adds to an access, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Where the numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Which way a link carries requests of the first node's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkDirection {
    /// Both ways.
    #[default]
    Both,
    /// Only accesses of the first node's CPUs to the second node's memory (and what passes through them).
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
    /// The nodes between, in order; empty for the direct link.
    #[serde(default)]
    pub via: Vec<NodeId>,
}

impl Machine {
    /// The node with this id.
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

    /// The CPUs of each single cache that an entry stands for.
    pub fn cache_instances(&self, cache: &Cache) -> Vec<CpuSet> {
        match &cache.shared_by {
            Sharing::Core => self.cores(),
            Sharing::Node => self.nodes.iter().map(|n| n.cpus.clone()).filter(|cpus| !cpus.is_empty()).collect(),
            Sharing::Package => self.packages.iter().map(|p| p.cpus.clone()).collect(),
            Sharing::Cpus(sets) => sets.clone(),
        }
    }
}
