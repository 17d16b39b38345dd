//! How much grants slow each other, by the queueing model: once as if all that is not known were reads, once as if it
//! were writes.

use crate::facts::{Facts, Throttle};
use crate::grant::{Grant, GrantId};
use crate::ledger::Ledger;
use crate::request::{Preference, ReadWrite};
use crate::service_level::ServiceLevel;
use machine::{NodeId, NodeSet};
use queueing::{Background, Class, Distances, LINE_BYTES, NodeShare, Resource, solve_beside};
use serde::Serialize;
use std::collections::BTreeMap;

/// Steps of the search for the rest's limit: to a thousandth of a controller's bandwidth.
const STEPS: usize = 12;
/// Slow-down that stands for a program that gets next to nothing.
const STOPPED: f64 = 1e6;

/// What grants are forecast to suffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// Slow-down of each grant that is touched, as a part of its time: 0.05 is 5 % more time.
    pub slowdown: BTreeMap<GrantId, f64>,
    /// The rest of the machine is limited to this on the controllers that are guarded, bytes/s.
    pub rest_limit: BTreeMap<NodeId, f64>,
    /// The controller or link with the highest promised utilisation among those touched, and that utilisation.
    pub fullest: Option<(Resource, f64)>,
}

impl Forecast {
    /// The limits of the rest on the controllers that a grant guards.
    pub fn rest_limit_of(&self, grant: &Grant) -> BTreeMap<NodeId, f64> {
        let guards = |node: &NodeId| grant.request.isolate.controller && grant.memory.contains(*node);
        self.rest_limit.iter().filter(|(node, _)| guards(node)).map(|(node, limit)| (*node, *limit)).collect()
    }
}

/// As what unknown traffic counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reads,
    Writes,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Reads, Kind::Writes];

/// A grant's traffic.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub id: GrantId,
    /// The slow-down that it may suffer, if it is guarded.
    pub most: Option<f64>,
    /// What it passes, ascending.
    pub passes: Vec<Resource>,
    /// As others meet it.
    class: [Class; 2],
    /// As it meets others.
    own: [Class; 2],
}

/// All loads of a ledger.
pub(crate) struct Forecaster<'a> {
    pub ledger: &'a Ledger,
    pub loads: Vec<Load>,
    facts: &'a Facts,
    distances: Distances<'a>,
    /// The rest's traffic, where nothing can limit it.
    background: Background,
}

impl Load {
    /// Without cores or memory there is no traffic.
    pub fn new(grant: &Grant, ledger: &Ledger) -> Option<Self> {
        let facts = &*ledger.facts;
        if grant.cores.is_empty() || grant.memory.is_empty() {
            return None;
        }
        let mut passes: Vec<Resource> = grant.memory.iter().flat_map(|to| facts.passes(grant.node, to)).collect();
        passes.sort_unstable();
        passes.dedup();
        let class = KINDS.map(|kind| class(grant, ledger, demand(grant, ledger, kind)));
        // A program that waits for each access has one line in flight.
        let waits = grant.request.prefer == Preference::Latency && grant.request.bandwidth.is_none();
        let own = KINDS.map(|kind| {
            // A guarded grant's bound holds also for what it does not draw at present.
            let full = if grant.request.isolate.controller { full_demand } else { demand };
            let class = self::class(grant, ledger, full(grant, ledger, kind));
            if waits { Class { lines: grant.cores.len() as f64, most_rate: f64::INFINITY, ..class } } else { class }
        });
        let most = grant.request.isolate.controller.then_some(grant.request.most_slowdown);
        Some(Self { id: grant.id, most, passes, class, own })
    }

    fn meets(&self, other: &Self) -> bool {
        self.passes.iter().any(|resource| other.passes.binary_search(resource).is_ok())
    }
}

/// What a grant draws: what it was promised, or more if it was seen to draw more; without a promise, what it was seen to
/// draw, or else all that its cores can.
pub(crate) fn demand(grant: &Grant, ledger: &Ledger, kind: Kind) -> ReadWrite {
    match (grant.request.bandwidth, seen(grant, ledger)) {
        (None, None) => all_of_cores(grant, ledger, kind),
        (promised, seen) => higher(promised.unwrap_or_default(), seen.unwrap_or_default()),
    }
}

/// What a grant may draw at any time: what it was promised, or else all that its cores can; more if more was seen.
fn full_demand(grant: &Grant, ledger: &Ledger, kind: Kind) -> ReadWrite {
    let promised = grant.request.bandwidth.unwrap_or_else(|| all_of_cores(grant, ledger, kind));
    higher(promised, seen(grant, ledger).unwrap_or_default())
}

fn seen(grant: &Grant, ledger: &Ledger) -> Option<ReadWrite> {
    let flows = ledger.usage.iter().filter(|flow| flow.of == Some(grant.id)).map(|flow| flow.load);
    flows.reduce(|sum, load| ReadWrite { read: sum.read + load.read, write: sum.write + load.write })
}

