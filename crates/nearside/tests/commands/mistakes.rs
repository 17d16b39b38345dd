//! Messages about command lines and files that are wrong: in plain words, with what helps, and with lists that can be
//! read.

use crate::report::{nearside, written};
use crate::traces;
use assert_cmd::Command;
use std::fs;

/// What nearside says about a command line, and its exit code.
fn said(arguments: &[&str]) -> (i32, String) {
    let output = Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code().expect("no signal ends nearside"), text)
}

#[test]
fn files_and_programs_that_are_missing_are_named_in_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &str| folder.path().join(name).display().to_string();
    let (missing, page) = (below("missing"), below("none/page.html"));
    let (_folder, trace) = written(traces::face_recognition());
    let file = format!("{trace}/trace.toml");
    let program = "no folder of PATH has a program of this name";
    for (arguments, code, says) in [
        (&["report", &missing][..], 1, "there is no such file or folder; `nearside record -- COMMAND` records one"),
        (&["diff", &trace, &missing], 1, "there is no such file or folder"),
        (&["replay", &missing], 1, "there is no such file or folder; `nearside place --log FILE"),
        (&["replay", &trace], 1, "it is a folder, and a file is needed; `nearside place"),
        (&["explore", &missing], 2, "there is no such file or folder: check its path"),
        (&["record", "--", "no-such-program"], 127, program),
        (&["run", "--", "no-such-program"], 1, program),
        (&["top", "--once", "--", "no-such-program"], 1, program),
        (&["report", &trace, "--html", &page], 1, "none: mkdir -p "),
        (&["record", "-o", "-", "--", "true"], 2, "a trace is a folder, which standard output cannot be"),
        (&["record", "-o", &file, "--", "true"], 125, "exists and is not an empty folder: choose another folder"),
        (&["assert", "--local", "1", "-o", &trace, "--", "true"], 125, "exists and is not an empty folder"),
    ] {
        let (status, text) = said(arguments);
        assert!(text.contains(says) && !text.contains("os error"), "{arguments:?}: {text}");
        assert_eq!(status, code, "{arguments:?}: {text}");
    }
}

#[test]
fn a_process_that_is_missing_is_reported_alike_by_all_commands() {
    for command in [&["show"][..], &["pages"], &["top", "--pid"], &["bind", "-C", "0"], &["migrate", "--to", "0"]] {
        let arguments = [command, &["no-such-name"]].concat();
        let expected =
            "nearside: there is no process `no-such-name`: give its number, or its name as `ps -o comm` has it\n";
        assert_eq!(said(&arguments), (2, expected.to_owned()), "{arguments:?}");
    }
}

#[test]
fn presets_and_policies_are_listed_one_a_line() {
    let lines = |text: &str| text.lines().filter(|line| line.starts_with("  ")).count();
    for arguments in [&["topology", "--from", "small4x2"][..], &["lab", "show", "small4x2"]] {
        let text = said(arguments).1;
        assert!(text.contains(" (did you mean `small-4x2`?)") && text.contains("\n  small-4x2\n"), "{text}");
        assert_eq!(lines(&text), machine::presets::names().len(), "{text}");
    }
    for arguments in [&["place", "--policy", "carefour", "--", "true"][..], &["replay", "--policy", "carefour", "x"]] {
        let text = said(arguments).1;
        assert!(text.contains(" (did you mean `carrefour`?)") && text.contains("\n  carrefour  "), "{text}");
        assert_eq!(lines(&text), placement::POLICIES.len(), "{text}");
    }
}

#[test]
fn a_trace_in_place_of_a_machine_is_recognised() {
    let (folder, trace) = written(traces::face_recognition());
    let perf = folder.path().join("perf.data");
    fs::write(&perf, b"PERFILE2 and more").unwrap();
    let (perf, machine) = (perf.display().to_string(), format!("{trace}/machine.toml"));
    let refused = |from: &str| nearside(&["topology", "--from", from]).err;
    assert!(
        refused(&trace).contains(&format!("`nearside topology --from {machine}` its machine")),
        "{}",
        refused(&trace)
    );
    assert_eq!(nearside(&["topology", "--from", &machine]).code, 0);
    assert!(refused(&perf).contains("is a recording of perf: `nearside report"), "{}", refused(&perf));
    let foreign = refused("/etc/passwd");
    assert!(foreign.contains("/etc/passwd is neither a machine file (TOML) nor hwloc XML: line 1: "), "{foreign}");
}

/// The whole answer, as the terminal shows it.
#[test]
fn a_program_without_dashes_gets_the_line_that_works() {
    let (status, text) = said(&["lab", "run", "-m", "small-4x2", "ls", "-l"]);
    let expected = "error: unexpected argument 'ls' found\n\n  tip: a program follows `--`: nearside lab run -m small-4x2 -- ls \
                    -l\n\nUsage: nearside lab run [OPTIONS] --machine <PRESET|FILE> [-- <CMD>...]\n\nFor more information, try \
                    '--help'.\n";
    assert_eq!((status, text.as_str()), (2, expected));
}

/// The folder is removed when the command ends.
#[test]
fn a_trace_that_is_not_kept_is_not_named() {
    for arguments in [
        &["assert", "--local", "0%", "--source", "none", "--", "true"][..],
        &["hugepages", "find", "--source", "none", "--", "true"],
    ] {
        let text = said(arguments).1;
        assert!(text.starts_with("nearside: recorded ") && !text.contains("/trace"), "{arguments:?}: {text}");
    }
}
