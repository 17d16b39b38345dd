//! Whether a request is granted, and where: each candidate in turn must pass the tests of cores, cache, memory, links,
//! promised bandwidth and forecast.

use crate::alternatives;
use crate::candidates::{Candidate, candidates, wanted};
use crate::facts::Throttle;
use crate::forecast::{Forecaster, KINDS, Kind, Load, demand};
use crate::grant::{Grant, GrantId};
use crate::ledger::{Asker, Ledger, Moved, Rule};
use crate::occupancy::{Occupancy, holders};
use crate::refusal::{Obstacle, Refusal, ThrottleName};
use crate::request::{CacheIsolation, Cores, Isolation, Memory, ReadWrite, Request};
use machine::{CpuSet, Hop, NodeId, NodeSet};
use queueing::Resource;

/// Most obstacles that are kept: those of one look at a machine of 64 nodes.
const MOST_OBSTACLES: usize = 64;

/// A place, found.
pub(crate) struct Placed {
    pub grant: Grant,
    pub moved: Vec<Moved>,
    /// Without the grant, but with moved tenants where they are then.
    pub ledger: Ledger,
}

/// What is known while a request is decided.
struct Decision<'a> {
    ledger: &'a Ledger,
    occupancy: Occupancy,
    forecaster: Forecaster<'a>,
    request: &'a Request,
    asker: &'a Asker,
    id: GrantId,
}

/// Finds the best place of a request, with what to change if there is none.
pub(crate) fn place(ledger: &Ledger, id: GrantId, request: &Request, asker: &Asker) -> Result<Placed, Refusal> {
    find(ledger, id, request, asker).map_err(|refusal| match refusal {
        Refusal::NoCandidate { obstacles, .. } => {
            let nearest = alternatives::nearest(ledger, id, request, asker, &obstacles);
            Refusal::NoCandidate { obstacles, nearest: nearest.map(Box::new) }
        }
        other => other,
    })
}

/// Finds the best place of a request.
pub(crate) fn find(ledger: &Ledger, id: GrantId, request: &Request, asker: &Asker) -> Result<Placed, Refusal> {
    check_control(ledger, request)?;
    let decision =
        Decision { occupancy: Occupancy::new(ledger), forecaster: Forecaster::new(ledger), ledger, request, asker, id };
    let mut candidates = candidates(ledger, &decision.occupancy, request)?;
    if request.isolate.route {
        let has_route = |from, to| ledger.facts.route(from, to).is_some();
        candidates.retain(|candidate| decision.memory(candidate).iter().all(|to| has_route(candidate.node, to)));
        if candidates.is_empty() {
            return Err(Refusal::NoRoutes);
        }
    }
    let mut obstacles = Vec::new();
    for candidate in &candidates {
        match decision.fit(candidate) {
            Ok(grant) => return Ok(Placed { grant, moved: Vec::new(), ledger: ledger.clone() }),
            Err(obstacle) if obstacles.len() < MOST_OBSTACLES && !obstacles.contains(&obstacle) => {
                obstacles.push(obstacle);
            }
            Err(_) => {}
        }
    }
    if !ledger.rules.keep_tenants
        && let Some(placed) = candidates.iter().find_map(|candidate| decision.fit_with_moves(candidate))
    {
        return Ok(placed);
    }
    Err(Refusal::NoCandidate { obstacles, nearest: None })
}

/// Tests that do not depend on the place.
fn check_control(ledger: &Ledger, request: &Request) -> Result<(), Refusal> {
    let facts = &*ledger.facts;
    let isolate = request.isolate;
    if isolate.cache != CacheIsolation::Shared && facts.caches.is_empty() {
        return Err(Refusal::NoCaches);
    }
    if let CacheIsolation::Ways(wanted) = isolate.cache {
        let least = facts.control.ways.ok_or(Refusal::NoWays)?.least;
        if wanted < least {
            return Err(Refusal::FewWays { least, wanted });
        }
    }
    if (isolate.controller || isolate.route) && facts.lacks_directory() && !ledger.rules.without_directory {
        return Err(Refusal::NoDirectory);
    }
    if isolate.controller && !facts.is_measured() {
        return Err(Refusal::NotMeasured);
    }
    if isolate.controller && request.strict && facts.control.throttle < Throttle::Hardware {
        return Err(Refusal::NoControl(ThrottleName(facts.control.throttle)));
    }
    if isolate.controller && !isolate.core && facts.control.throttle == Throttle::Hardware {
        return Err(Refusal::SharedCores);
    }
    Ok(())
}