fn higher(one: ReadWrite, other: ReadWrite) -> ReadWrite {
    ReadWrite { read: one.read.max(other.read), write: one.write.max(other.write) }
}

fn all_of_cores(grant: &Grant, ledger: &Ledger, kind: Kind) -> ReadWrite {
    let most = ledger.facts.core_most_bytes_per_s().unwrap_or(0.0) * grant.cores.len() as f64;
    match kind {
        Kind::Reads => ReadWrite { read: most, write: 0.0 },
        // A written line is read first.
        Kind::Writes => ReadWrite { read: most / 2.0, write: most / 2.0 },
    }
}

fn class(grant: &Grant, ledger: &Ledger, ReadWrite { read, write }: ReadWrite) -> Class {
    let facts = &ledger.facts;
    let rate = read.max(write);
    let written = if rate > 0.0 { write / rate } else { 0.0 };
    let part = 1.0 / grant.memory.len() as f64;
    let share = |to: NodeId| {
        let bytes = part * LINE_BYTES * (read / rate.max(f64::MIN_POSITIVE) + written * facts.write_cost(to));
        NodeShare { to, part, bytes }
    };
    let most_rate = rate / LINE_BYTES / 1e9;
    let lines = facts.stream_lines() * grant.cores.len() as f64;
    Class { from: grant.node, lines, work_ns: 0.0, to: grant.memory.iter().map(share).collect(), most_rate }
}

impl<'a> Forecaster<'a> {
    pub fn new(ledger: &'a Ledger) -> Self {
        let facts = &*ledger.facts;
        let loads = ledger.grants().filter_map(|grant| Load::new(grant, ledger)).collect();
        let mut background = Background::new();
        if facts.control.throttle == Throttle::None {
            for flow in ledger.usage.iter().filter(|flow| flow.of.is_none()) {
                for resource in facts.passes(flow.from, flow.to) {
                    let load = flow.load.read + flow.load.write * facts.write_cost(flow.to);
                    *background.entry(resource).or_default() += load;
                }
            }
        }
        Self { ledger, loads, facts, distances: facts.distances(), background }
    }

    /// The loads that share something with one, and are not it.
    pub fn beside<'b>(&'b self, load: &'b Load) -> impl Iterator<Item = &'b Load> {
        self.loads.iter().filter(move |other| other.id != load.id && other.meets(load))
    }

