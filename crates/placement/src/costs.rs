//! Memory latency and bandwidth of a machine, by node, looked up by index rather than by ID.

use machine::{CpuId, CpuSet, Machine, NodeId, NodeSet, Routes};
use queueing::Distances;
use std::collections::BTreeMap;

/// Remote over local latency where the machine's description has neither latencies nor distances: the mean of the
/// machines in the studies.
const USUAL_REMOTENESS: f64 = 1.4;
/// Rise and slope of latency with load where the description has none: a typical two-socket machine.
const USUAL_CURVE: (f64, f64) = (0.08, 0.15);
/// Upper bound of utilisation: the model grows without bound beyond it, unlike measurements.
const MOST_UTILISATION: f64 = 0.95;
/// Bytes per access.
pub(crate) const LINE_BYTES: f64 = machine::LINE_BYTES as f64;

/// A machine's nodes and their memory costs. Built once and used by all policies.
#[derive(Clone, Debug)]
pub struct Costs {
    machine: Machine,
    routes: Option<Routes>,
    /// In ascending order of ID.
    nodes: Vec<NodeCosts>,
    node_of_cpu: BTreeMap<CpuId, usize>,
    core_of_cpu: BTreeMap<CpuId, usize>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodeCosts {
    pub id: NodeId,
    pub memory_bytes: u64,
    /// The controller's bandwidth over the mean of all; 1 if not known.
    pub relative_bandwidth: f64,
    /// Its CPUs: the first of each core, then the second of each, and so on.
    pub cpus: Vec<CpuId>,
}

impl Costs {
    /// For this machine, preferably a measured one: without latencies, the firmware's distances are used; without
    /// bandwidths, all controllers are taken as equal.
    pub fn new(machine: &Machine) -> Self {
        let bandwidths: Vec<f64> = machine.nodes.iter().filter_map(bandwidth).collect();
        let mean = bandwidths.iter().sum::<f64>() / bandwidths.len().max(1) as f64;
        let cores = machine.cores();
        let core_of_cpu: BTreeMap<CpuId, usize> =
            cores.iter().enumerate().flat_map(|(at, cpus)| cpus.iter().map(move |cpu| (cpu, at))).collect();
        let rank = |cpu: CpuId| {
            let core = core_of_cpu.get(&cpu).and_then(|&core| cores.get(core));
            (core.map_or(0, |core| core.iter().take_while(|&other| other < cpu).count()), cpu)
        };
        let mut nodes: Vec<NodeCosts> = machine
            .nodes
            .iter()
            .map(|node| {
                let mut cpus: Vec<CpuId> = node.cpus.iter().collect();
                cpus.sort_by_key(|&cpu| rank(cpu));
                let relative_bandwidth = bandwidth(node).map_or(1.0, |bandwidth| bandwidth / mean);
                NodeCosts { id: node.id, memory_bytes: node.memory_bytes, relative_bandwidth, cpus }
            })
            .collect();
        nodes.sort_by_key(|node| node.id);
        let node_of_cpu =
            nodes.iter().enumerate().flat_map(|(at, node)| node.cpus.iter().map(move |&cpu| (cpu, at))).collect();
        Self { routes: Routes::new(machine).ok(), machine: machine.clone(), nodes, node_of_cpu, core_of_cpu }
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Latencies and routes, for the queueing model.
    pub(crate) fn distances(&self) -> Distances<'_> {
        Distances::with_routes(&self.machine, self.routes.clone())
    }

    pub(crate) fn nodes(&self) -> &[NodeCosts] {
        &self.nodes
    }

    /// The index of a node in [`Costs::nodes`].
    pub(crate) fn index_of(&self, node: NodeId) -> Option<usize> {
        // IDs are dense on nearly all machines, and this is called for every page.
        let dense = self.nodes.get(node.0 as usize).filter(|at| at.id == node).map(|_| node.0 as usize);
        dense.or_else(|| self.nodes.binary_search_by_key(&node, |at| at.id).ok())
    }

    /// The node that a CPU belongs to.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.node_of_cpu.get(&cpu).map(|&index| self.nodes[index].id)
    }

    /// A number that identifies the CPU's core.
    pub(crate) fn core_of_cpu(&self, cpu: CpuId) -> Option<usize> {
        self.core_of_cpu.get(&cpu).copied()
    }

