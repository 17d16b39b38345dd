//! Each policy places pages where it should, on a virtual machine of 8 nodes, one without memory and one without CPUs:
//! as reported by the kernel, as seen by the machine's own memory, and compared with numactl; as root and as an
//! ordinary user.

use crate::support::{Lab, RunOutput, is_root, is_root_to};
use serde_json::Value;
use std::collections::BTreeMap;
use test_tools::Checks;

/// `placed OPTIONS` makes a program fill 4 MiB under options of `nearside run`, and prints its pid, the node of each
/// page according to `move_pages`, and the nodes of all in `numa_maps`; `placed_by_numactl OPTIONS` prints only the
/// last.
const PLACED: &str = include_str!("programs/policies_placed.sh");

/// A page: its node, and its frame if known.
type Pages = BTreeMap<u64, (u64, Option<u64>)>;

fn hexadecimal(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok()
}

fn pages(lines: &str) -> Pages {
    let page = |line: &str| {
        let page: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why} in:\n{line}"));
        let start = hexadecimal(&page["address"]).unwrap();
        let node = page["node"].as_u64().unwrap_or_else(|| panic!("no node: {line}"));
        (start, (node, hexadecimal(&page["frame"])))
    };
    lines.lines().map(page).collect()
}

/// The nodes of a program's memory, determined in three ways that agree.
fn nodes_of<'a>(ran: &'a RunOutput, section: &str, samples: &[Value]) -> &'a str {
    let (pid, rest) = ran.section(section).split_once('\n').unwrap();
    let (by_numa_maps, lines) = rest.split_once('\n').unwrap();
    let pages = pages(lines);
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (node, _) in pages.values() {
        *counts.entry(*node).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(node, pages)| format!("N{node}={pages} ")).collect();
    assert_eq!(counts.concat(), by_numa_maps, "{section}");
    // The kernel fills new pages with zeroes at addresses of its own: the machine knows them by their frames, which
    // only root can read.
    let by_frame: BTreeMap<u64, u64> = pages.values().filter_map(|(node, frame)| Some(((*frame)?, *node))).collect();
    assert_eq!(by_frame.is_empty(), section.starts_with("ordinary"), "{section}");
    let pid: u64 = pid.parse().unwrap();
    let of_memory = samples.iter().filter(|sample| sample["level"] == 4 && sample["pid"] == pid);
    let mut seen = 0;
    for sample in of_memory {
        if let Some(node) = by_frame.get(&(sample["physical_address"].as_u64().unwrap() >> 12)) {
            assert_eq!(sample["node"], *node, "{section}: {sample}");
            seen += 1;
        }
    }
    assert!(seen > 20 || by_frame.is_empty(), "{section}: {seen} samples");
    by_numa_maps
}

