//! docs/json.md has every field of the JSON output of commands that need no virtual machine.

use crate::report::{nearside, written};
use crate::traces;
use serde_json::Value;
use std::process::{Command, Stdio};
use test_tools::json_fields::assert_documented;

/// The values that a command prints, which may end with any code that its help lists.
fn values(arguments: &[&str]) -> Vec<Value> {
    let output = assert_cmd::Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    values.unwrap_or_else(|why| panic!("{arguments:?}: {why}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn every_field_is_documented() {
    let (_first, before) = written(traces::face_recognition());
    let (_second, after) = written(traces::stream_clustering());
    let object = nearside(&["report", &before, "--json"]);
    let object: Value = serde_json::from_str(&object.out).unwrap();
    let object = object["objects"]["first"][0]["object"].to_string();
    let own = std::process::id().to_string();
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let pid = other.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace").display().to_string();
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reserve-plan.toml");
    let commands = [
        ("report TRACE", vec!["report", &before, "--json"]),
        ("report TRACE", vec!["report", &after, "--json"]),
        ("report TRACE --object OBJECT", vec!["report", &before, "--object", &object, "--json"]),
        ("diff A B", vec!["diff", &before, &after, "--json"]),
        ("hugepages find TRACE --json -", vec!["hugepages", "find", &before, "--json", "-"]),
        ("assert TRACE", vec!["assert", "--local", "95%", &before, "--json"]),
        ("bind PID", vec!["bind", &pid, "--cpunodebind", "0", "--json"]),
        ("lab list", vec!["lab", "list", "--json"]),
        ("migrate PID", vec!["migrate", &pid, "--to", "0", "--json"]),
        ("record --json FILE", vec!["record", "--quiet", "--json", "-", "-o", &trace, "--", "true"]),
        ("topology", vec!["topology", "--from", "opteron-6164x2", "--json"]),
        ("topology", vec!["topology", "--from", "xeon-6130x2", "--json"]),
        ("reserve check", vec!["reserve", "check", "--machine", "magny-cours-4p", "--cores", "1", "--json"]),
        ("reserve check", vec!["reserve", "check", "--machine", "magny-cours-4p", "--cores", "60", "--json"]),
        ("reserve facts", vec!["reserve", "facts", "--machine", "magny-cours-4p", "--format", "json"]),
        ("reserve plan FILE", vec!["reserve", "plan", plan, "--machine", "magny-cours-4p", "--json"]),
        ("doctor", vec!["doctor", "--json"]),
        ("show", vec!["show", "--json"]),
        ("show PID", vec!["show", &own, "--json"]),
        ("memory", vec!["memory", "--json"]),
        ("pages PID", vec!["pages", &own, "--json"]),
    ];
    for (title, arguments) in commands {
        assert_documented(title, &values(&arguments));
    }
    other.kill().unwrap();
    other.wait().unwrap();
}