    /// CPUs of these nodes.
    pub(crate) fn cpus_of(&self, nodes: &NodeSet) -> CpuSet {
        nodes.iter().filter_map(|node| self.index_of(node)).flat_map(|at| self.nodes[at].cpus.iter().copied()).collect()
    }

    /// Nodes that have memory.
    pub fn memory_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect()
    }

    /// Nodes that have CPUs.
    pub fn cpu_nodes(&self) -> NodeSet {
        self.nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id).collect()
    }

    /// Mean bandwidth of the controllers, bytes/s; none if no node's is known.
    pub fn controller_bandwidth_bytes_per_s(&self) -> Option<f64> {
        let known: Vec<f64> = self.machine.nodes.iter().filter_map(bandwidth).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Idle latency, ns; none if not in the description.
    pub fn latency_ns(&self, from: NodeId, to: NodeId) -> Option<f64> {
        self.routes.as_ref()?.latency_ns(&self.machine, from, to)
    }

    /// Relative cost of an access from one node to another's memory: measured latency over that of local memory, or
    /// else the firmware's distance. 1 for local memory.
    pub fn remoteness(&self, from: NodeId, to: NodeId) -> f64 {
        let ratio = |of: &dyn Fn(NodeId) -> Option<f64>| Some(of(to)? / of(from).filter(|&local| local > 0.0)?);
        let distance = |to: NodeId| {
            let matrix = &self.machine.distances.as_ref()?.matrix;
            matrix.get(self.index_of(from)?)?.get(self.index_of(to)?).map(|&distance| f64::from(distance))
        };
        let unknown = if from == to { 1.0 } else { USUAL_REMOTENESS };
        ratio(&|to| self.latency_ns(from, to)).or_else(|| ratio(&distance)).unwrap_or(unknown)
    }

    /// The node of these whose memory is nearest to, or farthest from, CPUs of `from`; the lowest ID among equals.
    pub(crate) fn nearest(&self, from: NodeId, nodes: &NodeSet) -> Option<NodeId> {
        nodes.iter().min_by(|&a, &b| self.remoteness(from, a).total_cmp(&self.remoteness(from, b)))
    }

    pub(crate) fn farthest(&self, from: NodeId, nodes: &NodeSet) -> Option<NodeId> {
        nodes.iter().rev().max_by(|&a, &b| self.remoteness(from, a).total_cmp(&self.remoteness(from, b)))
    }

    /// Latency over idle latency, at this utilisation of the busiest component on the route.
    pub(crate) fn stretch(&self, utilisation: f64) -> f64 {
        let latency = self.machine.latency.as_ref();
        let told = latency.and_then(|latency| Some((latency.loaded_rise?, latency.loaded_slope?)));
        let (rise, slope) = told.unwrap_or(USUAL_CURVE);
        let utilisation = utilisation.clamp(0.0, MOST_UTILISATION);
        // The rise is complete at a tenth: `machine::Latency`.
        1.0 + rise * (10.0 * utilisation).min(1.0) + slope * utilisation / (1.0 - utilisation)
    }

    /// The ends of each link on the route, in the direction of the accesses.
    pub(crate) fn links_between(&self, from: NodeId, to: NodeId) -> Vec<(NodeId, NodeId)> {
        let hops = self.routes.as_ref().and_then(|routes| routes.hops(from, to)).unwrap_or_default();
        let ends = |hop: machine::Hop| {
            let [first, second] = self.machine.links.get(hop.link)?.nodes;
            Some(if hop.direction == machine::Direction::Forward { (first, second) } else { (second, first) })
        };
        hops.into_iter().filter_map(ends).collect()
    }

    /// Bandwidth of a link in this direction, bytes/s.
    pub(crate) fn link_bandwidth_bytes_per_s(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let joins = |link: &&machine::Link| {
            link.nodes == [from, to] || link.nodes == [to, from] && link.direction == machine::LinkDirection::Both
        };
        self.machine.links.iter().find(joins).map(|link| link.bandwidth_bytes_per_s)
    }

    /// Weights of weighted interleave, 1 to 255: small integers whose ratios match those of the controllers' bandwidths
    /// within 5 %, or as closely as possible.
    pub(crate) fn weights(&self, nodes: &NodeSet) -> Vec<(NodeId, u32)> {
        let known = nodes.iter().filter_map(|id| Some((id, self.nodes[self.index_of(id)?].relative_bandwidth)));
        let bandwidths: Vec<(NodeId, f64)> = known.collect();
        let least = bandwidths.iter().map(|(_, bandwidth)| *bandwidth).fold(f64::INFINITY, f64::min);
        let scaled = |unit: u32| {
            let weight = move |bandwidth: f64| (bandwidth / least * f64::from(unit)).round().clamp(1.0, 255.0);
            bandwidths.iter().map(move |&(id, bandwidth)| (id, bandwidth, weight(bandwidth)))
        };
        let error = |unit: u32| {
            scaled(unit)
                .map(|(_, bandwidth, weight)| (weight * least / (bandwidth * f64::from(unit)) - 1.0).abs())
                .fold(0.0, f64::max)
        };
        let near_enough = (1..=MOST_UNITS).find(|&unit| error(unit) <= WEIGHT_ERROR);
        let unit = near_enough.or_else(|| (1..=MOST_UNITS).min_by(|&a, &b| error(a).total_cmp(&error(b)))).unwrap_or(1);
        scaled(unit).map(|(id, _, weight)| (id, weight as u32)).collect()
    }
}

