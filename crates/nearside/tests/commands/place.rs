//! `nearside place` and `nearside replay` where no virtual machine is needed: wrong requests, and what is passed
//! through.

use assert_cmd::Command;
use machine::{Machine, NodeId, Pid, presets};
use placement::{LogLine, Observation, Outcome, PageSample, PageTally, Policy, Settings, State, Traffic};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

fn nearside(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("nearside").unwrap();
    command.args(arguments).env_remove("NEARSIDE_TIME_SCALE");
    command
}

fn error(arguments: &[&str], code: i32) -> String {
    let output = nearside(arguments).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    error
}

#[test]
fn what_is_no_policy_is_reported_with_all_that_are() {
    let unknown = error(&["place", "--policy", "carefour", "--", "true"], 2);
    assert!(unknown.contains("did you mean `carrefour`?") && unknown.contains("thread-clustering"), "{unknown}");
    let same = error(&["place", "--policy", "carrefour", "--memory", "interleave", "--", "true"], 2);
    assert!(same.contains("both place memory"), "{same}");
    let both = error(&["place", "--system", "--pid", "1"], 2);
    assert!(both.contains("cannot be used with"), "{both}");
    for arguments in [&["place"][..], &["place", "--pid", "1", "--", "true"]] {
        let usage = error(arguments, 2);
        let lines = ["[OPTIONS] -- <CMD>...", "[OPTIONS] --pid <PID>,...", "[OPTIONS] --system"];
        assert!(lines.iter().all(|line| usage.contains(line)), "{usage}");
    }
    assert!(error(&["place", "--budget", "0", "--", "true"], 2).contains("above 0"));
    assert!(error(&["place", "--round", "0", "--", "true"], 2).contains("from 0.01 to 3600"));
    let scale = nearside(&["place", "--", "true"]).env("NEARSIDE_TIME_SCALE", "x").output().unwrap();
    let told = String::from_utf8(scale.stderr).unwrap();
    assert_eq!(scale.status.code(), Some(2), "{told}");
    let help = nearside(&["place", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(placement::POLICIES.iter().all(|(policy, _)| help.contains(policy)), "{help}");
}

/// On any machine: with a single node there is nothing to place, and on others this policy places nothing.
#[test]
fn the_programs_end_is_handed_through() {
    let run = |command: &[&str]| {
        let output = nearside(&[&["place", "--quiet", "--policy", "first-touch", "--"], command].concat()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["sh", "-c", "echo there; exit 7"]), (Some(7), "there\n".to_owned()));
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).0, Some(128 + 15));
    assert_eq!(run(&["no-such-program"]).0, Some(127));
    assert_eq!(run(&["/"]).0, Some(126));
}

/// No machine has such a node, CPU or process.
#[test]
fn nothing_is_started_where_something_cannot_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let place = |options: &[&str], code: i32| {
        let told = error(&[&["place"], options, &["--", "touch", started.to_str().unwrap()]].concat(), code);
        assert!(!started.exists(), "{told}");
        told
    };
    assert!(place(&["--policy", "bind:4000"], 2).contains("bind:4000"));
    assert!(place(&["--policy", "fixed:4000"], 2).contains("wants CPU 4000"));
    assert!(place(&["--policy", "balanced", "--log", "/nowhere/log"], 125).contains("/nowhere/log"));
    assert!(place(&["--policy", "balanced", "--json", "/nowhere/json"], 125).contains("cannot write to /nowhere/json"));
    place(&["--policy", "balanced", "--machine", "/nowhere/machine.toml"], 125);
    assert!(error(&["place", "--policy", "balanced", "--pid", "4194304000"], 125).contains("4194304000"));
    // Tests run in threads other than the first.
    let (own, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().to_string());
    let of_thread = error(&["place", "--policy", "balanced", "--pid", &thread], 125);
    assert!(of_thread.contains(&format!("{thread} is a thread of process {own}")), "{of_thread}");
}

