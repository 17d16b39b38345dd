//! `nearside place` on virtual machines: policies make programs faster, lose nothing whatever the programs do
//! meanwhile, and everything is restored.

use super::hugepages::compile as compile_parts;
use crate::support::{Lab, RunOutput};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use test_tools::Checks;
use test_tools::json_fields::assert_documented;

/// Its part in docs/json.md.
const PLACE: &str = "place --json FILE";

/// small-4x2 with controllers of an eighth of their bandwidth, so that a few CPUs saturate one.
fn write_narrow_machine(path: &Path) {
    let preset = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/small-4x2.toml");
    let text = fs::read_to_string(preset).unwrap();
    let narrow = text.replace("bandwidth_bytes_per_s = 5.85e9", "bandwidth_bytes_per_s = 0.73e9");
    assert_ne!(narrow, text);
    fs::write(path, narrow).unwrap();
}

/// All threads read and write memory that one of them filled, whose node is the busiest: pages move to the others.
#[test]
fn carrefour_and_predict_beat_first_touch_on_streamcluster() {
    let lab = Lab::new();
    let machine = lab.path("narrow.toml");
    write_narrow_machine(&machine);
    let script = include_str!("programs/place_streamcluster.sh");
    let options = ["--quiet", "--thp", "never", "--time-scale", "50", "--numa-balancing", "off"];
    let ran = lab.script(machine.to_str().unwrap(), &options, script).succeeded();
    let plain = ran.json("plain");
    let seconds = |of: &Value| of["seconds"].as_f64().unwrap();
    let checks = Checks::new();
    for (policy, least) in [("carrefour", 1.2), ("predict", 1.1)] {
        checks.part(policy, || {
            let (placed, report) = (ran.json(policy), ran.json(&format!("report of {policy}")));
            assert_documented(PLACE, [&report]);
            assert_eq!(plain["checksum"], placed["checksum"], "nothing is lost");
            assert!(least * seconds(&placed) < seconds(&plain), "{plain:#}\n{placed:#}\n{report:#}");
            let pages_moved = report["pages_moved"].as_u64().unwrap();
            assert!(pages_moved > 1000, "{report:#}");
            // One thread filled the memory, so most of it comes from its node.
            let moves = report["moves"].as_array().unwrap();
            let pages: u64 = moves.iter().map(|moves| moves["pages"].as_u64().unwrap()).sum();
            let mut of_sources: BTreeMap<u64, u64> = BTreeMap::new();
            for moves in moves {
                *of_sources.entry(moves["from"].as_u64().unwrap()).or_default() += moves["pages"].as_u64().unwrap();
            }
            let most = of_sources.values().max().copied().unwrap_or(0);
            assert!(moves.iter().all(|moves| moves["from"] != moves["to"]) && moves.len() > 1, "{report:#}");
            assert!(pages > pages_moved / 2 && pages <= pages_moved && 2 * most > pages, "{report:#}");
            let of = |side: &str, name: &str| report[side][name].as_f64().unwrap();
            assert!(of("after", "imbalance") < 0.5 * of("before", "imbalance"), "{report:#}");
            assert_eq!(report["exit_status"], 0);
            let round_s = report["round_s"].as_f64().unwrap();
            assert!((round_s - 0.02).abs() < 1e-9, "rounds have the lab's time scale: {report:#}");
        });
    }
    // Without samples of the hardware's: counters alone, and the page faults of the kernel's balancing alone.
    for (source, least) in [("counters", 1.1), ("faults", 0.9)] {
        checks.part(source, || {
            let (placed, report) = (ran.json(source), ran.json(&format!("report of {source}")));
            assert_documented(PLACE, [&report]);
            assert_eq!(plain["checksum"], placed["checksum"], "nothing is lost");
            assert!(least * seconds(&placed) < seconds(&plain), "{plain:#}\n{placed:#}\n{report:#}");
        });
    }
    assert!(ran.json("report of counters")["pages_moved"].as_u64() > Some(1000));
    // The kernel, whose page faults are the source, may have moved the pages already: but placements are forecast.
    let choices = ran.section("choices by faults");
    assert!(choices.trim().parse::<u64>().is_ok_and(|choices| choices > 0), "{choices}");
    assert!(ran.section("carrefour by counters").ends_with("exit 125\n"), "{}", ran.error);
    assert!(
        ran.error.contains("carrefour needs samples of memory accesses, and no source is available"),
        "{}",
        ran.error
    );
    // What its first thread fills is spread from the start: nothing has to move.
    let (placed, report) = (ran.json("spread start"), ran.json("report of spread start"));
    assert_eq!(plain["checksum"], placed["checksum"]);
    assert!(1.5 * seconds(&placed) < seconds(&plain), "{plain:#}\n{placed:#}\n{report:#}");
    assert_eq!((&report["spreads_start"], report["pages_moved"].as_u64()), (&Value::Bool(true), Some(0)), "{report:#}");
}

