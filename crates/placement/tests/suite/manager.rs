//! Claims 13 to 19, 23 and 37 to 40 of the NUMA manager's specification.

use crate::support::*;
#[allow(dead_code, reason = "each test file uses its part")]
use machine::{CpuId, Machine, MemoryMode, MemoryPolicy, NodeId, Pid, presets};
use placement::{
    Action, AddressRange, Decision, NodeBytes, Observation, Outcome, PageOf, Policy, Process, Quantity, Range, Rule,
    Settings, Thread,
};

/// Starts processes with one thread each, and returns their CPUs.
fn start(policy: &mut Policy, pids: impl IntoIterator<Item = u32>) -> Vec<String> {
    let start = |pid| policy.admit(&process(pid, 1.0), &thread(pid, pid));
    pids.into_iter().map(start).map(|start| start.cpus.unwrap_or_default().to_string()).collect()
}

/// A thread with this many last-level cache misses per thousand instructions.
fn missing(pid: u32, tid: u32, misses: u64) -> Thread {
    Thread { instructions: Some(1_000_000), cache_misses: Some(1000 * misses), ..thread(pid, tid) }
}

/// Two nodes of two cores with two CPUs each: 0-3 and 4-7; siblings are 0 and 1, 2 and 3, and so on.
fn siblings() -> Machine {
    let mut machine = presets::find("small-2x2").unwrap();
    machine.packages.clear();
    for (node, of_node) in machine.nodes.iter_mut().zip(["0-3", "4-7"]) {
        node.cpus = cpus(of_node);
    }
    machine.smt_cores = ["0-1", "2-3", "4-5", "6-7"].map(cpus).to_vec();
    machine
}

fn on_two_nodes(pid: u32) -> Process {
    Process { cpu_share: 1.0, ..Process::new(Pid(pid), cpus("0-7"), nodes("0-1")) }
}

#[test]
fn claim_13_interleaved_memory_alternates() {
    let mut policy = policy("interleave:0-1");
    assert_eq!(memory(&mut policy, 7), "interleave: 0-1");
    // Existing memory is interleaved too, once, when it is observed.
    let mut observation = observation(1, vec![], (0..9).map(|number| page(number, 3, &[(0, 1)])).collect());
    observation.processes[0].adopted = true;
    let dealt = moves(&policy.decide(&observation));
    assert_eq!(dealt, (0..9).map(|number| (number, (number % 2) as u32)).collect::<Vec<_>>());
    let there = dealt.into_iter().map(|(number, node)| page(number, node, &[(0, 1)])).collect();
    observation.pages = there;
    assert_eq!(actions(&policy.decide(&observation)), [&Action::Nothing]);
}

#[test]
fn claim_14_interleaved_mappings_do_not_migrate() {
    let decide = |policy: Option<MemoryPolicy>, respect_owner| {
        let settings = Settings { respect_owner, ..Settings::default() };
        let mut auto = Policy::new("auto".parse().unwrap(), &machine(), settings).unwrap();
        let mut observation = remote_process();
        observation.ranges[0].memory_policy = policy;
        auto.decide(&observation).steps.iter().any(|step| matches!(step.action, Action::MoveRanges { .. }))
    };
    let interleaved = || Some(MemoryPolicy::new(MemoryMode::Interleave, nodes("0-3")));
    let bound = || Some(MemoryPolicy::new(MemoryMode::Bind, nodes("3")));
    assert_eq!((decide(None, true), decide(interleaved(), true), decide(interleaved(), false)), (true, false, false));
    assert_eq!((decide(bound(), true), decide(bound(), false)), (false, true));
    let mut dealt = policy("auto+interleaved");
    assert_eq!(memory(&mut dealt, 7), "interleave: 0-3");
    assert!(dealt.decide(&remote_process()).steps.iter().all(|step| !matches!(step.action, Action::MoveRanges { .. })));
}

