//! `predict`: what it chooses, when that has become worth moving, and what it learns.

use crate::support::{cpus, nodes};
use machine::{CpuId, MemoryMode, MemoryPolicy, NodeId, Pid, Tid, presets};
use placement::*;
use proptest::prelude::*;

pub(crate) const MACHINE: &str = "opteron-6164x2";
const START: u64 = 0x7f00_0000_0000;
pub(crate) const BYTES: u64 = 64 << 20;
pub(crate) const NODES: u32 = 4;

pub(crate) fn policy() -> Policy {
    policy_with(false)
}

fn policy_with(shared: bool) -> Policy {
    let settings = Settings { shared, ..Settings::default() };
    Policy::new("predict".parse().unwrap(), &presets::find(MACHINE).unwrap(), settings).unwrap()
}

/// A second of a process with six threads on each node. `node_of` says who uses each of its 1,024 sampled pages, from
/// which node; all memory is on node 0.
pub(crate) fn observation(round: u64, accesses_per_us: f64, users: impl Fn(u64) -> u32) -> Observation {
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
        is_falsely_shared: false,
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
            shared: None,
        }],
        ..Observation::default()
    }
}

/// All nodes use all pages.
pub(crate) fn all(number: u64) -> u32 {
    (number % 4) as u32
}

/// Each node uses a quarter.
pub(crate) fn quarters(number: u64) -> u32 {
    (number / 256) as u32
}

