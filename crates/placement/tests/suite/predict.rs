//! `predict`: what it chooses, when that has become worth moving, and what it learns.

use crate::support::{cpus, nodes};
use machine::{CpuId, MemoryMode, MemoryPolicy, NodeId, Pid, Tid, presets};
use placement::*;

const MACHINE: &str = "opteron-6164x2";
const START: u64 = 0x7f00_0000_0000;
const BYTES: u64 = 64 << 20;
const NODES: u32 = 4;

fn policy() -> Policy {
    Policy::new("predict".parse().unwrap(), &presets::find(MACHINE).unwrap(), Settings::default()).unwrap()
}

/// A second of a process with six threads on each node. `node_of` says who uses each of its 1,024 sampled pages, from
/// which node; all memory is on node 0.
fn observation(round: u64, accesses_per_us: f64, users: impl Fn(u64) -> u32) -> Observation {
    let mut process = Process::new(Pid(7), cpus("0-23"), nodes("0-3"));
    process.cpu_share = 24.0;
    let thread = |cpu: u32| Thread { cpu: Some(CpuId(cpu)), cpu_share: 1.0, ..Thread::new(Pid(7), Tid(7 + cpu)) };
    let page = |number: u64| Page {
        pid: Pid(7),
        address: START + number * (BYTES / 1024),
        page_bytes: 4096,
        node: NodeId(0),
        accesses: std::iter::once(NodeAccesses { node: NodeId(users(number)), accesses: 2 }).collect(),
        writes: 0,
        threads: Few::new(),
        parts: Vec::new(),
        frame: None,
        is_bound: false,
        is_replicable: false,
    };
    let traffic =
        |from| Traffic { from: NodeId(from), to: NodeId(0), accesses: accesses_per_us * 1e6 / f64::from(NODES) };
    Observation {
        round,
        length_s: 1.0,
        traffic: (0..NODES).map(traffic).collect(),
        latency_mean_ns: Some(900.0),
        latency_error_ns: Some(5.0),
        processes: vec![process],
        threads: (0..24).map(thread).collect(),
        pages: (0..1024).map(page).collect(),
        ranges: vec![Range {
            pid: Pid(7),
            start: START,
            end: START + BYTES,
            bytes: vec![NodeBytes { node: NodeId(0), bytes: BYTES }],
            memory_policy: None,
        }],
        ..Observation::default()
    }
}

/// All nodes use all pages.
fn all(number: u64) -> u32 {
    (number % 4) as u32
}

/// Each node uses a quarter.
fn quarters(number: u64) -> u32 {
    (number / 256) as u32
}

fn rule(decision: &Decision) -> Rule {
    decision.steps[0].reason.rule
}

#[test]
fn memory_that_all_use_is_dealt_to_all_in_one_step() {
    let decision = policy().decide(&observation(1, 80.0, all));
    let [Step { action: Action::DealRanges { weights, ranges, bytes, .. }, reason }] = &decision.steps[..] else {
        panic!("{decision:?}")
    };
    assert_eq!(weights.iter().map(|by| (by.node.0, by.weight)).collect::<Vec<_>>(), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    assert_eq!(ranges[..], [AddressRange { start: START, end: START + BYTES }]);
    assert_eq!(*bytes, BYTES / 4 * 3);
    let predicted = reason.value(Quantity::PredictedSpeedup).unwrap();
    assert!((2.0..4.5).contains(&predicted), "one controller of four: {predicted}");
}

#[test]
fn parts_that_one_node_each_uses_move_there() {
    // Few lines under way: no controller is full, so that distance decides.
    let busy = Observation { latency_mean_ns: Some(300.0), ..observation(1, 40.0, quarters) };
    let decision = policy().decide(&busy);
    let moved: Vec<(u32, u64, u64)> = decision
        .steps
        .iter()
        .map(|step| match &step.action {
            Action::MoveRanges { node, ranges, .. } => {
                (node.0, ranges[0].start - START, ranges[0].end - ranges[0].start)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let quarter = BYTES / 4;
    assert_eq!(moved, [(1, quarter, quarter), (2, 2 * quarter, quarter), (3, 3 * quarter, quarter)]);
}

#[test]
fn nothing_moves_where_nothing_is_gained_or_it_is_not_paid_for_yet() {
    let mut idle = observation(1, 0.5, all);
    idle.latency_mean_ns = Some(130.0);
    assert_eq!(rule(&policy().decide(&idle)), Rule::NothingFaster);
    // In its first 10 ms the program could have saved some 7 ms, and moving takes 80.
    let young = Observation { length_s: 0.01, ..observation(1, 80.0, all) };
    let traffic = young.traffic.iter().map(|pair| Traffic { accesses: pair.accesses / 100.0, ..*pair }).collect();
    assert_eq!(rule(&policy().decide(&Observation { traffic, ..young })), Rule::MovingCostsMore);
    let few = Observation { pages: observation(1, 80.0, all).pages[..100].to_vec(), ..observation(1, 80.0, all) };
    assert_eq!(rule(&policy().decide(&few)), Rule::FewSamples);
    let unread = Observation { ranges: Vec::new(), ..observation(1, 80.0, all) };
    assert_eq!(rule(&policy().decide(&unread)), Rule::MappingsNotRead);
}

#[test]
fn what_owners_placed_and_what_others_share_stays() {
    let mut owned = observation(1, 80.0, all);
    owned.processes[0].memory_policy = Some(MemoryPolicy::plain(MemoryMode::Local));
    let mut mapped = observation(1, 80.0, all);
    mapped.ranges[0].memory_policy = Some(MemoryPolicy::plain(MemoryMode::Local));
    let mut shared = observation(1, 80.0, all);
    shared.pages.iter_mut().enumerate().for_each(|(frame, page)| page.frame = Some(frame as u64));
    for observation in [owned, mapped, shared] {
        assert_eq!(rule(&policy().decide(&observation)), Rule::NothingFaster);
    }
}

#[test]
fn moves_that_made_accesses_slower_are_taken_back_and_not_repeated_at_once() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    policy.learn(&Outcome { round: 1, moving_s: 0.05, ..Outcome::default() });
    assert_eq!(rule(&policy.decide(&observation(2, 80.0, all))), Rule::MovesSettle);
    let slower = Observation { latency_mean_ns: Some(1500.0), ..observation(3, 80.0, all) };
    let decision = policy.decide(&slower);
    let [Step { action: Action::MoveRanges { node: NodeId(0), bytes, .. }, reason }] = &decision.steps[..] else {
        panic!("{decision:?}")
    };
    assert_eq!((*bytes, reason.rule), (BYTES, Rule::MadeWorse));
    assert_eq!(rule(&policy.decide(&observation(4, 80.0, all))), Rule::Resting);
}

#[test]
fn moves_that_helped_are_kept_and_compared_with_their_prediction() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    policy.decide(&observation(2, 80.0, all));
    let faster = Observation { latency_mean_ns: Some(300.0), ..observation(3, 80.0, all) };
    let decision = policy.decide(&faster);
    assert_eq!(rule(&decision), Rule::MovesCompared);
    let told = decision.steps[0].to_string();
    assert!(told.contains("an access took 300 ns") && told.contains("before that 900 ns"), "{told}");
}
