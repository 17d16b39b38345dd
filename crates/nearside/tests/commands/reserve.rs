//! `nearside reserve` as its users run it.

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn reserve(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("nearside").unwrap();
    command.current_dir(root()).arg("reserve").args(arguments);
    command
}

/// Its output, with this exit code and nothing on standard error.
fn answered(code: i32, arguments: &[&str]) -> String {
    let assert = reserve(arguments).assert().code(code).stderr("");
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// Its error, with this exit code and nothing on standard output.
fn refused(code: i32, arguments: &[&str]) -> String {
    let assert = reserve(arguments).assert().code(code).stdout("");
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

const MACHINE: [&str; 2] = ["--machine", "magny-cours-4p"];

fn check(more: &[&str]) -> Vec<String> {
    ["check"].iter().chain(&MACHINE).chain(more).map(|word| (*word).to_owned()).collect()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

#[test]
fn the_transcripts_of_the_manual_are_real() {
    let manual = fs::read_to_string(root().join("docs/reserve.md")).unwrap();
    let blocks: Vec<&str> = manual.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 6);
    for block in blocks {
        let (command, shown) = block.split_once('\n').unwrap();
        let arguments: Vec<&str> = command.strip_prefix("$ nearside reserve ").unwrap().split_whitespace().collect();
        let output = reserve(&arguments).output().unwrap();
        assert_eq!(String::from_utf8([output.stdout, output.stderr].concat()).unwrap(), shown, "{command}");
    }
}

#[test]
fn an_answer_as_json_has_the_grant_and_its_forecast() {
    let arguments = check(&["--isolate", "core,controller", "--bandwidth", "5.9G", "--json"]);
    let answer: Value = serde_json::from_str(&answered(0, &words(&arguments))).unwrap();
    assert_eq!((&answer["granted"], &answer["grants"][0]["cpus"]), (&Value::Bool(true), &Value::from("0")));
    let (limit, by) = (&answer["forecast"]["rest_limit"]["0"], &answer["forecast"]["slowdown"]["1"]);
    assert!((4.0e9..4.3e9).contains(&limit.as_f64().unwrap()) && by.as_f64().unwrap() <= 0.05, "{answer}");
}

#[test]
fn a_refusal_as_json_has_its_obstacles_and_exit_code_3() {
    let arguments = check(&["--cores", "7", "--json"]);
    let answer: Value = serde_json::from_str(&answered(3, &words(&arguments))).unwrap();
    let refusal = &answer["refusal"]["no_candidate"];
    let obstacle = &refusal["obstacles"][0];
    assert_eq!((&obstacle["what"], &obstacle["free"]), (&Value::from("cores"), &Value::from(6)), "{answer}");
    assert_eq!(refusal["nearest"]["change"], "--cores 6");
}

#[test]
fn what_no_machine_can_do_is_a_wrong_command_line() {
    for (more, said) in [
        (&["--cores", "0"][..], "a grant has 1 to 8192 cores, not 0"),
        (&["--cpus", "99"], "no CPU 99: this machine has CPUs 0-47"),
        (&["--cpus", "0,6"], "CPUs 0,6 are of nodes 0-1"),
        (&["--node", "9"], "no node 9: this machine has nodes 0-7"),
        (&["--node", "0,9"], "no node 9: this machine has nodes 0-7"),
        (&["--cpus", "node:9"], "no node:9"),
        (&["--zone", "package:9"], "no package:9"),
        (&["--node", "1", "--local"], "cannot be used with"),
        (&["--cores", "1", "--cpus", "2"], "cannot be used with"),
        (&["--bandwidth", "0"], "a bandwidth is above 0, unlike `0`"),
        (&["--bandwidth=-1G"], "a bandwidth is above 0"),
        (&["--bandwidth", "NaN"], "a bandwidth is above 0"),
        (&["--isolate", "cache", "--cache-ways", "4"], "whole or by ways, not both"),
        (&["--cache-ways", "0"], "a grant has at least one way"),
        (&["--most-slowdown", "0"], "a slow-down is from 0.1 to 100 %, not 0 %"),
        (&["--most-slowdown", "1000"], "a slow-down is from 0.1 to 100 %, not 1000 %"),
        (&["--lease", "0"], "a lease is from 1 s to 10 years"),
        (&["--name", "a/b"], "a name begins with a letter"),
        (&["--name", ""], "a name has at least one letter"),
        (&["--zone", "0-99"], "no CPUs 48-99 for the zone: this machine has CPUs 0-47"),
    ] {
        let text = refused(2, &words(&check(more)));
        assert!(text.contains(said), "{more:?}: {text}");
    }
}

/// Calls 4 and 5 of the study.
#[test]
fn a_grant_of_cores_on_the_cache_of_another_one_gets_those_that_idle_for_it() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reserve-plan.toml");
    let after = |grant: &'static str| check(&["--after", plan, "--on-cache-of", grant, "--cores", "2"]);
    let text = answered(0, &words(&after("1")));
    assert!(text.starts_with("grant 3: CPUs 2-3, memory of node "), "{text}");
    for (grant, said) in [("2", "has no exclusive cache"), ("9", "there is no grant 9")] {
        let text = answered(3, &words(&after(grant)));
        assert!(text.starts_with("refused: ") && text.contains(said), "{text}");
    }
}

#[test]
fn parts_of_a_machine_are_named_as_for_run() {
    let same = |part: &[&str], numbers: &[&str]| {
        let [part, numbers] = [part, numbers].map(|more| answered(0, &words(&check(more))));
        assert_eq!(part, numbers);
    };
    same(&["--cpus", "node:1.core:0-1"], &["--cpus", "6-7"]);
    same(&["--node", "node:2"], &["--node", "2"]);
    same(&["--zone", "node:3", "--keep-back", "node:3.core:0"], &["--zone", "18-23", "--keep-back", "18"]);
}

#[test]
fn what_this_machine_cannot_do_is_refused() {
    for (more, said) in [
        (&["--cpus", "24", "--zone", "0-23"][..], "node 4: 0 of the cores of CPU 24 are free"),
        (&["--cpus", "1", "--keep-back", "1"], "node 0: 0 of the cores of CPU 1 are free"),
        (&["--isolate", "cache", "--zone", "0-4"], "also serves CPUs outside of the zone"),
        (&["--cache-ways", "4"], "have no masks of ways"),
        (&["--isolate", "controller", "--bandwidth", "20G"], "13.9 GB/s are not promised, 20.0 GB/s wanted"),
        (&["--isolate", "controller", "--strict"], "without --strict it holds on average"),
        (&["--cores", "7"], "6 of the cores of CPUs 0-5 are free, 7 wanted"),
        (&["--cpus", "0", "--node", "7", "--isolate", "controller", "--bandwidth", "13G"], "13.0 GB/s wanted"),
        (&["--bytes", "9G", "--node", "0"], "8 GiB of its memory are not promised, 9 GiB wanted"),
    ] {
        let text = answered(3, &words(&check(more)));
        assert!(text.starts_with("refused: ") && text.contains(said), "{more:?}: {text}");
    }
    let without = ["check", "--machine", "magny-cours-4p-no-directory", "--isolate", "controller"];
    assert!(answered(3, &without).contains("no cache directory"));
    assert!(answered(0, &[&without[..], &["--without-directory"]].concat()).contains("controller 0 guarded"));
}

#[test]
fn ways_are_what_the_hardware_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan");
    let path = path.to_str().unwrap();
    for (ways, said) in [
        (1, "refused: a mask of this machine's caches has at least 2 ways, not 1\n"),
        (19, "has 18 free ways in a row, 19 wanted\n"),
        (99, "has 18 free ways in a row, 99 wanted\n"),
    ] {
        let text =
            format!("[control]\nways = {{ all = 20, least = 2, classes = 4 }}\n[[request]]\ncache_ways = {ways}\n");
        fs::write(path, text).unwrap();
        let answer = answered(3, &["plan", path, "--machine", "small-2x2"]);
        assert!(answer.starts_with("refused: ") && answer.contains(said.trim_start_matches("refused: ")), "{answer}");
    }
}

