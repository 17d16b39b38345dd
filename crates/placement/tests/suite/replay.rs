//! Replaying a decision log gives the same decisions.

use crate::support::*;
#[allow(dead_code, reason = "each test file uses its part")]
use machine::Pid;
use placement::{Again, Decision, LogLine, Observation, Outcome, Policy, Replay, Settings, State};

/// An agent's log of `auto+carrefour`: lines of JSON.
fn log() -> Vec<String> {
    let (name, settings) = ("auto+carrefour", Settings { seed: 5, ..Settings::default() });
    let mut policy = Policy::new(name.parse().unwrap(), &machine(), settings.clone()).unwrap();
    let mut lines = vec![LogLine::Begin {
        machine: Box::new(machine()),
        policy: policy.name().clone(),
        settings,
        state: Box::new(State::default()),
        dry_run: false,
    }];
    for pid in [7, 8] {
        let (process, thread) = (process(pid, 1.0), thread(pid, pid));
        let start = policy.admit(&process, &thread);
        lines.push(LogLine::Admitted { process, thread, start });
    }
    policy.forget(Pid(8));
    lines.push(LogLine::Ended { pid: Pid(8) });
    policy.executed(Pid(7));
    lines.push(LogLine::Executed { pid: Pid(7) });
    for round in 1..4 {
        let pages = (0..50).map(|number| page(number, 0, &[(1, 1 + number / 10), (2, round)])).collect();
        let mut observation = observation(round, traffic_to([200.0 / 3.0, 0.1, 0.2, 0.3]), pages);
        observation.threads = vec![thread(7, 7)];
        let decision = policy.decide(&observation);
        lines.push(LogLine::Round { observation: Box::new(observation), decision });
        let outcome = Outcome { round, operations: 20, ..Outcome::default() };
        policy.learn(&outcome);
        lines.push(LogLine::Learned { outcome });
    }
    lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
}

fn read(line: &str) -> LogLine {
    serde_json::from_str(line).unwrap()
}

#[test]
fn rounds_that_were_only_tried_out_are_so_again() {
    let log = log();
    let mut begin = read(&log[0]);
    let LogLine::Begin { dry_run, .. } = &mut begin else { panic!("{begin:?}") };
    *dry_run = true;
    let mut replay = Replay::from_first_line(&begin, None, None).unwrap().unwrap();
    let round = log[1..].iter().map(|line| read(line)).find(|line| matches!(line, LogLine::Round { .. })).unwrap();
    assert_eq!(replay.take(&round), replay.take(&round));
}

#[test]
fn a_log_is_decided_again_as_it_was() {
    let log = log();
    let mut replay = Replay::from_first_line(&read(&log[0]), None, None).unwrap().unwrap();
    let mut decisions = 0;
    for line in log[1..].iter().map(|line| read(line)) {
        match (replay.take(&line), line) {
            (Some(Again::Decision(again)), LogLine::Round { decision, .. }) => {
                assert_eq!(again, decision);
                assert!(!moves(&again).is_empty());
                decisions += 1;
            }
            (Some(Again::Start(again)), LogLine::Admitted { start, .. }) => assert_eq!(again, start),
            (None, LogLine::Ended { .. } | LogLine::Executed { .. } | LogLine::Learned { .. }) => {}
            (again, line) => panic!("{again:?} of {line:?}"),
        }
    }
    assert_eq!(decisions, 3);
}

#[test]
fn a_log_may_begin_in_the_middle_of_a_run() {
    let mut policy = policy("auto+carrefour");
    policy.admit(&process(7, 1.0), &thread(7, 8));
    let first =
        |number| Observation { threads: vec![thread(7, 8)], ..observation(number, remote(), vec![misplaced()]) };
    assert_eq!(moves(&policy.decide(&first(1))), [(1, 2)]);
    let begin = LogLine::Begin {
        machine: Box::new(machine()),
        policy: policy.name().clone(),
        settings: Settings::default(),
        state: Box::new(policy.state().clone()),
        dry_run: false,
    };
    let text = serde_json::to_string(&begin).unwrap();
    let mut replay = Replay::from_first_line(&read(&text), None, None).unwrap().unwrap();
    let observation = Box::new(first(2));
    let decision = policy.decide(&observation);
    let again = replay.take(&LogLine::Round { observation, decision: Decision::default() });
    assert_eq!(again, Some(Again::Decision(decision)));
}

#[test]
fn another_policy_decides_otherwise_and_other_lines_do_not_begin_a_log() {
    let log = log();
    let mut replay =
        Replay::from_first_line(&read(&log[0]), Some("interleave".parse().unwrap()), None).unwrap().unwrap();
    let Some(Again::Start(start)) = replay.take(&read(&log[1])) else { panic!("a process begins") };
    assert_eq!(start.memory.unwrap().to_string(), "interleave: 0-3");
    assert!(Replay::from_first_line(&read(&log[1]), None, None).is_none());
    assert!(Replay::from_first_line(&read(&log[0]), Some("bind:9".parse().unwrap()), None).unwrap().is_err());
}
