//! What shells complete.

use crate::report::{text, written};
use crate::traces;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The values that bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    offered_in(Path::new("."), words)
}

/// Likewise, in this folder.
fn offered_in(folder: &Path, words: &[&str]) -> Vec<String> {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    // As the script of `nearside completions bash` calls it.
    let index = (words.len() - 1).to_string();
    command.envs([("NEARSIDE_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", index.as_str()), ("_CLAP_IFS", "\n")]);
    command.envs([("_CLAP_COMPLETE_COMP_TYPE", "9"), ("_CLAP_COMPLETE_SPACE", "true")]).arg("--").args(words);
    command.current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
}

fn has(words: &[&str], value: &str) {
    let offered = offered(words);
    assert!(offered.iter().any(|one| one == value), "{words:?}: {offered:?}");
}

#[test]
fn shells_offer_presets_policies_and_objects() {
    has(&["nearside", "lab", "run", "--machine", "opteron-61"], "opteron-6164x2");
    has(&["nearside", "topology", "--from", "epyc-"], "epyc-9224x2-cxl");
    has(&["nearside", "place", "--policy", "carr"], "carrefour");
    has(&["nearside", "compare", "--policies", "kernel,inter"], "kernel,interleave");
    has(&["nearside", "rep"], "report");
    has(&["nearside", "lab", "run", "-m", "small-4x2", "--", "ech"], "echo");
    has(&["nearside", "record", "--", "echo", "/etc/pass"], "/etc/passwd");
    has(&["nearside", "run", "-m", "0", "ech"], "echo");
    let (_folder, trace) = written(traces::face_recognition());
    let object = serde_json::from_str::<serde_json::Value>(&text(&["report", &trace, "--json"])).unwrap();
    let object = object["objects"]["first"][0]["object"].to_string();
    has(&["nearside", "report", &trace, "--object", ""], &object);
    has(&["nearside", "report", &trace, "--site", ""], "0");
    assert_eq!(offered(&["nearside", "report", "/no/trace", "--object", ""]), Vec::<String>::new());
}

/// What the option would refuse is not offered.
#[test]
fn shells_offer_machine_files_only_to_the_lab() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["mine.toml", "mine.parquet"] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let offered = |words: &[&str]| offered_in(folder.path(), words);
    assert_eq!(offered(&["nearside", "lab", "run", "--machine", "min"]), ["mine.toml"]);
    assert_eq!(offered(&["nearside", "topology", "--from", "min"]), ["mine.parquet", "mine.toml"]);
}

#[test]
fn each_shell_has_a_script() {
    for (shell, part) in
        [("bash", "complete "), ("zsh", "#compdef nearside"), ("fish", "complete "), ("elvish", "edit:")]
    {
        let script = text(&["completions", shell]);
        assert!(script.contains(part) && script.contains("NEARSIDE_COMPLETE"), "{script}");
    }
    let broken = Command::new("bash").args(["-n", "-c", &text(&["completions", "bash"])]).output();
    assert!(broken.unwrap().status.success(), "bash does not read its script");
}
