//! Claims C21-C46 of the study that are decisions, each by a test that names it. The others are about running
//! programs.

use machine::{CpuId, CpuSet, NodeId, NodeSet, presets};
use reserve::{
    Action, Admitted, Asker, CacheIsolation, Control, Cores, Facts, Flow, Grant, GrantId, Isolation, Ledger, Memory,
    Obstacle, Preference, Quota, ReadWrite, Refusal, Request, Resource, Rule, Rules, Share, Table, Throttle, Ways,
    Zone, read_calls,
};
use std::sync::Arc;

fn facts(preset: &str) -> Facts {
    Facts::new(presets::find(preset).unwrap(), Control::default())
}

fn empty(facts: Facts, rules: Rules) -> Ledger {
    Ledger::new(Arc::new(facts), rules)
}

/// The study's machine A.
fn machine_a() -> Ledger {
    empty(facts("magny-cours-4p"), Rules::default())
}

/// Its isolation zone of four nodes.
fn zone_of_24() -> Ledger {
    let zone = Zone { cpus: Some("0-23".parse().unwrap()), keep_back: CpuSet::new() };
    empty(facts("magny-cours-4p"), Rules { zone, keep_tenants: true, ..Rules::default() })
}

fn isolated() -> Request {
    Request { isolate: Isolation { core: true, ..Isolation::default() }, ..Request::default() }
}

fn exclusive_cache() -> Request {
    let isolate = Isolation { cache: CacheIsolation::Exclusive, ..Isolation::default() };
    Request { isolate, ..Request::default() }.complete()
}

fn guarded() -> Request {
    Request { isolate: Isolation { core: true, controller: true, ..Isolation::default() }, ..Request::default() }
}

fn admit(ledger: &mut Ledger, request: Request) -> Result<Grant, Refusal> {
    let Admitted { after, mut grants, .. } = ledger.admit(&[request], &Asker::default())?;
    *ledger = after;
    Ok(grants.remove(0))
}

fn node(grant: &Grant) -> NodeId {
    grant.memory.first().unwrap()
}

/// Values of a table for all pairs.
fn all(facts: &Facts, table: Table) -> Vec<f64> {
    let nodes: Vec<NodeId> = facts.machine.nodes.iter().map(|node| node.id).collect();
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
    pairs.filter_map(|(from, to)| facts.value(table, from, to)).collect()
}

#[test]
fn c21_a_latency_request_gets_the_least_latency_of_all_pairs() {
    let mut ledger = machine_a();
    let grant = admit(&mut ledger, Request { prefer: Preference::Latency, ..isolated() }).unwrap();
    let least = all(&ledger.facts, Table::Latency).into_iter().fold(f64::INFINITY, f64::min);
    assert_eq!(ledger.facts.latency_ns(grant.node, node(&grant)), Some(least));
    assert_eq!((grant.cpus.to_string().as_str(), node(&grant)), ("0", NodeId(0)));
}

#[test]
fn c22_bandwidth_requests_get_the_most_of_their_table() {
    for (prefer, table) in [(Preference::ReadBandwidth, Table::Read), (Preference::WriteBandwidth, Table::Write)] {
        let mut ledger = machine_a();
        let grant = admit(&mut ledger, Request { prefer, ..isolated() }).unwrap();
        let most = all(&ledger.facts, table).into_iter().fold(0.0, f64::max);
        assert_eq!(ledger.facts.value(table, grant.node, node(&grant)), Some(most));
    }
}

#[test]
fn c23_the_same_request_again_gets_the_next_best_pair() {
    let mut ledger = machine_a();
    let mut values = Vec::new();
    for _ in 0..48 {
        let grant = admit(&mut ledger, Request { prefer: Preference::Latency, ..isolated() }).unwrap();
        values.push(ledger.facts.latency_ns(grant.node, node(&grant)).unwrap());
    }
    assert!(values.is_sorted(), "{values:?}");
    // Six cores of each node get its own memory, but where another's is nearer than that of the next free cores.
    assert_eq!(values[..7], [64.09, 64.09, 64.09, 64.09, 64.09, 64.09, 65.91]);
    assert!(admit(&mut ledger, isolated()).is_err());
}

#[test]
fn c24_local_requests_get_the_memory_of_their_cores_node() {
    let mut ledger = machine_a();
    for _ in 0..48 {
        let grant = admit(&mut ledger, Request { memory: Memory::Local, ..isolated() }).unwrap();
        assert_eq!(node(&grant), grant.node);
    }
}

#[test]
fn c25_requests_for_a_node_get_its_memory_and_the_best_cores_for_it() {
    for wanted in (0..8).map(NodeId) {
        let mut ledger = machine_a();
        let request = Request { memory: Memory::Node(wanted), prefer: Preference::Latency, ..isolated() };
        let grant = admit(&mut ledger, request).unwrap();
        let best =
            (0..8).filter_map(|from| ledger.facts.latency_ns(NodeId(from), wanted)).fold(f64::INFINITY, f64::min);
        assert_eq!((node(&grant), ledger.facts.latency_ns(grant.node, wanted)), (wanted, Some(best)));
    }
}

