//! The whole command: every verb, and the errors for bad input.

use assert_cmd::Command;

fn run(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::cargo_bin("nearside-workloads").unwrap().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let (success, output, error) = run(&[arguments, &["--json", "--repeat", "2"]].concat());
    assert!(success, "{arguments:?}: {error}");
    assert_eq!(output.lines().count(), 1);
    serde_json::from_str(&output).unwrap()
}

/// A CPU that this test may run on: the first in the kernel's list.
fn some_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split([',', '-']).next().unwrap().to_owned()
}

#[track_caller]
fn refused(arguments: &[&str], words: &[&str]) {
    refused_after(arguments, "", words);
}

#[track_caller]
fn refused_after(arguments: &[&str], before: &str, words: &[&str]) {
    let (success, output, error) = run(arguments);
    assert!(!success && output == before, "{arguments:?} printed {output}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: no `{word}` in: {error}");
    }
}

#[test]
fn chase_reports_its_latency() {
    let result = json(&["chase", "--size", "1M"]);
    assert_eq!((&result["threads"], &result["loads"]), (&1.into(), &16384.into()));
    let (best, mean) = (result["best_ns"].as_f64().unwrap(), result["mean_ns"].as_f64().unwrap());
    assert!(0.0 < best && best <= mean);
}

#[test]
fn passes_are_timed_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passes");
    let path = path.to_str().unwrap();
    for (verb, result) in [
        ("canneal", "length"),
        ("fluid", "checksum"),
        ("blackscholes", "mean_price"),
        ("rivals", "median_mb_per_s"),
        ("streamcluster", "checksum"),
    ] {
        let json = json(&[verb, "--size", "1M", "--threads", "2", "--passes", path]);
        assert!(json.get(result).is_some(), "{json}");
        let times: Vec<f64> =
            std::fs::read_to_string(path).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert!(times.len() == 2 && times.iter().all(|time| *time > 0.0), "{verb}: {times:?}");
        if let Some(seconds) = json.get("seconds") {
            assert!(times.iter().sum::<f64>() <= seconds.as_f64().unwrap() * 1.5 + 0.01, "{verb}: {times:?}, {json}");
        }
        refused(&[verb, "--passes", "/nowhere/passes"], &["cannot write the times of passes to /nowhere/passes"]);
    }
    // A result of one thread and of several is the same.
    let of = |threads| json(&["fluid", "--size", "512K", "--threads", threads])["checksum"].clone();
    assert_eq!(of("1"), of("3"));
}

#[test]
fn a_crowd_tells_what_passes_of_each_take() {
    let workloads = assert_cmd::cargo::cargo_bin("nearside-workloads");
    let of = |verb: &str| format!("{} {verb} --size 64K --threads 1 --repeat 1000000", workloads.display());
    let (canneal, fluid) = (of("canneal --swaps 100"), of("fluid"));
    let (success, output, error) = run(&["crowd", "--json", "--passes", "3", "--watched", "1", &canneal, &fluid]);
    assert!(success, "{error}");
    let crowd: serde_json::Value = serde_json::from_str(&output).unwrap();
    let seconds = |member: usize| crowd["members"][member]["seconds"].as_f64().unwrap();
    assert!(seconds(0) > 0.0 && seconds(1) > 0.0 && crowd["members"][1]["passes"].as_u64().unwrap() >= 3, "{output}");
    assert_eq!(
        (&crowd["watched_seconds"], crowd["seconds"].as_f64().unwrap()),
        (&seconds(0).into(), seconds(0) + seconds(1))
    );
    // One that ends, and one that cannot be started.
    refused(&["crowd", "true"], &["`true` ended: exit status: 0"]);
    refused(&["crowd", &canneal, "/nowhere/program"], &["cannot start `/nowhere/program`"]);
}

#[test]
fn every_way_of_waiting_is_timed() {
    let together = ["awake", "asleep", "barrier-awake", "barrier-asleep", "lock"].map(|wait| (wait, 3));
    for (wait, threads) in [("futex", 2), ("pipe", 2), ("timer", 1)].into_iter().chain(together) {
        let result = json(&["waits", "--wait", wait, "--threads", &threads.to_string()]);
        assert_eq!((&result["wait"], &result["times"]), (&wait.into(), &2.into()));
        let mean_us = result["mean_us"].as_f64().unwrap();
        assert!(mean_us > if wait == "timer" { 100.0 } else { 0.0 }, "{result}");
    }
    refused(&["waits", "--wait", "futex", "--threads", "3"], &["3 threads", "--threads 2"]);
}

