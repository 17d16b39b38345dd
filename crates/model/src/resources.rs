//! What accesses to memory share: the controller of each node and each direction of each link.
//!
//! A direction of a link is named by the way that accesses go: one from node 0 to node 1 carries the accesses of node
//! 0's CPUs to node 1's memory (and those that pass through), as in the machine file. Their lines flow the other way,
//! on wires that no other direction uses: the requests themselves are small and are left out, but for those that ask
//! every node.

use crate::queues::{Server, Step};
use crate::{LINE_BYTES, MemoryRange, ModelError};
use machine::{Coherence, Latency, LinkDirection, Machine, NodeId, Routes};
use std::collections::{BTreeMap, BTreeSet};

/// The resources, numbered: first the directions of links ([`machine::Hop::directed_link`]), then controllers.
pub(crate) struct Resources {
    pub servers: Vec<Server>,
    /// By pair (`from * columns + to` for lines read, `from * columns + nodes + to` for lines written back): latency of
    /// an access to memory while nothing is busy, ps.
    pub idle_ps: Box<[u32]>,
    /// Paths begin and end here in `steps`, by pair of nodes.
    bounds: Box<[usize]>,
    steps: Box<[Step]>,
    /// The number of the first controller.
    pub controllers: usize,
}

/// The columns of a table by pair of nodes: for each node one of lines read from it and one of lines written back to it.
pub(crate) fn columns(nodes: usize) -> usize {
    2 * nodes
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnds {
    /// The number of the resource.
    pub resource: usize,
    /// The node from whose CPUs accesses come.
    pub from: NodeId,
    /// The node to whose memory they go.
    pub to: NodeId,
    pub bandwidth_bytes_per_s: f64,
}

impl Resources {
    /// Only pairs of a node with CPUs and one with memory in `memory` have a path and a latency.
    pub(crate) fn of(machine: &Machine, memory: &[MemoryRange]) -> Result<Self, ModelError> {
        let missing = |field: String| ModelError::Missing { machine: machine.name.clone(), field };
        let routes = Routes::of(machine)?;
        if machine.latency.is_none() {
            return Err(missing("latency".to_owned()));
        }
        let nodes = machine.nodes.len();
        let mut has_memory = vec![false; nodes];
        for range in memory {
            has_memory[range.node] = true;
        }

        let mut servers = Vec::with_capacity(2 * machine.links.len() + nodes);
        for (index, link) in machine.links.iter().enumerate() {
            let service =
                service(machine, link.bandwidth_bytes_per_s, || format!("link[{index}].bandwidth_bytes_per_s"))?;
            servers.extend([Server { service_ps: service, ..Server::default() }; 2]);
        }
        let controllers = servers.len();
        for (node, has_memory) in machine.nodes.iter().zip(&has_memory) {
            let field = || format!("bandwidth_bytes_per_s of node {}", node.id);
            let service_ps = match node.bandwidth_bytes_per_s {
                Some(bandwidth) => service(machine, bandwidth, field)?,
                None if *has_memory => return Err(missing(field())),
                None => 0.0,
            };
            // A node without CPUs has no latency of its own: that of the node nearest to it.
            let idle_ns = routes.latency_ns(machine, node.id, node.id).into_iter();
            let idle_ns =
                idle_ns.chain(machine.nodes.iter().filter_map(|from| routes.latency_ns(machine, from.id, node.id)));
            let unloaded_ps = 1000.0 * idle_ns.reduce(f64::min).unwrap_or(0.0);
            let part = |of: fn(&Latency) -> Option<f64>| machine.latency.as_ref().and_then(of).unwrap_or(0.0);
            let rise_ps = unloaded_ps * part(|latency| latency.loaded_rise);
            let slope_ps = unloaded_ps * part(|latency| latency.loaded_slope);
            servers.push(Server { service_ps, rise_ps, slope_ps });
        }

        let mut idle_ps = vec![0; nodes * columns(nodes)];
        let mut bounds = vec![0];
        let mut steps = Vec::new();
        for from in &machine.nodes {
            let probes = Probes::of(machine, &routes, from.id);
            for column in 0..columns(nodes) {
                let (to_index, written) = (column % nodes, column >= nodes);
                let to = &machine.nodes[to_index];
                if !from.cpus.is_empty() && has_memory[to_index] {
                    let field = || format!("latency from node {} to node {}", from.id, to.id);
                    let own_ns = routes.latency_ns(machine, from.id, to.id).ok_or_else(|| missing(field()))?;
                    idle_ps[bounds.len() - 1] = picoseconds(machine, own_ns.max(probes.latency_ns), field)?;
                    let hops = routes.hops(from.id, to.id).unwrap_or_default();
                    // Data that are written go the way that questions go.
                    let mut parts = if written { BTreeMap::new() } else { probes.parts.clone() };
                    for hop in hops {
                        *parts.entry(hop.directed_link() ^ usize::from(written)).or_default() += 1.0;
                    }
                    let step = |(resource, part)| Step { resource: resource as u32, part, cost: part };
                    steps.extend(parts.into_iter().map(step));
                    let cost = if written { to.write_cost.unwrap_or(1.0) } else { 1.0 };
                    steps.push(Step { resource: (controllers + to_index) as u32, part: 1.0, cost });
                }
                bounds.push(steps.len());
            }
        }
        Ok(Self { servers, idle_ps: idle_ps.into(), bounds: bounds.into(), steps: steps.into(), controllers })
    }

    /// The resources that accesses of a pair of nodes use; empty where there are none.
    pub(crate) fn path(&self, pair: usize) -> &[Step] {
        &self.steps[self.bounds[pair]..self.bounds[pair + 1]]
    }
}

/// What a miss of a node's CPUs costs where no directory knows who has the line: every other node is asked, over the
/// same links as its memory, and the miss takes until the last has answered. The way to a node and back is
/// what its memory's latency has beyond a local one. Nodes hand the question on, so it goes over each link once; each answers by itself.
struct Probes {
    latency_ns: f64,
    /// Resource to the part of a line that goes over it.
    parts: BTreeMap<usize, f64>,
}

impl Probes {
    fn of(machine: &Machine, routes: &Routes, from: NodeId) -> Self {
        let (mut latency_ns, mut parts) = (f64::NEG_INFINITY, BTreeMap::new());
        if let Some(Coherence { probe_bytes, answer_ns, .. }) = machine.coherence {
            let part = probe_bytes / LINE_BYTES as f64;
            let mut asked = BTreeSet::new();
            for to in machine.nodes.iter().filter(|to| to.id != from && !to.cpus.is_empty()) {
                let latency = |from| routes.latency_ns(machine, from, to.id);
                if let (Some(there), Some(local)) = (latency(from), latency(to.id)) {
                    latency_ns = latency_ns.max(there - local + answer_ns);
                }
                for hop in routes.hops(from, to.id).unwrap_or_default() {
                    // The answer comes as data do, the question the other way.
                    *parts.entry(hop.directed_link()).or_default() += part;
                    asked.insert(hop.directed_link() ^ 1);
                }
            }
            for link in asked {
                *parts.entry(link).or_default() += part;
            }
        }
        Self { latency_ns, parts }
    }
}

/// The directions of all links.
pub(crate) fn link_ends(machine: &Machine) -> Vec<LinkEnds> {
    let mut ends = Vec::new();
    for (index, link) in machine.links.iter().enumerate() {
        let [first, second] = link.nodes;
        let bandwidth_bytes_per_s = link.bandwidth_bytes_per_s;
        ends.push(LinkEnds { resource: 2 * index, from: first, to: second, bandwidth_bytes_per_s });
        if link.direction == LinkDirection::Both {
            ends.push(LinkEnds { resource: 2 * index + 1, from: second, to: first, bandwidth_bytes_per_s });
        }
    }
    ends
}

/// The time that a resource needs for a line, ps.
fn service(machine: &Machine, bandwidth: f64, field: impl FnOnce() -> String) -> Result<f64, ModelError> {
    if bandwidth.is_finite() && bandwidth > 0.0 {
        return Ok(LINE_BYTES as f64 * 1e12 / bandwidth);
    }
    let (machine, field, value) = (machine.name.clone(), field(), bandwidth.to_string());
    Err(ModelError::OutOfRange { machine, field, value, rule: "a bandwidth is above 0" })
}

/// A latency of the description, as the model counts time.
pub(crate) fn picoseconds(machine: &Machine, ns: f64, field: impl FnOnce() -> String) -> Result<u32, ModelError> {
    let ps = (ns * 1000.0).round();
    if ps > 0.0 && ps <= f64::from(u32::MAX / 4) {
        return Ok(ps as u32);
    }
    let (machine, field, value) = (machine.name.clone(), field(), ns.to_string());
    Err(ModelError::OutOfRange {
        machine,
        field,
        value,
        rule: "a latency is above 0 and at most a millisecond (1e6 ns)",
    })
}