pub(crate) fn rule(decision: &Decision) -> Rule {
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

/// As in a sort: the sum of the round is even.
#[test]
fn memory_that_all_use_node_by_node_is_dealt_to_all() {
    let mut observation = observation(1, 80.0, all);
    for (number, page) in (0..).zip(&mut observation.pages) {
        page.node = NodeId(quarters(number));
    }
    let nodes = || (0..NODES).map(NodeId);
    observation.ranges[0].bytes = nodes().map(|node| NodeBytes { node, bytes: BYTES / u64::from(NODES) }).collect();
    let pairs = nodes().flat_map(|from| nodes().map(move |to| Traffic { from, to, accesses: 5e6 }));
    observation.traffic = pairs.collect();
    assert_eq!(rule(&policy().decide(&observation)), Rule::NothingFaster);
    observation.slices = nodes().map(|node| vec![NodeAccesses { node, accesses: 512 }]).collect();
    let decision = policy().decide(&observation);
    let [Step { action: Action::DealRanges { .. }, reason }] = &decision.steps[..] else { panic!("{decision:?}") };
    let predicted = reason.value(Quantity::PredictedSpeedup).unwrap();
    assert!((2.0..4.5).contains(&predicted), "one controller of four at a time: {predicted}");
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

/// A square, in which node 3 is farther from node 0 than the others.
#[test]
fn memory_that_a_node_without_memory_uses_moves_to_the_nearest_node_that_has_some() {
    let mut machine = presets::find("opteron-8380x4").unwrap();
    machine.nodes[0].memory_bytes = 0;
    let mut seen = Observation { latency_mean_ns: Some(377.0), length_s: 10.0, ..observation(1, 5.0, |_| 0) };
    seen.pages.iter_mut().for_each(|page| page.node = NodeId(3));
    seen.ranges[0].bytes[0].node = NodeId(3);
    seen.traffic = vec![Traffic { from: NodeId(0), to: NodeId(3), accesses: 50e6 }];
    (seen.processes[0].cpus, seen.processes[0].cpu_share) = (cpus("0-3"), 4.0);
    seen.threads.truncate(4);
    let moved_to = |machine: &machine::Machine, allowed: &str| {
        let mut policy = Policy::new("predict".parse().unwrap(), machine, Settings::default()).unwrap();
        let mut seen = seen.clone();
        seen.processes[0].nodes = nodes(allowed);
        let decision = policy.decide(&seen);
        match &decision.steps[..] {
            [Step { action: Action::MoveRanges { node, bytes, .. }, .. }] => Some((node.0, *bytes)),
            _ => None,
        }
    };
    assert_eq!(moved_to(&machine, "1-3"), Some((1, BYTES)));
    assert_eq!(
        moved_to(&presets::find("opteron-8380x4").unwrap(), "2-3"),
        Some((2, BYTES)),
        "its cpuset denies node 0"
    );
    assert_eq!(moved_to(&machine, "3"), None, "it is there");
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

/// Rounds in which the policy wanted many samples, of these.
fn sampled(policy: &mut Policy, rounds: std::ops::Range<u64>, accesses_per_us: impl Fn(u64) -> f64) -> Vec<u64> {
    let is_sampled = |round: &u64| {
        let is_sampled = policy.sampling().divisor == 1;
        let seen = Observation { latency_mean_ns: Some(130.0), ..observation(*round, accesses_per_us(*round), all) };
        assert_eq!(rule(&policy.decide(&seen)), Rule::NothingFaster);
        is_sampled
    };
    rounds.filter(is_sampled).collect()
}

#[test]
fn choices_that_find_nothing_are_made_later_and_later_until_the_traffic_changes() {
    let mut policy = policy();
    assert_eq!(sampled(&mut policy, 1..100, |_| 0.5), [1, 2, 4, 8, 16, 32, 64, 96]);
    assert_eq!(sampled(&mut policy, 100..106, |_| 1.0), [101, 102, 104]);
}

#[test]
fn rounds_with_too_few_samples_are_followed_by_rounds_with_as_many_as_may_be_taken() {
    let mut policy = policy();
    for round in 1..40 {
        assert_eq!(policy.sampling().divisor, 1, "round {round}");
        let few =
            Observation { pages: observation(round, 7.0, all).pages[..100].to_vec(), ..observation(round, 7.0, all) };
        assert_eq!(rule(&policy.decide(&few)), Rule::FewSamples);
    }
    // Enough end the wait, whenever they come.
    let enough = Observation { latency_mean_ns: Some(130.0), ..observation(41, 7.0, all) };
    assert_eq!(rule(&policy.decide(&enough)), Rule::NothingFaster);
}

#[test]
fn choices_that_find_nothing_take_half_a_percent_of_the_time_and_rounds_between_them_may_be_joined() {
    let mut policy = policy();
    let mut sampled = Vec::new();
    for round in 1..100 {
        sampled.extend((policy.sampling().divisor == 1).then_some(round));
        let seen = Observation { latency_mean_ns: Some(130.0), own_s: 0.1, ..observation(round, 0.5, all) };
        assert_eq!(rule(&policy.decide(&seen)), Rule::NothingFaster);
        if round == 3 {
            assert_eq!(policy.idle_rounds(), 17);
        }
    }
    // The second round is sampled before it is known what the first choice took, and nothing is chosen then.
    assert_eq!(sampled, [1, 2, 21, 41, 61, 81]);
    // Also where memory stays as several processes map it.
    let mut policy = self::policy();
    for round in 1..4 {
        let seen = Observation { own_s: 0.1, ..shared(round, 0) };
        assert_eq!(rule(&policy.decide(&seen)), Rule::OfSeveralProcesses);
    }
    assert_eq!(policy.idle_rounds(), 17);
    // Joined rounds count as what they are.
    let mut joined = self::policy();
    for (round, length_s) in [(1, 1.0), (3, 2.0), (5, 2.0)] {
        let seen = Observation { latency_mean_ns: Some(130.0), own_s: 0.1, length_s, ..observation(round, 0.5, all) };
        joined.decide(&seen);
    }
    assert_eq!(joined.idle_rounds(), 1 + 20 - 5 - 1);
    let mut judged = self::policy();
    judged.decide(&observation(1, 80.0, all));
    assert_eq!(judged.idle_rounds(), 1, "moves settle");
}

#[test]
fn the_next_choice_is_made_when_moving_will_have_paid() {
    let mut policy = policy();
    let short = |round| {
        let observed = observation(round, 80.0, all);
        let traffic =
            observed.traffic.iter().map(|pair| Traffic { accesses: pair.accesses / 100.0, ..*pair }).collect();
        Observation { traffic, length_s: 0.01, ..observed }
    };
    let mut chosen = Vec::new();
    let moved = (1..100).find(|&round| {
        chosen.extend((policy.sampling().divisor == 1).then_some(round));
        rule(&policy.decide(&short(round))) == Rule::FasterDealt
    });
    // Moving takes 80 ms; each round of 10 ms would have saved 7 ms.
    assert_eq!((chosen, moved), (vec![1, 12], Some(12)));
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
    let of_several = policy().decide(&self::shared(1, 0));
    assert_eq!(rule(&of_several), Rule::OfSeveralProcesses);
}

/// Two processes map the same memory, the second of them this far from where the first has it; each page is sampled in one
/// of them.
fn shared(round: u64, apart: u64) -> Observation {
    let mut seen = observation(round, 80.0, all);
    let second = Process { pid: Pid(8), cpu_share: 12.0, ..seen.processes[0].clone() };
    seen.processes[0].cpu_share = 12.0;
    seen.processes.push(second);
    let memory = SharedMemory { device: 1, inode: 5, offset: 0x3000 };
    seen.ranges[0].shared = Some(memory);
    let (start, end) = (START + apart, START + BYTES + apart);
    let less = vec![NodeBytes { node: NodeId(0), bytes: BYTES / 2 }];
    seen.ranges.push(Range { pid: Pid(8), start, end, bytes: less, ..seen.ranges[0].clone() });
    for page in seen.pages.iter_mut().step_by(3) {
        (page.pid, page.address) = (Pid(8), page.address + apart);
    }
    for thread in seen.threads.iter_mut().skip(12) {
        thread.pid = Pid(8);
    }
    seen
}

#[test]
fn shared_memory_has_one_decision_which_all_carry_out_that_have_it_at_the_same_addresses() {
    let decided = |apart| {
        let steps = policy_with(true).decide(&shared(1, apart)).steps;
        let dealt = steps.iter().map(|step| match &step.action {
            Action::DealRanges { pid, ranges, bytes, weights, .. } => (*pid, ranges.clone(), *bytes, weights.clone()),
            other => panic!("{other:?}"),
        });
        dealt.collect::<Vec<_>>()
    };
    let whole = vec![AddressRange { start: START, end: START + BYTES }];
    let same = decided(0);
    assert_eq!(same.iter().map(|(pid, ..)| pid.0).collect::<Vec<_>>(), [7, 8]);
    assert!(
        same.iter().all(|(_, ranges, bytes, weights)| *ranges == whole && (*bytes, weights) == (same[0].2, &same[0].3))
    );
    assert!(same[0].2.abs_diff(BYTES * 3 / 4) < BYTES / 100, "it is counted once: {}", same[0].2);
    let elsewhere = decided(0x1000);
    assert_eq!(elsewhere[..], same[..1], "samples of the second process count for the first, which has most of it");
}

/// A half of the memory lies at higher addresses, and is used eight times as much as the other one.
fn hot_and_cold(round: u64) -> Observation {
    let mut seen = observation(round, 80.0, all);
    for page in seen.pages.iter_mut().skip(512) {
        page.address += BYTES;
        page.accesses.iter_mut().for_each(|by| by.accesses *= 8);
    }
    let bytes = vec![NodeBytes { node: NodeId(0), bytes: BYTES / 2 }];
    let cold = Range { end: START + BYTES / 2, bytes, ..seen.ranges[0].clone() };
    let hot = Range { start: START + BYTES / 2 + BYTES, end: START + 2 * BYTES, ..cold.clone() };
    seen.ranges = vec![cold, hot];
    seen
}

#[test]
fn the_hottest_memory_moves_first() {
    let decision = policy().decide(&hot_and_cold(1));
    let [Step { action: Action::DealRanges { ranges, .. }, .. }] = &decision.steps[..] else { panic!("{decision:?}") };
    assert_eq!(ranges.iter().map(|range| range.start).collect::<Vec<_>>(), [START + BYTES / 2 + BYTES, START]);
}

/// Moving is 50 times slower than was thought: it ends when what was saved is used up, and what is left has to be paid for
/// anew.
#[test]
fn moves_take_no_longer_than_what_they_are_paid_with() {
    let mut policy = policy();
    let decision = policy.decide(&observation(1, 80.0, all));
    let [Step { action: Action::DealRanges { most_s: Some(most_s), .. }, reason }] = &decision.steps[..] else {
        panic!("{decision:?}")
    };
    assert!((most_s * 1e3 / reason.value(Quantity::SavedMs).unwrap() - 1.0).abs() < 1e-9, "{decision:?}");
    let outcome = Outcome { round: 1, moving_s: *most_s, bytes_moved: 8 << 20, ..Outcome::default() };
    policy.learn(&Outcome { out_of_time: true, ..outcome });
    let rules = [2, 3].map(|round| rule(&policy.decide(&observation(round, 80.0, all))));
    assert_eq!(rules, [Rule::MovesSettle, Rule::MovesCompared], "nothing was forecast of a part");
    let next = policy.decide(&observation(4, 80.0, all));
    assert_eq!(rule(&next), Rule::MovingCostsMore, "{next:?}");
    assert!(next.steps[0].reason.value(Quantity::MoveMs) > reason.value(Quantity::MoveMs).map(|ms| 2.0 * ms));
}

/// The kernel refuses all of it, or its owner has just placed it.
#[test]
fn moves_that_were_not_made_are_not_judged() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    policy.learn(&Outcome { round: 1, moving_s: 0.05, ..Outcome::default() });
    let next = rule(&policy.decide(&observation(2, 80.0, all)));
    assert!(next != Rule::MovesSettle && policy.state() != &State::default(), "{next:?}");
}

#[test]
fn moves_that_made_accesses_slower_are_taken_back_and_not_repeated_at_once() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    policy.learn(&Outcome { round: 1, moving_s: 0.05, bytes_moved: BYTES, ..Outcome::default() });
    assert_eq!(rule(&policy.decide(&observation(2, 80.0, all))), Rule::MovesSettle);
    let slower = Observation { latency_mean_ns: Some(1500.0), ..observation(3, 80.0, all) };
    let decision = policy.decide(&slower);
    let [Step { action: Action::MoveRanges { node: NodeId(0), bytes, .. }, reason }] = &decision.steps[..] else {
        panic!("{decision:?}")
    };
    assert_eq!((*bytes, reason.rule), (BYTES, Rule::MadeWorse));
    assert_eq!(rule(&policy.decide(&observation(4, 80.0, all))), Rule::Resting);
}

/// A serial beginning, whose memory has moved to its node, is followed by threads on all nodes.
#[test]
fn moves_are_not_judged_by_the_accesses_of_another_phase() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    policy.decide(&observation(2, 80.0, all));
    let mut serial = Observation { latency_mean_ns: Some(1500.0), ..observation(3, 80.0, |_| 0) };
    serial.traffic.retain(|pair| pair.from == NodeId(0));
    let decision = policy.decide(&serial);
    assert!(![Rule::MadeWorse, Rule::MovesCompared].contains(&rule(&decision)), "{decision:?}");
    assert_ne!(rule(&policy.decide(&observation(4, 80.0, all))), Rule::Resting);
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
    assert_ne!(rule(&policy.decide(&observation(4, 80.0, all))), Rule::Resting);
}