    /// Slow-down of a grant beside others: the worse of both kinds. None where latencies are not known.
    pub fn slowdown<'b>(&self, of: &Load, others: impl Iterator<Item = &'b Load>) -> Option<f64> {
        let others: Vec<&Load> = others.collect();
        let each = KINDS.map(|kind| self.slowdown_of_kind(of, &others, &self.background, kind));
        Some(each[0]?.max(each[1]?))
    }

    fn slowdown_of_kind(&self, of: &Load, others: &[&Load], background: &Background, kind: Kind) -> Option<f64> {
        let index = kind as usize;
        let rate = |others: &[&Load], background: &Background| {
            let own = [&of.own[index]].into_iter();
            let classes: Vec<Class> = own.chain(others.iter().map(|load| &load.class[index])).cloned().collect();
            Some(solve_beside(&classes, background, &self.distances)?[0].rate)
        };
        let alone = rate(&[], &Background::new())?;
        if alone <= 0.0 || (others.is_empty() && background.is_empty()) {
            return Some(0.0);
        }
        Some((alone / rate(others, background)?.max(alone / STOPPED) - 1.0).max(0.0))
    }

    /// The most that the rest of the machine may draw from each of some guarded controllers, bytes/s.
    fn rest_limits(&self, nodes: &NodeSet) -> BTreeMap<NodeId, f64> {
        // Where others with grants already slow a grant by more than its bound, as they draw more than when it was made, the
        // rest may slow it by as much as its bound beyond that: it cannot make up for them.
        let allowed = |load: &Load| {
            let most = load.most?;
            let by = self.slowdown_beside_rest(load, &BTreeMap::new()).unwrap_or(0.0);
            Some((load.id, if by > most { by + most } else { most }))
        };
        let allowed: BTreeMap<GrantId, f64> = self.loads.iter().filter_map(allowed).collect();
        let of = |node| {
            let capacity = self.facts.capacity(Resource::Controller(node))?.read;
            let most = largest(capacity, |rest| self.keep_bounds(&BTreeMap::from([(node, rest)]), &allowed));
            Some((node, most))
        };
        let each: BTreeMap<NodeId, f64> = nodes.iter().filter_map(of).collect();
        // A grant with memory on several nodes meets all these limits at once.
        let scaled = |part: f64| each.iter().map(|(node, limit)| (*node, part * limit)).collect();
        let keep = |part| self.keep_bounds(&scaled(part), &allowed);
        let part = if keep(1.0) { 1.0 } else { largest(1.0, keep) };
        scaled(part)
    }

    /// What the holders of guarded grants let the rest have of its limit on a controller. It is at least what grants among
    /// the rest were promised.
    fn tightened(&self, node: NodeId, limit: f64) -> f64 {
        let controller = Resource::Controller(node);
        let guarded = self.loads.iter().filter(|load| load.most.is_some() && load.passes.contains(&controller));
        let parts = guarded.filter_map(|load| self.ledger.levels.get(&load.id)).map(ServiceLevel::part);
        let among_rest =
            self.ledger.grants().filter(|grant| !grant.request.isolate.core && grant.memory.contains(node));
        let promised = among_rest.filter_map(|grant| {
            let ReadWrite { read, write } = grant.request.bandwidth?;
            Some((read + write) / grant.memory.len() as f64)
        });
        (limit * parts.fold(1.0, f64::min)).max(promised.sum::<f64>().min(limit))
    }

    /// Whether all guarded grants are slowed by no more than what is allowed beside so much of the rest.
    fn keep_bounds(&self, rest: &BTreeMap<NodeId, f64>, allowed: &BTreeMap<GrantId, f64>) -> bool {
        let meets = |load: &Load| rest.keys().any(|node| load.passes.contains(&Resource::Controller(*node)));
        let guarded = self.loads.iter().filter_map(|load| Some((load, *allowed.get(&load.id)?)));
        let mut guarded = guarded.filter(|(load, _)| meets(load));
        guarded.all(|(load, most)| self.slowdown_beside_rest(load, rest).is_some_and(|by| by <= most))
    }

    /// The forecast for these grants and all that share something with them.
    pub fn forecast(&self, of: &[Grant]) -> Forecast {
        let mut forecast = Forecast::default();
        let new = |load: &&Load| of.iter().any(|grant| grant.id == load.id);
        let mut touched: BTreeMap<GrantId, &Load> = BTreeMap::new();
        for load in self.loads.iter().filter(new) {
            touched.extend(self.beside(load).map(|other| (other.id, other)));
            touched.insert(load.id, load);
        }
        let guarded = || touched.values().filter(|load| load.most.is_some());
        if self.facts.control.throttle != Throttle::None {
            let controllers = guarded().flat_map(|load| &load.passes).filter_map(|resource| match resource {
                Resource::Controller(node) => Some(*node),
                Resource::Link(_) => None,
            });
            let nodes: NodeSet = controllers.collect();
            forecast.rest_limit = self.rest_limits(&nodes);
            for (node, limit) in &mut forecast.rest_limit {
                *limit = self.tightened(*node, *limit);
            }
        }
        for load in touched.values() {
            if let Some(by) = self.slowdown_beside_rest(load, &forecast.rest_limit) {
                forecast.slowdown.insert(load.id, by);
            }
        }
        let passes = touched.values().flat_map(|load| &load.passes);
        let used = passes.filter_map(|resource| Some((*resource, self.utilisation(*resource)?)));
        forecast.fullest = used.max_by(|(_, one), (_, other)| one.total_cmp(other));
        forecast
    }

    /// Slow-down with the rest drawing all that it may from some controllers.
    fn slowdown_beside_rest(&self, load: &Load, limits: &BTreeMap<NodeId, f64>) -> Option<f64> {
        let others: Vec<&Load> = self.beside(load).collect();
        let mut background = self.background.clone();
        background.extend(limits.iter().map(|(node, limit)| (Resource::Controller(*node), *limit)));
        background.retain(|resource, _| load.passes.contains(resource));
        let each = KINDS.map(|kind| self.slowdown_of_kind(load, &others, &background, kind));
        Some(each[0]?.max(each[1]?))
    }

    /// Promised traffic over capacity.
    fn utilisation(&self, resource: Resource) -> Option<f64> {
        let capacity = self.facts.capacity(resource)?.read;
        let users = self.loads.iter().filter(|load| load.passes.contains(&resource));
        let demand = |load: &Load| {
            let grant = self.ledger.grant(load.id)?;
            let ReadWrite { read, write } = demand(grant, self.ledger, Kind::Reads);
            Some((read + write) * self.facts.part_over(grant, resource))
        };
        Some(users.filter_map(demand).sum::<f64>() / capacity)
    }
}

