//! `nearside measure` on this host.

use crate::support::RunOutput;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// `nearside measure OPTIONS` on this host.
fn measure(options: &[&str]) -> RunOutput {
    let output = Command::new(assert_cmd::cargo::cargo_bin("nearside")).arg("measure").args(options).output().unwrap();
    RunOutput::from(output)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why} in:\n{text}"))
}

/// A host with one node or several.
#[test]
fn this_host_is_measured_as_far_as_it_goes() {
    let small = ["--quick", "--repeats", "1", "--size", "8M", "--only", "latency,bandwidth,caches"];
    let ran = measure(&[&small[..], &["--json"]].concat()).succeeded();
    let measured = json(ran.text());
    let nodes = measured["nodes"].as_array().unwrap().len();
    assert_eq!(measured["latency_ns"].as_array().unwrap().len(), nodes);
    assert!(measured["latency_ns"][0][0]["value"].as_f64().unwrap() > 0.1, "{measured}");
    assert!(measured["bandwidth_bytes_per_s"]["one_core"]["copy"][0][0]["value"].as_f64().unwrap() > 1e6);
    assert!(measured["caches"]["clock_hz"]["value"].as_f64().unwrap() > 1e8);
    assert!(ran.error.contains("measuring for about"), "{}", ran.error);

    let svg = measure(&[&small[..], &["--format", "svg", "--quiet"]].concat()).succeeded();
    assert!(svg.text().starts_with("<svg") && svg.error.is_empty(), "{}", svg.error);
    let text = measure(&[&small[..], &["--quiet"]].concat()).succeeded();
    assert!(text.text().contains("Latency (ns, idle; rows access"), "{}", text.text());
}

#[test]
fn what_spreads_too_much_is_refused_and_told() {
    // No two measurements of a real clock are equal.
    let ran = measure(&["--quick", "--only", "latency", "--size", "8M", "--max-spread", "1e-12", "--json"]);
    ran.failed(3, &["the result is partial: latency from node", "repeats spread by more than 0 %", "--max-spread"]);
    let measured = json(ran.text());
    assert!(measured["latency_ns"][0][0]["value"].is_null() && measured["partial"] == Value::Bool(true));
    assert_eq!(measured["latency_ns"][0][0]["repeats"], 12);
}

#[test]
fn ctrl_c_keeps_what_is_complete_and_says_what_is_missing() {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    command.args([
        "measure",
        "--only",
        "latency,bandwidth",
        "--size",
        "8M",
        "--repeats",
        "1000",
        "--max-spread",
        "10",
        "--json",
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ran = RunOutput::from(child.wait_with_output().unwrap());
    ran.failed(3, &["interrupted before it was complete"]);
    let measured = json(ran.text());
    assert!(measured["partial"] == Value::Bool(true) && !measured["missing"].as_array().unwrap().is_empty());
}

#[test]
fn options_that_cannot_be_are_refused() {
    for options in
        [["--size", "1M"], ["--size", "129G"], ["--max-spread", "0"], ["--repeats", "0"], ["--only", "speed"]]
    {
        measure(&options).failed(2, &[options[0]]);
    }
    measure(&["--size", "128G"]).failed(1, &["nothing can be measured here", "256 GiB are needed"]);
    measure(&["--quick", "--only", "latency", "--size", "4M", "--output", "/no/such/folder/m.toml"])
        .failed(1, &["cannot write to /no/such/folder/m.toml"]);
}
