//! `nearside top` on any host: the programs that it started end with it, and processes that do not exist are reported.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Signals that the test runner ignores (`nohup`) are not ignored.
fn top(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal=HUP").arg(assert_cmd::cargo::cargo_bin("nearside"));
    command.current_dir(folder).args(["top", "--interval", "0.2"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// The processes of a program that waits for its child, once both run.
fn started(folder: &Path) -> [Pid; 2] {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = fs::read_to_string(folder.join("pids")).unwrap_or_default();
        let pids: Vec<Pid> = text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect();
        if let Ok(pids) = pids.try_into() {
            return pids;
        }
        assert!(Instant::now() < deadline, "it was not started");
        sleep(Duration::from_millis(10));
    }
}

fn end_soon(folder: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    for pid in started(folder) {
        while test_kill_process(pid).is_ok() {
            assert!(Instant::now() < deadline, "{pid:?} goes on");
            sleep(Duration::from_millis(10));
        }
    }
}

const PROGRAM: [&str; 4] = ["--", "sh", "-c", "sleep 60 & (echo $!; echo $$) > pids.part; mv pids.part pids; wait"];

#[test]
fn what_it_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut watching: Child = top(folder.path(), &PROGRAM).spawn().unwrap();
    started(folder.path());
    let pid = Pid::from_raw(watching.id().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(0), "a hang-up of the terminal ends it normally");
    end_soon(folder.path());
}

#[test]
fn processes_that_are_not_there_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    let output = top(folder.path(), &["--once", "--pid", &format!("{own},4000001")]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot look at process 4000001"), "{error}");
}

#[test]
fn what_a_program_has_started_is_shown_where_no_process_observes_accesses() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = top(folder.path(), &["--source", "none", "--json"]);
    let mut watching: Child = command.args(PROGRAM).stdout(Stdio::piped()).spawn().unwrap();
    let pids = started(folder.path()).map(|pid| i64::from(pid.as_raw_pid()));
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let shown = |line: String| {
        let report: serde_json::Value = serde_json::from_str(&line).unwrap();
        let rows: Vec<i64> = report["rows"].as_array().unwrap().iter().filter_map(|row| row["pid"].as_i64()).collect();
        pids.iter().all(|pid| rows.contains(pid))
    };
    // The first interval may be before the program has started anything.
    assert!(lines.take(50).any(|line| shown(line.unwrap())));
    let pid = Pid::from_raw(watching.id().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    watching.wait().unwrap();
    end_soon(folder.path());
}

#[test]
fn how_often_to_sample_is_refused_where_nothing_is_sampled() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["top", "--once", "--rate", "7"][..], &["record", "--period", "7", "--pid", "1"]] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
        let command = command.current_dir(folder.path()).args(arguments).args(["--source", "hint-faults"]);
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--period and --rate have no effect"), "{error}");
    }
}
