//! Invariants of every policy, on any machine, for any observation.

use crate::support::{cpus, nodes};
#[allow(dead_code, reason = "each test file uses its part")]
use machine::{CpuId, CpuSet, Machine, MemoryMode, MemoryPolicy, NodeId, NodeSet, Pid, SMALL_PAGE, Tid, presets};
use placement::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: [&str; 15] = [
    "predict",
    "carrefour",
    "auto",
    "auto+carrefour",
    "auto+interleave",
    "thread-clustering+carrefour",
    "balanced+remote",
    "rr-threads+local",
    "rr-tasks+weighted-interleave",
    "fixed+interleave",
    "interleave",
    "weighted-interleave",
    "bind:+0",
    "balanced+bind:+0-1",
    "first-touch",
];

/// Four nodes with CPUs and memory, one of CPUs only, one of memory only; ids are sparse, two CPUs share a core.
fn sparse_machine() -> Machine {
    let mut machine = presets::find("small-8x2").unwrap();
    machine.nodes.truncate(6);
    machine.packages.clear();
    machine.links.clear();
    machine.routes.clear();
    machine.distances = None;
    machine.latency = None;
    let shapes = [(0, "0-3", 4), (1, "4-7", 4), (5, "8-11", 4), (9, "12-15", 1), (12, "16-17", 0), (40, "", 8)];
    for (node, (id, of_node, gigabytes)) in machine.nodes.iter_mut().zip(shapes) {
        node.id = NodeId(id);
        node.cpus = cpus(of_node);
        node.memory_bytes = gigabytes << 30;
        node.bandwidth_bytes_per_s = (gigabytes > 0).then_some(gigabytes as f64 * 1e9);
    }
    machine.smt_cores = (0..9).map(|core| CpuSet::from_iter([CpuId(2 * core), CpuId(2 * core + 1)])).collect();
    machine
}

fn node() -> impl Strategy<Value = NodeId> {
    // Node 3 does not exist: an observation may be older or newer than the machine description.
    prop::sample::select(vec![0, 1, 5, 9, 12, 40, 3]).prop_map(NodeId)
}

fn accesses() -> impl Strategy<Value = Vec<NodeAccesses>> {
    prop::collection::btree_map(0..6_usize, 0..9_u64, 0..4).prop_map(|by| {
        let ids = [0, 1, 5, 9, 12, 40];
        by.into_iter().map(|(index, accesses)| NodeAccesses { node: NodeId(ids[index]), accesses }).collect()
    })
}

fn process() -> impl Strategy<Value = Process> {
    let sets = (
        prop::sample::select(vec!["0-17", "0-3", "5,9,13", "16"]),
        prop::sample::select(vec!["0,1,5,9,40", "1,5", "40"]),
    );
    (1..5_u32, sets, 0.0..8.0, any::<bool>(), prop::option::of(0.8..1.0), prop::bool::weighted(0.1)).prop_map(
        |(pid, (on, at), cpu_share, adopted, read_ratio, bound)| Process {
            cpu_share,
            adopted,
            read_ratio,
            memory_policy: bound.then(|| MemoryPolicy::plain(MemoryMode::Local)),
            ..Process::new(Pid(pid), cpus(on), nodes(at))
        },
    )
}

fn thread() -> impl Strategy<Value = Thread> {
    let shares = (0.0..1.0, 0.0..1.0, prop::option::of(0.0..0.1));
    let counts = (prop::option::of(0..2_000_000_u64), prop::option::of(0..60_000_u64));
    (1..5_u32, 1..12_u32, shares, counts, accesses(), prop::bool::weighted(0.1)).prop_map(
        |(pid, tid, (cpu_share, waiting_share, modified_share), (instructions, cache_misses), accesses, bound)| {
            Thread {
                cpu_share,
                waiting_share,
                modified_share,
                instructions,
                cache_misses,
                accesses,
                bound_to: bound.then(|| cpus("1")),
                ..Thread::new(Pid(pid), Tid(pid * 100 + tid))
            }
        },
    )
}

fn page() -> impl Strategy<Value = Page> {
    let users = prop::collection::btree_map(1..12_u32, 1..8_u64, 0..4);
    let frame = prop::option::weighted(0.2, 0..20_u64);
    let shape = (prop::bool::weighted(0.1), frame, prop::bool::weighted(0.05), prop::bool::weighted(0.3));
    (1..5_u32, 0..60_u64, node(), accesses(), 0..2_u64, users, (shape, any::<bool>())).prop_map(
        |(pid, number, node, accesses, writes, users, ((is_huge, frame, is_bound, is_replicable), is_shared))| {
            let thread = |(tid, accesses)| ThreadAccesses { tid: Tid(pid * 100 + tid), accesses };
            Page {
                pid: Pid(pid),
                address: number << 21,
                page_bytes: if is_huge { 2 << 20 } else { SMALL_PAGE },
                node,
                accesses: accesses.into(),
                writes,
                threads: users.into_iter().map(thread).collect(),
                is_falsely_shared: is_huge && is_shared,
                frame: frame.filter(|_| !is_huge),
                is_bound,
                is_replicable: is_replicable && !is_huge,
            }
        },
    )
}