#[test]
fn c26_no_grant_lands_on_an_isolated_core() {
    let mut ledger = zone_of_24();
    let own = admit(&mut ledger, isolated()).unwrap();
    for _ in 0..100 {
        let grant = admit(&mut ledger, Request::default()).unwrap();
        assert!(grant.cpus.intersection(&own.cpus).is_empty());
    }
    let these = Request { cores: Cores::These(own.cpus.clone()), ..Request::default() };
    assert!(matches!(admit(&mut ledger, these), Err(Refusal::NoCandidate { .. })));
}

#[test]
fn c27_an_exclusive_cache_refuses_the_dies_other_cores_to_all_others() {
    let mut ledger = zone_of_24();
    let own = admit(&mut ledger, exclusive_cache()).unwrap();
    for cpu in (0..6).map(CpuId) {
        let these = Request { cores: Cores::These(CpuSet::from_iter([cpu])), ..Request::default() };
        let refusal = admit(&mut ledger, these).unwrap_err();
        assert!(refusal.to_string().contains("grant 1"), "{refusal}");
    }
    // Its owner may have one of them; another user may not.
    let more = Request { cores: Cores::OnCacheOf(own.id, 1), ..Request::default() };
    let other = Asker { uid: 1000, ..Asker::default() };
    assert_eq!(ledger.admit(std::slice::from_ref(&more), &other).unwrap_err(), Refusal::NotYours(own.id));
    assert_eq!(admit(&mut ledger, more).unwrap().cpus.to_string(), "1");
}

#[test]
fn c28_an_exclusive_cache_is_refused_where_a_sibling_core_has_a_tenant() {
    let mut ledger = zone_of_24();
    for cpu in [3, 9, 15, 21].map(CpuId) {
        let cores = Cores::These(CpuSet::from_iter([cpu]));
        let name = Some(format!("tenant{cpu}"));
        admit(&mut ledger, Request { cores, name, ..Request::default() }).unwrap();
    }
    let asker = Asker { now_s: 720, ..Asker::default() };
    let refusal = ledger.admit(&[exclusive_cache()], &asker).unwrap_err();
    let text = refusal.to_string();
    assert!(
        text.contains("the last-level cache of CPUs 12-17 has tenants: grant 3 (tenant15, since 12 min)"),
        "{text}"
    );
    assert!(text.contains("nearest: with a shared cache: CPU 0"), "{text}");
}

#[test]
fn c29_what_exclusive_caches_and_cores_leave_of_24() {
    let left = |requests: &[Request]| {
        let mut ledger = zone_of_24();
        for request in requests {
            admit(&mut ledger, request.clone()).unwrap();
        }
        (0..48).take_while(|_| admit(&mut ledger, isolated()).is_ok()).count()
    };
    assert_eq!(left(&[exclusive_cache()]), 18);
    assert_eq!(left(&[exclusive_cache(), exclusive_cache(), exclusive_cache()]), 6);
    assert_eq!(left(&[isolated()]), 23);
}

/// The cores beside a guarded one can be used with memory elsewhere only: each link to it is slower than a core.
#[test]
fn programs_beside_a_guarded_controller_get_different_links() {
    let mut ledger = zone_of_24();
    admit(&mut ledger, guarded()).unwrap();
    let mut on = |cores: &str| {
        let request = Request { cores: Cores::These(cores.parse().unwrap()), ..Request::default() };
        let grant = admit(&mut ledger, request).unwrap();
        (node(&grant).0, grant.links.len())
    };
    assert_eq!(["1", "2", "3", "4"].map(&mut on), [(1, 1), (2, 1), (3, 1), (7, 1)]);
    assert_eq!(on("5"), (1, 1));
}

#[test]
fn c30_after_four_exclusive_caches_of_four_the_next_request_is_refused() {
    let mut ledger = zone_of_24();
    for _ in 0..4 {
        admit(&mut ledger, exclusive_cache()).unwrap();
    }
    for request in [exclusive_cache(), isolated(), Request::default()] {
        assert!(matches!(admit(&mut ledger, request), Err(Refusal::NoCandidate { .. })));
    }
}

#[test]
fn c31_an_isolated_route_reserves_every_hop() {
    let mut ledger = machine_a();
    let route = Isolation { core: true, route: true, ..Isolation::default() };
    // From node 7 to node 5, which is over node 4.
    let on = |cpu: u32, memory: u32, isolate| Request {
        cores: Cores::These(CpuSet::from_iter([CpuId(cpu)])),
        memory: Memory::Node(NodeId(memory)),
        isolate,
        ..Request::default()
    };
    let grant = admit(&mut ledger, on(42, 5, route)).unwrap();
    assert_eq!(grant.links.len(), 2);
    for (cpu, memory) in [(43, 5), (43, 4), (24, 5), (43, 1)] {
        let refusal = admit(&mut ledger, on(cpu, memory, Isolation::default())).unwrap_err();
        assert!(refusal.to_string().contains("is used by grant 1"), "{cpu} {memory}: {refusal}");
    }
    // Its other links, and the other direction of these, are free.
    for (cpu, memory) in [(43, 7), (43, 0), (30, 4), (24, 7)] {
        admit(&mut ledger, on(cpu, memory, Isolation::default())).unwrap();
    }
    // A link in use cannot be isolated any more.
    assert!(admit(&mut ledger, on(44, 0, route)).is_err());
}