/// The second run of a command begins as the first one taught: nothing has to move, and short programs gain as well.
#[test]
fn the_second_run_begins_where_the_first_one_would_have_moved_memory() {
    let lab = Lab::new();
    let machine = lab.path("narrow.toml");
    write_narrow_machine(&machine);
    let script = include_str!("programs/place_lessons.sh");
    let options = ["--quiet", "--thp", "never", "--time-scale", "50", "--numa-balancing", "off"];
    let ran = lab.script(machine.to_str().unwrap(), &options, script).succeeded();
    let report = |section: &str| ran.json(&format!("report of {section}"));
    let seconds = |section: &str| ran.json(section)["seconds"].as_f64().unwrap();
    let begins = |report: &Value| (report["began_with"].clone(), report["lesson"].clone());
    let nothing = Value::Null;
    let spread = Value::from("spread");
    assert_eq!(begins(&report("first")), (nothing.clone(), spread.clone()));
    assert_eq!(begins(&report("second")), (spread.clone(), spread.clone()), "{}", ran.error);
    assert!(1.1 * seconds("second") < seconds("first"), "{:#}", report("second"));
    assert_eq!(begins(&report("with other arguments")).0, nothing);
    assert_eq!(begins(&report("forgotten")).0, nothing);
    // A program that made no threads is not spread again.
    let (alone, again) = (report("alone"), report("alone again"));
    let without_threads = Value::from("no_threads");
    assert_eq!((begins(&alone), &alone["spreads_start"]), ((nothing.clone(), without_threads.clone()), &true.into()));
    assert_eq!((begins(&again), &again["spreads_start"]), ((without_threads.clone(), without_threads), &false.into()));
    assert_eq!(begins(&report("damaged")).0, nothing);
    assert!(ran.section("note").contains("what earlier runs taught is not used: /tmp/state/nearside/lessons.json: "));
    assert_eq!(ran.section("mode").trim(), "600 700");
}

/// Threads that run on other nodes than those of their memory go there, without what they make, and may run anywhere when
/// they are no longer placed.
#[test]
fn threads_are_kept_near_their_memory_and_free_afterwards() {
    let lab = Lab::new();
    lab.compile("wander.c");
    let options = ["--quiet", "--as-root", "--numa-balancing", "off"];
    let ran = lab.script("small-4x2", &options, include_str!("programs/place_keeps.sh")).succeeded();
    let number = |section: &str, field: &str| ran.json(section)[field].as_u64().unwrap();
    let (report, kept) = (ran.json("report"), ran.json("kept"));
    assert_documented(PLACE, [&report]);
    assert!(number("kept", "near") >= 7 && report["threads_moved"].as_u64() > Some(4), "{kept}\n{report:#}");
    assert!(number("kept", "free") < 4 && number("kept", "late_is_free") == 1, "{kept}\n{report:#}");
    let (report, freed) = (ran.json("report of freed"), ran.json("freed"));
    assert!(report["threads_moved"].as_u64() > Some(4) && number("freed", "free") == 8, "{freed}\n{report:#}");
    // Of its 32 MiB, three quarters are on other nodes.
    let report = ran.json("report of chase");
    let bytes = report["bytes_moved"].as_u64();
    assert!(bytes >= Some(16 << 20), "what one thread waits for is moved, too: {report:#}");
}

