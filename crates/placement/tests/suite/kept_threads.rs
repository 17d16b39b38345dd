//! Threads that `predict` keeps near their memory.

use crate::predict::{BYTES, MACHINE, NODES, observation, policy, rule};
use crate::support::{cpus, nodes};
use machine::{NodeId, Pid, Tid, presets};
use placement::*;

/// Each thread uses memory of one node, most of them from another one, where the kernel has moved them.
fn scattered(round: u64, latency_ns: f64) -> Observation {
    let mut seen = observation(round, 80.0, |number| (number / 7 % 4) as u32);
    for (index, thread) in seen.threads.iter_mut().enumerate() {
        thread.accesses = vec![NodeAccesses { node: NodeId(index as u32 % 4), accesses: 80 }];
    }
    let traffic = |pair: u32| {
        let (from, to) = (NodeId(pair / NODES), NodeId(pair % NODES));
        Traffic { from, to, accesses: 80e6 / 16.0 }
    };
    seen.traffic = (0..NODES * NODES).map(traffic).collect();
    for (index, page) in seen.pages.iter_mut().enumerate() {
        page.node = NodeId(index as u32 % 4);
    }
    seen.ranges[0].bytes = (0..4).map(|node| NodeBytes { node: NodeId(node), bytes: BYTES / 4 }).collect();
    Observation { latency_mean_ns: Some(latency_ns), ..seen }
}

/// The CPUs that each thread gets.
fn kept(decision: &Decision) -> Vec<(u32, String)> {
    let moved = decision.steps.iter().map(|step| match &step.action {
        Action::MoveThread { tid, cpus, .. } => (tid.0, cpus.to_string()),
        other => panic!("{other:?}"),
    });
    moved.collect()
}

#[test]
fn threads_whose_memory_is_on_other_nodes_are_kept_there_except_the_first_one() {
    let mut policy = policy();
    let decision = policy.decide(&scattered(1, 160.0));
    assert_eq!(rule(&decision), Rule::KeptNear);
    // Thread 7 is the process's first.
    let expected = (8..31).map(|tid| (tid, ["0-5", "6-11", "12-17", "18-23"][(tid as usize - 7) % 4].to_owned()));
    assert_eq!(kept(&decision), expected.collect::<Vec<_>>());
    assert!(policy.watches_threads() && policy.is_prompt());
    let process = Process::new(Pid(7), cpus("0-23"), nodes("0-3"));
    let child = Process { pid: Pid(90), ..process.clone() };
    for (process, tid) in [(&process, 80), (&child, 90)] {
        let start = policy.admit(process, &Thread::new(process.pid, Tid(tid)));
        assert_eq!(start.cpus.unwrap().to_string(), "0-23", "what they make inherits their CPUs, and is freed");
    }
    assert_eq!(rule(&policy.decide(&scattered(2, 160.0))), Rule::MovesSettle);
    assert_eq!(rule(&policy.decide(&scattered(3, 110.0))), Rule::MovesCompared);
    assert_ne!(rule(&policy.decide(&scattered(4, 110.0))), Rule::KeptNear, "once");
    policy.executed(Pid(7));
    let decision = policy.decide(&scattered(5, 110.0));
    assert_eq!((rule(&decision), kept(&decision).len()), (Rule::ProgramChanged, 24), "another program, or phase");
    assert!(kept(&decision).iter().all(|(_, cpus)| cpus == "0-23"));
    assert!(policy.watches_threads(), "they may just have made threads");
    assert_eq!(rule(&policy.decide(&scattered(6, 110.0))), Rule::KeptNear);
}

#[test]
fn kept_threads_are_released_where_that_made_accesses_slower_or_they_wait_for_cpus() {
    let freed: Vec<(u32, String)> = (8..31).map(|tid| (tid, "0-23".to_owned())).collect();
    let mut slower = policy();
    slower.decide(&scattered(1, 160.0));
    slower.decide(&scattered(2, 160.0));
    let decision = slower.decide(&scattered(3, 250.0));
    assert_eq!((rule(&decision), kept(&decision)), (Rule::MadeWorse, freed.clone()));
    let mut crowded = policy();
    crowded.decide(&scattered(1, 160.0));
    let waiting = |round| {
        let mut seen = scattered(round, 160.0);
        seen.threads[5].waiting_share = 0.5;
        seen
    };
    assert_eq!(rule(&crowded.decide(&waiting(2))), Rule::MovesSettle, "once may be by chance");
    let decision = crowded.decide(&waiting(3));
    assert_eq!((rule(&decision), kept(&decision)), (Rule::ThreadsWait, freed.clone()));
    let later: Vec<Rule> = (4..90).map(|round| rule(&crowded.decide(&waiting(round)))).collect();
    let keeps = |rule: &Rule| *rule == Rule::KeptNear;
    let pauses: Vec<usize> = later.iter().enumerate().filter(|(_, rule)| keeps(rule)).map(|(at, _)| at).collect();
    assert_eq!(pauses, [15, 49], "after 16 rounds, and after 32");
    let mut bound = policy();
    bound.decide(&scattered(1, 160.0));
    let choose = |round| {
        let mut seen = waiting(round);
        seen.threads[5].bound_to = Some(cpus("0-5"));
        seen
    };
    bound.decide(&choose(2));
    let decision = bound.decide(&Observation { latency_mean_ns: Some(250.0), ..choose(3) });
    let others: Vec<_> = freed.into_iter().filter(|(tid, _)| *tid != 12).collect();
    assert_eq!((rule(&decision), kept(&decision)), (Rule::MadeWorse, others), "what its owner has bound stays");
}

#[test]
fn threads_are_not_kept_if_their_owner_chose_their_cpus_for_too_little_with_more_than_cpus_or_if_it_is_off() {
    let chosen = |change: &dyn Fn(&mut Observation)| {
        let mut seen = scattered(1, 160.0);
        change(&mut seen);
        rule(&policy().decide(&seen))
    };
    assert_eq!(chosen(&|_| ()), Rule::KeptNear);
    let bind = |seen: &mut Observation| seen.threads.iter_mut().for_each(|thread| thread.bound_to = Some(cpus("0-11")));
    assert_ne!(chosen(&bind), Rule::KeptNear);
    let many = |seen: &mut Observation| {
        let more = seen.threads[1..3].iter().cloned().map(|thread| Thread { tid: Tid(thread.tid.0 + 90), ..thread });
        seen.threads.extend(more.collect::<Vec<_>>());
    };
    assert_ne!(chosen(&many), Rule::KeptNear);
    let alike = |seen: &mut Observation| {
        for thread in &mut seen.threads {
            thread.accesses = (0..4).map(|node| NodeAccesses { node: NodeId(node), accesses: 20 }).collect();
        }
    };
    assert_ne!(chosen(&alike), Rule::KeptNear);
    let computing = |seen: &mut Observation| seen.traffic.iter_mut().for_each(|pair| pair.accesses /= 100.0);
    assert_ne!(chosen(&computing), Rule::KeptNear, "the gain is less than 1 % of the CPU time");
    for (name, keep_threads) in [("predict", 0), ("balanced+predict", 1)] {
        let thresholds = Thresholds { keep_threads, ..Thresholds::default() };
        let settings = Settings { thresholds, ..Settings::default() };
        let mut other = Policy::new(name.parse().unwrap(), &presets::find(MACHINE).unwrap(), settings).unwrap();
        assert!(
            other.decide(&scattered(1, 160.0)).steps.iter().all(|step| step.reason.rule != Rule::KeptNear),
            "{name}"
        );
    }
}