#[test]
fn moves_that_gained_far_less_than_predicted_are_kept_and_followed_by_longer_and_longer_rests() {
    let mut policy = policy();
    let mut decided = |round| rule(&policy.decide(&observation(round, 80.0, all)));
    let rules: Vec<Rule> = (1..14).map(&mut decided).collect();
    let moved = [Rule::FasterDealt, Rule::MovesSettle, Rule::GainedLittle];
    assert_eq!(rules[..3], moved);
    assert_eq!(rules[3..6], [Rule::Resting; 3]);
    let again = rules.iter().rposition(|rule| *rule == Rule::FasterDealt).unwrap();
    assert!(again >= 6 && rules[again..again + 3] == moved, "{rules:?}");
    assert!(rules[again + 3..].len() >= 4 && rules[again + 3..].iter().all(|rule| *rule == Rule::Resting), "{rules:?}");
}

#[test]
fn memory_goes_to_nodes_with_room_only_and_within_the_budget() {
    let mut full = observation(1, 80.0, all);
    let memory = |node: u32| NodeMemory {
        node: NodeId(node),
        total_bytes: 1 << 30,
        free_bytes: if node == 2 { 1 << 20 } else { 1 << 29 },
    };
    full.memory = (0..NODES).map(memory).collect();
    let nodes_of = |decision: &Decision| match &decision.steps[0].action {
        Action::DealRanges { weights, bytes, .. } => (weights.iter().map(|by| by.node.0).collect(), *bytes),
        other => panic!("{other:?}"),
    };
    let (nodes, bytes): (Vec<u32>, u64) = nodes_of(&policy().decide(&full));
    assert_eq!((nodes, bytes), (vec![0, 1, 3], BYTES / 2));
    let budget = Observation { budget_bytes: Some(1 << 20), ..observation(1, 80.0, all) };
    let (_, bytes) = nodes_of(&policy().decide(&budget));
    assert!(bytes <= 1 << 20, "{bytes}");
    full.memory.iter_mut().skip(1).for_each(|memory| memory.free_bytes = 1 << 20);
    assert_eq!(rule(&policy().decide(&full)), Rule::NoRoom, "one node of four would have all of it");
}

