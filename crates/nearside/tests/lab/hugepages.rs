//! `nearside hugepages` on virtual machines: a program whose threads use parts of its huge pages is found and cured.

use crate::support::{LIMIT, Lab};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_tools::Checks;

/// Four parts of 3.5 MiB, on the nodes 0, 1, 0 and 1. Their three borders are within huge pages, a quarter of one or more from
/// its ends: what a split saves is well above what it takes.
const PARTS: [&str; 2] = ["3.5", "60"];
const CPUS: [&str; 4] = ["0", "2", "1", "3"];

/// Compiles the program into the folder that the guest works in.
pub fn compile(lab: &Lab) {
    compile_as(lab, "work/parts", &["-O1"]);
}

/// The same, whose threads wait about as long as they work: while a cure is decided, fewer accesses are simulated.
const RESTING: [&str; 2] = ["-O1", "-DREST_US=6500"];

fn compile_as(lab: &Lab, name: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/programs/parts.c");
    let mut compiler = Command::new("cc");
    compiler.args(flags).args(["-pthread", "-Wl,--build-id", "-o"]).arg(lab.path(name)).arg(source);
    assert!(compiler.status().unwrap().success());
}

/// Neighbouring parts are of threads on different nodes: the huge pages at borders are found, with their owners, and the
/// misplaced pages are those that the program counts.
#[test]
fn huge_pages_at_borders_of_parts_are_found_with_their_owners() {
    let lab = Lab::new();
    // Near a node's bandwidth, the expected gain of fewer remote accesses is within its error of nothing.
    compile_as(&lab, "work/parts", &["-DDEPENDENT"]);
    let mut find = lab.nearside();
    find.args(["hugepages", "find", "--machine", "small-4x2", "--numa-balancing", "off", "--quiet"]);
    find.args(["--timeout", LIMIT, "--json", "found.json", "--", "./parts"]).args(PARTS).args(CPUS);
    let ran = lab.run(find, b"");
    assert_eq!(ran.status, 3, "{}\n{}", ran.text(), ran.error);
    let counted = ran.text().lines().find_map(|line| line.strip_prefix("misplaced ")).unwrap();
    let misplaced: i64 = counted.split(' ').next().unwrap().parse().unwrap();
    let found: Value = lab.json("work/found.json");
    let counts = &found["huge_pages"];
    assert_eq!(counts["all"], 7, "{counts:#}");
    assert_eq!(counts["falsely_shared"], 3, "{counts:#}");
    let told = found["objects"][0]["pages"]["misplaced_pages"].as_i64().unwrap();
    assert!((told - misplaced).abs() <= 24, "{told} are not the {misplaced} that the program counts");
    assert!(found["gain"]["speedup"].as_f64() > Some(1.01) && found["found"] == true, "{:#}", found["gain"]);
    let text = ran.text();
    assert!(text.contains(" huge pages are falsely shared: with small pages there"), "{text}");
    lab.assert_nothing_left();
}

/// The same parts in order of nodes on huge pages of their own are left alone.
#[test]
fn huge_pages_of_one_owner_each_are_not_found() {
    let lab = Lab::new();
    compile(&lab);
    let mut find = lab.nearside();
    find.args(["hugepages", "find", "--machine", "small-4x2", "--numa-balancing", "off", "--quiet"]);
    find.args(["--timeout", LIMIT, "--json", "found.json", "--", "./parts", "4", "40"]).args(CPUS);
    let ran = lab.run(find, b"").succeeded();
    let counts = &lab.json("work/found.json")["huge_pages"];
    assert_eq!((counts["all"].as_u64(), counts["local_owner"].as_u64()), (Some(8), Some(8)), "{counts:#}");
    assert!(ran.text().contains("none of 8 huge pages is falsely shared"), "{}", ran.text());
}

/// Small pages on another node than their part's thread, as the program counts them at its end.
fn misplaced(said: &str) -> u64 {
    let counted = said.lines().find_map(|line| line.strip_prefix("misplaced ")).unwrap_or_else(|| panic!("{said}"));
    counted.split(' ').next().unwrap().parse().unwrap()
}

