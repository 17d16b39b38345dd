//! What runs teach later ones under `predict`, and how these begin.

use crate::predict::{BYTES, MACHINE, NODES, all, observation, policy, quarters, rule};
use crate::support::{cpus, nodes};
use machine::{MemoryMode, MemoryPolicy, NodeId, Pid, Tid, presets};
use placement::*;

/// The policy that a program starts with.
fn start(policy: &mut Policy) -> Option<MemoryPolicy> {
    let process = Process::new(Pid(7), cpus("0-23"), nodes("0-3"));
    policy.admit(&process, &Thread::new(Pid(7), Tid(7))).memory
}

#[test]
fn a_program_spreads_its_start_over_the_nodes_of_its_cpus_unless_its_owner_or_a_run_before_said_otherwise() {
    let process = Process::new(Pid(7), cpus("0-23"), nodes("0-3"));
    let thread = Thread::new(Pid(7), Tid(7));
    let spread = |policy: &Policy, process: &Process, thread: &Thread| {
        policy.spread_start(process, thread).map(|nodes| nodes.to_string())
    };
    assert_eq!(spread(&policy(), &process, &thread).as_deref(), Some("0-3"));
    let bound = |cpus: &str| Thread { bound_to: Some(cpus.parse().unwrap()), ..thread.clone() };
    assert_eq!(spread(&policy(), &process, &bound("0,23")).as_deref(), Some("0,3"));
    assert_eq!(spread(&policy(), &process, &bound("0")), None, "one node");
    let narrow = Process::new(Pid(7), cpus("0-23"), nodes("2"));
    assert_eq!(spread(&policy(), &narrow, &thread), None);
    let owned = Process { memory_policy: Some(MemoryPolicy::plain(MemoryMode::Local)), ..process.clone() };
    assert_eq!(spread(&policy(), &owned, &thread), None);
    let mut taught = policy();
    taught.begin_with(Lesson::FirstTouch);
    assert_eq!(spread(&taught, &process, &thread), None);
    let machine = presets::find(MACHINE).unwrap();
    let mut off = Settings::default();
    off.thresholds.spread_start = 0;
    assert_eq!(spread(&Policy::new("predict".parse().unwrap(), &machine, off).unwrap(), &process, &thread), None);
    let other = Policy::new("carrefour".parse().unwrap(), &machine, Settings::default()).unwrap();
    assert_eq!(spread(&other, &process, &thread), None);
}

#[test]
fn a_run_teaches_the_next_one_to_begin_with_its_memory_spread() {
    let mut first = policy();
    assert_eq!((first.lesson(), start(&mut first)), (None, None));
    // Also where the program is too short for moves.
    let young = Observation { length_s: 0.01, ..observation(1, 80.0, all) };
    let traffic = young.traffic.iter().map(|pair| Traffic { accesses: pair.accesses / 100.0, ..*pair }).collect();
    assert_eq!(rule(&first.decide(&Observation { traffic, ..young })), Rule::MovingCostsMore);
    assert_eq!(first.lesson(), Some(Lesson::Spread));
    let mut second = policy();
    second.begin_with(Lesson::Spread);
    let MemoryPolicy { mode, nodes, weights, .. } = start(&mut second).unwrap();
    assert_eq!((mode, nodes.to_string().as_str(), weights.len()), (MemoryMode::WeightedInterleave, "0-3", 4));
    assert_eq!(second.lesson(), Some(Lesson::Spread), "until it learns otherwise");
    // Other policies have a start of their own.
    let mut other = Policy::new("first-touch".parse().unwrap(), &presets::find(MACHINE).unwrap(), Settings::default());
    let other = other.as_mut().unwrap();
    other.begin_with(Lesson::Spread);
    assert_eq!(start(other).unwrap().mode, MemoryMode::Local);
}

