//! `nearside show`, `pages` and `memory` of programs whose memory is known, on virtual machines: against numactl,
//! `numa_maps`, `move_pages` (which `pages` asks) and each other.

use crate::support::{Lab, RunOutput, is_root_to};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use test_tools::Checks;

const BASE: u64 = 4 << 10;
const HUGE: u64 = 2 << 20;

/// Pages by node, kind and size.
type Amounts = BTreeMap<(u64, String, u64), u64>;

fn amounts(pages: &Value) -> Amounts {
    let key = |on: &Value| {
        let number = |key: &str| on[key].as_u64().unwrap();
        ((number("node"), on["kind"].as_str().unwrap().to_owned(), number("page_bytes")), number("pages"))
    };
    pages.as_array().unwrap().iter().map(key).collect()
}

fn wanted(of: &[(u64, &str, u64, u64)]) -> Amounts {
    of.iter().map(|(node, kind, bytes, pages)| ((*node, (*kind).to_owned(), *bytes), *pages)).collect()
}

/// Bytes on each node according to `numa_maps`, read as its manual says.
fn by_numa_maps(text: &str) -> BTreeMap<u64, u64> {
    let mut bytes = BTreeMap::new();
    for line in text.lines() {
        let value = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
        let Some(kilobytes) = value("kernelpagesize_kB=") else { continue };
        for node in 0..8 {
            *bytes.entry(node).or_default() += value(&format!("N{node}=")).unwrap_or(0) * kilobytes * 1024;
        }
    }
    bytes
}

fn start_of(range: &str) -> u64 {
    u64::from_str_radix(range.split('-').next().unwrap(), 16).unwrap()
}

/// The mapping that an address is in.
fn mapping_of(show: &Value, address: u64) -> &Value {
    let hex = |value: &Value| u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let holds = |mapping: &&Value| (hex(&mapping["start"])..hex(&mapping["end"])).contains(&address);
    show["mappings"].as_array().unwrap().iter().find(holds).unwrap()
}

/// Pages of four kinds on two nodes, by threads with policies of their own. One boot for all of it.
const PLACE: &str = include_str!("programs/look_two_nodes.sh");

#[test]
fn known_memory_is_reported_on_two_nodes() {
    let lab = Lab::new();
    if !is_root_to("fill hugetlb pools and make control groups") {
        return;
    }
    let ran = lab.script("small-2x2", &["--quiet", "--thp", "madvise"], PLACE).succeeded();
    let placed: Vec<&str> = ran.section("placed").lines().collect();
    let show = ran.json("show");
    let checks = Checks::new();

    // Each part, page by page and by its mapping.
    let base_and_huge = [
        (0, "base", BASE, 1024),
        (0, "transparent_huge", HUGE, 2),
        (1, "base", BASE, 1024),
        (1, "transparent_huge", HUGE, 2),
    ];
    let parts = [
        wanted(&[(0, "base", BASE, 1024)]),
        wanted(&[(1, "transparent_huge", HUGE, 4)]),
        wanted(&base_and_huge),
        wanted(&[(1, "hugetlb", HUGE, 3)]),
    ];
    for (number, wanted) in parts.iter().enumerate() {
        checks.part(format_args!("part {number}"), || {
            let pages = ran.json(&format!("pages-{}", number + 1));
            assert_eq!(amounts(&pages["mappings"][0]["pages"]), *wanted, "part {number}");
            let mapping = mapping_of(&show, start_of(placed[number]));
            assert!(mapping["huge_pages_told"].as_bool().unwrap(), "{mapping}");
            let told = amounts(&mapping["pages"]);
            for (key, pages) in wanted {
                // Memory beside the part may belong to the same mapping.
                let more = if key.1 == "base" { 16 } else { 0 };
                assert!((*pages..=pages + more).contains(told.get(key).unwrap_or(&0)), "part {number}: {told:?}");
            }
        });
    }
    checks.part("strip", || {
        let strip = ran.json("pages-3")["mappings"][0]["strip"].clone();
        let strip: Vec<u64> = strip.as_array().unwrap().iter().map(|node| node.as_u64().unwrap()).collect();
        let pieces: Vec<u64> = strip.chunks(strip.len() / 8).map(|piece| piece[0]).collect();
        assert_eq!(pieces, [0, 1, 1, 0, 0, 1, 1, 0]);
    });
    checks.part("totals", || totals_agree(&ran, &show));
    checks.part("threads", || threads_have_their_policies(&show));
    checks.part("one page", || one_page_is_the_kernels(&ran));
    for (section, says) in [
        ("text", "in pages of 2 MiB hugetlb"),
        ("strip", "pages of 2 MiB THP by node 0:2 1:2"),
        ("svg", "<title>node 1</title>"),
    ] {
        checks.part(section, || {
            assert!(ran.section(section).contains(says), "no {says:?} in {}", ran.section(section));
        });
    }
    checks.part("machine", || the_machine_is_what_numactl_says(&ran));
    checks.part("control groups", || control_groups_are_reported(&ran));
    checks.part("ordinary user", || an_ordinary_user_sees_its_own(&ran));

    for (section, status, says) in [
        ("unmapped", 2, "nothing is mapped there"),
        ("kernel", 1, "kernel thread"),
        ("watched", 0, ""),
        ("ended", 0, "note: the process ended"),
    ] {
        checks.part(section, || {
            let said = ran.section(section);
            assert!(said.contains(says) && said.ends_with(&format!("status {status}\n")), "{section}: {said}");
        });
    }
    checks.part("half", || {
        // Pages read before it ended are reported: of at least 49,152 pages, those of the first call.
        let lines: u64 = ran.section("ended").lines().next().unwrap().trim().parse().unwrap();
        assert!((30_000..49_152).contains(&lines), "{lines}");
        assert!(ran.json("half")["notes"][0].as_str().unwrap().contains("of the range are not mapped"));
    });
}

