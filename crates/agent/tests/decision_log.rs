//! The decision log of a running agent, on this host.

use agent::{Agent, Journal, Options};
use linux::Pid;
use machine::{CpuId, Machine, Node, NodeId};
use observe::{AccessSource, Target};
use placement::{Again, LogLine, Replay, Rule};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest log, bytes: some dozens of rounds.
const LIMIT: u64 = 100_000;

/// The machine of this host, with its first node's CPUs on two nodes, so that there is something to decide.
fn two_nodes() -> Machine {
    let mut machine = Machine::from_sysfs(Path::new("/sys")).unwrap();
    let mut first = machine.nodes[0].clone();
    let cpus: Vec<CpuId> = first.cpus.iter().collect();
    let (near, far) = cpus.split_at(cpus.len().div_ceil(2));
    let second = Node { id: NodeId(first.id.0 + 1), cpus: far.iter().copied().collect(), ..first.clone() };
    first.cpus = near.iter().copied().collect();
    machine.nodes = vec![first, second];
    (machine.distances, machine.latency, machine.packages) = (None, None, Vec::new());
    machine.links.clear();
    machine
}

/// The numbers of rounds and of placed threads in a log, and whether a replay decides the same.
fn replayed(path: &Path) -> (usize, usize, bool) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<LogLine>(line).unwrap());
    let mut replay = Replay::from_first_line(&lines.next().unwrap(), None, None).unwrap().unwrap();
    let (mut rounds, mut starts, mut same) = (0, 0, true);
    for line in lines {
        match (&line, replay.take(&line)) {
            (LogLine::Round { decision, .. }, Some(Again::Decision(now))) => {
                rounds += 1;
                same &= *decision == now;
                assert!(decision.steps.iter().all(|step| step.reason.rule != Rule::OneNode), "{decision:?}");
            }
            (LogLine::Admitted { start, .. }, Some(Again::Start(now))) => {
                starts += usize::from(start.cpus.is_some());
                same &= *start == now;
            }
            _ => {}
        }
    }
    (rounds, starts, same)
}

#[test]
fn a_long_log_is_kept_once_and_each_part_is_decided_again_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let machine = two_nodes();
    let (journal, _) = Journal::open(&path("journal"), "test").unwrap();
    // Each of its children is placed, and its end is logged.
    let mut child = Command::new("sh").args(["-c", "while :; do sleep 0.02; done"]).spawn().unwrap();
    let options = Options {
        target: Target::Pids(vec![Pid(child.id())]),
        source: AccessSource::None,
        round: Duration::from_millis(2),
        log: Some(path("log")),
        log_most_bytes: Some(LIMIT),
        keep_kernel_balancing: true,
        ..Options::new("auto".parse().unwrap())
    };
    let mut agent = Agent::open(&machine, journal, options).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let mut rotations = 0;
    let mut kept = 0;
    // The second kept log replaces the first.
    while rotations < 2 {
        assert!(Instant::now() < end, "the log was kept {rotations} times");
        sleep(agent.until_next());
        agent.poll().unwrap();
        let now = fs::metadata(path("log.1")).map_or(0, |log| log.len());
        rotations += u64::from(std::mem::replace(&mut kept, now) != now);
    }
    // The last log has rounds of its own.
    while !(LIMIT / 2..LIMIT).contains(&fs::metadata(path("log")).unwrap().len()) {
        assert!(Instant::now() < end, "the last log is never half full");
        sleep(agent.until_next());
        agent.poll().unwrap();
    }
    agent.finish(None).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let (before, now) = (replayed(&path("log.1")), replayed(&path("log")));
    assert!(before.0 > 2 && now.0 > 2 && before.2 && now.2, "{before:?} {now:?}");
    assert!(before.1 + now.1 > 0, "no process was placed: {before:?} {now:?}");
    assert!(kept > LIMIT && kept < 2 * LIMIT, "{kept} bytes");
}