/// A user without any right cures its own program, the split pages stay split under a busy khugepaged, running processes
/// need `CAP_SYS_NICE`, and neither the end nor SIGKILL of nearside leaves a switch or harms the program.
#[test]
fn falsely_shared_huge_pages_are_split_by_their_own_program_and_stay_small() {
    let lab = Lab::new();
    compile_as(&lab, "work/parts", &RESTING);
    let script = include_str!("programs/hugepages_cure.sh");
    let options = ["--quiet", "--numa-balancing", "off", "--time-scale", "1000"];
    let ran = lab.script("small-4x2", &options, script).succeeded();
    let checks = Checks::new();
    checks.part("user", || {
        let (said, told) = (ran.section("user"), ran.json("user.json"));
        assert!(said.ends_with("status 0\n") && misplaced(said) <= 16, "{said}\n{told:#}");
        assert_eq!((&told["split"], &told["kept_small"]), (&3.into(), &3.into()), "{told:#}");
        assert!(told["pages_moved"].as_u64() > Some(500) && told["failed"] == serde_json::json!({}), "{told:#}");
    });
    checks.part("whole", || {
        // Two threads' huge pages lie on the other node: two each, of 512 small ones.
        let (said, told) = (ran.section("whole"), ran.json("whole.json"));
        assert_eq!((&told["moved_whole"], &told["split"]), (&4.into(), &0.into()), "{said}\n{told:#}");
        assert!(misplaced(said) <= 16 && told["failed"] == serde_json::json!({}), "{said}\n{told:#}");
    });
    checks
        .part("joined", || assert!(misplaced(ran.section("joined")) > 100, "khugepaged joins what is not kept small"));
    checks.part("plain", || {
        let (said, told) = (ran.section("plain"), ran.json("plain.json"));
        assert!(said.contains("status 125\n") && misplaced(said) > 500 && told["split"] == 0, "{said}\n{told:#}");
        assert!(told["failed"].to_string().contains("needs CAP_SYS_NICE"), "{told:#}");
    });
    checks.part("nice", || {
        let told = ran.json("nice.json");
        assert_eq!(
            (ran.section("nice"), &told["split"], &told["kept_small"]),
            ("ended\n", &3.into(), &0.into()),
            "{told:#}"
        );
        assert!(told["failed"].to_string().contains("the kernel may join it again"), "{told:#}");
    });
    checks.part("killed", || assert_eq!(ran.section("killed"), "status 137\nthe program ended as always\n"));
    checks.part("switches", || assert_eq!(ran.section("switches"), "same\n"));
}

/// Memory and systems that a cure cannot change in the usual way: each is cured as far as the kernel lets it, or named, the
/// program ends as it would, and no switch or flag of a mapping is another one.
#[test]
fn odd_memory_and_programs_are_cured_or_named_and_harmed_by_nothing() {
    let lab = Lab::new();
    compile_as(&lab, "work/parts", &RESTING);
    compile_as(&lab, "work/parts-static", &[&RESTING[..], &["-static"]].concat());
    let script = include_str!("programs/hugepages_odd.sh");
    let options = ["--quiet", "--as-root", "--numa-balancing", "off", "--time-scale", "1000"];
    let ran = lab.script("small-4x2", &options, script).succeeded();
    let checks = Checks::new();
    let part = |name: &'static str, status: u8, check: &dyn Fn(&str, &Value)| {
        checks.part(name, || {
            let told = ran.json(&format!("{name}.json"));
            let said = ran.section(name);
            assert!(said.lines().any(|line| line == format!("status {status}")), "{said}\n{told:#}");
            check(said, &told);
        });
    };
    part("locked", 0, &|said, told| {
        assert!(misplaced(said) <= 16 && told["split"] == 3 && told["failed"] == serde_json::json!({}), "{told:#}");
    });
    let refused = |why: &'static str| {
        move |said: &str, told: &Value| {
            assert!(said.contains(&format!("no huge page was cured: {why}")), "{said}");
            assert!(misplaced(said) > 500 && told["split"] == 0 && told["pages_moved"] == 0, "{said}\n{told:#}");
        }
    };
    part("bound", 125, &refused("node 1 uses a part of memory that the program's policy binds to others"));
    part("hugetlb", 125, &refused("pages of hugetlb pools are left: the kernel does not split them"));
    // The first write to a huge page after a fork makes small ones of it.
    part("forked", 0, &|said, told| {
        assert!(misplaced(said) <= 768 && told["failed"] == serde_json::json!({}), "{said}\n{told:#}");
    });
    part("exit", 3, &|_, told| assert!(told["ended"] == true && told["split"] == 0, "{told:#}"));
    part("exec", 125, &refused("none of it is in memory any more"));
    part("static", 0, &|_, told| {
        assert!(told["split"] == 3 && told["kept_small"] == 0, "{told:#}");
        assert!(told["failed"].to_string().contains("the kernel may join it again"), "{told:#}");
    });
    part("never", 0, &|said, told| {
        let verdict = told["verdict"].as_str().unwrap();
        assert!(verdict.starts_with("no huge page was seen: ") && said.ends_with("status 0\n"), "{said}\n{told:#}");
    });
    // The kernel shows the memory only through the other threads then.
    part("first", 0, &|_, told| assert!(told["rounds"].as_u64() > Some(0), "{told:#}"));
    checks.part("still never", || assert_eq!(ran.section("still never"), "same\n"));
    checks.part("attached", || assert!(ran.section("attached").starts_with("status 0\nsame flags\n")));
    checks.part("switches", || assert_eq!(ran.section("switches"), "same\n"));
}