/// Totals of `show`, of `numa_maps` and of `memory`.
fn totals_agree(ran: &RunOutput, show: &Value) {
    let by_node = |nodes: &Value, bytes: &dyn Fn(&Value) -> u64| -> BTreeMap<u64, u64> {
        nodes.as_array().unwrap().iter().map(|node| (node["node"].as_u64().unwrap(), bytes(node))).collect()
    };
    let told = by_node(&show["nodes"], &|node| node["bytes"].as_u64().unwrap());
    let mut sums = by_numa_maps(ran.section("numa_maps"));
    sums.retain(|node, _| *node < 2);
    assert_eq!(told, sums);
    let uses = |node: &Value| node["bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    let memory = ran.json("memory");
    assert_eq!(by_node(&memory["processes"][0]["nodes"], &uses), told);
    assert_eq!(memory["processes"][0]["nodes"][1]["bytes"]["hugetlb"], 6 << 20);
    assert!(ran.section("metrics").ends_with("# EOF\n"));
    assert!(ran.section("metrics").contains("use=\"hugetlb\"} 6291456\n"), "{}", ran.section("metrics"));
}

/// Each thread has its policy and CPUs.
fn threads_have_their_policies(show: &Value) {
    let thread =
        |name: &str| show["threads"].as_array().unwrap().iter().find(|thread| thread["name"] == name).unwrap().clone();
    for (name, policy, cpus) in
        [("place-0", "bind:0", "0-1"), ("place-1", "bind:1", "2-3"), ("place-2", "bind:0", "0-1")]
    {
        let thread = thread(name);
        assert_eq!((&thread["policy"], &thread["cpus"]), (&json!(policy), &json!(cpus)), "{thread}");
        assert_eq!(thread["node"], u64::from(policy.ends_with('1')), "{thread}");
    }
    assert_eq!(show["threads"][0]["policy"], "interleave:0-1");
    assert_eq!(show["cpuset"]["memory_nodes"], "0-1");
}

/// A page, compared with the kernel's own file.
fn one_page_is_the_kernels(ran: &RunOutput) {
    let page = ran.json("page");
    let entry: u64 = ran.section("entry").trim().parse().unwrap();
    assert_eq!((&page["node"], &page["frame"]), (&json!(0), &json!(format!("{:#x}", entry & ((1 << 55) - 1)))));
    let flags = page["flags"].as_array().unwrap();
    assert!(flags.contains(&json!("anonymous")) && flags.contains(&json!("mmap")), "{page}");
}

fn the_machine_is_what_numactl_says(ran: &RunOutput) {
    let machine = ran.json("machine");
    let hardware = ran.section("hardware");
    for node in 0..2 {
        let line =
            |what: &str| hardware.lines().find_map(|line| line.strip_prefix(&format!("node {node} {what}: "))).unwrap();
        let told = &machine["nodes"][node];
        let cpus: Vec<&str> = line("cpus").split_whitespace().collect();
        assert_eq!(told["cpus"], format!("{}-{}", cpus[0], cpus[1]));
        let megabytes: u64 = line("size").trim_end_matches(" MB").parse().unwrap();
        assert_eq!(told["memory_bytes"].as_u64().unwrap() >> 20, megabytes);
        let row = hardware.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{node}: "))).unwrap();
        let distances: Vec<u64> = row.split_whitespace().map(|distance| distance.parse().unwrap()).collect();
        assert_eq!(told["distances"], json!(distances));
        let pool = told["hugetlb"].as_array().unwrap().iter().find(|pool| pool["page_bytes"] == HUGE).unwrap();
        assert_eq!((&pool["pages"], &pool["free_pages"]), (&json!(8), &json!(if node == 1 { 5 } else { 8 })));
    }
    assert_eq!(machine["transparent_huge_pages"], "madvise");
}

fn control_groups_are_reported(ran: &RunOutput) {
    let inside = ran.json("inside");
    assert_eq!(inside["cgroup"], "/half");
    assert_eq!(inside["cpuset"], json!({ "cgroup": "/half", "cpus": "2-3", "memory_nodes": "1" }));
    let memory = ran.json("cgroup")["cgroups"][0]["nodes"].clone();
    let anonymous = |node: &str| memory[node]["anon"].as_u64().unwrap();
    assert!(anonymous("1") >= 4 << 20 && anonymous("0") < 1 << 20, "{memory}");
}

fn an_ordinary_user_sees_its_own(ran: &RunOutput) {
    // The pages without frames, and why.
    let own = ran.section("own");
    assert!(own.contains("  -           anonymous") && own.contains("CAP_SYS_ADMIN"), "{own}");
    let show = ran.json("own-show");
    assert!(show["nodes"][1]["bytes"].as_u64().unwrap() >= 2 << 20, "{}", show["nodes"]);
    for verb in ["show", "pages", "memory"] {
        let said = ran.section(&format!("other-{verb}"));
        assert!(
            said.contains("CAP_SYS_PTRACE") && said.contains("runs as user 0") && said.ends_with("status 1\n"),
            "{said}"
        );
    }
    let said = ran.section("kernel-flags");
    assert!(said.contains("/proc/kpageflags, which is for root alone") && said.ends_with("status 1\n"), "{said}");
}

/// A preset whose nodes have two CPUs each; the last but one has no memory and the last no CPUs.
pub(crate) fn odd_machine(lab: &Lab, preset: &str, nodes: u32) -> String {
    let preset = lab.nearside().args(["topology", "--from", preset, "--format", "toml"]).output().unwrap();
    let mut text = String::from_utf8(preset.stdout).unwrap();
    let pair = |node: u32| format!("cpus = \"{}-{}\"", node * 2, node * 2 + 1);
    let (without_memory, package) = (pair(nodes - 2), format!("cpus = \"{}-{}\"", nodes * 2 - 4, nodes * 2 - 1));
    for (from, to) in [
        (format!("{without_memory}\nmemory_bytes = 1073741824"), format!("{without_memory}\nmemory_bytes = 0")),
        (format!("{}\n", pair(nodes - 1)), String::new()),
        (package, without_memory.clone()),
    ] {
        assert!(text.contains(&from), "no {from:?} in:\n{text}");
        text = text.replace(&from, &to);
    }
    let file = lab.path("odd.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn nodes_without_cpus_or_memory_are_reported_as_such() {
    let lab = Lab::new();
    let machine = odd_machine(&lab, "small-4x2", 4);
    let script = include_str!("programs/look_odd_nodes.sh");
    let ran = lab.script(&machine, &["--quiet", "--thp", "never"], script).succeeded();
    let pages = ran.json("pages");
    let third = 1024;
    let wanted = wanted(&[(0, "base", BASE, third), (1, "base", BASE, third), (3, "base", BASE, third)]);
    assert_eq!(amounts(&pages["mappings"][0]["pages"]), wanted);
    assert_eq!(ran.section("lines").split_whitespace().collect::<Vec<_>>(), ["1024", "3"]);
    let show = ran.json("show");
    let told: Vec<u64> = show["nodes"].as_array().unwrap().iter().map(|node| node["bytes"].as_u64().unwrap()).collect();
    let sums = by_numa_maps(ran.section("numa_maps"));
    assert_eq!(told, [sums[&0], sums[&1], 0, sums[&3]]);
    // A thread whose memory is on a node without CPUs may run anywhere.
    let threads = show["threads"].as_array().unwrap();
    let thread = threads.iter().find(|thread| thread["name"] == "place-1").unwrap();
    assert_eq!((&thread["cpus"], &thread["policy"]), (&json!("0-5"), &json!("bind:3")));
    let nodes = ran.json("machine")["nodes"].clone();
    let told = (&nodes[2]["cpus"], &nodes[2]["memory_bytes"], &nodes[3]["cpus"]);
    assert_eq!(told, (&json!("4-5"), &json!(0), &json!("")));
    assert_eq!(ran.json("memory")["nodes"].as_array().unwrap().len(), 4);
    assert!(ran.section("text").contains("\n3        -"), "{}", ran.section("text"));
}

/// Eight nodes, the seventh without memory and the eighth without CPUs; a process of an ordinary user with memory of
/// three kinds on seven of them, read by that user and by root. Everything about the machine is reported.
const EIGHT: &str = include_str!("programs/look_eight_nodes.sh");

#[test]
fn eight_nodes_are_reported_alike_to_root_and_to_the_owner() {
    let lab = Lab::new();
    if !is_root_to("fill hugetlb pools and run programs of other users") {
        return;
    }
    let machine = odd_machine(&lab, "small-8x2", 8);
    let ran = lab.script(&machine, &["--quiet", "--thp", "madvise"], EIGHT).succeeded();
    let (root, owner) = (ran.json("root"), ran.json("user"));
    let checks = Checks::new();
    for part in ["nodes", "pages", "threads", "notes", "cpuset"] {
        checks.part(part, || assert_eq!(root[part], owner[part], "{part}"));
    }
    // Shared memory depends on which other programs run.
    checks.part("mappings", || {
        for (one, other) in root["mappings"].as_array().unwrap().iter().zip(owner["mappings"].as_array().unwrap()) {
            for part in ["start", "name", "policy", "pages", "huge_pages_told"] {
                assert_eq!(one[part], other[part], "{part}");
            }
        }
    });
    let nodes = [0, 1, 2, 3, 4, 5, 7];
    // Pieces alternate between the two nodes, and every second one is huge: those of the second node.
    let mixed = [(0, "base", BASE, 1024), (7, "transparent_huge", HUGE, 2)];
    let wanted =
        [wanted(&nodes.map(|node| (node, "base", BASE, 1024))), wanted(&mixed), wanted(&[(5, "hugetlb", HUGE, 2)])];
    for (number, wanted) in wanted.iter().enumerate() {
        checks.part(format_args!("part {number}"), || {
            let pages = ran.json(&format!("pages-{}", number + 1));
            assert_eq!(amounts(&pages["mappings"][0]["pages"]), *wanted, "part {number}");
        });
    }
    checks.part("totals", || {
        let sums = by_numa_maps(ran.section("numa_maps"));
        let told: BTreeMap<u64, u64> = root["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| (node["node"].as_u64().unwrap(), node["bytes"].as_u64().unwrap()))
            .collect();
        assert_eq!(told, sums);
        assert_eq!((told.len(), told[&6]), (8, 0));
        let uses =
            |node: &Value| node["bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        let memory: BTreeMap<u64, u64> = ran.json("memory")["processes"][0]["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| (node["node"].as_u64().unwrap(), uses(node)))
            .collect();
        assert!(memory.iter().all(|(node, bytes)| *bytes == told[node]) && !memory.contains_key(&6), "{memory:?}");
    });
    checks.part("machine", || numactl_says_the_same_of_all(&ran));
    checks.part("text", || {
        assert!(ran.section("text").lines().any(|line| line.starts_with("all ") && line.split("  ").count() > 8));
    });
    for (section, says) in [
        ("half", &["nearside: note: ", "of the range are not mapped", "frames are not shown"][..]),
        ("nothing", &["none of its pages is in memory", "status 0"]),
        ("backwards", &["ends before it begins", "status 2"]),
        ("name", &["no mapping and no named range `no-such.so`", "status 2"]),
        ("hidden", &["hidepid", "CAP_SYS_PTRACE", "status 1"]),
        ("gone", &["there is no process 999999", "status 1"]),
    ] {
        checks.part(section, || {
            let said = ran.section(section).to_lowercase();
            assert!(says.iter().all(|says| said.contains(&says.to_lowercase())), "{section}: {said}");
        });
    }
    for verb in ["show", "pages", "memory"] {
        for (what, says) in [("zombie", "zombie"), ("thread", "kernel thread")] {
            checks.part(format_args!("{what} {verb}"), || {
                let said = ran.section(&format!("{what}-{verb}"));
                assert!(said.contains(says) && said.ends_with("status 1\n"), "{said}");
            });
        }
    }
}

/// Claims 19, 20 and 27 of the specification: nodes, CPUs, sizes and distances, including nodes that lack some.
fn numactl_says_the_same_of_all(ran: &RunOutput) {
    let machine = ran.json("machine");
    let hardware = ran.section("hardware");
    for (node, told) in machine["nodes"].as_array().unwrap().iter().enumerate() {
        let line = |what: &str| {
            let start = format!("node {node} {what}:");
            hardware.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{hardware}")).trim()
        };
        let cpus: Vec<&str> = line("cpus").split_whitespace().collect();
        let wanted = if cpus.is_empty() { String::new() } else { format!("{}-{}", cpus[0], cpus[1]) };
        assert_eq!(told["cpus"], wanted);
        let megabytes: u64 = line("size").trim_end_matches(" MB").parse().unwrap();
        assert_eq!(told["memory_bytes"].as_u64().unwrap() >> 20, megabytes);
        let row = hardware.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{node}: "))).unwrap();
        let distances: Vec<u64> = row.split_whitespace().map(|distance| distance.parse().unwrap()).collect();
        assert_eq!((&told["distances"], distances[node]), (&json!(distances), 10));
    }
    assert_eq!(machine["nodes"].as_array().unwrap().len(), 8);
}