/// The agent only applies that of a program's first thread, which others inherit: Linux lets no process set the memory
/// policy of another's threads.
#[test]
fn claim_15_local_memory_is_on_the_node_of_the_thread() {
    let mut threads = policy("rr-threads+local");
    let nodes: Vec<String> =
        (0..5).map(|tid| threads.admit(&process(7, 1.0), &thread(7, tid)).memory.unwrap().to_string()).collect();
    assert_eq!(nodes, ["preferred: 0", "preferred: 0", "preferred: 0", "preferred: 0", "preferred: 1"]);
    let mut processes = policy("balanced+local");
    assert_eq!([7, 8, 9].map(|pid| memory(&mut processes, pid)), ["preferred: 0", "preferred: 1", "preferred: 2"]);
    assert_eq!(memory(&mut policy("local"), 7), "local");
    assert_eq!(memory(&mut policy("first-touch"), 7), "local");
}

#[test]
fn claim_16_remote_memory_is_far_and_default_is_the_programs() {
    // Node 3 is two hops from node 0, and node 2 from node 1.
    let mut remote = policy("balanced+remote");
    assert_eq!([7, 8].map(|pid| memory(&mut remote, pid)), ["preferred: 3", "preferred: 2"]);
    let on_cpu = Thread { cpu: Some(CpuId(13)), ..thread(7, 7) };
    let start = policy("remote").admit(&process(7, 1.0), &on_cpu);
    assert_eq!((start.cpus, start.memory.unwrap().to_string()), (None, "preferred: 0".to_owned()));
    assert_eq!(memory(&mut policy("balanced+default"), 7), "none");
}

/// Requested affinity is respected unless the settings say otherwise. No action changes priorities.
#[test]
fn claim_17_owners_affinity_is_respected_unless_told_otherwise() {
    let bound = Thread { bound_to: Some(cpus("3")), ..thread(7, 7) };
    for name in ["fixed", "rr-threads", "rr-tasks", "balanced", "auto", "bind:0"] {
        let admit = |respect_owner| {
            let settings = Settings { respect_owner, ..Settings::default() };
            let mut policy = Policy::new(name.parse().unwrap(), &machine(), settings).unwrap();
            policy.admit(&process(7, 1.0), &bound).cpus
        };
        assert_eq!(admit(true), None, "{name}");
        assert!(admit(false).is_some(), "{name}");
        let mut policy = policy(name);
        let decision = policy.decide(&round(1, vec![process(7, 1.0)], vec![bound.clone(), thread(7, 8)]));
        assert!(sent(&decision).iter().all(|(tid, ..)| *tid == 8), "{name}");
    }
}

#[test]
fn claim_18_threads_and_processes_take_turns() {
    let mut threads = policy("rr-threads");
    let each: Vec<String> =
        (0..18).map(|tid| threads.admit(&process(7, 1.0), &thread(7, tid)).cpus.unwrap().to_string()).collect();
    assert_eq!(each, (0..18).map(|tid| (tid % 16).to_string()).collect::<Vec<_>>());
    let mut tasks = policy("rr-tasks");
    assert_eq!(start(&mut tasks, 0..18), (0..18).map(|pid| (pid % 16).to_string()).collect::<Vec<_>>());
    assert_eq!(tasks.admit(&process(3, 1.0), &thread(3, 99)).cpus.unwrap(), cpus("3"), "all threads of a process");
    let mut balanced = policy("balanced");
    let four = ["0-3", "4-7", "8-11", "12-15"];
    assert_eq!(start(&mut balanced, 0..8), [four, four].concat());
    balanced.forget(Pid(1));
    balanced.forget(Pid(5));
    assert_eq!(start(&mut balanced, 20..22), ["4-7", "4-7"], "processes that have ended make room");
    assert_eq!(start(&mut policy("fixed:5"), 0..2), ["5", "5"]);
    assert_eq!(start(&mut policy("fixed"), 0..2), ["0", "0"]);
    assert_eq!(start(&mut policy("bind:1,3"), 0..2), ["4-7,12-15", "4-7,12-15"]);
}