/// What a recording found is on small pages from the first touch on when the same program runs again, without any right and
/// without a split or a move. Another build of it, and other sizes, run as they are.
#[test]
fn what_a_recording_found_is_kept_small_from_its_allocation_on() {
    let lab = Lab::new();
    compile(&lab);
    std::fs::create_dir(lab.path("work/other")).unwrap();
    compile_as(&lab, "work/other/parts", &["-O2"]);
    let script = include_str!("programs/hugepages_prevent.sh");
    let ran = lab.script("small-4x2", &["--quiet", "--numa-balancing", "off"], script).succeeded();
    let checks = Checks::new();
    checks.part("record", || assert_eq!(ran.section("record"), "status 0\n"));
    checks.part("same", || {
        let (said, told) = (ran.section("same"), ran.json("same.json"));
        assert!(said.ends_with("status 0\n") && misplaced(said) <= 16, "{said}\n{told:#}");
        assert_eq!((&told["applied"], &told["met"], &told["unmet"]), (&true.into(), &1.into(), &0.into()), "{told:#}");
        // Of seven: the three with borders, although the mapping begins at another place in a huge page.
        let kept = told["kept_small"].as_u64().unwrap();
        assert!((3..=4).contains(&kept) && told["failed"] == serde_json::json!({}), "{told:#}");
        assert!(said.contains(" huge pages of 1 object small from their allocation on"), "{said}");
    });
    checks.part("started", || {
        let said = ran.section("started");
        assert!(said.ends_with("status 7\n") && misplaced(said) <= 16, "programs of a script as well: {said}");
    });
    checks.part("dry", || {
        let said = ran.section("dry");
        assert!(misplaced(said) > 500 && said.contains("  would keep 3 huge pages of 1 object small"), "{said}");
    });
    checks.part("other", || {
        let (said, told) = (ran.section("other"), ran.json("other.json"));
        assert!(misplaced(said) > 500 && said.contains("is another build than the recorded "), "{said}");
        assert_eq!((&told["applied"], &told["kept_small"]), (&false.into(), &0.into()), "{told:#}");
    });
    checks.part("size", || {
        let told = ran.json("size");
        assert_eq!((&told["applied"], &told["unmet"], &told["kept_small"]), (&true.into(), &1.into(), &0.into()));
    });
}

/// The service shows falsely shared huge pages, or splits them and moves their parts, and keeps small what it split where the
/// library is in the program. Its socket goes with it.
#[test]
fn the_agent_finds_and_cures_falsely_shared_huge_pages() {
    let lab = Lab::new();
    compile_as(&lab, "work/parts", &RESTING);
    let script = [crate::WAIT_FOR, include_str!("programs/hugepages_agent.sh")].concat();
    let ran = lab.script("small-4x2", &["--quiet", "--numa-balancing", "off"], &script).succeeded();
    let known = |section: &str| -> Value {
        let status: Value = serde_json::from_str(ran.section(section)).unwrap();
        status["huge_pages"].clone()
    };
    let checks = Checks::new();
    checks.part("find", || {
        let (said, told) = (ran.section("find"), known("find.json"));
        assert!(misplaced(said) > 500 && said.ends_with("status 0\n"), "nothing is changed: {said}");
        assert_eq!((&told["cures"], &told["split"]), (&false.into(), &0.into()), "{told:#}");
        assert!((1..=3).contains(&told["falsely_shared"].as_u64().unwrap()), "{told:#}");
    });
    checks.part("cure", || {
        let (said, told) = (ran.section("cure"), known("cure.json"));
        assert!(misplaced(said) <= 24, "{said}\n{told:#}");
        assert!(said.contains(" falsely shared huge pages, "), "{said}");
        assert!(told["pages_moved"].as_u64() > Some(500), "{told:#}");
        assert_eq!((&told["split"], &told["kept_small"], &told["taken_back"]), (&3.into(), &0.into(), &0.into()));
    });
    checks.part("text", || {
        let text = ran.section("cure.text");
        assert!(text.contains("huge pages shared falsely") && text.contains("  split, kept small"), "{text}");
        assert!(text.contains("the kernel may join it again: "), "{text}");
    });
    checks.part("end", || {
        let end = ran.section("end");
        assert_eq!(end, "status 0\n");
        assert_eq!(ran.section("last"), "status 0\n", "the journal and both sockets are gone");
    });
    checks.part("library", || {
        let (said, told) = (ran.section("library"), known("library.json"));
        assert!(misplaced(said) <= 24, "{said}\n{told:#}");
        assert_eq!((&told["split"], &told["kept_small"]), (&3.into(), &3.into()), "{told:#}");
    });
}

