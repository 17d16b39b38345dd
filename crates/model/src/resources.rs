//! The shared resources of memory accesses: the controller of each node and each direction of each link.
//!
//! A link direction is named after the direction of accesses: from node 0 to node 1 means accesses of node 0's CPUs to
//! node 1's memory (and traffic that passes through), as in the machine file. Their lines flow the other way, on wires
//! that no other direction uses: the requests themselves are small and are left out. Probes to every node and their
//! answers have a separate channel in each direction, as in `HyperTransport` and `QuickPath`.

use crate::queues::{Server, Step};
use crate::{LINE_BYTES, MemoryRange, ModelError};
use machine::{Latency, Link, LinkDirection, Machine, NodeId, Routes};
use std::collections::{BTreeMap, BTreeSet};
use strum::VariantArray;

/// The resources, numbered: first the directions of links ([`machine::Hop::directed_link`]), then the controllers.
pub(crate) struct Resources {
    pub servers: Vec<Server>,
    /// By pair and kind of line (see [`Lines`]): latency while nothing is busy, ps.
    pub idle_ps: Box<[u32]>,
    /// Bounds of the paths in `steps`, by pair and kind of line.
    bounds: Box<[usize]>,
    steps: Box<[Step]>,
    /// The number of the first controller.
    pub controllers: usize,
}

/// Kinds of lines that a CPU and another node exchange: a table by pair of nodes has a column for each node and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub(crate) enum Lines {
    /// Read from the node's memory.
    Read,
    /// Written back to it.
    Written,
    /// Read from the node's caches.
    Transferred,
}

impl Lines {
    /// The column of a node.
    pub(crate) fn column(self, nodes: usize, node: usize) -> usize {
        self as usize * nodes + node
    }
}

