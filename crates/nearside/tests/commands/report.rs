//! `nearside report` and `nearside diff` on traces made here, and on files that are not traces.

use crate::traces;
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trace::{About, Count, Flush, StackId, What, Writer};

const PERF_DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/perf_data/");

/// Output of a command.
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn nearside(arguments: &[&str]) -> Answer {
    let output = Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().expect("no signal ends nearside");
    assert!(code < 3, "{arguments:?} ended with {code}: {}", String::from_utf8_lossy(&output.stderr));
    Answer { code, out: text(output.stdout), err: text(output.stderr) }
}

pub fn text(arguments: &[&str]) -> String {
    let answer = nearside(arguments);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{arguments:?}: {}", answer.out);
    answer.out
}

pub fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).unwrap()
}

/// Fails with this code and message.
fn refused(arguments: &[&str], code: i32, says: &str) {
    let answer = nearside(arguments);
    assert_eq!(answer.code, code, "{arguments:?}: {}", answer.err);
    assert!(answer.err.contains(says) && answer.err.starts_with("nearside: "), "{arguments:?}: {}", answer.err);
    assert!(!answer.err.contains("panic"), "{arguments:?}: {}", answer.err);
}

/// Writes a trace into a folder.
fn write(folder: &Path, trace: traces::Trace, finish: bool) {
    write_counted(folder, trace, &[], finish);
}

/// The same, with values of counters.
fn write_counted(folder: &Path, trace: traces::Trace, counts: &[Count], finish: bool) {
    let about = About::of_command(vec!["recognise".into()]);
    let flush = Flush { rows: 2000, ..Flush::default() };
    let mut writer = Writer::create(folder, about, &traces::machine(), flush).unwrap();
    let chains: Vec<StackId> = trace.stacks.iter().map(|(_, chain)| writer.stacks().id(chain)).collect();
    for mut event in trace.events {
        if let What::Allocated { stack, .. } = &mut event.what {
            *stack = chains[stack.0 as usize];
        }
        writer.event(event).unwrap();
    }
    for sample in trace.samples {
        writer.sample(sample).unwrap();
    }
    for count in counts {
        writer.count(*count).unwrap();
    }
    if finish {
        writer.finish().unwrap();
    }
}

pub fn written(trace: traces::Trace) -> (TempDir, String) {
    written_counted(trace, &[])
}

pub fn written_counted(trace: traces::Trace, counts: &[Count]) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("trace");
    write_counted(&path, trace, counts, true);
    let path = path.display().to_string();
    (folder, path)
}

fn empty() -> traces::Trace {
    traces::Trace::new(&[])
}

#[test]
fn a_trace_is_reported_with_its_verdict_first() {
    let (_folder, trace) = written(traces::face_recognition());
    let all = text(&["report", &trace]);
    assert!(all.starts_with("NUMA is the problem: only "), "{all}");
    for part in [
        "advice",
        "  1. Replicate",
        "objects by the code that allocates them\n",
        "cost▼",
        "threads",
        "functions",
        "controllers",
        "as the trace describes it",
    ] {
        assert!(all.contains(part), "{part} in:\n{all}");
    }
    assert!(all.lines().all(|line| line.chars().count() <= 100), "{all}");
    let told = json(&["report", &trace, "--top", "3"]);
    assert_eq!(told["advice"][0]["action"], "replicate");
    // Advice does not depend on the number of rows.
    assert_eq!(json(&["report", &trace, "--top", "1"])["advice"], json(&["report", &trace])["advice"]);
    assert!(
        all.contains("     try         nearside compare --policies first-touch,interleave,predict -- recognise"),
        "{all}"
    );
    assert_eq!((&told["objects"]["all"], told["objects"]["first"].as_array().unwrap().len()), (&Value::from(9), 3));
    // The same text, written to a file.
    let file = Path::new(&trace).join("report.txt").display().to_string();
    assert_eq!(text(&["report", &trace, "--output", &file]), "");
    assert_eq!(fs::read_to_string(file).unwrap(), all);
}

#[test]
fn rankings_are_in_the_order_that_is_asked_for() {
    let (_folder, trace) = written(traces::face_recognition());
    for (by, key) in [
        ("samples", "samples"),
        ("stores", "store_samples"),
        ("latency", "latency_mean_ns"),
        ("remote-cost", "remote_time_share"),
    ] {
        let told = json(&["report", &trace, "--by", by]);
        let values: Vec<f64> =
            told["objects"]["first"].as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).collect();
        assert!(values.is_sorted_by(|a, b| a >= b) && values.len() == 9, "{by}: {values:?}");
    }
}

