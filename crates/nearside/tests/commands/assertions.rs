//! `nearside assert`, and `nearside diff --fail-on`.

use crate::report::{nearside, text, written, written_counted};
use crate::traces;
use machine::NodeId;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;
use std::fs;
use trace::{Count, Counter};

const LIMITS: [&str; 6] = ["--local", "10%", "--imbalance", "3", "--latency", "100000"];

#[test]
fn limits_that_hold_pass_and_others_fail() {
    let (_folder, trace) = written(traces::face_recognition());
    let passed = text(&[&["assert", &trace], LIMITS.as_slice()].concat());
    assert!(passed.starts_with("passed: all 3 limits hold"), "{passed}");
    let failed = nearside(&["assert", &trace, "--local", "0.99", "--imbalance", "3"]);
    assert_eq!((failed.code, failed.err.as_str()), (1, ""), "{}", failed.out);
    assert!(failed.out.starts_with("failed: 1 of 2 limits"), "{}", failed.out);
    assert!(failed.out.contains("at least 99.0 %"), "{}", failed.out);
    let told = nearside(&["assert", &trace, "--local", "0.99", "--json"]);
    let told: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((&told["schema"], &told["passed"]), (&Value::from(1), &Value::from(false)));
    let local = &told["assertions"][0];
    assert_eq!((&local["name"], &local["holds"]), (&Value::from("local_access_ratio"), &Value::from(false)));
    let share = local["value"].as_f64().unwrap();
    // The measured value itself is allowed.
    text(&["assert", &trace, "--local", &share.to_string()]);
}

#[test]
fn what_is_not_known_does_not_hold() {
    let (_folder, trace) = written(traces::Trace::new(&[]));
    let answer = nearside(&["assert", &trace, "--local", "0%", "--latency", "1e9"]);
    assert_eq!(answer.code, 1);
    assert!(answer.out.contains("failed: 2 of 2 limits") && answer.out.contains("cannot be decided"), "{}", answer.out);
    assert!(answer.out.contains("nearside doctor"), "it says what to do: {}", answer.out);
}