/// A thousand forks, 2,000 processes that sleep, another program at a known path, and a full disk for lessons: programs end
/// as they would, and observing takes its share of the time only.
#[test]
#[ignore = "it takes minutes: make nightly runs it"]
fn many_processes_and_other_programs_are_placed_as_usual() {
    let lab = Lab::with_whole_model();
    lab.compile("births.c");
    let options = ["--quiet", "--as-root", "--numa-balancing", "off", "--time-scale", "50", "--thp", "never"];
    let ran = lab.script("small-4x2", &options, include_str!("programs/place_odd.sh")).succeeded();
    let report = |section: &str| ran.json(&format!("report of {section}"));
    let checks = Checks::new();
    // They have their CPUs long before 20 ms have passed: they touch all of it within 5. The first process of a run may
    // be late.
    checks.part("births", || {
        let parts: Vec<u32> = ran.section("births").split_whitespace().map(|part| part.parse().unwrap()).collect();
        assert!(parts.len() == 4 && parts.iter().all(|&part| part > 70), "{parts:?}");
    });
    checks.part("workers", || {
        let taught = |section: &str| (report(section)["spreads_start"].clone(), report(section)["lesson"].clone());
        assert_eq!(taught("workers"), (true.into(), Value::Null), "workers use what their parent has spread");
        assert_eq!(taught("alone"), (true.into(), "works_alone".into()));
    });
    checks.part("forks", || {
        assert_eq!((ran.section("forks"), ran.section("none left")), ("status 3\n", "0\n"));
        assert_eq!(report("forks")["exit_status"], 3);
    });
    checks.part("sleepers", || {
        let (said, report) = (ran.section("sleepers"), report("sleepers"));
        assert!(said.contains("\"checksum\"") && said.ends_with("status 0\n"), "{said}");
        let number = |field: &str| report[field].as_f64().unwrap();
        // Rounds of a second, if the lab did not scale time: at most 5 % of a CPU.
        assert!(number("rounds") >= 2.0 && number("cpu_time_s") / number("rounds") < 0.05, "{report:#}");
    });
    checks.part("replaced", || {
        let note = |section: &str| ran.section(&format!("note of {section}"));
        let other =
            "what earlier runs of this command taught is not used: the program, or the machine, was another one\n";
        assert_eq!((note("known"), note("known again")), ("", ""));
        assert_eq!(note("replaced"), format!("nearside: {other}"));
        assert_eq!(report("replaced")["began_with"], Value::Null);
    });
    checks.part("full", || {
        let full =
            "what this run taught is not kept: cannot write /tmp/state/nearside/lessons.json: the disk is full\n";
        assert_eq!(ran.section("note of full"), format!("nearside: {full}"));
        assert!(ran.section("full").ends_with("status 0\n"), "{}", ran.section("full"));
    });
}

/// Huge pages of which each node uses a part are split, and the parts move to the nodes that use them. A node without
/// enough room gets as many as fit, and no process is killed for it.
#[test]
fn shared_huge_pages_are_split_and_full_nodes_get_no_more() {
    let lab = Lab::new();
    let machine = lab.path("narrow.toml");
    write_narrow_machine(&machine);
    let script = include_str!("programs/place_huge_pages.sh");
    let options = ["--quiet", "--time-scale", "50", "--numa-balancing", "off"];
    let ran = lab.script(machine.to_str().unwrap(), &options, script).succeeded();
    let split = ran.json("split");
    assert_documented(PLACE, [&split]);
    assert!(split["pages_split"].as_u64() > Some(0), "{split:#}");
    assert_eq!(ran.json("huge")["verb"], "streamcluster");
    let [plain, placed, full] = ["plain", "placed", "full"].map(|section| ran.json(section));
    assert_eq!(plain["checksum"], placed["checksum"]);
    // Not free memory: the kernel keeps freed pages in per-CPU lists.
    let kib: Vec<u64> = ran.section("left").split_whitespace().map(|kib| kib.parse().unwrap()).collect();
    let [anonymous, hog, anonymous_after, hog_after] = kib[..] else { panic!("{kib:?}") };
    assert!(anonymous_after < anonymous + 2048, "pages moved to the full node are gone, KiB: {kib:?}");
    assert!(hog_after + 1024 > hog, "the memory that filled it is still there, KiB: {kib:?}");
    assert!(full["exit_status"] == 0 && full["pages_moved"].as_u64() > Some(1000), "{full:#}");
}