#[test]
fn one_of_each_in_detail() {
    let (_folder, trace) = written(traces::face_recognition());
    let told = json(&["report", &trace]);
    let number = |pointer: &str| told.pointer(pointer).unwrap().to_string();
    let (object, site, thread) =
        (number("/objects/first/0/object"), number("/sites/first/0/site"), number("/threads/first/0/tid"));
    let function = told.pointer("/functions/first/0/function").unwrap().as_str().unwrap().to_owned();
    let detail = text(&["report", &trace, "--object", &object]);
    for part in ["timeline", "allocated from", "phases", "pages", "first writer", "7f0000000000-7f0000f00000"] {
        assert!(detail.contains(part), "{part} in:\n{detail}");
    }
    let rows = json(&["report", &trace, "--object", &object, "--rows", "7"]);
    assert!(rows["timeline"]["rows"].as_array().unwrap().len() <= 7);
    assert!(text(&["report", &trace, "--site", &site]).starts_with(&format!("site {site}: ")));
    assert!(text(&["report", &trace, "--thread", &thread]).contains("node changes"));
    assert!(function.starts_with('['), "no symbol names it: {function}");
    refused(&["report", &trace, "--object", "9999"], 2, "no object 9999");
    refused(&["report", &trace, "--site", "9999"], 2, "no site 9999");
    refused(&["report", &trace, "--thread", "9999"], 2, "no thread 9999");
    refused(&["report", &trace, "--function", "no_such"], 2, "no function `no_such`");
    assert_eq!(nearside(&["report", &trace, "--object", "1", "--site", "1"]).code, 2);
}

/// F41, F42 and F49: each filter leaves the accesses it describes, and its opposite the rest.
#[test]
fn filters_leave_what_they_say() {
    let (_folder, trace) = written(traces::face_recognition());
    let samples = |filter: &[&str]| {
        let told = json(&[&["report", &trace][..], filter].concat());
        told["counts"]["samples"].as_u64().unwrap()
    };
    let all = samples(&[]);
    assert_eq!(all, 4300);
    let halves: [(&[&str], &[&str]); 9] = [
        (&["--remote"], &["--local"]),
        (&["--loads"], &["--stores"]),
        (&["--from-node", "0"], &["--from-node", "1-3"]),
        (&["--to-node", "0"], &["--to-node", "1-3"]),
        (&["--cpu", "0-4"], &["--cpu", "5-7"]),
        (&["--shared"], &["--unshared"]),
        (&["--tid", "1,2,3"], &["--tid", "4,5,6,7,8"]),
        (&["--address", "60000000-60080000"], &["--address", "7f0000000000-7f0001000000"]),
        (&["--time", "0-0.002"], &["--time", "0.002000001-"]),
    ];
    for (one, other) in halves {
        let (one, rest) = (samples(one), samples(other));
        assert!(one > 0 && rest > 0 && one + rest == all, "{other:?}: {one} + {rest} of {all}");
    }
    let wholes: [&[&str]; 8] = [
        &["--user"],
        &["--dram"],
        &["--not-local-cache"],
        &["--not-stacks"],
        &["--application", "app"],
        &["--pid", "1"],
        &["--kind", "heap,static"],
        &["--min-latency", "103"],
    ];
    for whole in wholes {
        assert_eq!(samples(whole), all, "{whole:?}");
    }
    // Parts of the recorded machine, in the grammar of `run`.
    for (part, numbers) in [
        (["--cpu", "node:0"], ["--from-node", "0"]),
        (["--cpu", "node:1-3"], ["--cpu", "2-7"]),
        (["--from-node", "!0"], ["--from-node", "1-3"]),
        (["--to-node", "node:1-"], ["--to-node", "1-3"]),
    ] {
        assert_eq!(samples(&part), samples(&numbers), "{part:?}");
    }
    let nothing: [&[&str]; 3] =
        [&["--kind", "stacks"], &["--physical", "0-1000"], &["--to-node", "3", "--from-node", "0"]];
    for filter in nothing {
        assert_eq!(samples(filter), 0, "{filter:?}");
    }
    let named_wrongly: [(&[&str], &str); 9] = [
        (&["--application", "other"], "no process with the name `other`"),
        (&["--pid", "1,2"], "no process 2"),
        (&["--tid", "1,99"], "no thread 99"),
        (&["--cpu", "0-8"], "no CPU 8"),
        (&["--from-node", "9"], "no node 9"),
        (&["--to-node", "0,4"], "no node 4"),
        (&["--by-function", "no_such"], "no function with `no_such` in its name"),
        (&["--by-function", "=no_such"], "no function `no_such`"),
        (&["--of-site", "nowhere"], "no site with `nowhere` in its label"),
    ];
    for (filter, says) in named_wrongly {
        refused(&[&["report", &trace][..], filter].concat(), 2, &format!("the trace has {says}"));
    }
    refused(&["diff", &trace, &trace, "--cpu", "99"], 2, "neither trace has a CPU 99");
    refused(&["report", &trace, "--time", "50-60"], 2, "--time 50-60: all accesses are within");
    let missing = "on the machine of the trace: no node:9";
    refused(&["report", &trace, "--cpu", "node:9"], 2, missing);
    refused(&["diff", &trace, &trace, "--to-node", "node:9"], 2, missing);
    let unknown = nearside(&["report", &trace, "--wrapper", "no_such"]);
    assert!(unknown.code == 0 && unknown.err.contains("--wrapper no_such changes nothing"), "{}", unknown.err);
    // Rates refer to the selected time.
    let part = json(&["report", &trace, "--time", "0.001-0.002"]);
    assert_eq!(part["trace"]["duration_ns"], 1_000_000);
    assert!(text(&["report", &trace, "--time", "0.001-0.002"]).contains(" in 1.00 ms"));
    // C14: no remote access is local.
    let remote = json(&["report", &trace, "--remote"]);
    assert_eq!(remote["counts"]["local_access_ratio"], 0.0);
    assert_eq!(remote["filter"][0], "remote accesses");
    assert_eq!(nearside(&["report", &trace, "--remote", "--local"]).code, 2);
    assert_eq!(nearside(&["report", &trace, "--time", "2-1"]).code, 2);
}