/// The largest value up to `most` for which something holds that holds for 0.
fn largest(most: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Control;
    use crate::ledger::{Asker, Flow, Rules};
    use crate::request::{Cores, Isolation, Memory, Request};
    use crate::service_level::Service;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn what_was_seen_counts_instead_of_all_that_cores_can_and_beyond_what_was_promised() {
        let facts = Facts::new(machine::presets::find("magny-cours-4p").unwrap(), Control::default());
        let empty = Ledger::new(Arc::new(facts), Rules::default());
        let isolate = Isolation { core: true, ..Isolation::default() };
        let on_node_0 = Request { memory: Memory::Node(NodeId(0)), ..Request::default() };
        let tenant = Request { isolate, cores: Cores::Any(4), ..on_node_0.clone() };
        let guarded = Request {
            isolate: Isolation { controller: true, ..isolate },
            bandwidth: Some(ReadWrite { read: 5.9e9, write: 0.0 }),
            ..on_node_0
        };
        let mut ledger = empty.admit(&[tenant], &Asker::default()).unwrap().after;
        assert!(
            ledger.admit(std::slice::from_ref(&guarded), &Asker::default()).is_err(),
            "its four cores may draw all"
        );
        let seen = |id, read| Flow {
            of: Some(GrantId(id)),
            from: NodeId(0),
            to: NodeId(0),
            load: ReadWrite { read, write: 0.0 },
            cores: 4,
        };
        ledger.usage = vec![seen(1, 1e9)];
        let mut ledger = ledger.admit(&[guarded], &Asker::default()).unwrap().after;
        let slowdown = |ledger: &Ledger| ledger.forecast().slowdown[&GrantId(2)];
        assert!(slowdown(&ledger) <= 0.05);
        // The tenant draws more than before: the bound is broken, and the agent says so.
        ledger.usage = vec![seen(1, 8e9)];
        assert!(slowdown(&ledger) > 0.05, "{}", slowdown(&ledger));
        // The rest cannot make up for that, and is not stopped for it.
        let limit = ledger.forecast().rest_limit[&NodeId(0)];
        assert!(limit > 1e8, "{limit}");
        // A guarded grant that draws nothing at present may still draw all that its cores can: others get no more for that.
        let silent = Request {
            isolate: Isolation { controller: true, ..isolate },
            memory: Memory::Node(NodeId(0)),
            ..Request::default()
        };
        let mut silent = empty.admit(&[silent], &Asker::default()).unwrap().after;
        let limit = |ledger: &Ledger| ledger.forecast().rest_limit[&NodeId(0)];
        let before = limit(&silent);
        silent.usage = vec![seen(1, 0.0)];
        assert!((limit(&silent) - before).abs() < 1.0);
        // So is a promise to draw little, if more was seen.
        let grant = Grant {
            request: Request {
                bandwidth: Some(ReadWrite { read: 1e9, write: 2e9 }),
                ..ledger.grant(GrantId(1)).unwrap().request.clone()
            },
            ..ledger.grant(GrantId(1)).unwrap().clone()
        };
        assert_eq!(demand(&grant, &ledger, Kind::Reads), ReadWrite { read: 8e9, write: 2e9 });
    }

    #[test]
    fn a_missed_target_tightens_the_rest_and_keeps_what_grants_among_it_were_promised() {
        let machine = machine::presets::find("magny-cours-4p-control").unwrap();
        let control = Control::of(&machine, None);
        let empty = Ledger::new(Arc::new(Facts::new(machine, control)), Rules::default());
        let bandwidth = |read| Some(ReadWrite { read, write: 0.0 });
        let isolate = Isolation { core: true, controller: true, ..Isolation::default() };
        let on_node_0 = Request { memory: Memory::Node(NodeId(0)), ..Request::default() };
        let guarded = Request { isolate, bandwidth: bandwidth(5.9e9), ..on_node_0.clone() };
        let among_rest = Request { bandwidth: bandwidth(0.5e9), ..on_node_0 };
        let admitted = empty.admit(&[guarded, among_rest], &Asker::default()).unwrap();
        let (mut ledger, id) = (admitted.after, admitted.grants[0].id);
        let limit = |ledger: &Ledger| ledger.forecast().rest_limit[&NodeId(0)];
        let (whole, slowdown) = (limit(&ledger), ledger.forecast().slowdown[&id]);
        let mut now = Instant::now();
        let mut miss = |ledger: &mut Ledger| {
            now += Duration::from_secs(1);
            let service = Service { latency_ms: 2.0, target_ms: 1.0 };
            let level = ServiceLevel::after(ledger.levels.get(&id).copied(), service, now, 0);
            ledger.levels.insert(id, level);
        };
        miss(&mut ledger);
        assert!((limit(&ledger) / whole - 0.7).abs() < 1e-9);
        assert!(ledger.forecast().slowdown[&id] < slowdown);
        (0..20).for_each(|_| miss(&mut ledger));
        assert!((limit(&ledger) - 0.5e9).abs() < 1.0, "{}", limit(&ledger));
        ledger.release(id);
        assert!(ledger.levels.is_empty() && ledger.forecast().rest_limit.is_empty());
    }
}
