//! What is known of a machine: its cores and caches, how fast each node's memory is from each other node, what its
//! controllers and links can carry, and which of its resources can be limited.

use crate::grant::Grant;
use crate::request::ReadWrite;
use machine::{CacheKind, CpuSet, Hop, Machine, NodeId, Routes};
use queueing::{Distances, LINE_BYTES, Resource};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lines in flight of a core whose description does not say: ten is usual for cores since 2008.
const USUAL_LINES: f64 = 10.0;

/// A machine as `reserve` sees it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The machine's description.
    pub machine: Machine,
    /// What can be limited on it.
    pub control: Control,
    /// Its cores, ordered by their first CPU.
    pub cores: Vec<Core>,
    /// The CPUs of each last-level cache.
    pub caches: Vec<CpuSet>,
    /// The cores of each of them, as indexes.
    pub(crate) sharers: Vec<Vec<usize>>,
    routes: Option<Routes>,
}

/// A core: the CPUs (hardware threads) that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Their node.
    pub node: NodeId,
    /// Their last-level cache, as an index in [`Facts::caches`].
    pub cache: Option<usize>,
}

/// Control hardware and software.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    /// Masks of cache ways (CAT), if the last-level caches have them.
    pub ways: Option<Ways>,
    /// What limits the bandwidth of the rest of the machine.
    pub throttle: Throttle,
}

impl Control {
    /// That of a machine by its description. Without a choice of `throttle` it is the best that the machine has.
    pub fn of(machine: &Machine, throttle: Option<Throttle>) -> Self {
        let hardware = machine.control.as_ref();
        let has_limits = hardware.is_some_and(|hardware| hardware.bandwidth_step_bytes_per_s.is_some());
        let best = if has_limits { Throttle::Hardware } else { Throttle::Duty };
        let ways = machine.controlled_ways().zip(hardware);
        // One class is for grants that share the rest's ways, but not its limits.
        let ways = ways.map(|(all, hardware)| Ways {
            all,
            least: hardware.least_ways.unwrap_or(1),
            classes: hardware.classes.saturating_sub(1),
        });
        Self { ways, throttle: throttle.unwrap_or(best) }
    }
}

/// Masks of the last-level caches' ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ways {
    /// Ways of each cache.
    pub all: u32,
    /// Fewest ways in a mask.
    pub least: u32,
    /// Classes of service, with the default one, which the rest of the machine has.
    pub classes: u32,
}

/// What limits the bandwidth of programs that have no grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Throttle {
    /// Nothing: grants are admitted beside what the rest was seen to draw.
    None,
    /// A share of CPU time (`cpu.max`): holds the mean over tens of ms, not each moment.
    #[default]
    Duty,
    /// The processor's bandwidth control.
    Hardware,
}

/// A preference's measure of a pair of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Idle latency, ns; where it is not known, the firmware's distance.
    Latency,
    /// Read bandwidth of one core, bytes/s.
    Read,
    /// Write bandwidth of one core, bytes/s.
    Write,
}

impl Facts {
    /// The facts of a machine.
    pub fn new(machine: Machine, control: Control) -> Self {
        let caches = last_level_caches(&machine);
        let cores = machine.cores().into_iter().filter_map(|cpus| {
            let first = cpus.first()?;
            let cache = caches.iter().position(|cache| cache.contains(first));
            Some(Core { node: machine.node_of_cpu(first)?, cpus, cache })
        });
        let cores: Vec<Core> = cores.collect();
        let mut sharers = vec![Vec::new(); caches.len()];
        for (index, core) in cores.iter().enumerate() {
            core.cache.into_iter().for_each(|cache: usize| sharers[cache].push(index));
        }
        Self { routes: Routes::new(&machine).ok(), control, cores, caches, sharers, machine }
    }

