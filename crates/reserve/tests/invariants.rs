//! The seven invariants of the study's manager, over random histories of requests, upgrades and releases.

use machine::{CpuId, CpuSet, Machine, NodeId, NodeSet, presets};
use proptest::prelude::*;
use proptest::sample::select;
use reserve::{
    Action, Asker, CacheIsolation, Control, Cores, Facts, Grant, GrantId, Isolation, Ledger, Memory, Preference,
    ReadWrite, Refusal, Request, Resource, Rule, Rules, Share, Table, Ways, Zone,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Histories.
const HISTORIES: u32 = 10_000;

/// Four nodes of two cores in a ring, so that some routes have two links; one core has two threads.
fn ring() -> Machine {
    let mut machine = presets::find("small-4x2").unwrap();
    let ring = [[0, 1], [1, 2], [2, 3], [0, 3]].map(|pair| pair.map(NodeId));
    machine.links.retain(|link| ring.contains(&link.nodes));
    assert_eq!(machine.links.len(), 4);
    if let Some(latency) = &mut machine.latency {
        latency.by_hops_ns.push(190.0);
        latency.loaded_slope = Some(0.1);
    }
    machine
}

fn ledger(rule: Rule, keep_tenants: bool) -> Ledger {
    let control = Control { ways: Some(Ways { all: 16, least: 1, classes: 4 }), ..Control::default() };
    let zone = Zone { cpus: Some("0-6".parse().unwrap()), keep_back: CpuSet::from_iter([CpuId(0)]) };
    let rules = Rules { zone, rule, keep_tenants, without_directory: false };
    Ledger::new(Arc::new(Facts::new(ring(), control)), rules)
}

fn isolation() -> impl Strategy<Value = Isolation> {
    let cache = prop_oneof![
        3 => Just(CacheIsolation::Shared),
        1 => Just(CacheIsolation::Exclusive),
        1 => (1_u32..12).prop_map(CacheIsolation::Ways),
    ];
    let flag = || prop::bool::weighted(0.4);
    (flag(), cache, flag(), flag()).prop_map(|(core, cache, controller, route)| Isolation {
        core,
        cache,
        controller,
        route,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let cores = prop_oneof![
        6 => (1_u32..3).prop_map(Cores::Any),
        1 => (0_u32..8).prop_map(|cpu| Cores::These(CpuSet::from_iter([CpuId(cpu)]))),
        1 => (1_u32..6).prop_map(|id| Cores::OnCacheOf(GrantId(id), 1)),
        1 => (1_u32..6).prop_map(|id| Cores::Of(GrantId(id))),
    ];
    let memory = prop_oneof![
        2 => Just(Memory::Any),
        1 => Just(Memory::Local),
        1 => (0_u32..4).prop_map(|node| Memory::Node(NodeId(node))),
    ];
    let prefer =
        select(vec![Preference::None, Preference::Latency, Preference::ReadBandwidth, Preference::WriteBandwidth]);
    let bandwidth = prop::option::of((1e8..3e9, 0.0..1e9).prop_map(|(read, write)| ReadWrite { read, write }));
    let bytes = prop::option::of(1_u64..1 << 29);
    let more = prop_oneof![
        4 => Just(NodeSet::new()),
        1 => (0_u32..4).prop_map(|node| NodeSet::from_iter([NodeId(node)])),
    ];
    (cores, (memory, more), isolation(), prefer, bandwidth, bytes, 0.01..0.5).prop_map(
        |(cores, (memory, more_memory), isolate, prefer, bandwidth, bytes, most_slowdown)| {
            let request = Request { cores, memory, more_memory, isolate, ..Request::default() };
            Request { prefer, bandwidth, bytes, most_slowdown, ..request }.complete()
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let id = || (1_u32..8).prop_map(GrantId);
    prop_oneof![
        8 => request().prop_map(Action::Request),
        2 => (id(), select(vec![Share::Cores, Share::Memory, Share::All])).prop_map(|(id, share)| Action::Release(id, share)),
        1 => (id(), any::<bool>()).prop_map(|(id, guarded)| Action::Guard(id, guarded)),
    ]
}

fn tenants(ledger: &Ledger, core: usize) -> Vec<&Grant> {
    ledger.grants().filter(|grant| grant.cores.contains(&core)).collect()
}

/// 1: an isolated core has exactly one tenant. 2: an exclusive cache has tenants of its owner only.
fn cores_and_caches_are_isolated(ledger: &Ledger) {
    for grant in ledger.grants().filter(|grant| grant.request.isolate.core) {
        for &core in &grant.cores {
            assert_eq!(tenants(ledger, core).len(), 1, "core {core}");
        }
    }
    let exclusive = |grant: &&Grant| grant.request.isolate.cache == CacheIsolation::Exclusive;
    for holder in ledger.grants().filter(exclusive) {
        let Some(cache) = holder.cache else { continue };
        let sharers = (0..ledger.facts.cores.len()).filter(|&core| ledger.facts.cores[core].cache == Some(cache));
        for tenant in sharers.flat_map(|core| tenants(ledger, core)) {
            let is_guest = tenant.request.cores == Cores::OnCacheOf(holder.id, 1) && tenant.owner == holder.owner;
            assert!(tenant.id == holder.id || is_guest, "{tenant:?} on the cache of {holder:?}");
        }
    }
    let masks = ledger.grants().filter(|grant| grant.ways != 0);
    let mut by_cache: BTreeMap<Option<usize>, u64> = BTreeMap::new();
    for grant in masks {
        let taken = by_cache.entry(grant.cache).or_default();
        assert_eq!(*taken & grant.ways, 0, "ways overlap");
        *taken |= grant.ways;
    }
}

/// 3: an isolated link is in no other route.
fn links_are_isolated(ledger: &Ledger) {
    for grant in ledger.grants().filter(|grant| grant.request.isolate.route) {
        let others = ledger.grants().filter(|other| other.id != grant.id);
        assert!(others.flat_map(|other| &other.links).all(|link| !grant.links.contains(link)));
    }
}

/// 4: guarded grants keep their bounds; by the study's rule, promises fit the capacity.
fn controllers_are_guarded(ledger: &Ledger) {
    let forecast = ledger.forecast();
    for grant in ledger.grants().filter(|grant| grant.request.isolate.controller && !grant.cores.is_empty()) {
        match ledger.rules.rule {
            Rule::Forecast => {
                let by = forecast.slowdown.get(&grant.id).copied().unwrap_or(0.0);
                assert!(by <= grant.request.most_slowdown + 1e-6, "{by}: {grant:?}");
            }
            Rule::Seed => grant.memory.iter().for_each(|node| promises_fit(ledger, node)),
        }
    }
}

fn promises_fit(ledger: &Ledger, node: NodeId) {
    let on_node = ledger.grants().filter(|grant| grant.memory.contains(node) && !grant.cores.is_empty());
    let most = ledger.facts.core_most_bytes_per_s().unwrap();
    let reads = on_node.map(|grant| grant.request.bandwidth.map_or(most * grant.cores.len() as f64, |rate| rate.read));
    let capacity = ledger.facts.capacity(Resource::Controller(node)).unwrap().read;
    assert!(reads.sum::<f64>() <= capacity * (1.0 + 1e-9));
}

/// 5: what is granted exists, is in the zone, and is not promised twice.
fn grants_are_within_the_zone(ledger: &Ledger) {
    let Zone { cpus, keep_back } = &ledger.rules.zone;
    let mut promised: BTreeMap<NodeId, u64> = BTreeMap::new();
    for grant in ledger.grants() {
        assert!(grant.cpus.is_subset(cpus.as_ref().unwrap()) && grant.cpus.intersection(keep_back).is_empty());
        assert!(grant.memory.iter().all(|node| ledger.facts.machine.node(node).unwrap().memory_bytes > 0));
        for node in grant.memory.iter() {
            *promised.entry(node).or_default() += grant.request.bytes.unwrap_or(0) / grant.memory.len() as u64;
        }
    }
    for (node, bytes) in promised {
        assert!(bytes <= ledger.facts.machine.node(node).unwrap().memory_bytes);
    }
}

/// 6: a release restores what was before.
fn a_release_restores_the_state(before: &Ledger, after: &Ledger, new: &Grant) {
    let mut released = after.clone();
    released.release(new.id);
    assert!(released.grants().eq(before.grants()), "{new:?}");
}

/// 7: each pair with a better value is refused.
fn nothing_better_is_feasible(before: &Ledger, request: &Request, got: &Grant) {
    let table = match request.prefer {
        Preference::None => return,
        Preference::Latency => Table::Latency,
        Preference::ReadBandwidth => Table::Read,
        Preference::WriteBandwidth => Table::Write,
    };
    let is_better = |one: f64, other: f64| if table == Table::Latency { one < other } else { one > other };
    let facts = &before.facts;
    let value = facts.value(table, got.node, got.memory.first().unwrap()).unwrap();
    for core in &facts.cores {
        for to in facts.memory_nodes() {
            let allowed = match request.memory {
                Memory::Any => true,
                Memory::Local => to == core.node,
                Memory::Node(node) => to == node,
            };
            if allowed && is_better(facts.value(table, core.node, to).unwrap(), value) {
                let these = Cores::These(core.cpus.clone());
                let pair = Request { cores: these, memory: Memory::Node(to), ..request.clone() };
                let answer = before.admit(&[pair], &Asker::default());
                assert!(matches!(answer, Err(Refusal::NoCandidate { .. })), "{core:?} {to} is better than {got:?}");
            }
        }
    }
}

fn check(ledger: &Ledger) {
    cores_and_caches_are_isolated(ledger);
    links_are_isolated(ledger);
    controllers_are_guarded(ledger);
    grants_are_within_the_zone(ledger);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: HISTORIES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn seven_invariants_hold_in_every_history(
        actions in prop::collection::vec((action(), 0_u32..2), 1..10),
        rule in select(vec![Rule::Forecast, Rule::Seed]),
        keep_tenants in any::<bool>(),
    ) {
        let mut ledger = ledger(rule, keep_tenants);
        for (action, uid) in actions {
            let asker = Asker { uid, ..Asker::default() };
            let Ok(admitted) = ledger.apply(std::slice::from_ref(&action), &asker) else { continue };
            check(&admitted.after);
            if let Action::Request(request) = &action
                && !matches!(request.cores, Cores::Of(_))
                && admitted.moved.is_empty()
            {
                a_release_restores_the_state(&ledger, &admitted.after, &admitted.grants[0]);
                if request.cores == Cores::Any(1) && request.more_memory.is_empty() {
                    let mut before = ledger.clone();
                    before.rules.keep_tenants = true;
                    nothing_better_is_feasible(&before, request, &admitted.grants[0]);
                }
            }
            ledger = admitted.after;
        }
    }
}
