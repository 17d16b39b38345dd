//! `nearside memory` on this host; in the lab: `lab_look.rs`.

use crate::support::RunOutput;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn memory(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    command.arg("memory").args(arguments);
    command
}

fn ran(arguments: &[&str]) -> RunOutput {
    RunOutput::from(memory(arguments).output().unwrap())
}

#[test]
fn nodes_and_processes_are_reported() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    let told: Value = serde_json::from_str(ran(&["--json", &pid]).succeeded().text()).unwrap();
    let meminfo = std::fs::read_to_string("/sys/devices/system/node/node0/meminfo").unwrap();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("Node 0 MemTotal:")?.trim().strip_suffix(" kB"));
    let bytes = total.unwrap().parse::<u64>().unwrap() * 1024;
    assert_eq!(told["nodes"][0]["memory_bytes"]["MemTotal"], bytes);
    assert!(told["nodes"][0]["allocated_pages"]["numa_hit"].as_u64().unwrap() > 0 && told["elapsed_s"].is_null());
    assert_eq!((&told["processes"][0]["pid"], &told["processes"][0]["name"]), (&child.id().into(), &"sleep".into()));
    let text = ran(&["--all", &pid]).succeeded();
    for says in [format!("Memory of process {pid} (sleep)"), "AnonHugePages".into(), "pages taken, since boot".into()] {
        assert!(text.text().contains(&says), "no {says:?} in {}", text.text());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    ran(&[&pid]).failed(1, &["there is no process"]);
}

#[test]
fn looks_have_rates_and_processes_may_end_meanwhile() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    let mut watch = memory(&["--json", "--watch=0.05", &pid]).stdout(Stdio::piped()).spawn().unwrap();
    let mut looks = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let (first, second) = (looks.next().unwrap(), looks.next().unwrap());
    assert!(first["nodes"][0]["allocated_pages_per_s"].is_null());
    assert!(second["nodes"][0]["allocated_pages_per_s"]["numa_hit"].as_f64().unwrap() >= 0.0);
    assert!(second["elapsed_s"].as_f64().unwrap() >= 0.04 && second["time_s"].as_f64() > first["time_s"].as_f64());
    // Rates are the growth of counters in that time.
    let mut rates = 0;
    for (name, rate) in second["nodes"][0]["allocated_pages_per_s"].as_object().unwrap() {
        let count = |look: &Value| look["nodes"][0]["allocated_pages"][name].as_f64().unwrap();
        let grown = rate.as_f64().unwrap() * second["elapsed_s"].as_f64().unwrap();
        assert!((grown - (count(&second) - count(&first))).abs() < 0.01, "{name}: {rate}");
        rates += 1;
    }
    assert!(rates >= 6);
    child.kill().unwrap();
    child.wait().unwrap();
    let ended = looks.by_ref().find(|look| look["processes"].is_null()).unwrap();
    assert_eq!(ended["notes"][0], format!("process {pid} has ended"));
    // A reader that closes the output ends the watch, and so does a signal.
    let watch_pid = rustix::process::Pid::from_child(&watch);
    rustix::process::kill_process(watch_pid, rustix::process::Signal::TERM).unwrap();
    assert!(watch.wait().unwrap().success());
}

/// Labels by the grammar of `OpenMetrics`: names, and texts in quotes in which `\\`, `\"` and `\n` are escapes.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_name), "{text}");
        let (mut characters, mut told) = (value.char_indices(), String::new());
        rest = loop {
            match characters.next().unwrap() {
                (at, '"') => break &value[at + 1..],
                (_, '\\') => told.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    escaped @ ('\\' | '"') => escaped,
                    other => panic!("\\{other} in {text}"),
                }),
                (_, character) => told.push(character),
            }
        };
        found.push((name.to_owned(), told));
        rest = if rest.is_empty() { rest } else { rest.strip_prefix(',').unwrap() };
    }
    found
}

/// By the grammar of `OpenMetrics` 1.0: each family's samples are together, below its type, unit and help, without
/// duplicates; and the text has its end marker.
#[test]
fn metrics_are_well_formed() {
    let metrics = ran(&["--format", "openmetrics", &std::process::id().to_string()]).succeeded();
    let body = metrics.text().strip_suffix("# EOF\n").unwrap();
    let mut family = ("", "");
    let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
    for line in body.lines() {
        if let Some(heading) = line.strip_prefix("# TYPE ") {
            family = heading.split_once(' ').unwrap();
            assert!(families.insert(family.0) && ["gauge", "counter"].contains(&family.1), "{line}");
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let (name, unit) = unit.split_once(' ').unwrap();
            assert!(name == family.0 && name.ends_with(&format!("_{unit}")), "{line}");
        } else if let Some(help) = line.strip_prefix("# HELP ") {
            assert_eq!(help.split_once(' ').unwrap().0, family.0);
        } else {
            let (name, rest) = line.split_once('{').unwrap();
            let suffix = if family.1 == "counter" { "_total" } else { "" };
            assert_eq!(name, format!("{}{suffix}", family.0));
            let (inside, value) = rest.rsplit_once("} ").unwrap();
            assert!(value.parse::<u64>().is_ok() && samples.insert((name, labels(inside))), "{line}");
        }
    }
    assert!(families.contains("nearside_process_memory_bytes") && families.contains("nearside_node_memory_bytes"));
}

#[test]
fn what_was_asked_wrongly_is_reported() {
    ran(&["--format", "openmetrics", "--watch"]).failed(2, &["openmetrics is a single reading"]);
    ran(&["--format", "xml"]).failed(2, &["openmetrics"]);
    ran(&["--root", "/nowhere"]).failed(1, &["without NUMA"]);
    let group = ran(&["--cgroup", "/no/such/group"]);
    // A host may lack control groups of version 2.
    assert!(
        group.status == 2 && group.error.contains("there is no control group /no/such/group")
            || group.error.contains("no control groups of version 2"),
        "{}",
        group.error
    );
}