#[test]
fn nodes_without_room_for_one_process_do_not_delay_the_choice_when_moves_of_another_are_paid() {
    let full = |seen: Observation| {
        let free_bytes = |node: u32| if node == 0 { 1 << 29 } else { 1 << 20 };
        let memory = |node| NodeMemory { node: NodeId(node), total_bytes: 1 << 30, free_bytes: free_bytes(node) };
        Observation { memory: (0..NODES).map(memory).collect(), ..seen }
    };
    let mut policy = policy();
    assert_eq!(rule(&policy.decide(&full(observation(1, 80.0, all)))), Rule::NoRoom);
    // The hotter part is of another process, which has just begun.
    let mut seen = Observation { length_s: 0.01, ..full(hot_and_cold(2)) };
    seen.traffic.iter_mut().for_each(|pair| pair.accesses /= 100.0);
    seen.processes.push(Process { pid: Pid(8), cpu_share: 12.0, ..seen.processes[0].clone() });
    seen.processes[0].cpu_share = 12.0;
    seen.ranges[1].pid = Pid(8);
    seen.pages.iter_mut().skip(512).for_each(|page| page.pid = Pid(8));
    seen.threads.iter_mut().skip(12).for_each(|thread| thread.pid = Pid(8));
    let decision = policy.decide(&seen);
    let reason = &decision.steps[0].reason;
    assert_eq!(reason.rule, Rule::MovingCostsMore, "{decision:?}");
    let left_ms = reason.value(Quantity::MoveMs).unwrap() - reason.value(Quantity::SavedMs).unwrap();
    // It saves less than all of its time, of rounds of 10 ms.
    assert!(policy.idle_rounds() as f64 >= (left_ms / 10.0).floor(), "{} {decision:?}", policy.idle_rounds());
    assert!(left_ms > 20.0, "{decision:?}");
}