#[test]
fn a_grant_whose_route_is_shared_cannot_isolate_it_with_more_memory() {
    let mut ledger = empty(facts("small-4x2"), Rules::default());
    let cores = |cpu| Cores::These(CpuSet::from_iter([CpuId(cpu)]));
    let to_node_1 = |cpu| Request { cores: cores(cpu), memory: Memory::Node(NodeId(1)), ..Request::default() };
    let first = admit(&mut ledger, to_node_1(0)).unwrap();
    admit(&mut ledger, to_node_1(1)).unwrap();
    let isolate = Isolation { route: true, ..Isolation::default() };
    let more = Request { cores: Cores::Of(first.id), memory: Memory::Node(NodeId(2)), isolate, ..Request::default() };
    let Err(Refusal::NoCandidate { obstacles, .. }) = admit(&mut ledger, more) else { panic!("granted") };
    let Obstacle::Link { from, to, .. } = obstacles[0] else { panic!("{obstacles:?}") };
    assert_eq!((from, to), (NodeId(0), NodeId(1)));
}

#[test]
fn c32_the_routes_of_machine_a() {
    let facts = facts("magny-cours-4p");
    let hops = |from, to| {
        let route = facts.route(NodeId(from), NodeId(to)).unwrap();
        let ends = route.into_iter().filter_map(|hop| reserve::hop_ends(&facts.machine, hop));
        ends.map(|(from, to)| (from.0, to.0)).collect::<Vec<_>>()
    };
    assert_eq!(hops(7, 5), [(7, 4), (4, 5)]);
    assert_eq!((hops(1, 4), hops(1, 5)), (vec![(1, 4)], vec![(1, 5)]));
    assert!((0..8).all(|node| hops(node, node).is_empty()));
}

#[test]
fn c33_routes_of_all_64_pairs_are_as_long_as_their_distance() {
    let facts = facts("magny-cours-4p");
    let distances = facts.machine.distances.as_ref().unwrap();
    for from in 0..8 {
        for to in 0..8 {
            // The firmware's 10, 16 and 22.
            let hops = (distances.matrix[from][to] - 10) / 6;
            let route = facts.route(NodeId(from as u32), NodeId(to as u32)).unwrap();
            assert_eq!(route.len(), hops as usize, "{from} {to}");
        }
    }
}

/// Machine A by the study's rule, with controllers of 6,000 MB/s and a tenant on node 0.
fn by_seed_rule(used: ReadWrite, cores: u32) -> Ledger {
    let mut machine = presets::find("magny-cours-4p").unwrap();
    machine.nodes.iter_mut().for_each(|node| node.bandwidth_bytes_per_s = Some(6e9));
    let rules = Rules { rule: Rule::Seed, ..Rules::default() };
    let mut ledger = empty(Facts::new(machine, Control::default()), rules);
    let on_node = |from: u32| Flow { of: None, from: NodeId(from), to: NodeId(from), load: used, cores };
    ledger.usage = (0..8).map(on_node).collect();
    ledger
}

fn is_granted(ledger: &Ledger, request: Request) -> bool {
    let request = Request { memory: Memory::Local, ..request };
    ledger.admit(&[request], &Asker::default()).is_ok()
}

#[test]
fn c34_what_is_drawn_and_the_hungriest_core_fit_the_capacity() {
    let reads = |read, cores| by_seed_rule(ReadWrite { read, write: 0.0 }, cores);
    // Two cores draw 3,000; three of them 1,500 each draw 4,500, and so would a fourth.
    assert!(is_granted(&reads(4.5e9, 3), guarded()));
    assert!(!is_granted(&reads(5e9, 3), guarded()));
    let refusal = reads(5e9, 3).admit(&[guarded()], &Asker::default()).unwrap_err().to_string();
    assert!(refusal.contains("5.0 GB/s of reads are drawn, the newcomer counts as 1.7 GB/s"), "{refusal}");
}

#[test]
fn c35_the_rule_holds_for_reads_and_for_writes() {
    let drawn = |read, write| by_seed_rule(ReadWrite { read, write }, 1);
    assert!(is_granted(&drawn(3e9, 3e9), guarded()));
    assert!(!is_granted(&drawn(3.1e9, 1e9), guarded()));
    assert!(!is_granted(&drawn(1e9, 3.1e9), guarded()));
}