/// With khugepaged a thousand times as busy as usual.
const JOINING: [&str; 5] = ["--quiet", "--numa-balancing", "off", "--time-scale", "1000"];

/// Split pages are joined when all their users are on one node for long enough, as far as the budget goes, unless that is
/// switched off.
#[test]
#[ignore = "it takes minutes: make nightly runs it"]
fn pages_are_joined_when_one_node_uses_them() {
    let lab = Lab::new();
    compile_as(&lab, "work/parts", &RESTING);
    let ran = lab.script("small-4x2", &JOINING, include_str!("programs/hugepages_join.sh")).succeeded();
    let checks = Checks::new();
    checks.part("join", || {
        let (said, told) = (ran.section("join"), ran.json("join.json"));
        assert_eq!((&told["split"], &told["joined"]), (&3.into(), &3.into()), "{said}\n{told:#}");
        // The last half of a huge page is of small ones, which are left.
        assert!(misplaced(said) <= 256 + 24, "{said}\n{told:#}");
    });
    checks.part("off", || {
        let told = ran.json("off.json");
        assert_eq!((&told["split"], &told["joined"]), (&3.into(), &0.into()), "{told:#}");
    });
    // Splits and pages that move as a whole come first, and leave no room for all three joins, each of which copies a huge
    // page.
    checks.part("budget", || {
        let told = ran.json("budget.json");
        let of = |what: &str| told[what].as_u64().unwrap_or_else(|| panic!("no {what} in {told:#}"));
        let moved = of("misplaced_pages") * 4096 + (of("chosen_whole") + of("joined")) * (2 << 20);
        assert_eq!(of("split"), 3, "{told:#}");
        assert!(moved <= 6 << 20 && moved > 4 << 20, "what fits is moved, and no more: {moved} bytes in {told:#}");
        assert!(of("joined") < 3 && of("over_budget") > 0, "{told:#}");
    });
}

/// Pages that the kernel has joined are split again once, unless that is switched off.
#[test]
fn pages_that_the_kernel_joined_are_split_again() {
    let lab = Lab::new();
    compile_as(&lab, "work/parts", &RESTING);
    let ran = lab.script("small-4x2", &JOINING, include_str!("programs/hugepages_rearm.sh")).succeeded();
    let split = |section: &str| {
        let told: Value = serde_json::from_str(ran.section(section)).unwrap();
        told["split"].as_u64().unwrap()
    };
    assert!((4..=6).contains(&split("rearm-on")), "{}", ran.section("rearm-on"));
    assert_eq!(split("rearm-off"), 3, "{}", ran.section("rearm-off"));
}

/// The program's misplaced small pages under each policy are not in the report; that the cure ran is, in its time: it
/// records for a part of the run.
#[test]
fn huge_pages_none_and_cured_ones_are_compared() {
    let lab = Lab::new();
    // Near a node's bandwidth, the gain is within its error of nothing.
    compile_as(&lab, "work/parts", &["-O1", "-DDEPENDENT"]);
    let mut confirm = lab.nearside();
    confirm.args(["hugepages", "confirm", "--machine", "small-4x2", "--numa-balancing", "off", "--timeout", LIMIT]);
    confirm.args([
        "--policies",
        "first-touch,no-huge-pages,hugepages:0.03",
        "--repeat",
        "2",
        "--json",
        "compared.json",
    ]);
    confirm.args(["--", "./parts"]).args(PARTS).args(CPUS);
    lab.run(confirm, b"").succeeded();
    let compared: Value = lab.json("work/compared.json");
    let rows = compared["summaries"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["first-touch", "no-huge-pages", "hugepages:0.03"], "{compared:#}");
    let time = |row: &Value| row["seconds"]["mean"].as_f64().unwrap_or_else(|| panic!("{compared:#}"));
    assert!(time(&rows[1]) < time(&rows[0]), "small pages are all local: {compared:#}");
}
