//! Interoperability of nearside and hwloc's own programs: each other's XML, and this host.

use machine::{CpuSet, Machine, PackageId};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one of hwloc's programs with all of its checks. Returns its standard output.
fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    // The first makes hwloc report errors in XML, the second makes it check its whole tree and abort if it is invalid.
    command.args(arguments).env("HWLOC_XML_VERBOSE", "1").env("HWLOC_DEBUG_CHECK", "1");
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {program}: {error}; this test needs Debian's hwloc-nox: apt-get install hwloc-nox")
    });
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {complaints}", output.status);
    // It announces how it interprets a file name.
    let unexpected: Vec<&str> = complaints.lines().filter(|line| !line.starts_with("assuming")).collect();
    assert_eq!(unexpected, Vec::<&str>::new(), "{program} {arguments:?}");
    String::from_utf8(output.stdout).expect("hwloc's programs write UTF-8")
}

fn lstopo(arguments: &[&str]) -> String {
    run("lstopo-no-graphics", arguments)
}

/// A file with our XML of a machine.
fn written(name: &str, machine: &Machine) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.xml"));
    std::fs::write(&path, machine.to_hwloc_xml().unwrap()).unwrap();
    path
}

/// The parts of a machine that hwloc keeps, in a fixed order.
fn kept(machine: &Machine) -> Machine {
    Machine::from_hwloc_xml(&machine.to_hwloc_xml().unwrap()).unwrap()
}

fn odd() -> Machine {
    Machine::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/odd.toml")).unwrap()
}

#[test]
fn lstopo_reads_every_preset_and_writes_it_as_it_was() {
    let presets = machine::presets::names().into_iter().map(|name| machine::presets::load(name).unwrap());
    for machine in presets.chain([odd()]) {
        let path = written(&machine.name, &machine);
        let xml = lstopo(&["--if", "xml", "-i", path.to_str().unwrap(), "--of", "xml"]);
        assert_eq!(Machine::from_hwloc_xml(&xml).unwrap(), kept(&machine), "{}", machine.name);
    }
}

#[test]
fn hwloc_info_counts_what_the_machine_has() {
    let path = written("odd-counted", &odd());
    let counts = run("hwloc-info", &["--if", "xml", "-i", path.to_str().unwrap()]);
    // Each type has a line for each depth at which it is found: `depth 4:   2 Package (type #1)`.
    let found = |kind: &str| -> u32 {
        let words = counts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let counts = words.filter_map(|words| {
            let at = words.iter().position(|word| *word == kind)?;
            words.get(at.checked_sub(1)?)?.parse::<u32>().ok()
        });
        counts.sum()
    };
    // Node 1 is attached to a group, as its packages are smaller; node 70 to the machine.
    let expected =
        [("Machine", 1), ("Package", 3), ("NUMANode", 4), ("L3Cache", 5), ("L1iCache", 8), ("Core", 8), ("PU", 16)];
    for (kind, count) in expected {
        assert_eq!(found(kind), count, "{kind} in\n{counts}");
    }
}

#[test]
fn lstopo_shows_our_distances_and_latencies() {
    let path = written("odd-shown", &odd());
    let show = |what| lstopo(&["--if", "xml", "-i", path.to_str().unwrap(), what]);
    let shown = show("--distances");
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    let matrix: Vec<&[&str]> = rows.iter().skip(2).map(|row| &row[1..]).collect();
    let expected =
        [["10", "21", "22", "40"], ["23", "10", "12", "41"], ["24", "13", "10", "42"], ["40", "41", "42", "10"]];
    assert_eq!(matrix, expected, "{shown}");
    let shown = show("--memattrs");
    // From node 4's CPUs to node 1's memory, and node 1's bandwidth.
    assert!(shown.contains("NUMANode L#0 = 151 from cpuset 0x00300030"), "{shown}");
    assert!(shown.contains("NUMANode L#0 = 20480 from cpuset 0x000f000f"), "{shown}");
}

#[test]
fn synthetic_machines_of_lstopo_are_read() {
    let cases = [
        ("pack:2 numa:2 l3:2 core:4 pu:2", 4, 64, 2, 32),
        ("numa:4 pack:2 l2:1 l1d:1 core:3 pu:1", 4, 24, 8, 0),
        ("pack:8 numa:1 l3:4 l2:8 l1i:1 core:1 pu:2", 8, 512, 8, 256),
        ("numa:1 core:1 pu:1", 1, 1, 0, 0),
    ];
    for (synthetic, nodes, cpus, packages, smt_cores) in cases {
        let machine = Machine::from_hwloc_xml(&lstopo(&["-i", synthetic, "--of", "xml"])).unwrap();
        let found = (machine.nodes.len(), machine.cpus().len(), machine.packages.len(), machine.smt_cores.len());
        assert_eq!(found, (nodes, cpus, packages, smt_cores), "{synthetic}");
    }
}

#[test]
fn hwloc_and_sysfs_tell_the_same_of_this_host() {
    let xml = lstopo(&["--disallowed", "--of", "xml"]);
    let by_hwloc = Machine::from_hwloc_xml(&xml).unwrap();
    let by_sysfs = Machine::from_sysfs(Path::new("/sys")).unwrap();
    let nodes = |m: &Machine| m.nodes.iter().map(|n| (n.id, n.cpus.clone(), n.memory_bytes)).collect::<Vec<_>>();
    assert_eq!(nodes(&by_hwloc), nodes(&by_sysfs));
    let packages =
        |m: &Machine| m.packages.iter().map(|p| (p.id, p.cpus.clone())).collect::<Vec<(PackageId, CpuSet)>>();
    assert_eq!(packages(&by_hwloc), packages(&by_sysfs));
    assert_eq!(by_hwloc.cores(), by_sysfs.cores());
}
