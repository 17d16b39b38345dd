//! The decision log of a running agent, on this host.

use agent::{Agent, Journal, Options};
use linux::Pid;
use machine::Machine;
use placement::{Again, LogLine, Replay};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use trace::live::{AccessSource, Target};

/// The number of rounds in a log, and whether a replay decides the same.
fn replayed(path: &Path) -> (usize, bool) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<LogLine>(line).unwrap());
    let mut replay = Replay::from_first_line(&lines.next().unwrap(), None, None).unwrap().unwrap();
    let (mut rounds, mut same) = (0, true);
    for line in lines {
        let again = replay.take(&line);
        if let (LogLine::Round { decision, .. }, Some(Again::Decision(now))) = (&line, again) {
            rounds += 1;
            same &= *decision == now;
        }
    }
    (rounds, same)
}

#[test]
fn a_long_log_is_kept_once_and_each_part_is_decided_again_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let machine = Machine::from_sysfs(Path::new("/sys")).unwrap();
    let (journal, _) = Journal::open(&path("journal"), "test").unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let options = Options {
        target: Target::Pids(vec![Pid(child.id())]),
        source: AccessSource::None,
        round: Duration::from_millis(2),
        log: Some(path("log")),
        log_most_bytes: Some(20_000),
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
    // Enough rounds for a replay, and too few for a third rotation.
    let rounds = |agent: &Agent| agent.status().lock().unwrap().rounds;
    let end_round = rounds(&agent) + 3;
    while rounds(&agent) < end_round {
        sleep(agent.until_next());
        agent.poll().unwrap();
    }
    agent.finish().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let (before, now) = (replayed(&path("log.1")), replayed(&path("log")));
    assert!(before.0 > 2 && now.0 > 2 && before.1 && now.1, "{before:?} {now:?}");
    assert!(kept > 20_000 && kept < 40_000, "{kept} bytes");
}
