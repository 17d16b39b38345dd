//! docs/json.md has every field of the JSON output of commands that need no virtual machine.

use crate::report::{nearside, written, written_counted};
use crate::traces::{self, Trace};
use ::report::{By, DetailReport, ProfileDetail, Subject, TraceFacts};
use machine::CpuId;
use profile::{Filter, Predicate};
use serde_json::Value;
use std::process::{Command, Stdio};
use test_tools::json_fields::assert_documented;
use trace::{About, Count, Counter, What};

/// The values that a command prints, which may end with any code that its help lists.
fn values(arguments: &[&str]) -> Vec<Value> {
    let output = assert_cmd::Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    values.unwrap_or_else(|why| panic!("{arguments:?}: {why}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// A program for whose memory the kernel's allocations were recorded.
fn allocating() -> Trace {
    let mut trace = traces::face_recognition();
    trace.event(1, 1, 0, What::FramesAllocated { physical: 7 << 12, bytes: 4096 });
    trace
}

/// What `record --kernel-events --cpu-counters` counts.
fn counts() -> Vec<Count> {
    let of_cpu = |counter| (counter, Some(CpuId(0)));
    let served = [Counter::LocalDram, Counter::RemoteDram, Counter::PeerModified, Counter::PeerClean, Counter::Peer];
    let counters: Vec<_> =
        served.map(of_cpu).into_iter().chain(Counter::SCHEDULING.map(|counter| (counter, None))).collect();
    let at = |time_ns, value| {
        let count = move |(counter, cpu): &(Counter, Option<CpuId>)| {
            let (counter, cpu) = (*counter, *cpu);
            Count { time_ns, counter, from: None, to: None, cpu, value }
        };
        counters.iter().map(count)
    };
    at(1000, 3).chain(at(5000, 7)).collect()
}

/// What `report --function` prints of a program whose functions have names, as those of these traces on disk have not.
fn detail_of_a_function() -> Value {
    let profile = traces::face_recognition().profile();
    let about = About::of_command(vec!["recognise".into()]);
    let facts = TraceFacts::new("trace".into(), &about, Vec::new(), &profile, "as the trace describes it".into());
    let (all, filter) = (profile.view(&Filter::default()), Filter(vec![Predicate::Function("transpose".into())]));
    let view = profile.view(&filter);
    let wanted = ProfileDetail { top: 4, by: By::Cost, rows: 12, filter: Vec::new() };
    let subject = Subject::function(&view, "transpose", 4);
    let mut told = serde_json::to_value(DetailReport::new(subject, &view, all.tally(), facts, wanted)).unwrap();
    assert!(!told["subject"]["places"].as_array().unwrap().is_empty(), "{told:#}");
    told["schema"] = 1.into();
    told
}

#[test]
fn every_field_is_documented() {
    let (_first, before) = written(traces::face_recognition());
    let (_second, after) = written(traces::stream_clustering());
    let (_third, counted) = written_counted(allocating(), &counts());
    let told = nearside(&["report", &before, "--json"]);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    let first = |ranked: &str, field: &str| told[ranked]["first"][0][field].to_string();
    let (object, site, tid) = (first("objects", "object"), first("sites", "site"), first("threads", "tid"));
    let own = std::process::id().to_string();
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let pid = other.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    let commands = [
        ("report TRACE", vec!["report", &before, "--json"]),
        ("report TRACE", vec!["report", &after, "--json"]),
        ("report TRACE", vec!["report", &counted, "--json"]),
        ("report TRACE --object OBJECT", vec!["report", &before, "--object", &object, "--json"]),
        ("report TRACE --object OBJECT", vec!["report", &before, "--site", &site, "--json"]),
        ("report TRACE --object OBJECT", vec!["report", &before, "--thread", &tid, "--json"]),
        ("diff A B", vec!["diff", &before, &after, "--json"]),
        ("hugepages find TRACE --json -", vec!["hugepages", "find", &before, "--json", "-"]),
        ("assert TRACE", vec!["assert", "--local", "95%", &before, "--json"]),
        ("bind PID", vec!["bind", &pid, "--cpunodebind", "0", "--json"]),
        ("lab list", vec!["lab", "list", "--json"]),
        ("migrate PID", vec!["migrate", &pid, "--to", "0", "--json"]),
        ("record --json FILE", vec!["record", "--quiet", "--json", "-", "-o", &trace, "--", "true"]),
        ("topology", vec!["topology", "--from", "opteron-6164x2", "--json"]),
        ("topology", vec!["topology", "--from", "xeon-6130x2", "--json"]),
        ("reserve facts", vec!["reserve", "facts", "--machine", "magny-cours-4p", "--format", "json"]),
        ("doctor", vec!["doctor", "--json"]),
        ("show", vec!["show", "--json"]),
        ("show PID", vec!["show", &own, "--json"]),
        ("memory", vec!["memory", "--json"]),
        ("pages PID", vec!["pages", &own, "--json"]),
    ];
    for (title, arguments) in commands {
        assert_documented(title, &values(&arguments));
    }
    assert_documented("report TRACE --object OBJECT", &[detail_of_a_function()]);
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Granted and refused requests of all kinds.
#[test]
fn every_field_of_reserve_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reserve-plan.toml");
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reserve-calls.jsonl");
    let machine = "magny-cours-4p";
    for options in [
        "--cores 1",
        "--cores 60",
        "--cpus 0 --node 1 --isolate core,controller,route --bandwidth 1G --bytes 1G --lease 60 --name a",
        "--isolate controller --bandwidth 20G",
    ] {
        let arguments = format!("reserve check --machine {machine} --json {options}");
        assert_documented("reserve check", &values(&arguments.split(' ').collect::<Vec<_>>()));
    }
    let control = ["reserve", "check", "--machine", "magny-cours-4p-control", "--cache-ways", "4", "--json"];
    assert_documented("reserve check", &values(&control));
    let after = ["reserve", "check", "--machine", machine, "--after", docs, "--cpus", "0", "--json"];
    assert_documented("reserve check", &values(&after));
    let explained = ["reserve", "explain", "1", "--machine", machine, "--after", docs, "--json"];
    assert_documented("reserve explain GRANT", &values(&explained));
    let ways = "[control]\nthrottle = \"duty\"\nways = { all = 8, least = 2, classes = 4 }\n";
    let seed = "rule = \"seed\"\n[[tenant]]\nfrom = 0\nto = 0\nread = \"12G\"\n\
                [[request]]\nnode = 0\nisolate = [\"controller\"]\n";
    let slow = "[[request]]\ncpus = \"7\"\nnode = 3\nisolate = [\"core\"]\n\
                [[request]]\ncpus = \"6\"\nnode = 3\nisolate = [\"controller\"]\nbandwidth = \"3G\"\n";
    let one = "[[request]]\ncores = 1\n";
    for (plan, machine) in [
        (docs, machine),
        (&file("moves.toml", &format!("{one}{one}{one}{one}isolate = [\"cache\"]\n")), "small-2x2"),
        (&file("seed.toml", seed), machine),
        (&file("ways.toml", &format!("{ways}[[request]]\ncache_ways = 1\n")), machine),
        (&file("slow.toml", slow), "small-4x2"),
    ] {
        assert_documented("reserve plan FILE", &values(&["reserve", "plan", plan, "--machine", machine, "--json"]));
    }
    let calls = values(&["reserve", "plan", list, "--machine", "small-2x2", "--json"]);
    assert_documented("reserve plan FILE", &calls);
    let text = nearside(&["reserve", "plan", list, "--machine", "small-2x2", "--json"]).out;
    assert_eq!(text.lines().count(), calls.len(), "a line each: {text}");
}