#[test]
fn claim_18_who_is_missing_from_a_round_has_ended() {
    let mut balanced = policy("balanced");
    start(&mut balanced, 0..4);
    let left = [0, 2, 3].map(|pid| process(pid, 1.0)).to_vec();
    let threads = [0, 2, 3].map(|pid| thread(pid, pid)).to_vec();
    assert_eq!(actions(&balanced.decide(&round(1, left, threads))), [&Action::Nothing]);
    assert_eq!(start(&mut balanced, [9]), ["4-7"]);
}

#[test]
fn cpusets_are_kept_to() {
    let narrow = Process::new(Pid(7), cpus("5-6,9"), nodes("1"));
    let admit = |name| policy(name).admit(&narrow, &thread(7, 7));
    let each = [("fixed:1", "5"), ("rr-threads", "5"), ("rr-tasks", "5"), ("balanced", "5-6"), ("auto", "5")];
    for (name, wanted) in each {
        assert_eq!(admit(name).cpus.unwrap(), cpus(wanted), "{name}");
    }
    assert_eq!(admit("bind:0").cpus, None, "none of these CPUs is allowed");
    assert_eq!(admit("interleave").memory.unwrap().to_string(), "interleave: 1");
    assert_eq!(admit("bind:0").memory, None);
}

#[test]
fn processes_that_run_already_are_placed_when_they_are_seen() {
    let mut balanced = policy("balanced");
    let both = || vec![process(7, 1.0), process(8, 1.0)];
    let threads = || vec![thread(7, 7), thread(7, 70), thread(8, 8)];
    let first = balanced.decide(&round(1, both(), threads()));
    let rule = Rule::FewestProcesses;
    assert_eq!(sent(&first), [(7, "0-3".to_owned(), rule), (8, "4-7".to_owned(), rule)]);
    assert_eq!(sent(&balanced.decide(&round(2, both(), threads()))), [], "once");
    let more = [threads(), vec![thread(7, 71)]].concat();
    assert_eq!(
        sent(&balanced.decide(&round(3, both(), more))),
        [],
        "new threads have the CPUs of those that started them"
    );
}

#[test]
fn claim_19_siblings_are_taken_last() {
    let mut auto = policy_on("auto", &siblings());
    let mut admit = |pid, tid| {
        let start = auto.admit(&on_two_nodes(pid), &thread(pid, tid));
        (start.cpus.unwrap().to_string(), start.cpus_reason.unwrap().rule)
    };
    let placed: Vec<(String, Rule)> = (0..5).map(|tid| admit(7, tid)).collect();
    let rules: Vec<Rule> = placed.iter().map(|(_, rule)| *rule).collect();
    let at: Vec<&str> = placed.iter().map(|(cpus, _)| cpus.as_str()).collect();
    assert_eq!(at, ["0", "2", "1", "3", "0-3"]);
    assert_eq!(rules[..2], [Rule::FreeCore; 2]);
    assert_eq!(rules[2..], [Rule::FreeSibling, Rule::FreeSibling, Rule::NodeIsFull]);
    assert_eq!(admit(8, 80).0, "4", "the next process has the other node");
}

