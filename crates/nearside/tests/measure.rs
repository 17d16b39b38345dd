//! `nearside measure`, on this host and on virtual machines whose numbers are known.

mod support;

use serde_json::Value;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use support::{Lab, Ran, topology_of};

/// `nearside measure OPTIONS` on this host.
fn measure(options: &[&str]) -> Ran {
    let output = Command::new(assert_cmd::cargo::cargo_bin("nearside")).arg("measure").args(options).output().unwrap();
    Ran::from(output)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why} in:\n{text}"))
}

fn assert_within(part: f64, measured: &Value, wanted: &Value, what: &str) {
    let (measured, wanted) = (measured.as_f64().unwrap(), wanted.as_f64().unwrap());
    assert!((measured / wanted - 1.0).abs() <= part, "{what}: {measured} is not within {part} of {wanted}");
}

/// Issue 3: idle latencies within 3 %, one-core and whole-node bandwidth within 7 %; a machine file that other verbs
/// read; a cpuset and a request for too much memory are reported. All from one boot.
#[test]
fn the_lab_measures_what_its_preset_says() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path("kept")).unwrap();
    std::fs::set_permissions(lab.path("kept"), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let script = "
        measure='../nearside measure --quick --repeats 3'
        echo '[all]'
        $measure --size 32M --only latency,bandwidth,caches --json --output ../kept/measured.toml
        status=$?; echo '[status]'; echo $status
        echo '[cpuset]'
        taskset -c 0-5 $measure --size 16M --only latency --json
        status=$?; echo '[cpuset-status]'; echo $status
        echo '[memory]'
        $measure --size 700M --only bandwidth 2>&1
        status=$?; echo '[memory-status]'; echo $status
        echo '[end]'
    ";
    let ran = lab.script("small-4x2", &["--quiet", "--out", "../kept"], script).succeeded();
    let preset = topology_of("small-4x2");
    let measured = json(ran.section("all"));
    assert_eq!((ran.section("status").trim(), &measured["partial"]), ("0", &Value::Bool(false)), "{}", ran.error);
    let links = preset["link"].as_array().unwrap();
    for from in 0..4 {
        for to in 0..4 {
            let what = format!("node {from} to {to}");
            let wanted = &preset["derived"]["latency_ns"][from][to];
            assert_within(0.03, &measured["latency_ns"][from][to]["value"], wanted, &what);
            let pair = |link: &&Value| link["nodes"] == Value::from(vec![from.min(to), from.max(to)]);
            let wanted = match links.iter().find(pair) {
                Some(link) => &link["bandwidth_bytes_per_s"],
                None => &preset["node"][to]["bandwidth_bytes_per_s"],
            };
            for cores in ["one_core", "all_cores"] {
                let read = &measured["bandwidth_bytes_per_s"][cores]["read"][from][to]["value"];
                assert_within(0.07, read, wanted, &format!("{cores}, {what}"));
            }
        }
    }
    // Every distance of 16 claims 1.6 times the local latency; it is 1.41.
    assert_eq!(measured["firmware"]["disagreements"].as_array().unwrap().len(), 12);
    assert_eq!(measured["firmware"]["order_changes"].as_array().unwrap().len(), 0);

    let file = lab.path("kept/measured.toml");
    let shown = lab.nearside().args(["topology", "--json", "--from"]).arg(&file).output().unwrap();
    let calibrated = json(std::str::from_utf8(&shown.stdout).unwrap());
    assert_within(0.03, &calibrated["latency"]["matrix_ns"][0][3], &preset["derived"]["latency_ns"][0][3], "written");
    assert!(calibrated["sources"]["measured"].as_str().unwrap().contains("nearside measure"), "{calibrated}");
    assert_eq!(calibrated["link"].as_array().unwrap().len(), 6);
    let runs = lab.command(file.to_str().unwrap(), &["--quiet"], &["true"]);
    lab.run(runs, b"").succeeded();

    let hidden = json(ran.section("cpuset"));
    assert_eq!((ran.section("cpuset-status").trim(), &hidden["partial"]), ("3", &Value::Bool(true)));
    assert_eq!(hidden["missing"][0]["what"], "everything from CPUs of node 3");
    assert!(hidden["latency_ns"][2][3]["value"].is_number() && hidden["latency_ns"][3][2].is_null());

    assert_eq!(ran.section("memory-status").trim(), "1");
    for part in ["are free there; 700 MiB are needed", "--size", "memory of node 3"] {
        assert!(ran.section("memory").contains(part), "no {part:?} in {}", ran.section("memory"));
    }
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
    ran.failed(3, &["the result is partial: latency from node", "repeats spread by up to", "--max-spread"]);
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
    let ran = Ran::from(child.wait_with_output().unwrap());
    ran.failed(3, &["interrupted before it was complete"]);
    let measured = json(ran.text());
    assert!(measured["partial"] == Value::Bool(true) && !measured["missing"].as_array().unwrap().is_empty());
}

#[test]
fn options_that_cannot_be_are_refused() {
    for options in [["--size", "1M"], ["--max-spread", "0"], ["--repeats", "0"], ["--only", "speed"]] {
        measure(&options).failed(2, &[options[0]]);
    }
    measure(&["--size", "1T"]).failed(1, &["nothing can be measured here", "2 TiB are needed"]);
    measure(&["--quick", "--only", "latency", "--size", "4M", "--output", "/no/such/folder/m.toml"])
        .failed(1, &["cannot write to /no/such/folder/m.toml"]);
}