/// Claims 7 and 8 of the specification; node 2 has no memory and node 7 no CPUs, which numactl refuses altogether (its
/// issues 127, 165 and 184).
#[test]
fn each_policy_places_pages_where_it_says() {
    let lab = Lab::new();
    crate::support::write_uneven_machine(&lab.path("uneven.toml"));
    let others = include_str!("programs/policies_others.sh");
    let as_nobody = if is_root() { "setpriv --reuid 65534 --regid 65534 --clear-groups " } else { "" };
    let of_user = format!("{PLACED} user=ordinary; all_placed").replace('\'', "'\\''");
    let script = format!("{PLACED} user=root; all_placed; {as_nobody}sh -c '{of_user}'; {others}");
    let (machine, samples) = (lab.path("uneven.toml"), lab.path("samples"));
    let options = ["--quiet", "--thp", "never", "--memory-per-node", "256M", "--sample-period", "500", "--samples"];
    let options = [&options[..], &[samples.to_str().unwrap()]].concat();
    let ran = lab.script(machine.to_str().unwrap(), &options, &script).succeeded();
    let samples = lab.text("samples");
    let samples: Vec<Value> = samples.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let checks = Checks::new();
    for user in ["root", "ordinary"] {
        let nodes = |options: &str| nodes_of(&ran, &format!("{user} {options}"), &samples);
        let is = |options: &str, wanted: &str| {
            checks.part(format_args!("{user} {options}"), || assert_eq!(nodes(options), wanted));
        };
        checks.part(format_args!("{user} --interleave"), || {
            let interleaved = nodes("--interleave 0,3,7");
            assert!(["N0=341 N3=341 N7=342 ", "N0=341 N3=342 N7=341 ", "N0=342 N3=341 N7=341 "].contains(&interleaved));
        });
        is("--membind 7", "N7=1024 ");
        is("--preferred 1", "N1=1024 ");
        // The nearest of them.
        is("-P 4,5 -N 0", "N4=1024 ");
        is("--localalloc -N 3", "N3=1024 ");
        checks.part(format_args!("{user} -N 2"), || {
            let near_2 = nodes("-N 2");
            assert!(!near_2.contains("N2=") && near_2.ends_with("=1024 "), "{near_2}");
        });
    }
    for options in ["--interleave=0,3,5", "--membind=4", "--preferred=1", "-N 3 --localalloc"] {
        checks.part(options, || {
            let (ours, theirs) =
                (nodes_of(&ran, &format!("root {options}"), &samples), ran.section(&format!("numactl {options}")));
            let shares = |text: &str| {
                let mut shares: Vec<String> = text.split_whitespace().map(|part| part.replace("341", "342")).collect();
                shares.sort();
                shares
            };
            assert_eq!(shares(ours), shares(theirs), "{options}");
        });
    }
    checks.part("nodes that lack something", || nodes_are_used_for_what_they_have(&ran));
    if is_root_to("set weights, reserve huge pages and take CPUs offline") {
        checks.part("weighted", || {
            assert_eq!(nodes_of(&ran, "root --weighted-interleave 0-1", &samples), "N0=768 N1=256 ");
        });
        checks.part("hugetlb", || assert_eq!(ran.section("hugetlb"), "N3=2 N7=2 \n"));
        checks.part("transparent", || assert_eq!(ran.section("transparent"), "N7=2048 \n4\n"));
        checks.part("offline", || {
            let offline = "nearside: cannot use 5: there is no CPU 5: this machine has CPUs 0-4,6-13\nstatus 2\n";
            assert_eq!(ran.section("offline"), format!("{offline}Cpus_allowed_list:\t4\nstatus 0\n{offline}"));
        });
    }
}

fn nodes_are_used_for_what_they_have(ran: &RunOutput) {
    let full = ran.section("full");
    assert!(full.contains("N6=") && full.split_whitespace().count() > 1, "{full}");
    let told = "cannot use 2: node 2 has no memory: memory is on 0-1,3-7\n";
    let memory = ran.section("without-memory");
    assert_eq!(memory, format!("nearside: {told}status 1\nCpus_allowed_list:\t4-5\nstatus 0\n"));
    assert_eq!(ran.section("without-cpus"), "nearside: node 7 has no CPUs to run on\nstatus 2\n");
    let hardware = ran.section("hardware");
    assert!(
        hardware.starts_with("available: 8 nodes (0-7)\nnode 2 cpus: 4 5\nnode 2 size: 0 MB\nnode 7 cpus:\n"),
        "{hardware}"
    );
    assert!(hardware.ends_with("  7:  16  22  22  16  22  22  16  10 \n"), "{hardware}");
    let live = ran.section("live");
    let bound = "process N (sleep): 1 thread runs on CPUs 4-5\nnearside: node 7 has no CPUs";
    assert!(live.contains(told) && live.contains(bound), "{live}");
    let wrong = "nearside: cannot use 8: there is no node 8: this machine has nodes 0-7\nstatus 2\n\
                 nearside: cannot use 99: there is no CPU 99: this machine has CPUs 0-13\nstatus 2\nstatus 2\n\
                 nearside: --preferred takes one node, but got 0-1: --preferred-many takes several\nstatus 2\n\
                 nearside: `!all` selects nothing\nstatus 2\nstatus 2\nstatus 2\n\
                 nearside: --balancing is only for --membind, and is ignored\nidle\nstatus 0\n";
    assert_eq!(ran.section("wrong"), wrong);
}