fn observation() -> impl Strategy<Value = Observation> {
    let pages = prop::collection::vec(page(), 0..80);
    let lists = (prop::collection::vec(process(), 0..5), prop::collection::vec(thread(), 0..30), pages);
    let traffic = prop::collection::vec((node(), node(), 0.0..3e7_f64), 0..20);
    let memory = prop::collection::vec((node(), 0..64_u64), 0..5);
    (lists, traffic, memory, prop::option::of(0..200_u64), prop::option::of(50.0..500.0)).prop_map(
        |((mut processes, mut threads, mut pages), traffic, memory, budget, latency_mean_ns)| {
            // Each process, thread, page and node once.
            processes.sort_by_key(|process| process.pid);
            processes.dedup_by_key(|process| process.pid);
            threads.sort_by_key(|thread| thread.tid);
            threads.dedup_by_key(|thread| thread.tid);
            pages.sort_by_key(|page| (page.pid, page.address));
            pages.dedup_by_key(|page| (page.pid, page.address));
            let memory: BTreeMap<NodeId, u64> = memory.into_iter().collect();
            let memory = memory.into_iter().map(|(node, pages)| NodeMemory {
                node,
                total_bytes: 64 * SMALL_PAGE,
                free_bytes: pages * SMALL_PAGE,
            });
            let range = |process: &Process| Range {
                pid: process.pid,
                start: 0,
                end: 60 << 21,
                bytes: vec![
                    NodeBytes { node: NodeId(0), bytes: 3 << 20 },
                    NodeBytes { node: NodeId(5), bytes: 1 << 20 },
                ],
                memory_policy: None,
                shared: None,
            };
            Observation {
                length_s: 1.0,
                traffic: traffic.into_iter().map(|(from, to, accesses)| Traffic { from, to, accesses }).collect(),
                latency_mean_ns,
                latency_error_ns: latency_mean_ns.map(|mean| mean / 8.0),
                memory: memory.collect(),
                ranges: processes.iter().map(range).collect(),
                processes,
                threads,
                pages,
                budget_bytes: budget.map(|pages| pages * SMALL_PAGE),
                ..Observation::default()
            }
        },
    )
}

fn policy(name: &str) -> Policy {
    let thresholds = Thresholds { first_replication_pages: 3, rest_rounds: 1, ..Thresholds::default() };
    let settings = Settings { thresholds, ..Settings::default() };
    Policy::new(name.parse().unwrap(), &sparse_machine(), settings).unwrap()
}

/// Pages that an action moves, copies or splits: process, address, and target.
fn touched(action: &Action) -> Vec<(Pid, u64, Option<NodeId>)> {
    match action {
        Action::MovePages { pid, node, pages, .. } => pages.iter().map(|page| (*pid, *page, Some(*node))).collect(),
        Action::InterleavePages { pid, pages, .. } => {
            pages.iter().map(|page| (*pid, page.address, Some(page.node))).collect()
        }
        Action::Replicate { pid, pages, .. } | Action::SplitHugePages { pid, pages } => {
            pages.iter().map(|page| (*pid, *page, None)).collect()
        }
        _ => Vec::new(),
    }
}