#[test]
fn c36_the_rule_does_not_hold_for_controllers_that_none_guards() {
    assert!(is_granted(&by_seed_rule(ReadWrite { read: 6e9, write: 6e9 }, 1), isolated()));
}

#[test]
fn c42_the_shells_form_sets_all_flags() {
    let line = r#"{"call":"rcm_cored_memd_request","exclusive_cache":true,"core_memory_isolated":true,
        "memory_controller_isolated":true,"memory_performance":"MEMORY_LATENCY_SENSITIVE"}"#;
    let isolate = Isolation { core: true, cache: CacheIsolation::Exclusive, controller: true, route: true };
    let request = Request { isolate, prefer: Preference::Latency, ..Request::default() };
    assert_eq!(read_calls(line).unwrap(), [Action::Request(request)]);
}

#[test]
fn c43_what_is_released_can_be_granted_again() {
    let mut ledger = zone_of_24();
    let grants: Vec<Grant> = (0..4).map(|_| admit(&mut ledger, exclusive_cache()).unwrap()).collect();
    assert!(admit(&mut ledger, exclusive_cache()).is_err());
    ledger.release(grants[2].id);
    assert_eq!(admit(&mut ledger, exclusive_cache()).unwrap().cpus, grants[2].cpus);
}

#[test]
fn c44_two_users_never_get_the_same() {
    let mut ledger = zone_of_24();
    let mut taken = CpuSet::new();
    for turn in 0..24 {
        let asker = Asker { uid: 1000 + turn % 2, ..Asker::default() };
        let Admitted { after, grants, .. } = ledger.admit(&[isolated()], &asker).unwrap();
        assert!(grants[0].cpus.iter().all(|cpu| taken.insert(cpu)));
        ledger = after;
    }
}

#[test]
fn c45_tenants_that_came_first_are_in_the_way_unless_they_may_be_moved() {
    let mut ledger = zone_of_24();
    for _ in 0..24 {
        admit(&mut ledger, Request::default()).unwrap();
    }
    assert!(matches!(admit(&mut ledger, exclusive_cache()), Err(Refusal::NoCandidate { .. })));
    ledger.rules.keep_tenants = false;
    let Admitted { after, grants, moved, .. } = ledger.admit(&[exclusive_cache()], &Asker::default()).unwrap();
    assert_eq!(moved.len(), 6);
    let cache = &after.facts.caches[grants[0].cache.unwrap()];
    for tenant in after.grants().filter(|grant| grant.id != grants[0].id) {
        assert!(tenant.cpus.intersection(cache).is_empty(), "{tenant:?}");
    }
    assert_eq!(after.grants().len(), 25);
}

#[test]
fn c46_a_list_of_requests_is_granted_whole_or_not_at_all() {
    let ledger = zone_of_24();
    let thirteen = vec![isolated(); 13];
    let Admitted { after, grants, .. } = ledger.admit(&thirteen, &Asker::default()).unwrap();
    assert_eq!(grants.len(), 13);
    // The second user gets nothing, and holds nothing.
    assert!(after.admit(&thirteen, &Asker { uid: 1000, ..Asker::default() }).is_err());
    assert_eq!((after.grants().len(), ledger.grants().len()), (13, 0));
}

/// The bound of C52, by the forecast's rule: 4.1 GB/s of 13.9 are left to the rest.
#[test]
fn a_guarded_controller_admits_what_keeps_its_bound() {
    let mut ledger = machine_a();
    let reader = Request { bandwidth: Some(ReadWrite { read: 5.9e9, write: 0.0 }), ..guarded() };
    let admitted = ledger.admit(&[Request { memory: Memory::Node(NodeId(0)), ..reader }], &Asker::default()).unwrap();
    let limit = admitted.forecast.rest_limit[&NodeId(0)];
    assert!((4.0e9..4.3e9).contains(&limit), "{limit}");
    let by = admitted.forecast.slowdown[&GrantId(1)];
    assert!((0.045..=0.05).contains(&by), "{by}");
    // Where nothing limits the rest, what it draws decides.
    let facts = Facts::new(ledger.facts.machine.clone(), Control { throttle: Throttle::None, ways: None });
    ledger = empty(facts, Rules::default());
    for (read, is_slowed) in [(3e9, false), (6e9, true)] {
        let on = |node: u32| {
            let (from, load) = (NodeId(node), ReadWrite { read, write: 0.0 });
            Flow { of: None, from, to: from, load, cores: 1 }
        };
        ledger.usage = (0..8).map(on).collect();
        let refused = ledger.admit(&[Request { memory: Memory::Local, ..guarded() }], &Asker::default()).err();
        let slowed = |refusal: Refusal| match refusal {
            Refusal::NoCandidate { obstacles, nearest } => {
                nearest.is_some() && matches!(obstacles[0], Obstacle::Slowed { who: None, .. })
            }
            _ => false,
        };
        assert_eq!(refused.map(slowed), is_slowed.then_some(true), "{read}");
    }
}

