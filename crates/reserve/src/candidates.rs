//! The places that a request could have, best first.

use crate::facts::{Core, Facts, Table};
use crate::ledger::Ledger;
use crate::occupancy::Occupancy;
use crate::refusal::Refusal;
use crate::request::{CacheIsolation, Cores, Memory, Preference, Request};
use machine::{CpuSet, Hop, NodeId};
use std::cmp::Ordering;

/// Cores to choose from, and a node of memory.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Cores of one node, as indexes.
    pub cores: Vec<usize>,
    pub node: NodeId,
    pub memory: NodeId,
    rank: Rank,
}

/// What candidates are ordered by; less is better.
#[derive(Clone, Copy, Debug)]
struct Rank {
    /// The preference's table.
    value: f64,
    /// Grants on the cores that would be taken.
    tenants: usize,
    /// Local before remote.
    hops: usize,
    /// Grants on the link of the route that has most: it is divided among them.
    on_link: usize,
    /// Caches in use before fresh ones.
    is_fresh: bool,
    first: usize,
    memory: NodeId,
}

impl Rank {
    fn compare(&self, other: &Self) -> Ordering {
        let rest = |rank: &Self| (rank.tenants, rank.hops, rank.on_link, rank.is_fresh, rank.first, rank.memory);
        self.value.total_cmp(&other.value).then_with(|| rest(self).cmp(&rest(other)))
    }
}

/// All candidates of a request, best first.
pub(crate) fn candidates(ledger: &Ledger, occupancy: &Occupancy, request: &Request) -> Result<Vec<Candidate>, Refusal> {
    let facts = &*ledger.facts;
    let pools = pools(ledger, request)?;
    let named = if let Memory::Node(node) = request.memory { Some(node) } else { None };
    if let Some(node) = request.more_memory.iter().chain(named).find(|&node| facts.machine.node(node).is_none()) {
        let all: machine::NodeSet = facts.machine.nodes.iter().map(|node| node.id).collect();
        return Err(Refusal::Unknown(format!("no node {node}: this machine has nodes {all}")));
    }
    let mut found = Vec::new();
    for cores in pools {
        let node = facts.cores[cores[0]].node;
        let memories: Vec<NodeId> = match request.memory {
            Memory::Any => facts.memory_nodes().collect(),
            Memory::Local => vec![node],
            Memory::Node(node) => vec![node],
        };
        for memory in memories {
            let rank = rank(facts, occupancy, request, &cores, node, memory);
            found.push(Candidate { cores: cores.clone(), node, memory, rank });
        }
    }
    found.sort_by(|one, other| one.rank.compare(&other.rank));
    Ok(found)
}

fn rank(
    facts: &Facts,
    occupancy: &Occupancy,
    request: &Request,
    cores: &[usize],
    node: NodeId,
    memory: NodeId,
) -> Rank {
    let value = |table| facts.value(table, node, memory);
    let value = match request.prefer {
        Preference::None => Some(0.0),
        Preference::Latency => value(Table::Latency),
        Preference::ReadBandwidth => value(Table::Read).map(|value| -value),
        Preference::WriteBandwidth => value(Table::Write).map(|value| -value),
    };
    let mut tenants: Vec<usize> = cores.iter().map(|&core| occupancy.tenants[core].len()).collect();
    tenants.sort_unstable();
    let route = facts.route(node, memory).unwrap_or_default();
    let on_link = |hop: &Hop| occupancy.links.get(&hop.directed_link()).map_or(0, Vec::len);
    Rank {
        value: value.unwrap_or(f64::INFINITY),
        tenants: tenants.iter().take(wanted(request, cores.len())).sum(),
        hops: usize::from(node != memory) + route.len(),
        on_link: route.iter().map(on_link).max().unwrap_or(0),
        is_fresh: tenants.iter().all(|&tenants| tenants == 0),
        first: cores[0],
        memory,
    }
}

/// The number of cores that a request takes from a pool.
pub(crate) fn wanted(request: &Request, pool: usize) -> usize {
    match &request.cores {
        Cores::Any(count) | Cores::OnCacheOf(_, count) => *count as usize,
        Cores::These(_) | Cores::Of(_) => pool,
    }
}

/// Sets of cores that a request may choose from: those that share a cache and, for requests of more cores that can be
/// spread, those of a node.
fn pools(ledger: &Ledger, request: &Request) -> Result<Vec<Vec<usize>>, Refusal> {
    let facts = &*ledger.facts;
    match &request.cores {
        Cores::These(cpus) => Ok(vec![cores_of(facts, cpus)?]),
        Cores::Of(id) => Ok(vec![ledger.grant(*id).map(|grant| grant.cores.clone()).unwrap_or_default()]),
        Cores::OnCacheOf(id, _) => {
            let holder = ledger.grant(*id).ok_or(Refusal::UnknownGrant(*id))?;
            let is_own = holder.request.isolate.cache == CacheIsolation::Exclusive;
            let cache = holder.cache.filter(|_| is_own).ok_or(Refusal::NoOwnCache(*id))?;
            let others = |(_, core): &(usize, &Core)| core.cache == Some(cache) && core.node == holder.node;
            Ok(vec![facts.cores.iter().enumerate().filter(others).map(|(index, _)| index).collect()])
        }
        Cores::Any(count) => {
            let groups = facts.groups();
            let fits = groups.values().any(|cores| cores.len() >= *count as usize);
            let mut pools: Vec<Vec<usize>> = groups.values().cloned().collect();
            if !fits && request.isolate.cache == CacheIsolation::Shared {
                let mut nodes: std::collections::BTreeMap<NodeId, Vec<usize>> = std::collections::BTreeMap::new();
                for ((node, _), cores) in groups {
                    nodes.entry(node).or_default().extend(cores);
                }
                pools = nodes.into_values().collect();
            }
            Ok(pools)
        }
    }
}

/// The cores of these CPUs, which must exist and be of one node.
fn cores_of(facts: &Facts, cpus: &CpuSet) -> Result<Vec<usize>, Refusal> {
    let all = facts.machine.cpus();
    if let Some(unknown) = cpus.iter().find(|&cpu| !all.contains(cpu)) {
        return Err(Refusal::Unknown(format!("no CPU {unknown}: this machine has CPUs {all}")));
    }
    let has = |(_, core): &(usize, &Core)| !core.cpus.intersection(cpus).is_empty();
    let cores: Vec<usize> = facts.cores.iter().enumerate().filter(has).map(|(index, _)| index).collect();
    let nodes: machine::NodeSet = cores.iter().map(|&core| facts.cores[core].node).collect();
    if nodes.len() == 1 {
        Ok(cores)
    } else {
        let text = format!("CPUs {cpus} are of nodes {nodes}: a grant has cores of one node, ask for one grant a node");
        Err(Refusal::Unknown(text))
    }
}
