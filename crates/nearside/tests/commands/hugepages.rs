//! `nearside hugepages find` on traces made here.

use crate::report::written;
use crate::traces::{Trace, face_recognition};
use assert_cmd::Command;
use machine::NodeId;
use serde_json::Value;
use trace::{AccessKind, What};

const HUGE: u64 = 2 << 20;
const START: u64 = 0x6000_0000;

fn find(arguments: &[&str]) -> (i32, String, String) {
    hugepages("find", arguments)
}

/// Exit code, standard output and standard error.
fn hugepages(verb: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("nearside").unwrap();
    let output = command.args(["hugepages", verb]).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Eight huge pages on node 0, of which the first quarter is node 1's.
fn parts() -> Trace {
    let mut trace = Trace::new(&[1]);
    trace.allocate((1, 1, 0), START, 8 * HUGE, "table_new");
    for block in 0..8 {
        let address = START + block * HUGE;
        trace.event(1, 1, 0, What::PagePlaced { address, bytes: HUGE, node: NodeId(0), from: None });
    }
    for _ in 0..4000 {
        let (block, page) = (trace.random(8), trace.random(512));
        let cpu = if page < 128 { 2 } else { 0 };
        let address = START + block * HUGE + page * 4096 + trace.random(64) * 64;
        trace.access((1, 10 + cpu, cpu), address, 0, AccessKind::Load).weight = 90.0;
    }
    trace
}

#[test]
fn falsely_shared_huge_pages_are_shown_with_their_owners() {
    let (folder, trace) = written(parts());
    let (code, text, error) = find(&[&trace]);
    assert_eq!((code, error.as_str()), (3, ""), "{text}");
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with(
            "8 of 8 huge pages are falsely shared: with small pages there, on their users' nodes, the program"
        ),
        "{text}"
    );
    assert!(text.contains("app+0x") && text.contains("0x60000000  0-127 node 1, 128-511 node 0 ("), "{text}");
    let json = folder.path().join("found.json").display().to_string();
    assert_eq!(find(&[&trace, "--json", &json, "--top", "2"]).0, 3);
    let found: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&found["schema"], &found["found"]), (&1.into(), &true.into()));
    assert_eq!(found["blocks"].as_array().unwrap().len(), 8);
    assert_eq!(found["blocks"][0]["sharing"], "falsely_shared");
    let [low, high] = [0, 1].map(|end| found["avoidable_interval"][end].as_f64().unwrap());
    let share = found["avoidable_share"].as_f64().unwrap();
    assert!(low < share && share <= high && share > 0.9, "{low} {share} {high}");
}

#[test]
fn other_traces_have_none_and_mistakes_have_codes_of_their_own() {
    let (_folder, trace) = written(face_recognition());
    let (code, text, _) = find(&[&trace]);
    assert!(code == 0 && text.starts_with("no huge page was seen: "), "{text}");
    let (code, text, _) = find(&["--source", "none", "--", "true"]);
    assert!(code == 1 && text.starts_with("no access was sampled, so no huge page was seen: "), "{text}");
    let (code, _, error) = find(&["/no/such/trace"]);
    assert!(code == 1 && error.contains("/no/such/trace"), "{error}");
    let (code, _, error) = find(&["--source", "none", "--", "/no/such/program"]);
    assert!(code == 127 && error.contains("/no/such/program"), "{error}");
    assert_eq!(find(&[]).0, 2);
    assert_eq!(find(&[&trace, "--", "true"]).0, 2);
    assert_eq!(find(&["--pid", "1", "--machine", "small-2x2"]).0, 2);
    for of_lab in [["--thp", "never"], ["--memory-per-node", "2G"], ["--numa-balancing", "off"]] {
        let (code, _, error) = find(&[&[&trace, "--machine", "small-2x2"], &of_lab[..]].concat());
        assert!(code == 2 && error.contains("cannot be used with"), "{code} {error}");
    }
}

#[test]
fn a_program_without_such_pages_runs_as_it_is() {
    let cure = |arguments: &[&str]| hugepages("cure", arguments);
    let (code, text, error) = cure(&["--source", "none", "--json", "-", "--", "sh", "-c", "exit 7"]);
    assert!(
        code == 7 && error.contains("nearside: no access was sampled, so no huge page was seen: "),
        "{code} {error}"
    );
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&told["chosen"], &told["split"], &told["ended"]), (&0.into(), &0.into(), &true.into()));
    // The variable that makes a program listen is its starter's.
    let (code, text, _) = cure(&["--source", "none", "--quiet", "--", "sh", "-c", "echo $NEARSIDE_ADVICE"]);
    assert!(code == 0 && text.ends_with("/advice\n"), "{text}");
    assert_eq!(cure(&["--source", "none", "--", "/no/such/program"]).0, 127);
    assert_eq!(cure(&["--no-objects", "--", "true"]).0, 2);
    for of_recording in [["--regions", "names.toml"], ["--small-objects", "64"]] {
        let (code, _, error) = cure(&[&["--from", "/no/such/trace"], &of_recording[..], &["--", "true"]].concat());
        assert!(code == 2 && error.contains("give them to nearside record, which writes the TRACE"), "{code} {error}");
    }
    assert_eq!(cure(&[]).0, 2);
}