#[test]
fn links_of_guarded_grants_are_guarded_too() {
    let mut ledger = machine_a();
    let on = |cpu: u32, memory: u32, isolate| Request {
        cores: Cores::These(CpuSet::from_iter([CpuId(cpu)])),
        memory: Memory::Node(NodeId(memory)),
        isolate,
        ..Request::default()
    };
    admit(&mut ledger, on(42, 5, guarded().isolate)).unwrap();
    // Another reader of the link from 7 to 4, of 2 GB/s.
    let refusal = admit(&mut ledger, on(43, 4, Isolation::default())).unwrap_err().to_string();
    assert!(refusal.contains("grant 1 would be slowed by +10"), "{refusal}");
}

#[test]
fn ways_are_runs_that_do_not_overlap_and_leave_some_to_the_rest() {
    let control = Control { ways: Some(Ways { all: 40, least: 2, classes: 4 }), ..Control::default() };
    let mut ledger = empty(Facts::new(presets::find("magny-cours-4p").unwrap(), control), Rules::default());
    let ways = |count| Request {
        memory: Memory::Node(NodeId(0)),
        prefer: Preference::Latency,
        isolate: Isolation { core: true, cache: CacheIsolation::Ways(count), ..Isolation::default() },
        ..Request::default()
    };
    let masks = [20, 8].map(|count| admit(&mut ledger, ways(count)).unwrap().ways);
    assert_eq!(masks, [0xff_fff0_0000, 0xff000]);
    // 12 are left, of which the rest keeps 2.
    assert_eq!(admit(&mut ledger, ways(10)).unwrap().ways, 0xffc);
    let refusal = admit(&mut ledger, ways(2)).unwrap_err().to_string();
    assert!(refusal.contains("all 3 classes of service are taken"), "{refusal}");
    assert_eq!(machine_a().admit(&[ways(2)], &Asker::default()).unwrap_err(), Refusal::NoWays);
}

#[test]
fn the_hardware_guards_only_what_it_can_limit_beside_the_grant() {
    let on = |preset: &str, throttle| {
        let control = Control { throttle, ..Control::default() };
        empty(Facts::new(presets::find(preset).unwrap(), control), Rules::default())
    };
    // The limits of a CPU that all use would be the program's, too.
    let shared = Request { isolate: Isolation { controller: true, ..Isolation::default() }, ..Request::default() };
    let mut limited = on("magny-cours-4p", Throttle::Hardware);
    assert_eq!(admit(&mut limited, shared.clone()).unwrap_err(), Refusal::SharedCores);
    let plain = admit(&mut limited, Request::default()).unwrap();
    let later = limited.apply(&[Action::Guard(plain.id, true)], &Asker::default()).unwrap_err();
    assert_eq!(later, Refusal::SharedCores);
    assert!(admit(&mut limited, guarded()).is_ok());
    assert!(admit(&mut on("magny-cours-4p", Throttle::Duty), shared).is_ok());
    // A node without CPUs has none to limit.
    let machine = presets::find("epyc-9224x2-cxl").unwrap();
    let far = machine.nodes.iter().find(|node| node.cpus.is_empty()).unwrap().id;
    let far = Request { memory: Memory::Node(far), bandwidth: Some(ReadWrite { read: 1e9, write: 0.0 }), ..guarded() };
    assert!(admit(&mut on("epyc-9224x2-cxl", Throttle::Duty), far.clone()).is_ok());
    let refused = admit(&mut on("epyc-9224x2-cxl", Throttle::Hardware), far).unwrap_err().to_string();
    assert!(refused.contains("has no CPUs, and the hardware limits those"), "{refused}");
}