#[test]
fn another_program_is_not_judged_by_the_moves_of_the_one_before() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    policy.executed(Pid(7));
    let slower = Observation { latency_mean_ns: Some(1500.0), ..observation(2, 80.0, all) };
    let first = policy.decide(&slower);
    assert!(matches!(first.steps[0].action, Action::DealRanges { .. }), "{first:?}");
    let mut ended = observation(3, 80.0, all);
    ended.processes[0].pid = Pid(8);
    assert_ne!(rule(&policy.decide(&ended)), Rule::MovesSettle);
}

#[test]
fn rests_become_longer_and_predictions_are_trusted_less() {
    let mut policy = policy();
    let mut round = 0;
    let mut predicted = Vec::new();
    let mut rests = Vec::new();
    for _ in 0..3 {
        let moved = loop {
            round += 1;
            let decision = policy.decide(&observation(round, 80.0, all));
            if rule(&decision) == Rule::FasterDealt {
                break decision;
            }
        };
        predicted.push(moved.steps[0].reason.value(Quantity::PredictedSpeedup).unwrap());
        policy.decide(&observation(round + 1, 80.0, all));
        let slower = Observation { latency_mean_ns: Some(1500.0), ..observation(round + 2, 80.0, all) };
        assert_eq!(rule(&policy.decide(&slower)), Rule::MadeWorse);
        round += 2;
        let rest = policy.decide(&observation(round + 1, 80.0, all));
        rests.push(rest.steps[0].reason.value(Quantity::Rounds).unwrap());
        round += 1;
    }
    assert!(predicted.windows(2).all(|pair| pair[1] < pair[0]), "{predicted:?}");
    assert_eq!(rests, [3.0, 7.0, 15.0]);
}