#[test]
fn two_traces_beside_each_other() {
    let (_before, before) = written(traces::stream_clustering());
    let mut better = traces::stream_clustering();
    for sample in &mut better.samples {
        sample.latency_ns = Some(110.0);
    }
    let (_after, after) = written(better);
    assert!(text(&["diff", &before, &before]).contains("same"));
    let told = json(&["diff", &before, &after]);
    assert_eq!((&told["change"], &told["sites"][0]["change"]), (&"better".into(), &"better".into()));
    assert_eq!(json(&["diff", &after, &before])["sites"][0]["change"], "worse");
    let few = json(&["diff", &before, &after, "--time", "0-0.000004"]);
    assert_eq!(few["change"], "noise", "{few:#}");
    let text = text(&["diff", &before, &after]);
    assert!(
        text.starts_with("B is better: ")
            && text.contains("\nA  ")
            && text.contains("\nB  ")
            && text.contains("better"),
        "{text}"
    );
    refused(&["diff", &before, "/nowhere"], 1, "/nowhere");
}

#[test]
fn perf_data_has_nodes_of_its_own_and_a_machine_can_be_named() {
    let file = format!("{PERF_DATA}chain.data");
    let own = text(&["report", &file]);
    assert!(own.contains("as perf.data names its nodes") && own.contains("page-faults"), "{own}");
    let named = text(&["report", &file, "--machine", "small-4x2"]);
    assert!(named.contains("small-4x2: 4 nodes, 8 CPUs (as --machine small-4x2 describes it)"), "{named}");
    refused(&["report", &file, "--machine", "small-9x9"], 1, "small-9x9");
}

#[test]
fn a_trace_without_samples_or_objects_is_one() {
    let (_folder, trace) = written(empty());
    let nothing = text(&["report", &trace]);
    assert!(nothing.starts_with("0 samples reached memory: too few to tell"), "{nothing}");
    assert!(nothing.contains("nearside lab"), "it says what to do: {nothing}");
    assert_eq!(json(&["report", &trace])["counts"]["samples"], 0);
    let both = text(&["diff", &trace, &trace]);
    assert!(both.contains("neither has samples") && !both.contains("times as fast"), "{both}");
    refused(&["report", &trace, "--object", "0"], 2, "no object 0");
    // Without samples, objects are ranked by size, since the first record.
    let mut alone = traces::face_recognition();
    alone.samples.clear();
    let objects = alone.events.iter().filter(|event| matches!(event.what, What::Allocated { .. })).count();
    let (_folder, trace) = written(alone);
    let told = json(&["report", &trace]);
    assert_eq!((&told["objects"]["all"], &told["trace"]["start_ns"]), (&objects.into(), &1000.into()));
    assert!(text(&["report", &trace]).contains("objects by size"));
    let object = text(&["report", &trace, "--object", "0"]);
    assert!(object.contains("from 3 ns to the end") && !object.contains("no writes observed"), "{object}");
    let sites = told["sites"]["first"].as_array().unwrap();
    assert_eq!(sites.iter().map(|site| site["objects"].as_u64().unwrap()).sum::<u64>(), objects as u64);
    for site in sites {
        let number = site["site"].to_string();
        assert_eq!(json(&["report", &trace, "--site", &number])["facts"]["objects"], site["objects"]);
    }
    // Without objects, every address is unknown.
    let mut alone = traces::face_recognition();
    alone.events.clear();
    let (_folder, trace) = written(alone);
    let told = json(&["report", &trace]);
    assert_eq!(
        (&told["verdict"]["unknown_share"], &told["objects"]["first"][0]["kind"]),
        (&1.0.into(), &"unknown".into())
    );
}