/// On a machine where there is something to place, that lasts until the process ends.
#[test]
fn children_that_have_ended_are_left_out() {
    // Its child is a zombie: the process executes a program that knows nothing of it.
    let mut parent = std::process::Command::new("sh").args(["-c", "true & exec sleep 2"]).spawn().unwrap();
    let pid = parent.id().to_string();
    let is_zombie =
        |child: &str| fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    while !fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().split_whitespace().any(is_zombie) {
        thread::sleep(Duration::from_millis(1));
    }
    nearside(&["place", "--policy", "balanced", "--pid", &pid]).assert().success();
    assert!(parent.wait().unwrap().success());
}

#[test]
fn the_result_is_json_on_any_machine() {
    let run = |json: &str| {
        nearside(&["place", "--policy", "balanced", "--json", json, "--", "sh", "-c", "exit 7"]).output().unwrap()
    };
    let output = run("-");
    assert_eq!(output.status.code(), Some(7));
    let report: agent::PlaceReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.policy.as_str(), report.exit_status), ("balanced", Some(7)));
    // A report that cannot be written must not hide the program's status.
    let full = run("/dev/full");
    assert_eq!(full.status.code(), Some(7));
    assert!(String::from_utf8(full.stderr).unwrap().contains("cannot write to /dev/full"));
}

/// On any machine, also where there is nothing to place.
#[test]
fn lessons_are_forgotten_under_any_policy_but_not_by_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    // By another process: the kernel executes nothing that a child of other tests still has open for writing.
    let write = "printf '#!/bin/sh\n' > \"$0\" && chmod 755 \"$0\" && mkdir -m 700 \"$1\"";
    let state = folder.path().join("nearside");
    assert!(std::process::Command::new("sh").args(["-c", write]).args([&script, &state]).status().unwrap().success());
    let about = script.metadata().unwrap();
    let node = |node: &machine::Node| {
        let memory = if node.memory_bytes > 0 { "" } else { " without memory" };
        format!("node {}: CPUs {}{memory}", node.id, node.cpus)
    };
    let nodes: Vec<String> = Machine::from_sysfs(Path::new("/sys")).unwrap().nodes.iter().map(node).collect();
    let build = format!("{} bytes of {}.{:09}", about.size(), about.mtime(), about.mtime_nsec());
    let command = json!({ "words": [script], "build": build, "machine": nodes.join(", ") });
    let file = state.join("lessons.json");
    fs::write(&file, json!([{ "command": command, "lesson": "spread" }]).to_string()).unwrap();
    let left = |options: &[&str]| {
        let words =
            [&["place", "--quiet", "--policy", "balanced"], options, &["--", script.to_str().unwrap()]].concat();
        nearside(&words).env("XDG_STATE_HOME", folder.path()).assert().success();
        serde_json::from_slice::<Vec<Value>>(&fs::read(&file).unwrap()).unwrap().len()
    };
    assert_eq!([left(&[]), left(&["--forget", "--dry-run"]), left(&["--forget"])], [1, 1, 0]);
}