#[test]
fn the_calls_for_what_is_held_already() {
    let ledger = machine_a();
    let admitted = ledger.admit(&[exclusive_cache()], &Asker::default()).unwrap();
    let apply = |ledger: &Ledger, line: &str| ledger.apply(&read_calls(line).unwrap(), &Asker::default());
    let more = r#"{"call":"rcm_coregiven_memd_request","memory_isolated":true,"memory_controller_isolated":false,
        "core":1,"memory_performance":"NO_PREFERENCE"}"#;
    let two = apply(&admitted.after, more).unwrap();
    assert_eq!((two.grants[0].memory.to_string().as_str(), two.grants[0].links.len()), ("0-1", 1));
    let guarded = apply(&two.after, r#"{"call":"rcm_memory_controller_isolation_request","mem":1}"#).unwrap();
    assert!(guarded.grants[0].request.isolate.controller && guarded.forecast.rest_limit.len() == 2);
    let open = apply(&guarded.after, r#"{"call":"rcm_memory_controller_release","mem_isolated":1}"#).unwrap();
    assert_eq!(open.grants[0], two.grants[0]);
    let cores = apply(&open.after, r#"{"call":"rcm_core_memd_release","core":1}"#).unwrap();
    assert!(cores.after.grant(GrantId(1)).unwrap().cpus.is_empty());
    let both = apply(&cores.after, r#"{"call":"rcm_cored_mem_release","mem":1}"#).unwrap();
    assert_eq!(both.after.grants().len(), 0);
    for line in [
        r#"{"call":"rcm_core_mem_release","core":1,"mem":2}"#,
        r#"{"call":"rcm_cored_mem_release","mem":1,"core":1}"#,
        r#"{"call":"rcm_cored_mem_release","mem":"1"}"#,
        r#"{"call":"rcm_other"}"#,
        "[]",
        "",
        &" ".repeat(5000),
    ] {
        assert!(read_calls(line).is_err(), "{line}");
    }
    let gone = apply(&both.after, r#"{"call":"rcm_core_mem_release","core":1,"mem":1}"#).unwrap_err();
    assert_eq!(gone, Refusal::UnknownGrant(GrantId(1)));
}

#[test]
fn requests_that_this_machine_cannot_fulfil_name_why() {
    let ledger = zone_of_24();
    let cpus = |text: &str| Cores::These(text.parse().unwrap());
    let isolate = |isolate| Request { isolate, ..Request::default() };
    let rate = |read| Some(ReadWrite { read, write: 0.0 });
    let cases = [
        (Request { cores: cpus("99"), ..Request::default() }, "no CPU 99: this machine has CPUs 0-47"),
        (Request { cores: cpus("0,6"), ..Request::default() }, "CPUs 0,6 are of nodes 0-1: a grant has cores of one"),
        (Request { memory: Memory::Node(NodeId(9)), ..Request::default() }, "no node 9: this machine has nodes 0-7"),
        (Request { cores: cpus("24"), ..Request::default() }, "node 4: 0 of the cores of CPU 24 are free, 1 wanted"),
        (Request { cores: Cores::Any(7), ..Request::default() }, "node 0: 6 of the cores of CPUs 0-5 are free, 7"),
        (Request { bytes: Some(9 << 30), ..Request::default() }, "8 GiB of its memory are not promised, 9 GiB wanted"),
        (Request { bandwidth: rate(14e9), ..guarded() }, "controller 0: 13.9 GB/s are not promised, 14.0 GB/s wanted"),
        (
            Request { bandwidth: rate(3e9), memory: Memory::Node(NodeId(1)), cores: cpus("0"), ..Request::default() },
            "the link from node 0 to node 1: 2.0 GB/s are not promised, 3.0 GB/s wanted",
        ),
        (Request { strict: true, ..guarded() }, "has only shares of CPU time (cpu.max): without --strict"),
        (isolate(Isolation { cache: CacheIsolation::Ways(4), ..Isolation::default() }), "have no masks of ways"),
    ];
    for (request, said) in cases {
        let refusal = ledger.admit(std::slice::from_ref(&request), &Asker::default()).unwrap_err().to_string();
        assert!(refusal.contains(said), "{request:?}: {refusal}");
    }
    let without = empty(facts("magny-cours-4p-no-directory"), Rules::default());
    assert_eq!(without.admit(&[guarded()], &Asker::default()).unwrap_err(), Refusal::NoDirectory);
    let mut machine = presets::find("magny-cours-4p").unwrap();
    machine.latency = None;
    let unmeasured = empty(Facts::new(machine, Control::default()), Rules::default());
    assert_eq!(unmeasured.admit(&[guarded()], &Asker::default()).unwrap_err(), Refusal::NotMeasured);
    assert!(unmeasured.admit(&[isolated()], &Asker::default()).is_ok());
}

#[test]
fn quotas_names_leases_and_owners_are_kept() {
    let mut ledger = machine_a();
    let quota = Some(Quota { grants: 2, cores: 3, ..Quota::default() });
    let asker = Asker { uid: 1000, now_s: 100, quota };
    let refused = ledger.admit(&[Request { cores: Cores::Any(4), ..Request::default() }], &asker).unwrap_err();
    assert_eq!(refused.to_string(), "the user may have 3 cores in all, has 0 and asks for 4");
    let named = Request { name: Some("db".to_owned()), lease_s: Some(50), ..Request::default() };
    ledger = ledger.admit(&[named.clone(), Request::default()], &asker).unwrap().after;
    assert!(matches!(ledger.admit(&[Request::default()], &asker), Err(Refusal::Quota { what: "grants", .. })));
    assert_eq!(admit(&mut ledger, named).unwrap_err().to_string(), "the name is taken by grant 1 (db)");
    let stranger = Asker { uid: 1001, ..asker };
    let release = [Action::Release(GrantId(1), Share::All)];
    assert_eq!(ledger.apply(&release, &stranger).unwrap_err(), Refusal::NotYours(GrantId(1)));
    let named = ledger.grant(GrantId(1)).unwrap();
    assert_eq!([149, 150, 151].map(|now_s| named.is_over(now_s)), [false, false, true], "50 s at least");
}

#[test]
fn a_quota_counts_the_cores_that_an_exclusive_cache_takes_from_others() {
    // Six cores share a cache on this machine.
    let ledger = machine_a();
    let asker = |cores| Asker { uid: 1000, now_s: 0, quota: Some(Quota { grants: 3, cores, ..Quota::default() }) };
    let refused = ledger.admit(&[exclusive_cache()], &asker(5)).unwrap_err();
    assert_eq!(refused.to_string(), "the user may have 5 cores in all, has 0 and asks for 6");
    let first = ledger.admit(&[exclusive_cache()], &asker(6)).unwrap();
    let id = first.grants[0].id;
    // More of its cores are not counted again, until the cache is no longer the user's.
    let beside = Request { cores: Cores::OnCacheOf(id, 2), ..Request::default() };
    let mut both = first.after.admit(&[beside], &asker(6)).unwrap().after;
    assert!(both.admit(&[isolated()], &asker(6)).is_err());
    both.release(id);
    assert!(both.admit(&[exclusive_cache()], &asker(7)).is_err());
    assert!(both.admit(&[isolated()], &asker(3)).is_ok());
}

#[test]
fn siblings_of_an_isolated_core_stay_idle() {
    let mut ledger = empty(facts("nehalem-ex-8p"), Rules::default());
    assert!(ledger.facts.cores[0].cpus.len() == 2, "a machine with SMT");
    let grant = admit(&mut ledger, isolated()).unwrap();
    assert_eq!((grant.cpus.len(), grant.idle_siblings.len()), (1, 1));
    let sibling = Request { cores: Cores::These(grant.idle_siblings.clone()), ..Request::default() };
    assert!(admit(&mut ledger, sibling).is_err());
}

#[test]
fn several_nodes_are_granted_as_a_whole_or_not_at_all() {
    let mut ledger = machine_a();
    let nodes = |first: u32, more: &str| Request {
        memory: Memory::Node(NodeId(first)),
        more_memory: more.parse().unwrap(),
        ..isolated()
    };
    let grant = admit(&mut ledger, nodes(2, "3-4")).unwrap();
    assert_eq!(grant.memory.to_string(), "2-4");
    assert!(!grant.links.is_empty(), "the way to the further nodes is the grant's too");
    assert!(matches!(ledger.admit(&[nodes(2, "9")], &Asker::default()), Err(Refusal::Unknown(_))));
    // Bytes and bandwidth are promised in equal parts.
    let bytes = ledger.facts.machine.nodes[5].memory_bytes + ledger.facts.machine.nodes[6].memory_bytes;
    let both = |bytes, read| {
        let bandwidth = Some(ReadWrite { read, write: 0.0 });
        Request { cores: Cores::Any(6), bytes: Some(bytes), bandwidth, ..nodes(5, "6") }
    };
    for too_much in [both(bytes + 2, 3e9), both(bytes, 5e9)] {
        assert!(matches!(ledger.admit(&[too_much], &Asker::default()), Err(Refusal::NoCandidate { .. })));
    }
    assert_eq!(ledger.grants().len(), 1);
    admit(&mut ledger, both(bytes, 3e9)).unwrap();
    let one_more = Request { bytes: Some(1), memory: Memory::Node(NodeId(6)), ..isolated() };
    assert!(admit(&mut ledger, one_more).is_err());
}

/// A tenant that has to make room may keep its cores and get other memory.
#[test]
fn a_tenant_gives_up_memory_that_a_guarded_grant_needs() {
    let mut ledger = empty(facts("small-2x2"), Rules::default());
    let isolate = Isolation { core: true, ..Isolation::default() };
    let on = |node| Request { isolate, memory: Memory::Node(NodeId(node)), ..Request::default() };
    let bandwidth = |read| Some(ReadWrite { read, write: 0.0 });
    let first = admit(&mut ledger, on(0)).unwrap();
    let tenant = admit(&mut ledger, Request::default()).unwrap();
    ledger.release(first.id);
    admit(&mut ledger, Request { cores: Cores::Any(2), bandwidth: bandwidth(1e8), ..on(1) }).unwrap();
    let isolate = Isolation { core: true, controller: true, ..Isolation::default() };
    let guarded = admit(&mut ledger, Request { isolate, bandwidth: bandwidth(5e9), ..on(0) }).unwrap();
    let after = ledger.grant(tenant.id).unwrap();
    assert_eq!((&after.cpus, after.memory.to_string()), (&tenant.cpus, "1".to_owned()));
    assert!(ledger.forecast().slowdown[&guarded.id] <= 0.05, "{:?}", ledger.forecast());
}

/// What was granted, added and given back of a tenant's memory is not decided anew.
#[test]
fn a_tenant_with_other_memory_than_it_was_granted_is_not_moved() {
    for (share, more) in [(None, Some(1)), (Some(Share::Memory), None)] {
        let mut ledger = empty(facts("small-2x2"), Rules::default());
        let tenant = admit(&mut ledger, Request::default()).unwrap();
        if let Some(node) = more {
            let memory = Memory::Node(NodeId(node));
            admit(&mut ledger, Request { cores: Cores::Of(tenant.id), memory, ..Request::default() }).unwrap();
        }
        if let Some(share) = share {
            ledger = ledger.apply(&[Action::Release(tenant.id, share)], &Asker::default()).unwrap().after;
        }
        let before = ledger.grant(tenant.id).unwrap().clone();
        let isolate = Isolation { core: true, ..Isolation::default() };
        admit(&mut ledger, Request { isolate, memory: Memory::Node(NodeId(1)), ..Request::default() }).unwrap();
        // Both cores of node 0 would be free without the tenant.
        let both = Request { cores: Cores::Any(2), isolate, ..Request::default() };
        assert!(admit(&mut ledger, both).is_err());
        assert_eq!(ledger.grant(tenant.id), Some(&before));
    }
}

#[test]
fn routes_that_are_not_known_cannot_be_isolated() {
    let mut machine = presets::find("small-2x2").unwrap();
    machine.links.clear();
    let mut ledger = empty(Facts::new(machine, Control::default()), Rules::default());
    let isolate = Isolation { route: true, ..Isolation::default() };
    let cores = Cores::These(CpuSet::from_iter([CpuId(0)]));
    let remote = Request { cores, isolate, memory: Memory::Node(NodeId(1)), ..Request::default() };
    assert!(matches!(ledger.admit(&[remote], &Asker::default()), Err(Refusal::NoRoutes)));
    // To local memory there is no link.
    admit(&mut ledger, Request { isolate, memory: Memory::Local, ..Request::default() }).unwrap();
}

#[test]
fn cores_in_the_place_of_cpus_are_as_many() {
    let mut ledger = empty(facts("nehalem-ex-8p"), Rules::default());
    let core = ledger.facts.cores[0].cpus.clone();
    assert_eq!(core.len(), 2);
    let isolate = Isolation { core: true, ..Isolation::default() };
    let request = Request { cores: Cores::These(core), isolate, ..Request::default() };
    admit(&mut ledger, request.clone()).unwrap();
    let Err(Refusal::NoCandidate { nearest, .. }) = admit(&mut ledger, request) else { panic!("granted") };
    assert_eq!(nearest.unwrap().change, "--cores 1 instead of --cpus");
}

#[test]
fn calls_are_read_back_as_they_are_written() {
    let line = r#"{"call":"rcm_cored_memd_request","exclusive_cache":false,"core_memory_isolated":true,
        "memory_controller_isolated":false,"memory_performance":"NO_PREFERENCE",
        "with":{"name":"db","cores":3,"bandwidth":"2G","bytes":"64M"}}"#;
    let actions = read_calls(line).unwrap();
    let Action::Request(request) = &actions[0] else { panic!("{actions:?}") };
    assert_eq!((&request.cores, request.bytes), (&Cores::Any(3), Some(64 << 20)));
    for with in ["", r#","with":{"name":"db"}"#, r#","with":{"bandwidth":"2G","bytes":4096,"cores":2}"#] {
        let line = line.split(",\n        \"with\"").next().unwrap().to_owned() + with + "}";
        let call: reserve::Call = serde_json::from_str(&line).unwrap();
        let written = serde_json::to_string(&call).unwrap();
        assert_eq!(read_calls(&written).unwrap(), read_calls(&line).unwrap(), "{written}");
    }
    let placed = line.replace(r#""cores":3"#, r#""node":3"#);
    let refused = read_calls(&placed).unwrap_err().to_string();
    assert!(refused.contains("call 1: with: the call itself says which CPUs, node"), "{refused}");
}

/// A link that leads to both nodes of a grant's memory carries all of its traffic.
#[test]
fn a_link_to_several_nodes_carries_the_sum() {
    let ledger = empty(facts("nehalem-ex-8p"), Rules::default());
    let facts = ledger.facts.clone();
    let first = |to| facts.route(NodeId(0), NodeId(to)).unwrap()[0];
    let (one, other) = (1..8)
        .flat_map(|one| (one + 1..8).map(move |other| (one, other)))
        .find(|&(one, other)| first(one) == first(other))
        .unwrap();
    let capacity = facts.capacity(Resource::Link(first(one).directed_link())).unwrap().read;
    let request = |read| Request {
        cores: Cores::These(facts.cores[0].cpus.clone()),
        memory: Memory::Node(NodeId(one)),
        more_memory: NodeSet::from_iter([NodeId(other)]),
        bandwidth: Some(ReadWrite { read, write: 0.0 }),
        ..Request::default()
    };
    assert!(ledger.admit(&[request(0.9 * capacity)], &Asker::default()).is_ok());
    let Err(Refusal::NoCandidate { obstacles, .. }) = ledger.admit(&[request(1.2 * capacity)], &Asker::default())
    else {
        panic!("granted")
    };
    assert!(matches!(obstacles[0], Obstacle::LinkFull { .. }), "{obstacles:?}");
}