/// A grant of the same cores with one more node of memory.
pub(crate) fn more_memory(ledger: &Ledger, id: GrantId, request: &Request, asker: &Asker) -> Result<Grant, Refusal> {
    let had = ledger.grant(id).ok_or(Refusal::UnknownGrant(id))?;
    if had.cpus.is_empty() {
        return Err(Refusal::Unknown(format!("grant {id} has given its cores back: it gets no more memory")));
    }
    let mut isolate = had.request.isolate;
    isolate.route |= request.isolate.route;
    isolate.controller |= request.isolate.controller;
    let nodes: Vec<NodeId> = match request.memory {
        Memory::Node(node) => vec![node],
        Memory::Local => vec![had.node],
        Memory::Any => {
            let mut others: Vec<NodeId> =
                ledger.facts.memory_nodes().filter(|&node| !had.memory.contains(node)).collect();
            let ns = |node: &NodeId| ledger.facts.latency_ns(had.node, *node).unwrap_or(f64::INFINITY);
            others.sort_by(|one, other| ns(one).total_cmp(&ns(other)));
            others
        }
    };
    // The grant's own cores and cache are free to it.
    let without = ledger.without(&[id]);
    let mut refused = Refusal::NoCandidate { obstacles: Vec::new(), nearest: None };
    for node in nodes {
        let shared = Isolation { cache: CacheIsolation::Shared, ..isolate };
        let (cores, memory) = (Cores::These(had.cpus.clone()), Memory::Node(node));
        let more_memory = had.memory.clone();
        let wanted = Request { cores, memory, more_memory, isolate: shared, ..had.request.clone() };
        match find(&without, id, &wanted, asker) {
            Ok(Placed { grant: Grant { memory, links, .. }, .. }) => {
                let request = Request { isolate, ..had.request.clone() };
                return Ok(Grant { request, memory, links, ..had.clone() });
            }
            Err(refusal) => refused = refusal,
        }
    }
    Err(refused)
}

/// Whether a grant can have the isolation of its request where it is, beside the others of a ledger that is without it.
pub(crate) fn check_in_place(without: &Ledger, grant: &Grant, asker: &Asker) -> Result<(), Refusal> {
    check_control(without, &grant.request)?;
    let (id, request) = (grant.id, &grant.request);
    let forecaster = Forecaster::new(without);
    let decision = Decision { ledger: without, occupancy: Occupancy::new(without), forecaster, request, asker, id };
    // Isolation of routes that comes later also holds for the routes that the grant has already.
    decision
        .check_links(&grant.links)
        .and_then(|()| decision.check_bandwidth(grant))
        .map_err(|obstacle| Refusal::NoCandidate { obstacles: vec![obstacle], nearest: None })
}