/// The program handles signals itself, and its exit status is passed on.
#[test]
fn signals_go_to_the_program_however_many_they_are() {
    let script = "trap 'n=$((n+1)); echo told' TERM; n=0; echo ready; while [ $n -lt 3 ]; do sleep 0.05; done; exit 7";
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("nearside"))
        .args(["place", "--quiet", "--policy", "first-touch", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    let pid = rustix::process::Pid::from_child(&child);
    for _ in 0..3 {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(lines.next().as_deref(), Some("told"));
    }
    assert_eq!((lines.count(), child.wait().unwrap().code()), (0, Some(7)));
}

#[test]
fn a_machine_file_of_another_machine_is_refused() {
    let other = error(&["place", "--machine", "small-8x2", "--", "true"], 2);
    assert!(other.contains("describes another machine"), "{other}");
}

/// A log of some rounds, of which only one has anything to do.
fn write_log(path: &Path) {
    let machine = presets::find("small-4x2").unwrap();
    let (name, settings) = ("carrefour", Settings::default());
    let mut policy = Policy::new(name.parse().unwrap(), &machine, settings.clone()).unwrap();
    let mut lines = vec![LogLine::Begin {
        machine: Box::new(machine.clone()),
        policy: policy.name().clone(),
        settings,
        state: Box::new(State::default()),
        dry_run: false,
    }];
    let process = placement::Process::new(Pid(7), machine.cpus(), "0-3".parse().unwrap());
    let thread = placement::Thread::new(Pid(7), machine::Tid(7));
    let start = policy.admit(&process, &thread);
    lines.push(LogLine::Admitted { process: process.clone(), thread, start });
    for round in 1..4 {
        let process = placement::Process { cpu_share: 4.0, ..process.clone() };
        let mut observation = Observation { round, length_s: 1.0, processes: vec![process], ..Observation::default() };
        if round == 2 {
            // All CPUs of node 2 use node 0, and a page there has samples of it.
            let (from, to) = (NodeId(2), NodeId(0));
            observation.traffic = vec![Traffic { from, to, accesses: 100e6 }];
            let sample = PageSample {
                pid: Pid(7),
                tid: machine::Tid(7),
                address: 0x8000,
                page_bytes: machine::SMALL_PAGE,
                node: to,
                from,
                is_write: false,
                frame: None,
            };
            let mut tally = PageTally::new(10);
            (0..2).for_each(|_| tally.add(&sample));
            observation.pages = tally.take(10).0;
        }
        let decision = policy.decide(&observation);
        lines.push(LogLine::Round { observation: Box::new(observation), decision });
        let outcome = Outcome { round, ..Outcome::default() };
        policy.learn(&outcome);
        lines.push(LogLine::Learned { outcome });
    }
    let lines: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    fs::write(path, lines.concat()).unwrap();
}

#[test]
fn a_log_is_decided_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    write_log(&log);
    let path = log.to_str().unwrap();
    nearside(&["replay", path]).assert().success().stdout("carrefour: 3 rounds and 1 start, all decided the same\n");
    let other = nearside(&["replay", path, "--policy", "interleave", "--json"]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    let report: report::ReplayReport = serde_json::from_slice(&other.stdout).unwrap();
    assert_eq!((report.rounds, report.starts), (3, 1));
    assert_eq!(report.differences[0].at, "thread 7 of process 7");
    assert!(report.differences[0].now[0].contains("interleave: 0-3"), "{report:?}");
    assert!(error(&["replay", path, "--policy", "x"], 2).contains("there is no policy `x`"));
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(r#""do":"move_pages","pid":7,"node":2,"pages":[32768]"#), "the log has a move: {text}");
    let moved = text.replace(r#""do":"nothing""#, r#""do":"move_pages","pid":7,"node":1,"pages":[4096],"bytes":4096"#);
    assert_ne!(moved, text);
    fs::write(&log, moved).unwrap();
    let other = nearside(&["replay", path]).output().unwrap();
    let said = String::from_utf8(other.stdout).unwrap();
    assert!(other.status.code() == Some(1) && said.contains(", from 0x1000 on\n"), "{said}");
    fs::write(&log, &text[..text.len() - 9]).unwrap();
    nearside(&["replay", path]).assert().success().stdout(
        "carrefour: 3 rounds and 1 start, all decided the same\nThe log ends in the middle of a line: what came last is missing.\n",
    );
    let (first, rest) = text.split_once('\n').unwrap();
    fs::write(&log, rest).unwrap();
    assert!(error(&["replay", path], 1).contains("does not begin as a decision log does"));
    fs::write(&log, format!("{first}\n{{}}\n")).unwrap();
    assert!(error(&["replay", path], 1).contains("line 2 of"));
    fs::write(&log, "").unwrap();
    assert!(error(&["replay", path], 1).contains("is empty"));
    fs::File::create(&log).unwrap().set_len(300 << 20).unwrap();
    assert!(error(&["replay", path], 1).contains("it is longer than 128 MiB"));
    assert!(error(&["replay", "/nowhere/log"], 1).contains("cannot read the decision log /nowhere/log"));
}