/// Checks the invariants of a decision; `seen` has the pages of all rounds, as some may go back.
fn check(observation: &Observation, decision: &Decision, seen: &BTreeMap<(Pid, u64), u64>) {
    let processes: BTreeMap<Pid, &Process> = observation.processes.iter().map(|one| (one.pid, one)).collect();
    let with_memory: NodeSet = nodes("0,1,5,9,40");
    let may_have = |pid: &Pid, node: NodeId| with_memory.contains(node) && processes[pid].nodes.contains(node);
    assert!(!decision.steps.is_empty());
    let mut pages = BTreeSet::new();
    let mut threads = BTreeSet::new();
    let mut bytes = 0;
    for Step { action, reason } in &decision.steps {
        assert!(!format!("{action}: {reason}").is_empty());
        bytes += action.bytes();
        if let Some(pid) = action.pid() {
            assert!(processes.contains_key(&pid), "{action:?} has an unknown process");
        }
        for (pid, address, node) in touched(action) {
            assert!(pages.insert((pid, address)), "page {address:#x} of process {pid} occurs twice");
            assert!(seen.contains_key(&(pid, address)), "page {address:#x} was never seen");
            assert!(node.is_none_or(|node| may_have(&pid, node)), "{action:?} leaves the cpuset or memory");
        }
        match action {
            Action::MovePages { pid, pages, bytes, .. } => {
                assert_eq!(*bytes, pages.iter().map(|page| seen[&(*pid, *page)]).sum::<u64>());
                assert!(pages.is_sorted() && !pages.is_empty());
            }
            Action::Replicate { pid, pages, nodes, is_possible, instead } => {
                assert!(!is_possible || nodes.len() == 1 && may_have(pid, nodes.first().unwrap()), "{action:?}");
                for (of, address, node) in instead.iter().flat_map(|instead| touched(instead)) {
                    assert!(of == *pid && pages.contains(&address) && may_have(pid, node.unwrap()));
                }
            }
            Action::MoveRanges { pid, node, ranges, .. } => assert!(!ranges.is_empty() && may_have(pid, *node)),
            Action::DealRanges { pid, weights, ranges, .. } => {
                assert!(!ranges.is_empty() && weights.iter().all(|by| by.weight > 0 && may_have(pid, by.node)));
            }
            Action::MoveThread { pid, tid, cpus } => {
                let thread = observation.threads.iter().find(|thread| thread.tid == *tid).unwrap();
                assert!(threads.insert(*tid) && thread.pid == *pid && thread.bound_to.is_none());
                assert!(!cpus.is_empty() && cpus.is_subset(&processes[pid].cpus));
            }
            Action::MoveProcess { pid, cpus } => assert!(!cpus.is_empty() && cpus.is_subset(&processes[pid].cpus)),
            _ => {}
        }
    }
    assert!(observation.budget_bytes.is_none_or(|budget| bytes <= budget), "{bytes} of {:?}", observation.budget_bytes);
    for memory in &observation.memory {
        let arrived = decision.steps.iter().flat_map(|step| touched(&step.action));
        let arrived =
            arrived.filter(|(.., to)| *to == Some(memory.node)).map(|(pid, address, _)| seen[&(pid, address)]);
        assert!(arrived.sum::<u64>() <= memory.free_bytes, "node {} has no room for that", memory.node);
    }
}

/// Moves pages of later rounds to their targets; their number stays the same.
fn apply(decision: &Decision, places: &mut BTreeMap<(Pid, u64), NodeId>) {
    let count = places.len();
    for (pid, address, node) in decision.steps.iter().flat_map(|step| touched(&step.action)) {
        if let Some(node) = node {
            places.insert((pid, address), node);
        }
    }
    assert_eq!(places.len(), count, "a page came from nowhere");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn decisions_keep_to_what_is_allowed_and_are_repeatable(
        name in prop::sample::select(NAMES.to_vec()),
        rounds in prop::collection::vec((observation(), any::<bool>(), 0.0..9.0_f64), 1..5),
    ) {
        let mut policy = policy(name);
        let mut seen = BTreeMap::new();
        let mut places = BTreeMap::new();
        for (number, (mut observation, is_refused, moving_s)) in (1..).zip(rounds) {
            observation.round = number;
            for page in &mut observation.pages {
                // A page keeps its size, and is where it was moved.
                page.page_bytes = *seen.entry((page.pid, page.address)).or_insert(page.page_bytes);
                page.node = *places.entry((page.pid, page.address)).or_insert(page.node);
            }
            let saved = serde_json::to_string(policy.state()).unwrap();
            let restored: State = serde_json::from_str(&saved).unwrap();
            let mut again = policy.clone().with_state(restored);
            let logged: Observation = serde_json::from_str(&serde_json::to_string(&observation).unwrap()).unwrap();

            let decision = policy.decide(&observation);
            check(&observation, &decision, &seen);
            prop_assert_eq!(&again.decide(&logged), &decision, "decided otherwise from a log");
            prop_assert_eq!(again.state(), policy.state());
            let read: Decision = serde_json::from_str(&serde_json::to_string(&decision).unwrap()).unwrap();
            prop_assert_eq!(&read, &decision);

            let page = |(pid, address, _)| PageOf { pid, address };
            let all = || decision.steps.iter().flat_map(|step| touched(&step.action));
            let refused = if is_refused { all().map(page).collect() } else { Vec::new() };
            let copies_written = all().map(page).take(3).collect();
            let operations = if is_refused { 0 } else { all().count() as u64 };
            let gone = all().map(page).skip(3).step_by(3).collect();
            let moved_instead = all().map(page).skip(1).step_by(2).collect();
            let bytes_moved = operations * SMALL_PAGE;
            let result = Outcome {
                round: number,
                operations,
                moving_s,
                bytes_moved,
                out_of_time: is_refused,
                refused,
                gone,
                moved_instead,
                copies_written,
            };
            policy.learn(&result);
            if !is_refused {
                apply(&decision, &mut places);
            }
        }
    }

    /// Which pages move depends on the pages, not on the order in which they were observed.
    #[test]
    fn the_order_of_pages_decides_nothing(mut observation in observation()) {
        observation.round = 1;
        observation.pages.iter_mut().for_each(|page| page.frame = None);
        let forwards = policy("carrefour").decide(&observation);
        observation.pages.reverse();
        prop_assert_eq!(policy("carrefour").decide(&observation), forwards);
    }
}