impl Decision<'_> {
    /// The grant that a candidate would be, or what is in its way.
    fn fit(&self, candidate: &Candidate) -> Result<Grant, Obstacle> {
        let cores = self.choose_cores(candidate)?;
        let cache = self.check_cache(candidate)?;
        let ways = self.choose_ways(cache)?;
        let memory = self.memory(candidate);
        memory.iter().try_for_each(|node| self.check_memory(node, memory.len()))?;
        let links = self.links(candidate.node, &memory);
        self.check_links(&links)?;
        let grant = self.grant(candidate, cores, cache, ways, memory, links);
        self.check_bandwidth(&grant)?;
        Ok(grant)
    }

    /// The nodes of the memory that a candidate would have.
    fn memory(&self, candidate: &Candidate) -> NodeSet {
        self.request.more_memory.iter().chain([candidate.memory]).collect()
    }

    /// The links from a node's cores to some memory, each once, as far as they are known.
    fn links(&self, from: NodeId, memory: &NodeSet) -> Vec<Hop> {
        let mut links: Vec<Hop> = Vec::new();
        for hop in memory.iter().filter_map(|to| self.ledger.facts.route(from, to)).flatten() {
            if !links.contains(&hop) {
                links.push(hop);
            }
        }
        links
    }

    /// The CPUs of some cores.
    fn cpus(&self, cores: &[usize]) -> CpuSet {
        cores.iter().flat_map(|&core| self.ledger.facts.cores[core].cpus.iter()).collect()
    }

    /// Whether the request may have this core: the cache's holder may have more cores on it.
    fn is_free(&self, core: usize) -> bool {
        let facts = &self.ledger.facts;
        let own = match self.request.cores {
            Cores::OnCacheOf(id, _) => Some(id),
            _ => None,
        };
        let holder = facts.cores[core].cache.and_then(|cache| self.occupancy.cache_holder[cache]);
        let alone = self.request.isolate.core || own.is_some();
        self.ledger.rules.zone.has(&facts.cores[core].cpus)
            && self.occupancy.core_holder[core].is_none()
            && (holder.is_none() || holder == own)
            && (!alone || self.occupancy.tenants[core].is_empty())
    }

    fn choose_cores(&self, candidate: &Candidate) -> Result<Vec<usize>, Obstacle> {
        let mut free: Vec<usize> = candidate.cores.iter().copied().filter(|&core| self.is_free(core)).collect();
        free.sort_by_key(|&core| (self.occupancy.tenants[core].len(), core));
        let wanted = wanted(self.request, candidate.cores.len());
        if free.len() < wanted {
            let taken = candidate.cores.iter().filter(|core| !free.contains(core));
            let cache = |core: usize| self.ledger.facts.cores[core].cache;
            let by = taken.flat_map(|&core| {
                let holder = cache(core).and_then(|cache| self.occupancy.cache_holder[cache]);
                self.occupancy.tenants[core].iter().copied().chain(holder)
            });
            let by = holders(self.ledger, by, self.asker.now_s);
            let (node, cpus) = (candidate.node, self.cpus(&candidate.cores));
            return Err(Obstacle::Cores { node, cpus, free: free.len(), wanted, by });
        }
        free.truncate(wanted);
        free.sort_unstable();
        Ok(free)
    }

    /// The cache that the request would hold, whole or in part.
    fn check_cache(&self, candidate: &Candidate) -> Result<Option<usize>, Obstacle> {
        let facts = &self.ledger.facts;
        let cache = facts.cores[candidate.cores[0]].cache;
        let Some(cache) = cache.filter(|_| self.request.isolate.cache != CacheIsolation::Shared) else {
            return Ok(None);
        };
        if self.request.isolate.cache == CacheIsolation::Exclusive {
            let cpus = || facts.caches[cache].clone();
            let sharers = &facts.sharers[cache];
            let ways = self.occupancy.ways[cache].iter().map(|(id, _)| *id);
            let by = sharers.iter().flat_map(|&core| self.occupancy.tenants[core].iter().copied()).chain(ways);
            let by = holders(self.ledger, by, self.asker.now_s);
            if !by.is_empty() {
                return Err(Obstacle::CacheTenants { cpus: cpus(), by });
            }
            if sharers.iter().any(|&core| !self.ledger.rules.zone.has(&facts.cores[core].cpus)) {
                return Err(Obstacle::CacheOutside { cpus: cpus() });
            }
        }
        Ok(Some(cache))
    }

    /// A run of free ways, the highest first: the rest of the machine keeps the low ones.
    fn choose_ways(&self, cache: Option<usize>) -> Result<u64, Obstacle> {
        let facts = &self.ledger.facts;
        let (CacheIsolation::Ways(wanted), Some(cache), Some(control)) =
            (self.request.isolate.cache, cache, facts.control.ways)
        else {
            return Ok(0);
        };
        if self.occupancy.classes + 1 >= control.classes {
            return Err(Obstacle::Classes { most: control.classes.saturating_sub(1) });
        }
        let taken = self.occupancy.ways[cache].iter().fold(0, |all, (_, mask)| all | mask);
        let all = control.all.min(u64::BITS);
        let is_free = |way: u32| way >= control.least && taken >> way & 1 == 0;
        let (mut run, mut longest) = (0, 0);
        for way in (0..all).rev() {
            run = if is_free(way) { run + 1 } else { 0 };
            longest = longest.max(run);
            if run == wanted && wanted >= control.least {
                return Ok(((1_u128 << wanted) - 1) as u64 * (1 << way));
            }
        }
        Err(Obstacle::Ways { cpus: facts.caches[cache].clone(), free: longest, wanted })
    }

    /// Memory is promised in equal parts of the grant's nodes.
    fn check_memory(&self, node: NodeId, nodes: usize) -> Result<(), Obstacle> {
        let all = self.ledger.facts.machine.node(node).map_or(0, |node| node.memory_bytes);
        if all == 0 {
            return Err(Obstacle::NoMemory { node });
        }
        let free = all.saturating_sub(self.occupancy.bytes.get(&node).copied().unwrap_or(0));
        match self.request.bytes.map(|bytes| bytes.div_ceil(nodes as u64)) {
            Some(wanted) if wanted > free => Err(Obstacle::Memory { node, free, wanted }),
            _ => Ok(()),
        }
    }

    /// None of the links is another's alone, and none has users if the request isolates its routes.
    fn check_links(&self, links: &[Hop]) -> Result<(), Obstacle> {
        for hop in links {
            let users = self.occupancy.links.get(&hop.directed_link()).map(Vec::as_slice).unwrap_or_default();
            let in_the_way = users.iter().filter(|(_, alone)| *alone || self.request.isolate.route);
            let by = holders(self.ledger, in_the_way.map(|(id, _)| *id), self.asker.now_s);
            if !by.is_empty() {
                let (from, to) = self.ends(hop.directed_link());
                return Err(Obstacle::Link { from, to, by });
            }
        }
        Ok(())
    }

    /// From and to of a directed link.
    fn ends(&self, directed: usize) -> (NodeId, NodeId) {
        let [first, second] = self.ledger.facts.machine.links[directed / 2].nodes;
        if directed.is_multiple_of(2) { (first, second) } else { (second, first) }
    }

    fn grant(
        &self,
        candidate: &Candidate,
        cores: Vec<usize>,
        cache: Option<usize>,
        ways: u64,
        memory: NodeSet,
        links: Vec<Hop>,
    ) -> Grant {
        let all = self.cpus(&cores);
        let firsts = cores.iter().filter_map(|&core| self.ledger.facts.cores[core].cpus.first());
        let cpus: CpuSet = if self.request.isolate.core { firsts.collect() } else { all.clone() };
        let now_s = self.asker.now_s;
        Grant {
            id: self.id,
            owner: self.asker.uid,
            since_s: now_s,
            until_s: self.request.lease_s.map(|lease| now_s.saturating_add(lease)),
            request: self.request.clone(),
            idle_siblings: all.iter().filter(|&cpu| !cpus.contains(cpu)).collect(),
            cpus,
            cores,
            node: candidate.node,
            cache,
            ways,
            memory,
            links,
        }
    }

    /// Promised bandwidth fits all that it passes, and no guarded grant is slowed too much.
    fn check_bandwidth(&self, grant: &Grant) -> Result<(), Obstacle> {
        let Some(load) = Load::new(grant, self.ledger) else { return Ok(()) };
        let facts = &self.ledger.facts;
        let is_limited = grant.request.isolate.controller && facts.control.throttle == Throttle::Hardware;
        let has_no_cpus = |&node: &NodeId| facts.machine.node(node).is_some_and(|node| node.cpus.is_empty());
        if let Some(node) = grant.memory.iter().filter(|_| is_limited).find(has_no_cpus) {
            return Err(Obstacle::NoCpus { node });
        }
        if let Some(rate) = grant.request.bandwidth {
            let of = |resource| {
                let part = facts.part_over(grant, resource);
                ReadWrite { read: rate.read * part, write: rate.write * part }
            };
            load.passes.iter().try_for_each(|&resource| self.check_promises(resource, of(resource)))?;
        }
        match self.ledger.rules.rule {
            Rule::Seed => grant.memory.iter().try_for_each(|node| self.check_seed_rule(grant, node)),
            Rule::Forecast => self.check_forecast(grant, &load),
        }
    }

    fn check_promises(&self, resource: Resource, rate: ReadWrite) -> Result<(), Obstacle> {
        let facts = &self.ledger.facts;
        let Some(capacity) = facts.capacity(resource) else { return Ok(()) };
        // Time of the resource, in bytes that it could read meanwhile.
        let bytes = |rate: ReadWrite| rate.read + rate.write * capacity.read / capacity.write;
        let users = self.forecaster.loads.iter().filter(|load| load.passes.binary_search(&resource).is_ok());
        let promised = users.filter_map(|load| {
            let grant = self.ledger.grant(load.id)?;
            Some(bytes(grant.request.bandwidth?) * facts.part_over(grant, resource))
        });
        let (free, wanted) = (capacity.read - promised.sum::<f64>(), bytes(rate));
        if wanted <= free {
            return Ok(());
        }
        Err(match resource {
            Resource::Controller(node) => Obstacle::Controller { node, free: free.max(0.0), wanted },
            Resource::Link(directed) => {
                let (from, to) = self.ends(directed);
                Obstacle::LinkFull { from, to, free: free.max(0.0), wanted }
            }
        })
    }

    /// Every guarded grant that the new one meets, and it itself, keeps its bound.
    fn check_forecast(&self, grant: &Grant, load: &Load) -> Result<(), Obstacle> {
        let node = grant.memory.first().unwrap_or(grant.node);
        let slowed = |who: Option<GrantId>, by: f64, most: f64| {
            let who = who.and_then(|id| holders(self.ledger, [id], self.asker.now_s).pop());
            Obstacle::Slowed { node, who, by, most }
        };
        for other in self.forecaster.beside(load).filter(|other| other.most.is_some()) {
            let beside = self.forecaster.beside(other).chain([load]);
            let (by, most) = (self.forecaster.slowdown(other, beside).unwrap_or(0.0), other.most.unwrap_or(0.0));
            if by > most {
                return Err(slowed(Some(other.id), by, most));
            }
        }
        if let Some(most) = load.most {
            let by = self.forecaster.slowdown(load, self.forecaster.beside(load)).unwrap_or(0.0);
            if by > most {
                return Err(slowed(None, by, most));
            }
        }
        Ok(())
    }

    /// The study's test, for controllers that are guarded by a grant or the request.
    fn check_seed_rule(&self, grant: &Grant, node: NodeId) -> Result<(), Obstacle> {
        let controller = Resource::Controller(node);
        let users = || self.forecaster.loads.iter().filter(|load| load.passes.contains(&controller));
        let is_guarded = grant.request.isolate.controller || users().any(|load| load.most.is_some());
        let Some(capacity) = self.ledger.facts.capacity(controller).filter(|_| is_guarded) else { return Ok(()) };
        let part = |kind: Kind, rate: ReadWrite| if kind == Kind::Reads { rate.read } else { rate.write };
        for kind in KINDS {
            let flows = self.ledger.usage.iter().filter(|flow| flow.to == node && flow.of != Some(grant.id));
            let sum = |of: Option<GrantId>| -> f64 {
                flows.clone().filter(|flow| flow.of == of).map(|flow| part(kind, flow.load)).sum()
            };
            let is_seen = |load: &&Load| flows.clone().any(|flow| flow.of == Some(load.id));
            let unseen = users().filter(|load| load.id != grant.id && !is_seen(load));
            let unseen = unseen.filter_map(|load| self.ledger.grant(load.id));
            let promised: f64 = unseen.map(|other| part(kind, demand(other, self.ledger, Kind::Reads))).sum();
            // One that drew less than it was promised may draw that at any time.
            let promise = |load: &Load| self.ledger.grant(load.id)?.request.bandwidth.map(|rate| part(kind, rate));
            let seen = users().filter(|load| load.id != grant.id && is_seen(load));
            let seen: f64 = seen.map(|load| sum(Some(load.id)).max(promise(load).unwrap_or(0.0))).sum();
            let others = flows.clone().filter(|flow| flow.of.is_some_and(|id| !users().any(|load| load.id == id)));
            let seen = seen + sum(None) + others.map(|flow| part(kind, flow.load)).sum::<f64>();
            let hungriest = flows.clone().map(|flow| part(kind, flow.load) / f64::from(flow.cores.max(1)));
            let hungriest = hungriest.reduce(f64::max);
            let cores = grant.cores.len() as f64;
            let stated = grant.request.bandwidth.map(|rate| part(kind, rate));
            let expected = stated
                .or_else(|| hungriest.map(|one| one * cores))
                .unwrap_or_else(|| part(kind, demand(grant, self.ledger, Kind::Reads)));
            let (used, capacity) = (seen + promised, part(kind, capacity));
            if !fits(used, expected, capacity) {
                let kind = if kind == Kind::Reads { "reads" } else { "writes" };
                return Err(Obstacle::Committed { node, kind, used, expected, capacity });
            }
        }
        Ok(())
    }

    /// A place from which programs that isolate nothing are moved away.
    fn fit_with_moves(&self, candidate: &Candidate) -> Option<Placed> {
        let facts = &self.ledger.facts;
        let cache = facts.cores[candidate.cores[0]].cache;
        let is_whole = self.request.isolate.cache == CacheIsolation::Exclusive;
        let cleared = cache.filter(|_| is_whole).map_or(&candidate.cores, |cache| &facts.sharers[cache]);
        let tenants = cleared.iter().flat_map(|&core| self.occupancy.tenants[core].iter().copied());
        let mut tenants: Vec<GrantId> =
            tenants.filter(|id| self.ledger.grant(*id).is_some_and(Grant::is_movable)).collect();
        tenants.sort_unstable();
        tenants.dedup();
        if tenants.is_empty() || !self.request.isolate.core {
            return None;
        }
        let mut ledger = self.ledger.without(&tenants);
        let freed = Decision {
            occupancy: Occupancy::new(&ledger),
            forecaster: Forecaster::new(&ledger),
            ledger: &ledger,
            request: self.request,
            asker: self.asker,
            id: self.id,
        };
        let grant = freed.fit(candidate).ok()?;
        ledger.adopt(grant.clone());
        let mut moved = Vec::new();
        for id in tenants {
            let tenant = self.ledger.grant(id)?;
            let asker = Asker { uid: tenant.owner, now_s: tenant.since_s, quota: None };
            let again = find_without_moves(&ledger, id, &tenant.request, &asker)?;
            if (&again.cpus, &again.memory) != (&tenant.cpus, &tenant.memory) {
                let (from, to) = (tenant.cpus.clone(), again.cpus.clone());
                moved.push(Moved { id, from, to, memory: again.memory.clone() });
            }
            ledger.adopt(Grant { until_s: tenant.until_s, ..again });
        }
        ledger.release(self.id);
        Some(Placed { grant, moved, ledger })
    }
}

/// The best place of a request as the machine is.
fn find_without_moves(ledger: &Ledger, id: GrantId, request: &Request, asker: &Asker) -> Option<Grant> {
    let mut still = ledger.clone();
    still.rules.keep_tenants = true;
    find(&still, id, request, asker).ok().map(|placed| placed.grant)
}

/// The study's test: what is drawn and what is expected fit the capacity.
pub(crate) fn fits(used: f64, expected: f64, capacity: f64) -> bool {
    used + expected <= capacity
}