proptest! {
    /// Whatever is observed: no panic, allowed nodes, finite numbers, the same decision again.
    #[test]
    fn any_observation_has_a_sound_decision(
        rounds in prop::collection::vec(
            (0.0..1e12_f64, prop::sample::select(vec![0.0, 1e-9, 1.0, f64::NAN, f64::INFINITY]), any::<u64>(),
             prop::sample::select(vec![Tells::Accesses, Tells::Uses, Tells::Counts]), any::<bool>(),
             prop::collection::vec((any::<u64>(), 0..6_u32, 0..6_u32, 1..5_000_u64), 0..40),
             prop::collection::vec((7..10_u32, any::<u64>(), any::<u64>(), 0..6_u32, any::<u64>(), 0..2_u64), 0..6)),
            1..4,
        ),
        shared: bool,
        waiting_share in prop::sample::select(vec![0.0, 0.5, f64::NAN]),
    ) {
        let (mut one, mut other) = (policy_with(shared), policy_with(shared));
        for (number, (accesses, length_s, moved, tells, is_counted, pages, ranges)) in rounds.into_iter().enumerate() {
            let mut observation = observation(number as u64 * 3, 80.0, all);
            observation.processes[0].nodes = nodes("0-1");
            for (pid, allowed) in [(8, "0-1"), (9, "1")] {
                let process = Process { pid: Pid(pid), nodes: nodes(allowed), ..observation.processes[0].clone() };
                observation.processes.push(process);
            }
            observation.length_s = if number == 0 { length_s } else { 1.0 };
            observation.traffic[0].accesses = accesses;
            observation.tells = tells;
            if !is_counted {
                (observation.traffic, observation.latency_mean_ns) = (Vec::new(), None);
            }
            for (thread, (_, node, _, accesses)) in observation.threads.iter_mut().zip(&pages) {
                thread.accesses = vec![NodeAccesses { node: NodeId(*node), accesses: *accesses }];
                thread.waiting_share = waiting_share;
            }
            for (page, (address, node, from, accesses)) in observation.pages.iter_mut().zip(pages) {
                (page.address, page.node) = (address, NodeId(node));
                page.accesses = std::iter::once(NodeAccesses { node: NodeId(from), accesses }).collect();
            }
            observation.ranges.extend(ranges.into_iter().map(|(pid, start, end, node, bytes, inode)| Range {
                pid: Pid(pid),
                start,
                end,
                bytes: vec![NodeBytes { node: NodeId(node), bytes }],
                memory_policy: None,
                shared: start.is_multiple_of(2).then_some(SharedMemory { device: 1, inode, offset: bytes }),
            }));
            let decision = one.decide(&observation);
            prop_assert_eq!(format!("{decision:?}"), format!("{:?}", other.decide(&observation)));
            for Step { action, reason } in &decision.steps {
                prop_assert!(reason.facts.iter().all(|fact| fact.value.is_finite()), "{reason}");
                let is_last = action.pid() == Some(Pid(9));
                let is_allowed = |node: NodeId| node.0 == 1 || node.0 == 0 && !is_last;
                prop_assert!(action.fills().iter().all(|(node, _)| is_allowed(*node)), "{action}");
            }
            let outcome = Outcome { round: decision.round, moving_s: moved as f64, ..Outcome::default() };
            one.learn(&outcome);
            other.learn(&outcome);
        }
    }
}

/// The same second, as a source without latencies and counters tells it.
fn without_counts(observation: Observation) -> Observation {
    let tells = Tells::Uses;
    Observation { traffic: Vec::new(), latency_mean_ns: None, latency_error_ns: None, tells, ..observation }
}

#[test]
fn a_process_s_time_is_that_of_its_threads_where_theirs_is_not_read() {
    let speedup = |share: f64, own: bool, accesses_per_us: f64| {
        let mut seen = Observation { latency_mean_ns: Some(150.0), ..observation(1, accesses_per_us, all) };
        seen.processes[0].cpu_share = share;
        seen.threads.iter_mut().for_each(|thread| thread.cpu_share = if own { share / 24.0 } else { 0.0 });
        policy().decide(&seen).steps[0].reason.value(Quantity::PredictedSpeedup).unwrap()
    };
    for (share, accesses_per_us) in [(24.0, 40.0), (24.0, 4.0), (6.0, 4.0)] {
        let (read, shared) = (speedup(share, true, accesses_per_us), speedup(share, false, accesses_per_us));
        assert!((read / shared - 1.0).abs() < 1e-9, "{read} {shared}");
    }
    // 24 threads with 4 accesses of 150 ns in a microsecond wait for a fortieth of their time.
    let (few, many) = (speedup(24.0, false, 4.0), speedup(24.0, false, 80.0));
    assert!(few < 1.01 && many > 1.03, "{few} {many}");
}

