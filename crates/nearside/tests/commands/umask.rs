//! What the verbs write under `umask 0` is not open to other users.

use crate::support::open_to_others;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Outputs that other users may read, and not change: they say nothing about processes.
const PUBLIC: [&str; 3] = ["topology.svg", "machine.toml", "measured.toml"];

fn run(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(assert_cmd::cargo::cargo_bin("nearside"));
    let ran = command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn what_is_written_under_umask_0_is_not_open_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["record", "--source", "none", "-o", "trace", "--json", "record.json", "--", "sh", "-c", "true"]);
    run(folder, &["record", "--source", "none", "-o", "below/other", "--", "true"]);
    let pictures =
        ["--html", "page.html", "--perfetto", "perfetto.json", "--flamegraph", "flames.svg", "--folded", "folded"];
    run(folder, &[&["report", "trace"][..], &pictures].concat());
    run(folder, &["topology", "--from", "small-2x2", "--format", "svg", "--output", "topology.svg"]);
    let quick = ["--quick", "--repeats", "1", "--size", "8M", "--only", "latency", "--quiet"];
    run(folder, &[&["measure", "--output", "measured.toml"][..], &quick].concat());
    run(folder, &["pages", &std::process::id().to_string(), "--output", "pages.svg"]);
    let elsewhere = tempfile::tempdir().unwrap();
    let campaign = elsewhere.path().join("c.toml");
    let grid = "title = \"one\"\nruns = { min = 1, max = 1 }\n[grid]\napp = { one = \"true\" }\n";
    fs::write(&campaign, grid).unwrap();
    run(folder, &["explore", campaign.to_str().unwrap(), "--into", "results/of/one", "--quiet"]);
    assert!(fs::read_dir(folder).unwrap().count() >= 10);
    let mut open = open_to_others(folder);
    open.retain(|(path, rights)| *rights != 0o044 || !PUBLIC.iter().any(|name| path.ends_with(name)));
    assert_eq!(open, []);
}
