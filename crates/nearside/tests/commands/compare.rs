//! `nearside compare` on this host: which runs there are, and which time is compared.

use assert_cmd::Command;
use linux::monotonic_ns;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// With a folder for what runs teach.
fn nearside(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("nearside").unwrap();
    command.args(arguments).env_remove("NEARSIDE_TIME_SCALE").env("XDG_STATE_HOME", state);
    command
}

/// Runs of `predict` in the result, and lines that all its runs and those of first touch have written.
fn runs(options: &[&str]) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let fixed = ["compare", "--policies", "first-touch,predict", "--repeat", "2", "--keep-caches", "--quiet"];
    let program = format!("echo run >> {}", log.display());
    let all = [&fixed[..], options, &["--json", "-", "--", "sh", "-c", &program]].concat();
    let output = nearside(folder.path(), &all).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured = report["policies"][1]["runs"].as_array().unwrap().len();
    (measured, fs::read_to_string(log).unwrap().lines().count())
}

#[test]
fn each_policy_has_an_unmeasured_run_first() {
    assert_eq!(runs(&[]), (2, 2 * (1 + 2)));
    assert_eq!(runs(&["--warm-ups", "0"]), (2, 2 * 2));
    assert_eq!(runs(&["--warm-ups", "3"]), (2, 2 * (3 + 2)));
}

#[test]
fn the_time_is_that_of_the_program_and_not_of_the_verb_that_starts_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("times");
    let times = |verb: &[&str]| {
        let _ = fs::remove_file(&file);
        let before = monotonic_ns();
        let all = [verb, &["--times", file.to_str().unwrap(), "--", "sleep", "1"]].concat();
        let output = nearside(folder.path(), &all).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let read: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let began = read["began_ns"].as_u64().unwrap();
        assert!((before..monotonic_ns()).contains(&began), "{read}");
        (began, read["ended_ns"].as_u64(), monotonic_ns())
    };
    for verb in [&["place", "--quiet"][..], &["hugepages", "cure", "--quiet", "--duration", "0.1"]] {
        let (began, ended, after) = times(verb);
        let ended = ended.unwrap();
        // A busy host lets nearside see late that the program began.
        assert!(ended < after && ended - began >= 500_000_000, "{verb:?}: {began} to {ended}");
    }
    assert_eq!(times(&["run"]).1, None, "its own end is the program's");
}