#[test]
fn a_recording_that_was_killed_is_read_and_says_so() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("trace");
    write(&path, traces::face_recognition(), false);
    let told = text(&["report", &path.display().to_string()]);
    assert!(told.contains("the recording was cut off"), "{told}");
    // 4,300 samples in files of 2,000: the last ones were not written yet.
    assert!(told.contains("4,000 in"), "{told}");
}

#[test]
fn a_machine_that_is_named_stands_for_one_that_is_damaged() {
    let (_folder, trace) = written(traces::face_recognition());
    let file = Path::new(&trace).join("machine.toml");
    let named = ["report", &trace, "--machine", "small-4x2"];
    let whole = text(&named);
    fs::write(&file, "name = 7").unwrap();
    refused(&["report", &trace], 1, "machine.toml");
    assert_eq!(text(&named), whole);
    fs::remove_file(&file).unwrap();
    refused(&["report", &trace], 1, "machine.toml");
    assert_eq!(text(&named), whole);
}

#[test]
fn a_file_that_is_gone_from_a_table_is_reported() {
    let (_folder, trace) = written(traces::face_recognition());
    let says = "of the files in samples/, with their records";
    assert!(!text(&["report", &trace]).contains(says));
    for (file, gone) in [("000003", 1), ("000001", 2), ("000002", 3)] {
        fs::remove_file(Path::new(&trace).join("samples").join(file).with_extension("parquet")).unwrap();
        let told = text(&["report", &trace]);
        assert!(told.contains(&format!("lost            {gone} {says}")), "{file}: {told}");
    }
}

#[test]
fn what_is_no_trace_is_named() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("text"), "not a trace").unwrap();
    fs::write(path("nothing"), "").unwrap();
    refused(&["report", &path("missing")], 1, "there is no such file");
    refused(&["report", &path("text")], 1, "is not a trace");
    refused(&["report", &path("nothing")], 1, "is not a trace");
    refused(&["report", &folder.path().display().to_string()], 1, "is not a trace");
    assert_eq!(nearside(&["report"]).code, 2);
}

/// Every file of a trace, cut and overwritten: an error that names it, or a report of the rest.
#[test]
fn damaged_traces_are_refused() {
    let (folder, trace) = written(traces::face_recognition());
    let files = |path: &str| -> Vec<PathBuf> {
        let folders = [Path::new(path).to_owned(), Path::new(path).join("samples"), Path::new(path).join("stacks")];
        let all = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
        all.filter(|path| path.is_file()).collect()
    };
    assert!(files(&trace).len() >= 4);
    let mut refusals = 0;
    for file in files(&trace) {
        let whole = fs::read(&file).unwrap();
        let noise: Vec<u8> = whole.iter().enumerate().map(|(at, byte)| byte ^ (at % 7) as u8).collect();
        for bytes in [&whole[..whole.len() / 2], &[], &noise] {
            fs::write(&file, bytes).unwrap();
            let answer = nearside(&["report", &trace]);
            assert!(answer.code == 0 || answer.err.starts_with("nearside: "), "{}: {}", file.display(), answer.err);
            assert!(!answer.err.contains("panicked"), "{}: {}", file.display(), answer.err);
            refusals += answer.code;
        }
        fs::write(&file, &whole).unwrap();
    }
    assert!(refusals > 6, "{refusals}");
    drop(folder);
}

#[test]
fn damaged_perf_data_is_refused_or_read_as_far_as_it_goes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("perf.data");
    for name in ["plain.data", "zstd.data", "pipe.data"] {
        let whole = fs::read(format!("{PERF_DATA}{name}")).unwrap();
        for part in 0..8 {
            fs::write(&path, &whole[..whole.len() * part / 8]).unwrap();
            let answer = nearside(&["report", &path.display().to_string()]);
            assert!(!answer.err.contains("panicked"), "{name} {part}: {}", answer.err);
        }
        let mut changed = whole.clone();
        for at in (8..changed.len()).step_by(37) {
            changed[at] = changed[at].wrapping_mul(31).wrapping_add(7);
        }
        fs::write(&path, &changed).unwrap();
        let answer = nearside(&["report", &path.display().to_string()]);
        assert!(!answer.err.contains("panicked"), "{name}: {}", answer.err);
    }
}

