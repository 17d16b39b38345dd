//! `nearside compare` in the lab, run from outside and from inside.

use crate::support::{FAST, LIMIT, Lab, RunOutput, is_root};
use serde_json::Value;
use std::process::Command;
use test_tools::json_fields::assert_documented;

const MACHINE: [&str; 8] = ["--machine", "small-4x2", "--time-scale", "20", "--thp", "never", "--timeout", LIMIT];
/// All threads read and write memory that one thread filled.
const PROGRAM: [&str; 6] = ["../nearside-workloads", "streamcluster", "--size", "16M", "--json", "--repeat"];

fn compare(lab: &Lab, options: &[&str], command: &[&str]) -> Command {
    let mut compare = lab.nearside();
    compare.arg("compare").args(MACHINE).args(FAST).args(options).arg("--").args(command);
    compare
}

fn summary<'a>(report: &'a Value, policy: &str) -> &'a Value {
    let summaries = report["summaries"].as_array().unwrap();
    summaries.iter().find(|summary| summary["policy"] == policy).unwrap_or_else(|| panic!("no {policy}: {report:#}"))
}

/// One boot: every policy that is not nearside's, a table of all, and everything restored.
#[test]
fn policies_are_compared_with_one_boot() {
    let lab = Lab::new();
    let options = [
        "--policies",
        "first-touch,kernel,interleave,bind:1,oracle",
        "--repeat",
        "2",
        "--oracle-runs",
        "3",
        "--seconds",
        "/seconds",
        "--json",
        "result.json",
        "--html",
        "result.html",
    ];
    let ran = lab.run(compare(&lab, &options, &[&PROGRAM[..], &["4"]].concat()), b"").succeeded();
    let report = lab.json("work/result.json");
    assert_documented("compare --json FILE", [&report]);
    assert!(
        ran.text().contains("2 runs under each policy") && ran.text().contains("simulated, model"),
        "{}",
        ran.text()
    );
    assert_eq!((&report["simulation"]["time_scale"], &report["machine"]), (&20.into(), &"small-4x2".into()));
    assert!(report["simulation"]["kernel"].as_str().unwrap().ends_with("-amd64"), "{report:#}");
    let policies = report["policies"].as_array().unwrap();
    assert!(policies.iter().all(|policy| policy["runs"].as_array().unwrap().len() == 2), "{report:#}");
    // Runs of policies alternate, starting with another policy each time; the oracle has three more.
    let places = |policy: usize| {
        policies[policy]["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["index"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!([places(0), places(1), places(4)], [vec![1, 13], vec![2, 9], vec![8, 12]]);
    let number = |policy: &str, field: &str| summary(&report, policy)[field].as_f64().unwrap();
    // First touch puts what one thread fills on one or two nodes, as it moves; interleaving puts a quarter on each.
    let busiest = |policy| number(policy, "busiest_share");
    assert!(busiest("interleave") < 0.3 && busiest("first-touch") > 1.3 * busiest("interleave"), "{report:#}");
    assert!(number("bind:1", "local_access_ratio") > 0.9, "{report:#}");
    assert!(number("first-touch", "pages_moved") < 100.0, "{report:#}");
    let oracle = policies[4]["notes"][0].as_str().unwrap();
    assert!(oracle.starts_with("the best of 3 static bindings that were tried once is "), "{oracle}");
    assert!(lab.text("work/result.html").contains("Who accesses whose memory"));
}

/// In the machine: a program that fails does so under each policy, and its output is shown; Ctrl-C ends the run and
/// reports the completed ones; the kernel's switch is restored.
#[test]
fn failures_and_interrupts_leave_the_machine_as_it_was() {
    let lab = Lab::new();
    let script = include_str!("programs/compare_interrupted.sh");
    let ran: RunOutput = lab.script("small-2x2", &["--quiet"], script).succeeded();
    let fails = ran.section("fails");
    for says in
        ["failed under first-touch, run 1: exit status 3\n  | out\n  | oops", "failed under interleave", "status 1"]
    {
        assert!(fails.contains(says), "no {says:?} in:\n{fails}");
    }
    let interrupted = ran.section("interrupted");
    for says in ["Only first-touch ran", "The comparison ended early: these are the runs that had ended.\nstatus 1\n"] {
        assert!(interrupted.contains(says), "no {says:?} in:\n{interrupted}");
    }
    assert_eq!(ran.section("switch"), "as before: 1\n");
}

/// Wrong requests are reported before a machine boots; a host with one node compares as well, and says what that is
/// worth.
#[test]
fn what_is_asked_wrongly_is_reported_at_once() {
    let lab = Lab::new();
    let run = |options: &[&str], command: &[&str]| {
        let mut here = lab.nearside();
        here.arg("compare").args(options).arg("--").args(command);
        lab.run(here, b"")
    };
    run(&["--policies", "carefour"], &["true"])
        .failed(2, &["there is no policy `carefour`", "first-touch  ", "oracle  "]);
    run(&["--policies", "kernel,kernel"], &["true"]).failed(2, &["the policy kernel is named twice"]);
    run(&["--machine", "small-4x2"], &["no-such-program"]).failed(127, &["there is no program no-such-program"]);
    run(&["--policies", "bind:777"], &["true"]).failed(2, &["policy bind:777 wants CPUs on nodes 777"]);
    run(&["--machine", "small-4x2", "--policies", "interleave:9"], &["true"]).failed(2, &["nodes 9", "nodes 0-3 have"]);
    run(&["--time-scale", "20"], &["true"]).failed(2, &["were not provided", "--machine <PRESET|FILE>"]);
    run(&["--seconds", "seconds"], &["true"]).failed(2, &["neither a JSON pointer"]);
    let here = run(&["-q", "-p", "first-touch,interleave", "-r", "2"], &["true"]).succeeded();
    assert!(here.text().contains("2 runs under each policy"), "{}", here.text());
    let missing = run(&["-q", "-p", "first-touch", "-r", "1", "--seconds", "/seconds"], &["echo", "nothing"]);
    assert_eq!(missing.status, 1);
    assert!(
        missing.text().contains("it printed no positive time that matches --seconds\n/seconds\n  | nothing"),
        "{}",
        missing.text()
    );
    if !is_root() {
        assert!(here.text().contains("needs root"), "{}", here.text());
    }
}