#[test]
fn what_limits_the_rest_is_the_best_that_the_machine_has() {
    let request = ["--isolate", "core,controller", "--cache-ways", "20", "--bandwidth", "5.9G", "--strict"];
    let answered = |code, machine: &str, more: &[&str]| {
        answered(code, &[&["check", "--machine", machine], &request[..], more].concat())
    };
    let with = answered(0, "magny-cours-4p-control", &[]);
    assert!(with.contains("20 ways of its cache (0xfffff00000)") && with.contains("limited by the hardware"), "{with}");
    let duty = answered(3, "magny-cours-4p-control", &["--throttle", "duty"]);
    assert!(duty.contains("only shares of CPU time"), "{duty}");
    assert!(answered(3, "magny-cours-4p", &[]).contains("have no masks of ways"));
}

#[test]
fn this_host_decides_what_needs_no_forecast() {
    assert!(answered(0, &["check"]).starts_with("grant 1: CPU"));
}

#[test]
fn mistakes_in_plans_and_calls_have_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan");
    let path = path.to_str().unwrap();
    for (text, said) in [
        ("[[request]]\ncores = 1\n[[request]]\ncores = 0\n", "plan:4: request[1].cores: a grant has 1 to 8192"),
        ("[[request]]\nbandwith = 1\n", "did you mean `bandwidth`?"),
        ("{\"call\":\"rcm_core_memd_release\"}\n", "plan:1: the line is no call, nor a list of calls"),
        ("", "missing field `request`"),
    ] {
        fs::write(path, text).unwrap();
        let error = refused(1, &["plan", path, "--machine", "small-2x2"]);
        assert!(error.contains(said), "{text}: {error}");
    }
    fs::write(path, "{\"call\":\"rcm_core_memd_release\",\"core\":7}\n").unwrap();
    assert_eq!(answered(3, &["plan", path, "--machine", "small-2x2"]), "refused: there is no grant 7\n");
    assert!(refused(1, &["plan", "/nowhere"]).contains("cannot read the plan /nowhere"));
}