#[test]
fn hint_faults_alone_move_what_is_clearly_wrong_and_then_nothing_for_some_rounds() {
    let mut policy = policy();
    let decision = policy.decide(&without_counts(observation(1, 0.0, all)));
    assert!(matches!(decision.steps[..], [Step { action: Action::DealRanges { .. }, .. }]), "{decision:#?}");
    let predicted = decision.steps[0].reason.value(Quantity::PredictedSpeedup).unwrap();
    assert!((1.1..1.4).contains(&predicted), "a quarter of what the model predicts: {predicted}");
    let rules: Vec<Rule> =
        (2..10).map(|round| rule(&policy.decide(&without_counts(observation(round, 0.0, all))))).collect();
    let rest = [Rule::Resting; 3];
    assert_eq!(rules[..6], [&[Rule::MovesSettle, Rule::GainUnknown][..], &rest, &[Rule::FasterDealt]].concat());
    // Hint faults come in bursts: those of a round in which the policy waits for samples are used.
    let mut waiting = self::policy();
    let burst = |round| without_counts(observation(round, 0.0, all));
    let between = |round| Observation { pages: Vec::new(), ..burst(round) };
    let rules: Vec<Rule> = (1..7).map(|round| rule(&waiting.decide(&between(round)))).collect();
    assert_eq!(rules, [Rule::FewSamples; 6]);
    let few = waiting.needs_ranges(7, 255).is_some();
    assert!(!few && waiting.needs_ranges(7, 2048).is_some());
    assert_eq!(rule(&waiting.decide(&burst(7))), Rule::FasterDealt);
    // Memory is where threads use it.
    let near = Observation { pages: vec![], ..observation(1, 0.0, quarters) };
    let pages = observation(1, 0.0, quarters).pages.into_iter();
    let pages = pages.map(|page| Page { node: page.accesses[0].node, ..page }).collect();
    assert_eq!(rule(&self::policy().decide(&without_counts(Observation { pages, ..near }))), Rule::NothingFaster);
}

#[test]
fn counters_alone_place_whole_mappings_and_compare_what_accesses_cost_since() {
    let mut policy = policy();
    let counted = |round, on: u32| {
        let seen = observation(round, 80.0, all);
        let traffic = seen.traffic.iter().flat_map(|pair| {
            let part = move |to| Traffic { to: NodeId(to), accesses: pair.accesses / f64::from(on), ..*pair };
            (0..on).map(part)
        });
        let load = |node| ControllerLoad { node: NodeId(node), utilisation: 0.9 / f64::from(on) };
        let traffic = traffic.collect();
        let controllers = (0..on).map(load).collect();
        let ranges = vec![Range {
            bytes: (0..on).map(|node| NodeBytes { node: NodeId(node), bytes: BYTES / u64::from(on) }).collect(),
            ..seen.ranges[0].clone()
        }];
        let unsampled = Observation { pages: Vec::new(), latency_mean_ns: None, latency_error_ns: None, ..seen };
        Observation { traffic, controllers, ranges, tells: Tells::Counts, ..unsampled }
    };
    let decision = policy.decide(&counted(1, 1));
    let [Step { action: Action::DealRanges { ranges, .. }, .. }] = &decision.steps[..] else { panic!("{decision:#?}") };
    assert_eq!(ranges[..], [AddressRange { start: START, end: START + BYTES }]);
    assert_eq!(rule(&policy.decide(&counted(2, 4))), Rule::MovesSettle);
    assert_eq!(rule(&policy.decide(&counted(3, 4))), Rule::MovesCompared);
    assert_eq!(rule(&policy.decide(&counted(4, 4))), Rule::NothingFaster);
    // Moves are not judged by the traffic of other threads: what was parallel is serial now.
    let mut other = self::policy();
    let of_one_node = |round| {
        let traffic = (0..NODES).map(|to| Traffic { from: NodeId(0), to: NodeId(to), accesses: 20e6 }).collect();
        Observation { traffic, ..counted(round, 4) }
    };
    other.decide(&counted(1, 1));
    other.decide(&of_one_node(2));
    assert!(![Rule::MovesCompared, Rule::MadeWorse].contains(&rule(&other.decide(&of_one_node(3)))));
    // What caches serve is no traffic.
    let cached = Observation { tells: Tells::Accesses, ..without_counts(observation(1, 0.0, all)) };
    assert_eq!(rule(&self::policy().decide(&cached)), Rule::NoTraffic);
    let neither = Observation { traffic: Vec::new(), ..counted(1, 1) };
    assert_eq!(rule(&self::policy().decide(&neither)), Rule::NoTraffic);
    let unread = Observation { ranges: Vec::new(), ..counted(1, 1) };
    assert_eq!(rule(&self::policy().decide(&unread)), Rule::MappingsNotRead);
}
