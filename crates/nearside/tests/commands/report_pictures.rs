//! `nearside report --html`, `--perfetto`, `--flamegraph` and `--folded`, of a perf.data file. The pictures themselves
//! are tested in crate `report`.

use crate::support::RunOutput;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Reports in this folder.
fn report(folder: &Path, arguments: &[&str]) -> RunOutput {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/perf_data/chain.data");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    command.current_dir(folder).arg("report").arg(trace).args(["--machine", "small-4x2"]).args(arguments);
    RunOutput::from(command.output().unwrap())
}

#[test]
fn pictures_are_written_beside_the_text() {
    let folder = TempDir::new().unwrap();
    let files = ["--html", "page.html", "--perfetto", "trace.json", "--flamegraph", "flame.svg", "--folded", "folded"];
    let ran = report(folder.path(), &files).succeeded();
    assert_eq!(ran.text(), report(folder.path(), &[]).text());
    let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
    let verdict = ran.text().split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    assert!(read("page.html").starts_with("<!DOCTYPE html>") && read("page.html").contains(&verdict), "{verdict}");
    let trace: Value = serde_json::from_str(&read("trace.json")).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 1);
    assert!(read("flame.svg").contains("</svg>"));
    // The file has no nodes, so nothing in it is remote.
    assert_eq!(read("folded"), "");
}

#[test]
fn a_dash_is_standard_output_which_has_one_of_them() {
    let folder = TempDir::new().unwrap();
    let page = report(folder.path(), &["--html", "-", "--output", "text"]).succeeded();
    assert!(page.text().starts_with("<!DOCTYPE html>") && page.text().trim_end().ends_with("</html>"));
    let told = report(folder.path(), &[]).succeeded();
    let text = told.text();
    assert_eq!(fs::read_to_string(folder.path().join("text")).unwrap(), text);
    assert_eq!(report(folder.path(), &["--html", "-"]).text(), page.text());
    assert_eq!(report(folder.path(), &["--output", "-"]).text(), text);
    for two in
        [["--html", "-", "--perfetto", "-"], ["--html", "-", "--output", "-"], ["--html", "-", "--json", "--user"]]
    {
        report(folder.path(), &two).failed(2, &["only one of these can go to standard output"]);
    }
    assert!(!folder.path().join("-").exists());
}

#[test]
fn a_picture_that_cannot_be_written_is_reported() {
    let folder = TempDir::new().unwrap();
    let ran = report(folder.path(), &["--html", "none/page.html"]);
    ran.failed(1, &["cannot write to none/page.html", "there is no folder none: mkdir -p none"]);
    let ran = report(folder.path(), &["--html", "page.html", "--object", "0"]);
    ran.failed(2, &["--html", "--object"]);
    assert!(!folder.path().join("page.html").exists());
}