/// `carrefour` splits what the detector of `hugepages` finds and nothing else. What it splits stays small under a busy
/// khugepaged, so that the parts reach their threads.
#[test]
fn what_carrefour_splits_is_what_the_detector_finds_and_stays_small() {
    let lab = Lab::new();
    compile_parts(&lab);
    let script = include_str!("programs/place_splits.sh");
    let options = ["--quiet", "--numa-balancing", "off", "--time-scale", "1000"];
    let ran = lab.script("small-4x2", &options, script).succeeded();
    let misplaced = |section: &str| -> u64 {
        let counted = ran.section(section).split_whitespace().nth(1);
        counted.and_then(|pages| pages.parse().ok()).unwrap_or_else(|| panic!("{}", ran.text()))
    };
    let checks = Checks::new();
    checks.part("apart", || {
        let (placed, plain) = (ran.json("apart.json"), misplaced("published"));
        assert_eq!((&placed["pages_split"], &placed["pages_kept_small"]), (&3.into(), &3.into()), "{placed:#}");
        assert!(plain > 300 && misplaced("apart") < plain / 2, "{plain}, then {}\n{placed:#}", misplaced("apart"));
    });
    for (section, why) in
        [("whole.json", "each node has huge pages of its own"), ("published.json", "small pages only")]
    {
        checks.part(section, || assert_eq!(ran.json(section)["pages_split"], 0, "{why}"));
    }
}

/// Programs that fork, execute others, end, set CPUs and policies, and unmap memory while they are placed.
#[test]
fn nothing_is_lost_and_everything_is_as_before() {
    let lab = Lab::new();
    let script = include_str!("programs/place_as_before.sh");
    let options = ["--quiet", "--time-scale", "50"];
    let ran = lab.script("small-4x2", &options, script).succeeded();
    let checks = Checks::new();
    let is = |section: &str, text: &str| {
        checks.part(section, || assert_eq!(ran.section(section).trim_end(), text, "{section}\n{}", ran.error));
    };
    let has_all = |section: &str, texts: &[&str]| checks.part(section, || has_all(&ran, section, texts));
    let has = |section: &str, text: &str| has_all(section, &[text]);
    is("inherited", "Cpus_allowed_list:\t2\nstatus 0");
    is("chosen", "Cpus_allowed_list:\t5\nstatus 0");
    has("memory", "interleave:0-3");
    has("owner", "bind:1");
    has("override", "interleave:0-3");
    has("weights", "weighted interleave:0-2");
    for policy in ["rr-tasks", "balanced+local", "auto", "carrefour", "thread-clustering+carrefour"] {
        is(policy, "status 7");
    }
    for (policy, cpus, memory) in [
        ("balanced", "0-1", "N0="),
        ("rr-tasks", "0", "N0="),
        ("rr-threads", "0", "N0="),
        ("auto", "0", "N0="),
        ("balanced+local", "0-1", "N0="),
        ("balanced+remote", "0-1", " N1="),
        ("remote", "0-7", "prefer:"),
    ] {
        checks.part(policy, || is_placed(&ran, policy, cpus, memory));
    }
    is("off", "0");
    is("keep", "1");
    has_all("dry", &["Cpus_allowed_list:\t0-7", "start: run thread", ", dry run: "]);
    has(
        "dry",
        "start: take the program's memory by policy interleave: 0-3: the policy interleaves pages over these nodes",
    );
    is("outlived", "status 0\nCpus_allowed_list:0-7");
    has_all("running", &["Cpus_allowed_list:3\nstatus 0\nCpus_allowed_list:1-6\n", "nearside: fixed:3:"]);
    is("respected", "Cpus_allowed_list:1-6");
    has_all("gone", &["there is no process 4000000", "status 125"]);
    has_all("user", &["interleave:0-3", "status 0"]);
    has_all("refused", &["process 1", "status 125"]);
    has_all("blind", &["carrefour needs samples", "virtual PMU", "tracepoint", "status 125"]);
    is("left", "as before");
}