#[test]
fn threads_of_a_full_node_may_use_all_of_it() {
    let mut auto = policy("auto");
    let threads = |count| (0..count).map(|tid| Thread { cpu_share: 0.5, ..thread(7, tid) }).collect::<Vec<_>>();
    let own = sent(&auto.decide(&round(1, vec![process(7, 2.0)], threads(4))));
    assert_eq!(own.iter().map(|(_, cpus, _)| cpus.as_str()).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let full = sent(&auto.decide(&round(2, vec![process(7, 2.0)], threads(5))));
    assert!(full.len() == 5 && full.iter().all(|(_, cpus, rule)| cpus == "0-3" && *rule == Rule::NodeIsFull));
    assert_eq!(sent(&auto.decide(&round(3, vec![process(7, 2.0)], threads(5)))), []);
    let again = sent(&auto.decide(&round(4, vec![process(7, 2.0)], threads(3))));
    assert_eq!(again.iter().map(|(_, cpus, _)| cpus.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
}

#[test]
fn claim_23_thousands_of_processes_leave_nothing() {
    for name in ["rr-tasks", "balanced+local", "interleave", "auto", "thread-clustering+carrefour"] {
        let mut policy = policy(name);
        let fresh = serde_json::to_string(policy.state()).unwrap().len();
        for pid in 0..3000 {
            policy.admit(&process(pid, 1.0), &thread(pid, pid));
            let refused = vec![PageOf { pid: Pid(pid), address: 4096 }];
            policy.learn(&Outcome { round: 1, refused, ..Outcome::default() });
            policy.forget(Pid(pid));
        }
        policy.decide(&round(1, vec![], vec![]));
        assert!(serde_json::to_string(policy.state()).unwrap().len() < fresh + 10, "{name}");
    }
}

/// Two processes of each pressure on each node of machine A: homes are assigned in turn.
fn pressures(policy: &mut Policy, number: u64, misses: &[u64]) -> Vec<(u32, String, Rule)> {
    let pids = || (0..misses.len() as u32).map(|pid| pid + 1);
    let threads = pids().zip(misses).map(|(pid, misses)| missing(pid, pid, *misses)).collect();
    sent(&policy.decide(&round(number, pids().map(|pid| process(pid, 1.0)).collect(), threads)))
}

/// Homes are 0, 1, 2, 3, 0, 1, ...: the pressures alone determine which of 1 to 8 move.
#[test]
fn claim_37_at_most_one_process_moves_and_only_for_a_gap() {
    let mut auto = policy("auto");
    let quiet = [0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(pressures(&mut auto, 1, &quiet).len(), 8, "step 1 alone");
    assert_eq!(pressures(&mut auto, 2, &[3, 1, 1, 1, 1, 0, 0, 0]), [], "a gap of 3 is too small");
    let moved = pressures(&mut auto, 3, &[20, 1, 2, 9, 20, 1, 3, 9]);
    assert_eq!(moved.len(), 1);
    let (pid, at, rule) = &moved[0];
    assert_eq!((*pid, at.as_str(), *rule), (1, "6", Rule::CachePressure), "node 0 has 40, node 1 has 2");
}

#[test]
fn claim_37_the_reason_tells_the_gap_before_and_after() {
    let mut auto = policy("auto");
    pressures(&mut auto, 1, &[0; 8]);
    let threads = (1..=8).map(|pid| missing(pid, pid, if pid % 4 == 1 { 20 } else { 1 })).collect();
    let decision = auto.decide(&round(2, (1..=8).map(|pid| process(pid, 1.0)).collect(), threads));
    let reason = &decision.steps[0].reason;
    let [before, after] =
        [Quantity::CachePressureGap, Quantity::CachePressureGapAfter].map(|of| reason.value(of).unwrap());
    assert!((before - 38.0).abs() < 1e-9 && (after - 2.0).abs() < 1e-9, "{before} {after}");
}

#[test]
fn claim_38_whichever_node_is_hot() {
    for hot in 0..4 {
        let mut auto = policy("auto");
        pressures(&mut auto, 1, &[0; 8]);
        let misses: Vec<u64> = (0..8).map(|index| if index % 4 == hot { 20 } else { 1 + index % 4 }).collect();
        let moved = pressures(&mut auto, 2, &misses);
        assert_eq!(moved.len(), 1, "node {hot}");
        assert_eq!(u64::from(moved[0].0), hot + 1);
    }
}

#[test]
fn claim_37_a_process_that_moved_stays_for_some_rounds() {
    let mut auto = policy("auto");
    pressures(&mut auto, 1, &[0; 8]);
    assert_eq!(pressures(&mut auto, 2, &[20, 1, 1, 1, 20, 1, 1, 1])[0].0, 1);
    // Now all pressure is on its new node: without the limit it would go back at once.
    let back = |auto: &mut Policy, number| pressures(auto, number, &[20, 15, 1, 1, 0, 15, 1, 1]);
    let first: Vec<u32> = back(&mut auto, 3).iter().map(|(pid, ..)| *pid).collect();
    assert!(!first.contains(&1), "{first:?}");
}

/// A process whose home is node 0 and whose memory is on node 3.
fn remote_process() -> Observation {
    let mut observation = round(1, vec![process(7, 1.0)], vec![far_thread(7, 7, &[(0, 100), (3, 900)])]);
    observation.ranges = vec![Range {
        pid: Pid(7),
        start: 0x1000,
        end: 0x9000,
        bytes: vec![NodeBytes { node: NodeId(0), bytes: 0x1000 }, NodeBytes { node: NodeId(3), bytes: 0x7000 }],
        memory_policy: None,
        shared: None,
    }];
    observation
}

fn followed(decision: &Decision) -> Vec<(u32, Vec<AddressRange>, u64)> {
    let of = |action: &Action| match action {
        Action::MoveRanges { node, ranges, bytes, .. } => Some((node.0, ranges.clone(), *bytes)),
        _ => None,
    };
    actions(decision).into_iter().filter_map(of).collect()
}

#[test]
fn claim_39_memory_follows_only_where_remote_accesses_cost_enough() {
    let range = AddressRange { start: 0x1000, end: 0x9000 };
    assert_eq!(followed(&policy("auto").decide(&remote_process())), [(0, vec![range], 0x7000)]);
    assert_eq!(followed(&policy("auto-threads").decide(&remote_process())), []);
    assert_eq!(followed(&policy("balanced+local").decide(&remote_process())), []);
    // Node 3 costs 377 / 261 - 1 = 44 % more: 5 % are reached by 11.25 % of remote accesses.
    let with = |remote| {
        let mut observation = remote_process();
        observation.threads = vec![far_thread(7, 7, &[(0, 10_000 - remote), (3, remote)])];
        followed(&policy("auto").decide(&observation)).len()
    };
    assert_eq!((with(1120), with(1130)), (0, 1));
    let mut at_home = remote_process();
    at_home.ranges[0].bytes.truncate(1);
    assert_eq!(followed(&policy("auto").decide(&at_home)), []);
}

#[test]
fn claim_39_memory_follows_within_the_budget() {
    let with_budget = Observation { budget_bytes: Some(0x2000), ..remote_process() };
    assert_eq!(followed(&policy("auto").decide(&with_budget))[0].2, 0x2000);
    let none = Observation { budget_bytes: Some(0), ..remote_process() };
    assert_eq!(followed(&policy("auto").decide(&none)), []);
}

#[test]
fn claim_40_equal_processes_with_nothing_to_gain_stay() {
    let mut auto = policy_on("auto", &siblings());
    let one = |number| round(number, vec![on_two_nodes(7)], vec![missing(7, 7, 30)]);
    assert_eq!(sent(&auto.decide(&one(1))).len(), 1);
    assert_eq!(sent(&auto.decide(&one(2))), [], "the gap would only change sides");
    let both =
        |number| round(number, vec![on_two_nodes(7), on_two_nodes(8)], vec![missing(7, 7, 30), missing(8, 8, 30)]);
    auto.decide(&both(3));
    assert_eq!(sent(&auto.decide(&both(4))), []);
}

#[test]
fn a_process_that_wants_more_than_a_node_is_the_kernels() {
    let mut auto = policy("auto");
    let mut number = 0;
    // Eight threads on the four CPUs of a node.
    let mut with = |waiting| {
        number += 1;
        let thread = |tid| Thread { cpu_share: 0.4, waiting_share: waiting, ..missing(7, tid, 40) };
        sent(&auto.decide(&round(number, vec![process(7, 3.2)], (0..8).map(thread).collect())))
    };
    with(0.1);
    assert_eq!([with(0.15), with(0.5), with(0.1), with(0.5)], [const { vec![] }; 4], "a little more, or not for long");
    let freed = with(0.5);
    assert!(freed.len() == 8 && freed.iter().all(|(_, cpus, rule)| cpus == "0-15" && *rule == Rule::TooWide));
    assert_eq!([with(0.5), with(0.1), with(0.0)], [const { vec![] }; 3]);
    let back = with(0.0);
    assert!(
        back.len() == 8 && back.iter().all(|(_, cpus, rule)| cpus == "0-3" && *rule == Rule::NodeIsFull),
        "{back:?}"
    );
}