/// Tolerated error of weights.
const WEIGHT_ERROR: f64 = 0.05;
/// Largest weight of the node with the least bandwidth: larger ones keep a scan on one node for too long.
const MOST_UNITS: u32 = 8;

fn bandwidth(node: &machine::Node) -> Option<f64> {
    node.bandwidth_bytes_per_s.filter(|&bandwidth| node.memory_bytes > 0 && bandwidth > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn costs(preset: &str) -> Costs {
        Costs::new(&presets::find(preset).unwrap())
    }

    #[test]
    fn remoteness_is_of_measured_latency() {
        let costs = costs("opteron-8380x4");
        let [local, near, far] = [0, 1, 3].map(|to| costs.remoteness(NodeId(0), NodeId(to)));
        assert!((local - 1.0).abs() < 1e-9);
        assert!((near - 286.0 / 261.0).abs() < 1e-3 && (far - 377.0 / 261.0).abs() < 1e-3, "{near} {far}");
        let all = costs.memory_nodes();
        assert_eq!(costs.nearest(NodeId(2), &all), Some(NodeId(2)));
        assert_eq!(costs.farthest(NodeId(0), &all), Some(NodeId(3)));
    }

    #[test]
    fn without_latencies_the_firmwares_distances_decide() {
        let mut machine = presets::find("opteron-6164x2").unwrap();
        machine.latency = None;
        assert!((Costs::new(&machine).remoteness(NodeId(0), NodeId(1)) - 1.6).abs() < 1e-9);
        machine.distances = None;
        assert!((Costs::new(&machine).remoteness(NodeId(0), NodeId(1)) - USUAL_REMOTENESS).abs() < 1e-9);
    }

    #[test]
    fn weights_are_small_and_in_proportion() {
        let same = costs("opteron-6164x2");
        assert_eq!(same.weights(&same.memory_nodes()).iter().map(|(_, weight)| *weight).collect::<Vec<_>>(), [1; 4]);
        let mut machine = presets::find("small-2x2").unwrap();
        machine.nodes[0].bandwidth_bytes_per_s = Some(150e9);
        machine.nodes[1].bandwidth_bytes_per_s = Some(60e9);
        let uneven = Costs::new(&machine);
        assert_eq!(uneven.weights(&uneven.memory_nodes()), [(NodeId(0), 5), (NodeId(1), 2)]);
    }

    #[test]
    fn siblings_come_after_all_first_cpus_of_cores() {
        let costs = costs("xeon-x5650x2");
        let cpus = &costs.nodes()[0].cpus;
        let cores: Vec<_> = cpus.iter().map(|&cpu| costs.core_of_cpu(cpu).unwrap()).collect();
        let (first, second) = cores.split_at(cores.len() / 2);
        assert_eq!(first, second);
        assert!(first.is_sorted());
    }
}