/// The program has these CPUs and memory, and what it starts has others, unless the policy places no threads.
fn is_placed(ran: &RunOutput, policy: &str, cpus: &str, memory: &str) {
    let section = format!("placed {policy}");
    has_all(ran, &section, &[memory, "status 0"]);
    let text = ran.section(&section);
    let lists: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).collect();
    let [own, of_child] = lists[..] else { panic!("{policy}: {text}") };
    assert_eq!((own, own == of_child), (cpus, policy == "remote"), "{policy}: {text}");
}

/// Four processes read a file that one of them has on its node; of each,
/// the last line seen in its `numa_maps` is kept.
const COPIES: &str = include_str!("programs/place_copies.sh");

/// Busy processes are placed, and have their CPUs restored.
const SYSTEM: &str = include_str!("programs/place_system.sh");

/// Processes that read one file get copies of its pages on their nodes, with the same contents; memory that processes share
/// is dealt to their nodes for all of them with --shared; with --system, busy processes are placed until it ends.
#[test]
fn what_processes_share_is_copied_or_dealt_and_busy_processes_are_placed() {
    let lab = Lab::new();
    lab.compile("sharers.c");
    let machine = lab.path("narrow.toml");
    write_narrow_machine(&machine);
    let script = [COPIES, SYSTEM, "echo '[end]'"].concat();
    let options = ["--quiet", "--thp", "never", "--time-scale", "50", "--numa-balancing", "off"];
    let ran = lab.script(machine.to_str().unwrap(), &options, &script).succeeded();
    let copies = ran.json("copies");
    assert_documented(PLACE, [&copies]);
    let pages = copies["pages_copied"].as_u64().unwrap();
    assert!(pages > 2048 && copies["bytes_copied"] == pages * 4096, "{copies:#}");
    let local = |side: &str| copies[side]["local_access_ratio"].as_f64().unwrap();
    assert!(local("after") > local("before") + 0.05, "{copies:#}");
    for cpu in [0, 2, 4, 6] {
        // Fails unless it reads the file's contents.
        assert_eq!(ran.json(&format!("reader {cpu}"))["verb"], "readers");
        let maps = ran.section(&format!("maps {cpu}"));
        let near = maps.split_whitespace().find_map(|word| word.strip_prefix(&format!("N{}=", cpu / 2)));
        // The progress in this time is random; without copies three of the four processes have none.
        assert!(near.is_some_and(|pages| pages.parse::<u64>().unwrap() > 256), "{cpu}: {maps}\n{copies:#}");
    }
    assert_eq!(ran.section("file"), "same\n");
    let (alone, shared) = (ran.json("alone"), ran.json("shared"));
    assert_documented(PLACE, [&alone, &shared]);
    assert!(
        alone["pages_moved"].as_u64() < Some(64) && shared["pages_moved"].as_u64() >= Some(2048),
        "{alone:#}\n{shared:#}"
    );
    let on = ran.json("shared pages")["on"].clone();
    assert!((0..4).all(|node| on[node].as_u64() >= Some(4096 / 5)), "{on}\n{shared:#}");
    has_all(&ran, "refused 125", &["memory that several processes map cannot be moved: that needs CAP_SYS_NICE"]);
    let [before, meanwhile, after] = ["before", "meanwhile", "after"].map(|section| ran.section(section));
    assert_eq!((before, ran.section("system status")), (after, "0\n"));
    let idle = |text: &str| text.lines().next().map(str::to_owned);
    assert!(!meanwhile.contains("0-5") && idle(before) == idle(meanwhile), "{before}\n{meanwhile}");
    let system = ran.json("system.json");
    assert_documented(PLACE, [&system]);
    assert!(system["threads_moved"].as_u64() >= Some(4) && system["processes"].as_u64() >= Some(4), "{system:#}");
}

fn has_all(ran: &RunOutput, section: &str, texts: &[&str]) {
    let told = ran.section(section);
    for text in texts {
        assert!(told.contains(text), "no `{text}` in [{section}]:\n{told}\n{}", ran.error);
    }
}
