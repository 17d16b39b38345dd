//! Routes of accesses from each node's CPUs to each node's memory.

use crate::description::{LinkDirection, Machine};
use crate::ids::NodeId;
use crate::set::NodeSet;
use crate::violation::{Violation, Violations};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// No route, in [`Routes::next`].
const NONE: u32 = u32::MAX;

/// The routes of a machine.
///
/// A route in the description takes precedence. Every other is the shortest by hops; if there are several, each node
/// chooses the neighbour with the lowest ID. Of parallel links the first in the description is used: links that share
/// their traffic are one link with the sum of their bandwidths.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The machine's nodes, ascending.
    nodes: Vec<NodeId>,
    /// The ends of each link, as indexes in `nodes`.
    ends: Vec<[usize; 2]>,
    /// For (from, to), as indexes, `from * nodes + to`: the first directed link of a shortest route. One word per pair,
    /// not one list: a torus of 1,024 nodes has a million pairs of many hops.
    next: Vec<u32>,
    /// The description's own routes, by indexes.
    explicit: BTreeMap<(usize, usize), Vec<Hop>>,
    longest: usize,
}

/// One link of a route, in the direction of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Hop {
    /// Its index in [`Machine::links`].
    pub link: usize,
    /// The direction in which it is crossed.
    pub direction: Direction,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From its first node to its second.
    Forward,
    /// From its second node to its first.
    Backward,
}

impl Hop {
    /// A unique number for each direction of each link: twice the link, plus one backwards.
    pub fn directed_link(self) -> usize {
        2 * self.link + usize::from(self.direction == Direction::Backward)
    }

    fn of_directed_link(directed: usize) -> Self {
        let direction = if directed.is_multiple_of(2) { Direction::Forward } else { Direction::Backward };
        Self { link: directed / 2, direction }
    }
}

impl Routes {
    /// Finds every route. Fails if a link or route names something that does not exist, or if links do not join all
    /// nodes.
    pub fn new(machine: &Machine) -> Result<Self, Violations> {
        let mut found = machine.node_id_violations();
        if !found.is_empty() {
            return Err(Violations(found));
        }
        let mut routes = Self {
            nodes: machine.nodes.iter().map(|node| node.id).collect(),
            ends: Vec::with_capacity(machine.links.len()),
            next: Vec::new(),
            explicit: BTreeMap::new(),
            longest: usize::from(machine.nodes.len() > 1),
        };
        for (index, link) in machine.links.iter().enumerate() {
            let field = format!("link[{index}].nodes");
            match link.nodes.map(|id| routes.position(id).ok_or(id)) {
                [Ok(a), Ok(b)] if a == b => found.push(Violation::new(field, "a link joins two different nodes")),
                [Ok(a), Ok(b)] => routes.ends.push([a, b]),
                [Err(id), _] | [_, Err(id)] => found.push(Violation::new(field, format!("there is no node {id}"))),
            }
        }
        if !found.is_empty() {
            return Err(Violations(found));
        }
        let arcs = routes.arcs(machine);
        found.extend(routes.add_explicit(machine, &arcs));
        if !machine.links.is_empty() {
            routes.find_shortest(&arcs);
            found.extend(routes.unreachable());
        }
        if found.is_empty() { Ok(routes) } else { Err(Violations(found)) }
    }

    /// The links that accesses of one node's CPUs to another node's memory cross, in order. Empty for a node's own
    /// memory and on a machine without links in its description; `None` for a node that does not exist.
    pub fn hops(&self, from: NodeId, to: NodeId) -> Option<Vec<Hop>> {
        let (from, to) = (self.position(from)?, self.position(to)?);
        if let Some(hops) = self.explicit.get(&(from, to)) {
            return Some(hops.clone());
        }
        let (mut hops, mut at) = (Vec::new(), from);
        while at != to && !self.ends.is_empty() {
            let hop = self.next_hop(at, to)?;
            at = self.head(hop)?;
            hops.push(hop);
        }
        Some(hops)
    }

    /// The number of hops to a node's memory: 0 for the node's own, 1 for every other on a machine without links in its
    /// description.
    pub fn hop_count(&self, from: NodeId, to: NodeId) -> Option<usize> {
        let hops = self.hops(from, to)?.len();
        Some(if from != to && self.ends.is_empty() { 1 } else { hops })
    }

    /// The hops of the longest route.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Idle latency of a load by one node's CPU from another node's memory, ns; `None` if the description does not have
    /// it. `machine` must be the machine of these routes.
    pub fn latency_ns(&self, machine: &Machine, from: NodeId, to: NodeId) -> Option<f64> {
        let latency = machine.latency.as_ref()?;
        if !latency.matrix_ns.is_empty() {
            return latency.matrix_ns.get(self.position(from)?)?.get(self.position(to)?).copied();
        }
        let by_hops = latency.by_hops_ns.get(self.hop_count(from, to)?).copied();
        by_hops.or_else(|| {
            let hops = self.hops(from, to)?;
            let links: Option<f64> = hops.iter().map(|hop| machine.links.get(hop.link)?.latency_ns).sum();
            // Without links there is nothing to add, and a remote node is not as near as the local one.
            links.filter(|_| !hops.is_empty()).zip(latency.by_hops_ns.first()).map(|(links, local)| local + links)
        })
    }

