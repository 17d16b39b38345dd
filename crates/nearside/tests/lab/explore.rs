//! `nearside explore` in the lab.

use crate::support::{Lab, is_root_to};
use serde_json::Value;
use std::fs;
use test_tools::json_fields::assert_documented;

const CAMPAIGN: &str = r#"
title = "pinnings in the lab"
seconds = "/seconds"
timeout_s = 20
runs = { min = 2, max = 2 }
[grid]
app = { cg = "WORKLOADS cg --size 2M --json", hang = "sleep 1000", places = "sh -c 'echo {q}\"$OMP_PLACES\"; exit 3'" }
machine = ["small-2x2"]
pinning = ["sockorder", "sequential"]
balancing = ["off"]
q = [1]
[[exclude]]
app = ["hang", "places"]
pinning = "sockorder"
[lab]
memory_per_node = "512M"
"#;

#[test]
fn cells_of_one_machine_share_a_boot_and_leave_their_results() {
    let lab = Lab::new();
    let workloads = lab.path("nearside-workloads");
    fs::write(lab.path("work/c.toml"), CAMPAIGN.replace("WORKLOADS", workloads.to_str().unwrap())).unwrap();
    let explore = |options: &[&str]| {
        let mut command = lab.nearside();
        command.args(["explore", "c.toml", "--into", "results"]).args(options);
        lab.run(command, b"")
    };
    let ran = explore(&["--json", "report.json"]);
    ran.failed(
        1,
        &["cg-small-2x2-sequential-off-1, run 2: ", "hang-small-2x2-sequential-off-1, run 1: it was ended after 20 s"],
    );
    let report: Value = lab.json("work/report.json");
    assert_documented("explore --json FILE", [&report]);
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4, "{report:#}");
    for cell in &cells[..2] {
        assert_eq!(cell["runs"].as_array().unwrap().len(), 2, "{cell:#}");
        let share = |name: &str| cell["metrics"][format!("mean({name})")].as_f64().unwrap();
        let sum = ["A", "B", "C", "D"].map(share).iter().sum::<f64>();
        assert!((sum - 1.0).abs() < 1e-9 && share("A") > 0.1, "{cell:#}");
    }
    assert!(cells[3]["output"].as_str().unwrap().contains("1{0},{2},{1},{3}"), "{:#}", cells[3]);
    let unit = lab.path("work/results/cells").join(cells[0]["id"].as_str().unwrap()).join("0.json");
    let unit: Value = serde_json::from_str(&fs::read_to_string(unit).unwrap()).unwrap();
    assert!(unit["model"].is_string() && unit["places"] == "{0},{1},{2},{3}", "{unit:#}");
    // Nothing is left: no machine boots.
    let again = explore(&[]);
    again.failed(1, &[]);
    assert!(!again.error.contains(", run "), "{}", again.error);
}

/// The report of a campaign of which a run fails, which is said.
fn run_with_a_failure(lab: &Lab, campaign: &str, says: &str) -> Value {
    fs::write(lab.path("work/c.toml"), campaign).unwrap();
    let mut command = lab.nearside();
    command.args(["explore", "c.toml", "--into", "results", "--json", "report.json"]);
    lab.run(command, b"").failed(1, &[says]);
    lab.json("work/report.json")
}

/// A run during which the guest's kernel panics has failed; the cells behind it have another boot.
#[test]
fn a_run_that_ends_the_lab_has_failed_and_the_others_are_run() {
    if !is_root_to("panic the guest's kernel") {
        return;
    }
    let lab = Lab::new();
    let campaign = r#"
title = "panics"
order = "listed"
runs = { min = 1, max = 1 }
[grid]
app = { first = "true", panic = "sh -c 'echo c > /proc/sysrq-trigger'", last = "sh -c :" }
machine = ["small-2x2"]
[lab]
memory_per_node = "512M"
as_root = true
"#;
    let report = run_with_a_failure(&lab, campaign, "panic-small-2x2, run 1: the lab ended while it ran");
    let cells = report["cells"].as_array().unwrap();
    let runs = |at: usize| cells[at]["runs"].as_array().unwrap().len();
    assert_eq!((runs(0), runs(1), runs(2)), (1, 0, 1), "{report:#}");
    assert!(cells[1]["failed"].as_str().unwrap().contains("the lab ended"), "{report:#}");
    lab.assert_nothing_left();
}

/// A program that computes for ever takes hours of the host until the lab's clock has passed the time limit of the file.
#[test]
fn a_run_that_takes_too_long_on_the_host_is_ended_and_the_others_are_run() {
    let lab = Lab::new();
    let campaign = r#"
title = "busy in the lab"
order = "listed"
runs = { min = 1, max = 1 }
[grid]
app = { busy = "sh -c 'while :; do :; done'", brief = "true" }
machine = ["small-2x2"]
[lab]
memory_per_node = "512M"
"#;
    let limit = lab.brief_limit();
    let ended = format!("busy-small-2x2, run 1: it was ended after {limit} s of the host's time");
    let report = run_with_a_failure(&lab, &format!("{campaign}host_timeout_s = {limit}\n"), &ended);
    assert_documented("explore --json FILE", [&report]);
    let cells = report["cells"].as_array().unwrap();
    assert!(cells[0]["failed"].as_str().unwrap().contains("host_timeout_s"), "{report:#}");
    assert_eq!(cells[1]["runs"].as_array().unwrap().len(), 1, "{report:#}");
    lab.assert_nothing_left();
}