#[test]
fn stream_reports_five_kernels() {
    let result = json(&["stream", "--size", "1M", "--threads", "3"]);
    let kernels = result["kernels"].as_array().unwrap();
    let names: Vec<_> = kernels.iter().map(|kernel| kernel["kernel"].as_str().unwrap()).collect();
    assert_eq!(names, ["copy", "scale", "add", "triad", "read"]);
    for kernel in kernels {
        let (best, mean) = (kernel["best_mb_per_s"].as_f64().unwrap(), kernel["mean_mb_per_s"].as_f64().unwrap());
        assert!(best.is_finite() && 0.0 < mean && mean <= best * 1.000_001, "{kernel}");
    }
}

#[test]
fn one_kernel_of_stream_can_be_had_alone() {
    let result = json(&["stream", "--size", "1M", "--kernel", "triad"]);
    let names: Vec<_> = result["kernels"].as_array().unwrap().iter().map(|kernel| &kernel["kernel"]).collect();
    assert_eq!(names, ["triad"]);
}

#[test]
fn random_accesses_have_a_pace() {
    for access in ["read", "write"] {
        // 1.5 MiB is not a power of two: 1 MiB is used.
        let result = json(&["random", "--access", access, "--size", "1536K", "--threads", "3"]);
        assert_eq!(result["accesses"], 16384);
        let (best, mean) = (result["best_ns"].as_f64().unwrap(), result["mean_ns"].as_f64().unwrap());
        assert!(0.0 < best && best <= mean, "{result}");
        let fewer = json(&["random", "--access", access, "--size", "1M", "--accesses", "1000"]);
        assert_eq!(fewer["accesses"], 1000);
    }
}

#[test]
fn rivals_leave_some_bandwidth() {
    let cpu = some_cpu();
    let alone = json(&["rivals", "--size", "1M", "--rivals", ""]);
    assert_eq!((&alone["rivals"], &alone["threads"]), (&0.into(), &1.into()));
    for touch in [&[][..], &["--rivals-touch-cpu", &cpu]] {
        let result = json(&[&["rivals", "--size", "1M", "--pin", &cpu, "--rivals", &cpu], touch].concat());
        assert_eq!(result["rivals"], 1);
        let of = |name| result[name].as_f64().unwrap();
        let (least, median, most) = (of("least_mb_per_s"), of("median_mb_per_s"), of("most_mb_per_s"));
        assert!(0.0 < least && least <= median && median <= most && most.is_finite(), "{result}");
    }
}

#[test]
fn readers_report_their_throughput() {
    let result = json(&["readers", "--size", "1M", "--threads", "3"]);
    let mean = result["mean_gb_per_s"].as_f64().unwrap();
    // Three threads, two rounds, 2^20 bytes.
    let bytes = mean * 1e9 * result["seconds"].as_f64().unwrap();
    assert!((bytes / f64::from(6 << 20) - 1.0).abs() < 1e-6, "{bytes} bytes");
}

#[test]
fn streamcluster_comes_to_the_same_with_any_threads() {
    let checksum = |threads| json(&["streamcluster", "--size", "1M", "--threads", threads])["checksum"].clone();
    assert!(checksum("1").is_string());
    assert_eq!(checksum("1"), checksum("2"));
    assert_eq!(checksum("1"), checksum("7"));
}

/// Verbs whose result does not depend on the number of threads; each fails if its sequential check does.
#[test]
fn programs_come_to_the_same_with_any_threads() {
    for verb in ["is", "ft", "graph"] {
        let result = |threads| json(&[verb, "--size", "1M", "--threads", threads]);
        let (one, other) = (result("1"), result("7"));
        assert!(one["checksum"].as_str().is_some_and(|checksum| checksum.len() == 16), "{one}");
        assert_eq!(one["checksum"], other["checksum"], "{verb}");
        assert!(one["seconds"].as_f64().unwrap() > 0.0 && other["seconds"].as_f64().unwrap() > 0.0, "{verb}");
        assert!(one["began_ns"].as_u64() < other["began_ns"].as_u64(), "{verb}");
    }
}