    fn position(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search(&id).ok()
    }

    /// The node that a hop leads to.
    fn head(&self, hop: Hop) -> Option<usize> {
        let [first, second] = *self.ends.get(hop.link)?;
        Some(if hop.direction == Direction::Forward { second } else { first })
    }

    fn next_hop(&self, at: usize, to: usize) -> Option<Hop> {
        let directed = *self.next.get(at * self.nodes.len() + to)?;
        (directed != NONE).then(|| Hop::of_directed_link(directed as usize))
    }

    /// The possible single hops: (from, to) to the first link that carries it.
    fn arcs(&self, machine: &Machine) -> BTreeMap<(usize, usize), Hop> {
        let mut arcs = BTreeMap::new();
        for (link, (&[a, b], description)) in self.ends.iter().zip(&machine.links).enumerate() {
            arcs.entry((a, b)).or_insert(Hop { link, direction: Direction::Forward });
            if description.direction == LinkDirection::Both {
                arcs.entry((b, a)).or_insert(Hop { link, direction: Direction::Backward });
            }
        }
        arcs
    }

    fn add_explicit(&mut self, machine: &Machine, arcs: &BTreeMap<(usize, usize), Hop>) -> Vec<Violation> {
        let mut found = Vec::new();
        for (index, route) in machine.routes.iter().enumerate() {
            let field = format!("route[{index}]");
            let path: Vec<NodeId> =
                [route.from].into_iter().chain(route.via.iter().copied()).chain([route.to]).collect();
            let distinct: NodeSet = path.iter().copied().collect();
            if distinct.len() < path.len() {
                found.push(Violation::new(&field, "a route passes each node once"));
                continue;
            }
            let positions: Result<Vec<usize>, NodeId> = path.iter().map(|&id| self.position(id).ok_or(id)).collect();
            let positions = match positions {
                Ok(positions) => positions,
                Err(id) => {
                    found.push(Violation::new(&field, format!("there is no node {id}")));
                    continue;
                }
            };
            let hops: Result<Vec<Hop>, String> = positions
                .windows(2)
                .map(|pair| {
                    arcs.get(&(pair[0], pair[1])).copied().ok_or_else(|| {
                        let (from, to) = (self.nodes[pair[0]], self.nodes[pair[1]]);
                        format!("no link carries accesses from node {from} to node {to}")
                    })
                })
                .collect();
            match hops {
                Ok(hops) => {
                    self.longest = self.longest.max(hops.len());
                    let pair = (positions[0], positions[hops.len()]);
                    if self.explicit.insert(pair, hops).is_some() {
                        let rule = format!("there is one route from node {} to node {}", route.from, route.to);
                        found.push(Violation::new(&field, rule));
                    }
                }
                Err(rule) => found.push(Violation::new(&field, rule)),
            }
        }
        found
    }

    /// Breadth first from each destination, against the links' direction.
    fn find_shortest(&mut self, arcs: &BTreeMap<(usize, usize), Hop>) {
        let nodes = self.nodes.len();
        self.next = vec![NONE; nodes * nodes];
        let mut into: Vec<Vec<(usize, Hop)>> = vec![Vec::new(); nodes];
        for (&(from, to), &hop) in arcs {
            into[to].push((from, hop));
        }
        let mut distance = vec![usize::MAX; nodes];
        // The next node of the best route found so far, to prefer the lowest of equally short ones.
        let mut via = vec![0; nodes];
        let mut queue = VecDeque::new();
        for to in 0..nodes {
            distance.fill(usize::MAX);
            distance[to] = 0;
            queue.push_back(to);
            while let Some(at) = queue.pop_front() {
                for &(from, hop) in &into[at] {
                    let longer = distance[at] + 1;
                    let first = distance[from] == usize::MAX;
                    if first || (distance[from] == longer && at < via[from]) {
                        self.next[from * nodes + to] = hop.directed_link() as u32;
                        via[from] = at;
                    }
                    if first {
                        distance[from] = longer;
                        queue.push_back(from);
                        if !self.explicit.contains_key(&(from, to)) {
                            self.longest = self.longest.max(longer);
                        }
                    }
                }
            }
        }
    }

    /// One violation for each node that cannot reach all others.
    fn unreachable(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (from, id) in self.nodes.iter().enumerate() {
            let reached =
                |to: usize| to == from || self.next_hop(from, to).is_some() || self.explicit.contains_key(&(from, to));
            let missing: NodeSet =
                self.nodes.iter().enumerate().filter(|&(to, _)| !reached(to)).map(|(_, id)| *id).collect();
            if !missing.is_empty() {
                let rule = format!("links join all nodes, but none leads from node {id} to node {missing}");
                found.push(Violation::new("link", rule));
            }
        }
        found
    }
}

impl Machine {
    /// Idle latency between one pair of nodes, ns; `None` if the description does not have it, or breaks a rule. Finds
    /// the routes each time: for many pairs, find them once and use [`Routes::latency_ns`].
    pub fn latency_ns(&self, from: NodeId, to: NodeId) -> Option<f64> {
        Routes::new(self).ok()?.latency_ns(self, from, to)
    }
}