#[test]
fn c42_the_studys_shell_form() {
    let usage = answered(0, &["rcm"]);
    assert!(usage.starts_with("usage: rcm is_isolated(0/1) exclusive_cache(0/1) memory_load_control(0/1)"), "{usage}");
    let all = answered(0, &["rcm", "--machine", "magny-cours-4p", "1", "1", "1", "0", "test"]);
    assert!(all.contains("its last-level cache for itself, controller 0 guarded"), "{all}");
    for wrong in [&["2", "1", "1", "0", "test"][..], &["1", "1", "1", "3", "test"], &["1", "1", "1", "0"]] {
        assert!(refused(2, &[&["rcm", "--machine", "small-2x2"], wrong].concat()).contains("usage: rcm"), "{wrong:?}");
    }
}

#[test]
fn facts_in_the_studys_schema() {
    let facts = answered(0, &["facts", "--machine", "magny-cours-4p", "--format", "prolog"]);
    let count = |name: &str| facts.lines().filter(|line| line.starts_with(&format!("{name}("))).count();
    // Each of 48 cores to each of 8 nodes, and 64 pairs of nodes.
    let tables = ["mem_latency", "mem_bandwidth_read", "mem_bandwidth_write"].map(count);
    assert_eq!((tables, count("cpu_thread"), count("node_distance")), ([384; 3], 48, 64));
    assert_eq!((count("cpu_affinity"), count("memory_affinity"), count("hypertransport_link")), (48, 8, 56));
    let json: Value =
        serde_json::from_str(&answered(0, &["facts", "--machine", "magny-cours-4p", "--format", "json"])).unwrap();
    assert_eq!((json["latency_ns"][0][1].as_f64(), json["measured"].as_bool()), (Some(102.7), Some(true)));
}