#[test]
fn perf_data_without_accesses_is_an_error_with_the_command_that_records_them() {
    let folder = TempDir::new().unwrap();
    let cut = folder.path().join("cut.data");
    let path = format!("{PERF_DATA}cpu-clock.data");
    fs::write(&cut, &fs::read(&path).unwrap()[..500]).unwrap();
    for (path, why) in
        [(&*path, "samples without a data address"), (cut.to_str().unwrap(), "missing at the end of the file")]
    {
        for command in ["report", "diff"] {
            let arguments = [command, path, path];
            let answer = nearside(if command == "diff" { &arguments } else { &arguments[..2] });
            assert_eq!(answer.code, 1, "{command}: {}", answer.out);
            let says = ["has no sample of a memory access", why, "perf mem record", "nearside record"];
            assert!(says.iter().all(|says| answer.err.contains(says)), "{command}: {}", answer.err);
        }
    }
}

#[test]
fn a_build_without_sql_says_how_to_get_it() {
    if cfg!(feature = "sql") {
        return test_tools::skipped("this build has sql");
    }
    let answer = nearside(&["sql", "trace", "SELECT 1", "--json"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("--features nearside/sql") && answer.err.contains("export"), "{}", answer.err);
}

/// Every command line that an advice has is one that nearside takes.
#[test]
fn what_advice_says_to_type_can_be_typed() {
    use profile::{Action, ObjectKind};
    let folder = TempDir::new().unwrap();
    let all = [
        Action::AllocateLocally,
        Action::Interleave,
        Action::Replicate,
        Action::Migrate,
        Action::PinThreads,
        Action::SplitHugePages,
    ];
    let kinds = [ObjectKind::Heap, ObjectKind::MappedFile];
    let new = |action, of_processes| kinds.map(|kind| report::NextSteps::new(action, kind, of_processes).unwrap());
    let steps = |action| [false, true].map(|of_processes| new(action, of_processes)).into_iter().flatten();
    for steps in all.into_iter().flat_map(steps) {
        for line in [steps.try_with, steps.apply] {
            let line = line.trim_end_matches(", for each process").replace("COMMAND", "true").replace("NODE", "0");
            let line = line.replace("compare ", "compare --repeat 1 ");
            let mut words = line.split(' ');
            assert_eq!(words.next(), Some("nearside"));
            // On this host some cannot do all of it, but none is a wrong command line.
            let path = assert_cmd::cargo::cargo_bin("nearside").parent().unwrap().display().to_string();
            let ran = Command::cargo_bin("nearside")
                .unwrap()
                .args(words)
                .current_dir(&folder)
                .env("PATH", format!("{path}:/usr/bin:/bin"))
                .output()
                .unwrap();
            assert_ne!(ran.status.code(), Some(2), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
            assert!(!String::from_utf8_lossy(&ran.stderr).contains("Usage:"), "{line}");
        }
    }
    assert!(report::NextSteps::new(Action::LeaveAlone, ObjectKind::Heap, false).is_none());
}

/// Who shares and who writes an object is not seen where its accesses are left out.
#[test]
fn filters_that_hide_accesses_to_objects_get_no_advice() {
    let (_folder, trace) = written(traces::face_recognition());
    let advice = |filter: &[&str]| {
        let report = json(&[&["report", &trace], filter].concat());
        (!report["advice"].as_array().unwrap().is_empty(), report["is_advice_hidden"].as_bool().unwrap())
    };
    for filter in [&["--loads"][..], &["--dram"], &["--cpu", "0"], &["--from-node", "0"], &["--tid", "2"]] {
        assert_eq!(advice(filter), (false, true), "{filter:?}");
    }
    for filter in [&[][..], &["--time", "0-"], &["--kind", "heap"]] {
        assert_eq!(advice(filter), (true, false), "{filter:?}");
    }
    let told = text(&["report", &trace, "--loads"]);
    assert!(told.contains("none: the filter hides accesses to the same objects"), "{told}");
}

#[test]
fn two_outputs_of_one_name_are_refused() {
    let (folder, trace) = written(traces::face_recognition());
    let file = folder.path().join("page");
    let file = file.to_str().unwrap();
    refused(&["report", &trace, "--html", file, "-o", file], 2, "two outputs are ");
}