    /// Latencies under load.
    pub(crate) fn distances(&self) -> Distances<'_> {
        Distances::with_routes(&self.machine, self.routes.clone())
    }

    /// The links from a node's CPUs to a node's memory; `None` where the description does not say.
    pub fn route(&self, from: NodeId, to: NodeId) -> Option<Vec<Hop>> {
        if from == to {
            return Some(Vec::new());
        }
        self.routes.as_ref()?.hops(from, to).filter(|hops| !hops.is_empty())
    }

    /// What accesses of a node's CPUs to a node's memory pass.
    pub(crate) fn passes(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = Resource> {
        let links = self.route(from, to).unwrap_or_default();
        links.into_iter().map(|hop| Resource::Link(hop.directed_link())).chain([Resource::Controller(to)])
    }

    /// The part of a grant's traffic that passes a resource: its memory has equal parts.
    pub(crate) fn part_over(&self, grant: &Grant, resource: Resource) -> f64 {
        let is_over = |to: &NodeId| self.passes(grant.node, *to).any(|passed| passed == resource);
        grant.memory.iter().filter(is_over).count() as f64 / grant.memory.len().max(1) as f64
    }

    /// Idle latency of a pair of nodes, ns.
    pub fn latency_ns(&self, from: NodeId, to: NodeId) -> Option<f64> {
        self.routes.as_ref()?.latency_ns(&self.machine, from, to)
    }

    /// A value of a table; less is better for latency, more for bandwidth.
    pub fn value(&self, table: Table, from: NodeId, to: NodeId) -> Option<f64> {
        match table {
            Table::Latency => self.latency_ns(from, to).or_else(|| self.distance(from, to)),
            Table::Read => self.core_bytes_per_s(from, to, 1.0),
            Table::Write => self.core_bytes_per_s(from, to, 2.0),
        }
    }

    fn distance(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let position = |id| self.machine.nodes.iter().position(|node| node.id == id);
        let matrix = &self.machine.distances.as_ref()?.matrix;
        matrix.get(position(from)?)?.get(position(to)?).copied().map(f64::from)
    }

    /// Bandwidth of one core, bytes/s, if each line that it is for also crosses `crossings - 1` times back.
    fn core_bytes_per_s(&self, from: NodeId, to: NodeId, crossings: f64) -> Option<f64> {
        let lines = LINE_BYTES * self.stream_lines() / (self.latency_ns(from, to)? / 1e9);
        let stream = self.core_most_bytes_per_s().unwrap_or(f64::INFINITY) / crossings;
        let capacities = self.passes(from, to).filter_map(|resource| self.capacity(resource));
        let least = capacities.map(|capacity| capacity.read / crossings).fold(stream.min(lines), f64::min);
        Some(least)
    }

    /// Lines in flight of a core that reads or writes a stream.
    pub(crate) fn stream_lines(&self) -> f64 {
        self.machine.core.as_ref().map_or(USUAL_LINES, |core| f64::from(core.stream_lines))
    }

    /// The most that one core draws from memory, bytes/s.
    pub fn core_most_bytes_per_s(&self) -> Option<f64> {
        self.machine.core.as_ref().map(|core| core.stream_bandwidth_bytes_per_s)
    }

    /// What a controller or a link can carry, bytes/s: only reads, and only writes.
    pub fn capacity(&self, resource: Resource) -> Option<ReadWrite> {
        match resource {
            Resource::Controller(id) => {
                let read = self.machine.node(id)?.bandwidth_bytes_per_s?;
                Some(ReadWrite { read, write: read / self.write_cost(id) })
            }
            Resource::Link(directed) => {
                let read = self.machine.links.get(directed / 2)?.bandwidth_bytes_per_s;
                Some(ReadWrite { read, write: read })
            }
        }
    }

    /// Time of a node's controller for a written byte, relative to a read one.
    pub(crate) fn write_cost(&self, id: NodeId) -> f64 {
        self.machine.node(id).and_then(|node| node.write_cost).unwrap_or(1.0)
    }

    /// Whether the machine's latencies and its nodes' bandwidths are known, so that slow-downs can be forecast.
    pub fn is_measured(&self) -> bool {
        let nodes = &self.machine.nodes;
        let with_memory = || nodes.iter().filter(|node| node.memory_bytes > 0);
        self.machine.core.is_some()
            && with_memory().all(|node| node.bandwidth_bytes_per_s.is_some())
            && nodes.iter().all(|from| with_memory().all(|to| self.latency_ns(from.id, to.id).is_some()))
    }

    /// Whether misses ask all nodes, so that no controller or link can be kept for one program.
    pub fn lacks_directory(&self) -> bool {
        self.machine.coherence.as_ref().is_some_and(|coherence| coherence.probes.is_some())
    }

    /// The nodes with memory.
    pub fn memory_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.machine.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id)
    }

    /// Cores by their node and last-level cache, as indexes in [`Facts::cores`]: candidates for a grant.
    pub(crate) fn groups(&self) -> BTreeMap<(NodeId, Option<usize>), Vec<usize>> {
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, core) in self.cores.iter().enumerate() {
            groups.entry((core.node, core.cache)).or_default().push(index);
        }
        groups
    }
}

/// The CPUs of each cache of the highest level, without those that hold only instructions.
fn last_level_caches(machine: &Machine) -> Vec<CpuSet> {
    let holds_data = |cache: &&machine::Cache| cache.kind != CacheKind::Instruction;
    let last = machine.caches.iter().filter(holds_data).map(|cache| cache.level).max();
    let caches = machine.caches.iter().filter(holds_data).filter(|cache| Some(cache.level) == last);
    caches.flat_map(|cache| machine.cache_instances(cache)).collect()
}