#[test]
fn systems_for_continuous_integration_read_the_outcome() {
    let (folder, trace) = written(traces::face_recognition());
    let (junit, markdown) = (folder.path().join("numa.xml"), folder.path().join("numa.md"));
    let (junit, markdown) = (junit.to_str().unwrap(), markdown.to_str().unwrap());
    let limits = ["--local", "99%", "--latency", "100000"];
    let files = ["--junit", junit, "--markdown", markdown];
    let answer = nearside(&[["assert", &trace].as_slice(), &limits, &files].concat());
    assert_eq!(answer.code, 1, "{}", answer.err);
    let xml = fs::read_to_string(junit).unwrap();
    let mut reader = Reader::from_str(&xml);
    let (mut cases, mut failures) = (0, 0);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) if tag.name().as_ref() == "testcase" => cases += 1,
            Event::Start(tag) if tag.name().as_ref() == "failure" => failures += 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!((cases, failures), (2, 1), "{xml}");
    let markdown = fs::read_to_string(markdown).unwrap();
    assert_eq!(markdown.lines().filter(|line| line.starts_with("| `")).count(), 2, "{markdown}");
    let both = nearside(&["assert", &trace, "--local", "1", "--junit", "-", "--markdown", "-"]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn a_command_is_recorded_and_its_failure_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("trace").display().to_string();
    let record = ["assert", "--local", "50%", "--source", "none", "--quiet"];
    // Without samples nothing can be decided.
    let answer = nearside(&[&record, ["--output", &kept, "--", "true"].as_slice()].concat());
    assert_eq!(answer.code, 1, "{}", answer.err);
    assert!(answer.out.contains("cannot be decided"), "{}", answer.out);
    text(&["report", &kept]);
    let answer = nearside(&[&record, ["--", "sh", "-c", "exit 2"].as_slice()].concat());
    assert_eq!((answer.code, answer.out.as_str()), (2, ""));
    for wrong in [["assert", "--local", "95"], ["assert", "trace", "--json"], ["assert", "--local", "nan"]] {
        assert_eq!(nearside(&wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn a_difference_fails_only_if_it_is_asked_to() {
    let (_before, local) = written(traces::face_recognition());
    let mut slower = traces::face_recognition();
    for sample in &mut slower.samples {
        sample.latency_ns = sample.latency_ns.map(|ns| 2.0 * ns);
    }
    let (_after, slower) = written(slower);
    text(&["diff", &local, &slower]);
    text(&["diff", &slower, &local, "--fail-on", "worse"]);
    text(&["diff", &local, &local, "--fail-on", "worse"]);
    assert_eq!(nearside(&["diff", &local, &slower, "--fail-on", "worse"]).code, 1);
    // A run that takes longer, whatever its accesses.
    let mut longer = traces::face_recognition();
    for sample in &mut longer.samples {
        sample.latency_ns = sample.latency_ns.map(|ns| 0.5 * ns);
        sample.time_ns *= 2;
    }
    let (_longer, longer) = written(longer);
    let worse = nearside(&["diff", &local, &longer, "--fail-on", "worse"]);
    assert!(worse.code == 1 && worse.out.starts_with("B is worse: its run took "), "{}", worse.out);
}

/// As of a command that is recorded for it.
#[test]
fn runs_that_failed_are_not_compared() {
    let (_first, whole) = written(traces::face_recognition());
    let (folder, failed) = written(traces::face_recognition());
    let about = folder.path().join("trace/trace.toml");
    let told = std::fs::read_to_string(&about).unwrap();
    std::fs::write(&about, told.replace("complete = true", "complete = true\nexit_status = 134")).unwrap();
    // Its exit code, whatever that means to nearside.
    let says = "nearside: the recorded command ended with exit code 134, so no limit was compared\n";
    let mut compared = assert_cmd::Command::cargo_bin("nearside").unwrap();
    compared.args(["assert", &failed, "--local", "0%"]).assert().code(134).stdout("").stderr(says);
    assert!(text(&["report", &failed]).contains("program         failed with exit code 134: it may not have done"));
    for ([a, b], which) in [([&whole, &failed], "B"), ([&failed, &whole], "A")] {
        let diff = nearside(&["diff", a, b, "--fail-on", "worse"]);
        let says = format!("Cannot be compared: the program of {which} failed with exit code 134");
        assert!(diff.code == 1 && diff.out.starts_with(&says), "{}", diff.out);
        let json: Value = serde_json::from_str(&text(&["diff", a, b, "--json"])).unwrap();
        assert_eq!(json["overall"], "noise");
    }
    text(&["diff", &failed, &failed, "--fail-on", "worse"]);
}

/// `record --source counters` samples no access.
#[test]
fn counters_need_no_samples() {
    let count = |time_ns, node, value| Count {
        time_ns,
        counter: Counter::ControllerBytes,
        from: None,
        to: Some(NodeId(node)),
        cpu: None,
        value,
    };
    let counts =
        [count(5_000_000, 0, 0), count(5_000_000, 1, 0), count(9_000_000, 0, 3_000_000), count(9_000_000, 1, 0)];
    let (_folder, trace) = written_counted(traces::Trace::new(&[]), &counts);
    let found = nearside(&["assert", &trace, "--controller-load", "0.1%", "--imbalance", "3", "--local", "10%"]);
    assert!(found.code == 1 && found.out.starts_with("failed: 2 of 3 limits, on 0 samples"), "{}", found.out);
    let passed = text(&["assert", &trace, "--imbalance", "3"]);
    assert!(passed.starts_with("passed: the limit holds, by counters"), "{passed}");
    assert!(text(&["report", &trace]).contains("controller load, node 0"));
}

/// What was not measured does not pass.
#[test]
fn nothing_to_compare_fails() {
    let (_first, local) = written(traces::face_recognition());
    let (_second, empty) = written(traces::Trace::new(&[]));
    for ([a, b], says) in [
        ([&local, &empty], "Cannot be compared: B has no samples that reached memory\n"),
        ([&empty, &local], "Cannot be compared: A has no samples that reached memory\n"),
        ([&empty, &empty], "nothing to compare: neither has samples"),
    ] {
        assert!(text(&["diff", a, b]).contains(says));
        assert_eq!(nearside(&["diff", a, b, "--fail-on", "worse"]).code, 1);
    }
    let found = nearside(&["hugepages", "find", &empty]);
    assert!(found.code == 1 && found.out.starts_with("no access was sampled"), "{}", found.out);
}

#[test]
fn mistakes_are_found_before_the_command_runs_and_its_failure_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let ran = ran.to_str().unwrap();
    let twice = nearside(&["assert", "--local", "95%", "--json", "--junit", "-", "--", "touch", ran]);
    assert!(twice.code == 2 && twice.err.contains("only one of these"), "{}", twice.err);
    assert!(!folder.path().join("ran").exists());
    let (_folder, trace) = written(traces::face_recognition());
    let kept = nearside(&["assert", "--local", "1%", &trace, "-o", ran]);
    assert!(kept.code == 2 && kept.err.contains("cannot be used with"), "{}", kept.err);
    let failed = nearside(&["assert", "--quiet", "--local", "95%", "--", "false"]);
    assert!(failed.code == 1 && failed.err.contains("ended with exit code 1, so no limit"), "{}", failed.err);
}

/// Another machine's nodes would be the nodes of other CPUs.
#[test]
fn a_trace_is_not_judged_by_another_machine() {
    let (_folder, trace) = written(traces::face_recognition());
    let limit = ["assert", "--local", "1%", &trace, "--machine"];
    text(&[&limit[..], &["small-4x2"]].concat());
    let other = nearside(&[&limit[..], &["opteron-6164x2"]].concat());
    assert!(other.code == 2 && other.err.contains("has other nodes or CPUs (4 nodes with CPUs 0-23)"), "{}", other.err);
}
