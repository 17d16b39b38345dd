//! Peak of memory on files without an end, in the place of every file that a command reads.

use linux::wait_with_peak;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
/// Commands that read a file, up to where it is named. TRACE is a trace that can be read.
const READERS: [&str; 56] = [
    "topology --from",
    "agent --config",
    "agent status --socket",
    "replay",
    "explore",
    "report",
    "report TRACE --machine",
    "diff /dev/zero",
    "diff TRACE TRACE --machine",
    "assert --local 1",
    "assert TRACE --local 1 --machine",
    "export --parquet /dev/null",
    "export TRACE --parquet /dev/null --machine",
    "lab show",
    "lab run --machine",
    "lab run --machine small-4x2 --kernel-module",
    "lab record --machine small-4x2 --kernel-module",
    "compare --machine small-4x2 --kernel-module",
    "lab record --machine",
    "show 1 --root",
    "memory --root",
    "memory --cgroup",
    "doctor --devices --root",
    "place --machine",
    "compare --machine",
    "hugepages find",
    "hugepages find --machine",
    "hugepages find TRACE --machine",
    "hugepages cure --from",
    "hugepages confirm --machine",
    "record --source none --regions",
    "lab record --machine small-4x2 --regions",
    "assert --local 1 --regions",
    "hugepages find --regions",
    "hugepages find --machine small-4x2 --kernel-module",
    "hugepages confirm --machine small-4x2 --kernel-module",
    "hugepages cure --regions",
    "top --once --regions",
    "place --region a=here --regions",
    "pages 1 --regions",
    "migrate 1 --to 0 --mapping a --regions",
    "migrate 1 --trace",
    "bind 1 --trace",
    "reserve check --machine",
    "reserve check --after",
    "reserve plan",
    "reserve plan ../../docs/reserve-calls.jsonl --machine",
    "reserve plan ../../docs/reserve-calls.jsonl --after",
    "reserve facts --machine",
    "reserve facts --after",
    "reserve run --machine",
    "reserve run --after",
    "reserve explain 1 --machine",
    "reserve explain 1 --after",
    "reserve rcm --machine",
    "reserve rcm --after",
];
/// Options with a file that is written, is a control group or is mapped as memory.
const OTHERS: [&str; 19] = [
    "--json",
    "--log",
    "--html",
    "--perfetto",
    "--flamegraph",
    "--folded",
    "--output",
    "--out",
    "--samples",
    "--file",
    "--cgroup",
    "--replicate",
    "--shm",
    "--mapping",
    "--junit",
    "--markdown",
    "--parquet",
    "--csv",
    "--into",
];
/// Words that end the command lines of those that run a program.
const RUNNERS: [&str; 12] = [
    "record",
    "assert --local 1 --regions",
    "hugepages find --regions",
    "lab run",
    "lab record",
    "place",
    "compare",
    "hugepages find --machine",
    "hugepages cure",
    "hugepages confirm",
    "reserve rcm",
    "reserve run",
];

/// Runs nearside. Returns whether it succeeded, its peak of memory in bytes, and what it complained.
pub fn peak(words: &[&str]) -> (bool, u64, String) {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").arg(assert_cmd::cargo::cargo_bin("nearside")).args(words).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(said.reopen().unwrap()).spawn().unwrap();
    let (status, peak) = wait_with_peak(child).unwrap();
    let mut text = String::new();
    File::open(said.path()).unwrap().read_to_string(&mut text).unwrap();
    assert_ne!(status.code(), Some(124), "{words:?} reads without an end");
    (status.success(), peak, text)
}

fn help_of(words: &[&str]) -> String {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    String::from_utf8(command.args(words).arg("--help").output().unwrap().stdout).unwrap()
}

fn verbs_of(help: &str) -> Vec<String> {
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let list = rest.split("\n\nOptions:").next().unwrap_or_default();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every option with a file, by the names of values in the help of all verbs, is either attacked here or reads no file.
#[test]
fn every_option_with_a_file_is_known() {
    let mut unknown = BTreeSet::new();
    for verb in verbs_of(&help_of(&[])) {
        let below: Vec<String> = verbs_of(&help_of(&[&verb])).iter().map(|inner| format!("{verb} {inner}")).collect();
        for verb in [vec![verb], below].concat() {
            let words: Vec<&str> = verb.split(' ').collect();
            for line in help_of(&words).lines() {
                let Some((names, value)) = line.split_once(" <") else { continue };
                let option = names.split_whitespace().last().filter(|name| name.starts_with("--"));
                let value = value.split('>').next().unwrap_or_default();
                let is_file = ["FILE", "PATH", "TRACE", "FOLDER", "DIR"].iter().any(|name| value.contains(name));
                let Some(option) = option.filter(|_| is_file) else { continue };
                let is_read = READERS.iter().any(|reader| reader.starts_with(&verb) && reader.ends_with(option))
                    || verb.starts_with("agent ") && option == "--socket";
                if !is_read && !OTHERS.contains(&option) {
                    unknown.insert(format!("{verb} {option}"));
                }
            }
        }
    }
    assert_eq!(unknown, BTreeSet::new());
}

#[test]
fn files_without_an_end_take_at_most_256_mib() {
    let (_folder, trace) = crate::report::written(crate::traces::face_recognition());
    for reader in READERS {
        let words = reader.split(' ').map(|word| if word == "TRACE" { &*trace } else { word });
        let mut words: Vec<&str> = words.chain(["/dev/zero"]).collect();
        if RUNNERS.iter().any(|runner| reader.starts_with(runner)) {
            words.extend(["--", "true"]);
        }
        let (succeeded, peak, said) = peak(&words);
        assert!(!succeeded && peak <= 256 * MIB, "{words:?}: {} MiB: {said}", peak / MIB);
        // A command line that is wrong shows nothing.
        assert!(!said.contains("unexpected argument") && !said.contains("Usage:"), "{words:?}: {said}");
    }
}