#[test]
fn a_lesson_that_was_wrong_is_replaced_and_not_learned_again() {
    let mut spread = policy();
    spread.begin_with(Lesson::Spread);
    // Each node uses a quarter, and it is on another one.
    let mut wrong = Observation { latency_mean_ns: Some(300.0), ..observation(1, 40.0, quarters) };
    // Threads that run wait for memory all the time.
    wrong.threads.iter_mut().for_each(|thread| thread.cpu_share = 0.5);
    wrong.pages.iter_mut().for_each(|page| page.node = NodeId((page.accesses[0].node.0 + 1) % NODES));
    wrong.traffic.iter_mut().for_each(|pair| pair.to = NodeId((pair.from.0 + 1) % NODES));
    wrong.ranges[0].bytes = (0..NODES).map(|node| NodeBytes { node: NodeId(node), bytes: BYTES / 4 }).collect();
    let decision = spread.decide(&wrong);
    assert_eq!(spread.lesson(), Some(Lesson::FirstTouch), "{decision:?}");
    let mut next = policy();
    next.begin_with(Lesson::FirstTouch);
    assert_eq!(start(&mut next), None);
    next.decide(&observation(1, 80.0, all));
    assert_eq!(next.lesson(), Some(Lesson::FirstTouch));
}

#[test]
fn moves_that_made_accesses_slower_teach_nothing() {
    let mut policy = policy();
    policy.decide(&observation(1, 80.0, all));
    assert_eq!(policy.lesson(), Some(Lesson::Spread));
    policy.decide(&observation(2, 80.0, all));
    let slower = Observation { latency_mean_ns: Some(1500.0), ..observation(3, 80.0, all) };
    assert_eq!(rule(&policy.decide(&slower)), Rule::MadeWorse);
    assert_eq!(policy.lesson(), None);
}

/// An eighth of the accesses are to a table that all use, the others to memory of their own nodes: to spread all of it would
/// make most accesses remote.
#[test]
fn a_small_part_that_is_better_spread_teaches_nothing_about_the_rest() {
    let mut seen = observation(1, 80.0, quarters);
    let table = 896;
    for (number, page) in (0..).zip(&mut seen.pages) {
        let is_table = number >= table;
        let user = if is_table { all(number) } else { (number / (table / 4)) as u32 };
        page.accesses[0].node = NodeId(user);
        page.node = NodeId(if is_table { 0 } else { user });
    }
    let pair = |from, to, accesses| Traffic { from: NodeId(from), to: NodeId(to), accesses };
    let own = (0..NODES).map(|node| pair(node, node, 20e6 * 7.0 / 8.0));
    seen.traffic = own.chain((0..NODES).map(|from| pair(from, 0, 20e6 / 8.0))).collect();
    let on = |node| NodeBytes { node: NodeId(node), bytes: BYTES * 7 / 32 };
    seen.ranges[0].bytes = (0..NODES).map(on).collect();
    seen.ranges[0].bytes[0].bytes += BYTES / 8;
    let mut policy = policy();
    let decision = policy.decide(&seen);
    assert_eq!(policy.lesson(), None, "{decision:?}");
}

/// Predicted was several times the speed, and nothing has become faster.
#[test]
fn moves_that_gained_little_teach_nothing() {
    let mut policy = policy();
    let rules = [1, 2, 3].map(|round| (rule(&policy.decide(&observation(round, 80.0, all))), policy.lesson()));
    let spread = Some(Lesson::Spread);
    assert_eq!(rules, [(Rule::FasterDealt, spread), (Rule::MovesSettle, spread), (Rule::GainedLittle, None)]);
    let later: Vec<_> = (4..40).map(|round| policy.decide(&observation(round, 80.0, all))).collect();
    assert_eq!(policy.lesson(), None, "{later:?}");
}

#[test]
fn a_program_begins_spread_over_the_nodes_of_its_cpus() {
    let process = Process::new(Pid(7), cpus("0-23"), nodes("0-3"));
    let bound_to = |cpus: &str| Thread { bound_to: Some(cpus.parse().unwrap()), ..Thread::new(Pid(7), Tid(7)) };
    let begun = |cpus: &str| {
        let mut policy = policy();
        policy.begin_with(Lesson::Spread);
        policy.admit(&process, &bound_to(cpus)).memory.map(|memory| memory.nodes.to_string())
    };
    assert_eq!(begun("0,23").as_deref(), Some("0,3"));
    assert_eq!(begun("0-5"), None, "all its CPUs are on one node");
    let mut balanced =
        Policy::new("balanced+predict".parse().unwrap(), &presets::find(MACHINE).unwrap(), Settings::default())
            .unwrap();
    balanced.begin_with(Lesson::Spread);
    let start = balanced.admit(&process, &Thread::new(Pid(7), Tid(7)));
    assert_eq!((start.cpus, start.memory), (Some(cpus("0-5")), None), "the policy has put it on one node");
}