#[test]
fn equations_are_solved_with_any_threads() {
    for threads in ["1", "7"] {
        let result = json(&["cg", "--size", "1M", "--threads", threads]);
        assert_eq!(result["rows"], 4096);
        assert!(result["residual"].as_f64().unwrap() < 1e-9 && result["seconds"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(result["checksum"], json(&["cg", "--size", "1M", "--threads", threads])["checksum"]);
    }
    // The same equations, with elements further apart.
    let spaced = |bytes: &str| json(&["cg", "--class", "S", "--threads", "3", "--spacing", bytes]);
    let plain = spaced("8");
    for bytes in ["64", "96", "128", "256"] {
        let result = spaced(bytes);
        assert_eq!((&result["rows"], &result["checksum"]), (&1400.into(), &plain["checksum"]), "{bytes}");
    }
}

#[test]
fn ranks_depend_on_no_period() {
    let of = |more: &[&str]| json(&[&["is", "--size", "1M", "--threads", "3"], more].concat());
    let plain = of(&[]);
    assert_eq!((&plain["period_s"], &plain["sweeps"]), (&1.0.into(), &1.into()));
    let swept = of(&["--sweeps", "3", "--period", "20us"]);
    assert_eq!((&swept["period_s"], &swept["sweeps"]), (&20e-6.into(), &3.into()));
    assert_eq!(plain["checksum"], swept["checksum"]);
    refused(&["is", "--period", "1"], &["--period", "us, ms or s"]);
    refused(&["is", "--period", "0ms"], &["--period", "from 1us"]);
}

#[test]
fn a_store_answers_every_request() {
    let of = |more: &[&str]| json(&[&["kv", "--size", "1M", "--threads", "3"], more].concat());
    let (plain, reads) = (of(&[]), of(&["--updates", "0"]));
    // Each of three threads looks up its share of 8,192, twice.
    assert_eq!(
        (&plain["items"], &plain["requests"], &plain["updates_percent"]),
        (&8192.into(), &16386.into(), &5.into())
    );
    assert_ne!(plain["checksum"], reads["checksum"]);
    assert_eq!(plain["checksum"], of(&[])["checksum"]);
    refused(&["kv", "--updates", "101"], &["--updates", "0..=100"]);
}

#[test]
fn pictures_go_through_a_pipeline_for_each_pair() {
    let of = |threads| json(&["pipeline", "--size", "1M", "--threads", threads]);
    // Rings of four pictures that go round twice; a fifth thread has no consumer.
    let result = of("5");
    assert_eq!(
        (&result["pairs"], &result["pictures"], &result["picture_bytes"]),
        (&2.into(), &16.into(), &131_072.into())
    );
    assert_eq!(result["checksum"], of("4")["checksum"]);
    refused(&["pipeline", "--threads", "1"], &["1 threads are too few", "--threads 2"]);
}

#[test]
fn a_distance_is_the_same_for_any_threads() {
    let of =
        |threads| json(&["levenshtein", "--size", "40K", "--rows", "70", "--threads", threads])["distance"].clone();
    // At least the difference in length of the strings.
    assert!((10_170..=10_240).contains(&of("1").as_u64().unwrap()));
    assert_eq!(of("1"), of("9"));
    refused(&["levenshtein", "--rows", "0"], &["--rows", "a number from 1"]);
}

#[test]
fn programs_are_compiled_with_any_number_of_jobs_at_once() {
    let of = |threads| json(&["hmake", "--size", "64K", "--threads", threads]);
    let (one, other) = (of("1"), of("6"));
    assert_eq!((&one["programs"], &one["jobs"]), (&2.into(), &10.into()));
    assert!(one["checksum"].is_string() && one["checksum"] == other["checksum"], "{one} {other}");
}

#[test]
fn a_mix_tells_what_each_program_took() {
    let result = json(&["mix", "--size", "256K", "--members", "libquantum:2,triad,omnetpp,hmmer"]);
    let members = result["members"].as_array().unwrap();
    let programs: Vec<_> = members.iter().map(|member| member["program"].as_str().unwrap()).collect();
    assert_eq!(programs, ["libquantum", "libquantum", "triad", "omnetpp", "hmmer"]);
    let seconds = |of: &serde_json::Value| of["seconds"].as_f64().unwrap();
    assert!(members.iter().all(|member| 0.0 < seconds(member) && seconds(member) <= seconds(&result)), "{result}");
    assert_eq!(result["threads"], 5);
    let fewer = json(&["mix", "--size", "256K", "--members", "hmmer:3", "--threads", "1", "--pin", &some_cpu()]);
    assert_eq!(fewer["members"].as_array().unwrap().len(), 1);
    refused(&["mix", "--members", "gcc"], &["`gcc` is none of libquantum, omnetpp, triad, hmmer"]);
    refused_after(&["mix-member", "--program", "triad"], "ready\n", &["no process waits for the answers"]);
}

#[test]
fn cures_change_no_result() {
    for verb in ["streamcluster", "facerec", "psearchy", "webserver"] {
        let result = |cure: &[&str]| json(&[&[verb, "--size", "1M", "--threads", "4"], cure].concat());
        let (ill, cured) = (result(&[]), result(&["--cure"]));
        assert_eq!((&ill["cure"], &cured["cure"]), (&false.into(), &true.into()), "{verb}");
        assert!(ill["checksum"].as_str().is_some_and(|checksum| checksum.len() == 16), "{ill}");
        assert_eq!(ill["checksum"], cured["checksum"], "{verb}");
        assert!(ill["seconds"].as_f64().unwrap() > 0.0 && cured["seconds"].as_f64().unwrap() > 0.0, "{verb}");
    }
}

#[test]
fn a_server_has_the_requested_number_of_processes() {
    let result = json(&["webserver", "--size", "1M", "--threads", "4", "--processes", "2"]);
    // Pools of 16,384 lines, each with as many requests, twice.
    assert_eq!((&result["processes"], &result["requests"]), (&2.into(), &(2 * 2 * 16384).into()));
    refused(&["webserver", "--processes", "0"], &["--processes", "a number from 1"]);
    // Without a server its process has no reader of its answers.
    refused_after(&["webserver-process", "--size", "1M"], "ready\n", &["no process waits for the answers"]);
}

#[test]
fn people_get_a_sentence() {
    let verbs = ["chase", "stream", "random", "rivals", "readers", "streamcluster", "facerec", "psearchy", "webserver"];
    let verbs = verbs.into_iter().chain(["cg", "is", "ft", "graph", "kv", "pipeline", "levenshtein", "hmake", "mix"]);
    for verb in verbs {
        let (success, output, error) = run(&[verb, "--size", "1M", "--repeat", "1", "--threads", "2"]);
        assert!(success, "{error}");
        assert!(output.starts_with(&format!("{verb}: ")) && output.lines().count() == 1, "{output}");
    }
}

#[test]
fn threads_follow_the_pins() {
    let cpu = some_cpu();
    let result = json(&["readers", "--size", "1M", "--pin", &cpu]);
    assert_eq!((&result["threads"], &result["pin"]), (&1.into(), &cpu.clone().into()));
    assert_eq!(result["touch_cpu"].to_string(), cpu);
}

#[test]
fn memory_can_be_touched_elsewhere() {
    let cpu = some_cpu();
    let result = json(&["chase", "--size", "1M", "--touch-cpu", &cpu]);
    assert_eq!((&result["pin"], result["touch_cpu"].to_string()), (&serde_json::Value::Null, cpu));
}

#[test]
fn refuses_an_unknown_verb() {
    refused(&["chaise"], &["unrecognized subcommand 'chaise'", "chase"]);
    refused(&[], &["Usage"]);
}

#[test]
fn refuses_sizes_with_nothing_to_place() {
    refused(&["chase", "--size", "0"], &["--size", "at least one page, 4096 bytes"]);
    refused(&["chase", "--size", "1.5M"], &["`1.5M` is not a size"]);
    refused(
        &["stream", "--size", "8K", "--threads", "3"],
        &["8 KiB is less than a page for each of 3 threads", "--size 12288"],
    );
}

#[test]
fn refuses_more_memory_than_the_system_has() {
    refused(
        &["readers", "--size", "4194304T", "--threads", "1"],
        &["cannot get 4194304 TiB of memory", "smaller --size"],
    );
}

#[test]
fn refuses_more_memory_than_a_workload_counts() {
    for verb in ["cg", "is", "graph", "kv", "levenshtein"] {
        refused(
            &[verb, "--size", "1024T", "--threads", "1"],
            &["--size 1024 TiB is more than", "ask for at most --size"],
        );
    }
    for verb in ["ft", "webserver", "psearchy", "hmake"] {
        refused(&[verb, "--size", "1024T", "--threads", "1"], &["cannot get 1024 TiB of memory"]);
    }
}

#[test]
fn refuses_cpus_that_it_may_not_use() {
    let allowed = format!("it may run on CPUs {}", some_cpu());
    refused(&["chase", "--pin", "1048576"], &["--pin 1048576: CPU 1048576 does not exist", &allowed]);
    refused(&["chase", "--touch-cpu", "1048576"], &["--touch-cpu 1048576: CPU 1048576 does not exist", &allowed]);
    refused(&["rivals", "--rivals", "1048576"], &["--rivals 1048576: CPU 1048576 does not exist", &allowed]);
    refused(&["rivals", "--rivals-touch-cpu", "0"], &["--rivals <CPUS>"]);
    refused(&["chase", "--pin", "a"], &["`a` is neither a number nor a range"]);
    refused(&["chase", "--pin", ""], &["it names no CPU"]);
}

#[test]
fn refuses_more_threads_than_pins() {
    let words = ["2 threads but only 1 CPUs in --pin", "--threads 1"];
    refused(&["stream", "--threads", "2", "--pin", &some_cpu()], &words);
}

#[test]
fn refuses_counts_of_nothing() {
    refused(&["chase", "--threads", "0"], &["--threads", "a number from 1 to 1000000"]);
    refused(&["chase", "--repeat", "0"], &["--repeat", "a number from 1 to 1000000"]);
}