/// The columns of a table by pair of nodes.
pub(crate) fn columns(nodes: usize) -> usize {
    Lines::VARIANTS.len() * nodes
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnds {
    /// The number of the resource.
    pub resource: usize,
    /// The node whose CPUs make the accesses.
    pub from: NodeId,
    /// The node whose memory they access.
    pub to: NodeId,
    pub bandwidth_bytes_per_s: f64,
}

impl Resources {
    /// Only pairs of a node with CPUs and one with memory in `memory` have a path and a latency.
    pub(crate) fn new(machine: &Machine, memory: &[MemoryRange]) -> Result<Self, ModelError> {
        let missing = |field: String| ModelError::Missing { machine: machine.name.clone(), field };
        let routes = Routes::new(machine)?;
        if machine.latency.is_none() {
            return Err(missing("latency".to_owned()));
        }
        let nodes = machine.nodes.len();
        let mut has_memory = vec![false; nodes];
        for range in memory {
            has_memory[range.node] = true;
        }

        let (servers, controllers, channels) = servers(machine, &routes, &has_memory)?;
        let opposite = opposites(machine);
        let mut idle_ps = vec![0; nodes * columns(nodes)];
        let mut bounds = vec![0];
        let mut steps = Vec::new();
        for from in &machine.nodes {
            let probes = Probes::new(machine, &routes, from.id, &opposite);
            for (lines, (to_index, to)) in Lines::VARIANTS
                .iter()
                .copied()
                .flat_map(|lines| machine.nodes.iter().enumerate().map(move |to| (lines, to)))
            {
                let caches = lines == Lines::Transferred;
                let has_lines = if caches { !to.cpus.is_empty() } else { has_memory[to_index] };
                if !from.cpus.is_empty() && has_lines {
                    let field = || format!("latency from node {} to node {}", from.id, to.id);
                    let own_ns = match &machine.coherence {
                        Some(coherence) if caches => {
                            Some(added_ns(machine, &routes, from.id, to.id) + coherence.line_ns)
                        }
                        _ if caches => Some(1.0),
                        _ => routes.latency_ns(machine, from.id, to.id),
                    };
                    let own_ns = own_ns.ok_or_else(|| missing(field()))?;
                    // Written data goes in the direction of requests, and no cache is asked for it.
                    let written = lines == Lines::Written;
                    let probes_ns = if written { 0.0 } else { probes.latency_ns };
                    idle_ps[bounds.len() - 1] = picoseconds(machine, own_ns.max(probes_ns), field)?;
                    for hop in routes.hops(from.id, to.id).unwrap_or_default() {
                        let resource = if written { opposite[hop.directed_link()] } else { hop.directed_link() };
                        steps.push(Step { resource: resource as u32, part: 1.0, cost: 1.0 });
                    }
                    if !caches {
                        let cost = if written { to.write_cost.unwrap_or(1.0) } else { 1.0 };
                        steps.push(Step { resource: (controllers + to_index) as u32, part: 1.0, cost });
                    }
                    if !written {
                        let step = |(&link, &cost): (&usize, &f64)| Step {
                            resource: (channels + link) as u32,
                            part: 0.0,
                            cost,
                        };
                        steps.extend(probes.messages.iter().map(step));
                    }
                }
                bounds.push(steps.len());
            }
        }
        Ok(Self { servers, idle_ps: idle_ps.into(), bounds: bounds.into(), steps: steps.into(), controllers })
    }

    /// Lines over each resource, from those by pair of nodes.
    pub(crate) fn carried(&self, lines: &[u64]) -> Vec<f64> {
        let mut carried = vec![0.0; self.servers.len()];
        for (pair, lines) in lines.iter().enumerate() {
            for &Step { resource, part, .. } in self.path(pair) {
                carried[resource as usize] += *lines as f64 * part;
            }
        }
        carried
    }

    /// The path of a pair of nodes; empty if there is none.
    pub(crate) fn path(&self, pair: usize) -> &[Step] {
        &self.steps[self.bounds[pair]..self.bounds[pair + 1]]
    }
}

/// The servers of all resources: links, controllers, and channels of links for probes; with the numbers of the first
/// controller and of the first channel.
fn servers(machine: &Machine, routes: &Routes, has_memory: &[bool]) -> Result<(Vec<Server>, usize, usize), ModelError> {
    let missing = |field: String| ModelError::Missing { machine: machine.name.clone(), field };
    let mut servers = Vec::with_capacity(2 * machine.links.len() + has_memory.len());
    for (index, link) in machine.links.iter().enumerate() {
        let service = service(machine, link.bandwidth_bytes_per_s, || format!("link[{index}].bandwidth_bytes_per_s"))?;
        let curve = curve(machine, 1000.0 * link_ns(machine, routes, link));
        servers.extend([Server { service_ps: service, ..curve }; 2]);
    }
    let controllers = servers.len();
    for (node, has_memory) in machine.nodes.iter().zip(has_memory) {
        let field = || format!("bandwidth_bytes_per_s of node {}", node.id);
        let service_ps = match node.bandwidth_bytes_per_s {
            Some(bandwidth) => service(machine, bandwidth, field)?,
            None if *has_memory => return Err(missing(field())),
            None => 0.0,
        };
        // A node without CPUs has no latency of its own: use that of its nearest node.
        let idle_ns = routes.latency_ns(machine, node.id, node.id).into_iter();
        let idle_ns =
            idle_ns.chain(machine.nodes.iter().filter_map(|from| routes.latency_ns(machine, from.id, node.id)));
        let unloaded_ps = 1000.0 * idle_ns.reduce(f64::min).unwrap_or(0.0);
        servers.push(Server { service_ps, ..curve(machine, unloaded_ps) });
    }
    // Probes and answers have their own channels beside a link's data.
    let channels = servers.len();
    if let Some(probes) = machine.coherence.as_ref().and_then(|coherence| coherence.probes.as_ref()) {
        let rule = "the rate of probes must be above 0";
        let service_ps = positive(machine, probes.per_second, || "coherence.probes.per_second".to_owned(), rule)?;
        servers.extend(vec![Server { service_ps: 1e12 / service_ps, ..Server::default() }; 2 * machine.links.len()]);
    }
    Ok((servers, controllers, channels))
}

/// The cost of a miss without a directory: every other node is probed, over the same links as its memory, and the miss
/// takes until the last answer. Nodes forward the probe, so it crosses each link once; each node answers by itself.
struct Probes {
    latency_ns: f64,
    /// Messages by link direction.
    messages: BTreeMap<usize, f64>,
}

impl Probes {
    fn new(machine: &Machine, routes: &Routes, from: NodeId, opposite: &[usize]) -> Self {
        let mut found = Self { latency_ns: f64::NEG_INFINITY, messages: BTreeMap::new() };
        let Some(probes) = machine.coherence.as_ref().and_then(|coherence| coherence.probes.as_ref()) else {
            return found;
        };
        let mut asked = BTreeSet::new();
        for to in machine.nodes.iter().filter(|to| to.id != from && !to.cpus.is_empty()) {
            let way_ns = added_ns(machine, routes, from, to.id);
            found.latency_ns = found.latency_ns.max(way_ns + probes.answer_ns);
            for hop in routes.hops(from, to.id).unwrap_or_default() {
                // The answer travels like data, the probe in the opposite direction.
                *found.messages.entry(hop.directed_link()).or_default() += 1.0;
                asked.insert(opposite[hop.directed_link()]);
            }
        }
        for link in asked {
            *found.messages.entry(link).or_default() += 1.0;
        }
        found
    }
}

/// Latency of the path to a node's memory and back beyond that of its own CPUs, ns.
pub(crate) fn added_ns(machine: &Machine, routes: &Routes, from: NodeId, to: NodeId) -> f64 {
    let latency = |from| routes.latency_ns(machine, from, to);
    match (latency(from), latency(to)) {
        (Some(there), Some(local)) => (there - local).max(0.0),
        _ => 0.0,
    }
}

/// Latency that a link adds to an access, mean of both directions, ns.
fn link_ns(machine: &Machine, routes: &Routes, link: &Link) -> f64 {
    let [one, other] = link.nodes;
    let both = added_ns(machine, routes, one, other) + added_ns(machine, routes, other, one);
    link.latency_ns.unwrap_or(both / 2.0)
}

/// The load curve of a resource with this part of the idle latency, ps.
fn curve(machine: &Machine, idle_ps: f64) -> Server {
    let part = |of: fn(&Latency) -> Option<f64>| machine.latency.as_ref().and_then(of).unwrap_or(0.0);
    let rise_ps = idle_ps * part(|latency| latency.loaded_rise);
    Server { service_ps: 0.0, rise_ps, slope_ps: idle_ps * part(|latency| latency.loaded_slope) }
}

/// The opposite direction of each directed link: of the same link, or of the link that goes back where each goes one way.
fn opposites(machine: &Machine) -> Vec<usize> {
    let opposite = |directed: usize| {
        let Link { nodes: [first, second], direction, .. } = &machine.links[directed / 2];
        let goes_back = |link: &Link| link.direction == LinkDirection::Forward && link.nodes == [*second, *first];
        let back = if *direction == LinkDirection::Forward { machine.links.iter().position(goes_back) } else { None };
        back.map_or(directed ^ 1, |back| 2 * back)
    };
    (0..2 * machine.links.len()).map(opposite).collect()
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

/// Service time of a resource per line, ps.
fn service(machine: &Machine, bandwidth: f64, field: impl FnOnce() -> String) -> Result<f64, ModelError> {
    Ok(LINE_BYTES as f64 * 1e12 / positive(machine, bandwidth, field, "a bandwidth must be above 0")?)
}

fn positive(
    machine: &Machine,
    value: f64,
    field: impl FnOnce() -> String,
    rule: &'static str,
) -> Result<f64, ModelError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(ModelError::OutOfRange { machine: machine.name.clone(), field: field(), value: value.to_string(), rule })
}

/// Converts a latency of the description to the model's unit.
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
        rule: "a latency must be above 0 and at most a millisecond (1e6 ns)",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    /// What node 0 writes to node 1 goes the way of what node 1 reads from node 0, also over two links of one way each.
    #[test]
    fn written_lines_meet_lines_that_are_read_in_the_same_direction() {
        for (preset, links) in [("xeon-8180x2", 2), ("small-2x2", 1)] {
            let machine = presets::find(preset).unwrap();
            assert_eq!(machine.links.len(), links);
            let memory: Vec<MemoryRange> = (0..2)
                .map(|node| MemoryRange { start: (node as u64) << 30, end: (node as u64 + 1) << 30, node })
                .collect();
            let resources = Resources::new(&machine, &memory).unwrap();
            let link =
                |from: usize, lines: Lines, to| resources.path(from * columns(2) + lines.column(2, to))[0].resource;
            assert_eq!(link(0, Lines::Written, 1), link(1, Lines::Read, 0), "{preset}");
            assert_eq!(link(1, Lines::Written, 0), link(0, Lines::Read, 1), "{preset}");
            assert_ne!(link(0, Lines::Read, 1), link(1, Lines::Read, 0), "{preset}");
        }
    }
}
