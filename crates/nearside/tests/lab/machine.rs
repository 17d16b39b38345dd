//! What a program sees of the virtual machine: its nodes, CPUs, caches, distances and memory, its kernel's settings, and
//! no network.

use crate::support::{Lab, topology_of};
use machine::{CacheKind, CpuSet, Machine};
use serde_json::Value;
use std::path::Path;

/// Level, kind, size, ways and CPUs of each cache, in order.
fn caches(machine: &Machine) -> Vec<(u8, CacheKind, u64, u32, CpuSet)> {
    let of_cache = |cache| machine.cache_instances(cache).into_iter().map(move |cpus| (cache, cpus));
    let all = machine.caches.iter().flat_map(of_cache);
    let mut caches: Vec<_> = all.map(|(is, cpus)| (is.level, is.kind, is.size_bytes, is.ways, cpus)).collect();
    caches.sort_unstable();
    caches
}

/// The guest's Linux reports what the preset says, with this memory on each node that has any, MiB.
fn the_guest_is(preset: &str, memory_mib: u64) {
    let lab = Lab::new();
    let script = "echo '[topology]'; ../nearside topology --json; echo '[title]'; ../nearside topology | head -n 1; \
        echo '[file]'; ../nearside topology --format toml | sed 's/^/|/'; \
        echo '[online]'; cat /sys/devices/system/cpu/online; nproc";
    let size = format!("{memory_mib}M");
    let options = ["--quiet", "--memory-per-node", &size, "--cpu-numbers", "preset"];
    let ran = lab.script(preset, &options, script).succeeded();
    assert_eq!(ran.error, "");
    // Not the CPU that QEMU names.
    assert!(ran.section("title").starts_with(&format!("{preset} (simulated): ")), "{}", ran.section("title"));
    // Its lines may look like the beginnings of sections.
    let file: String = ran.section("file").split_inclusive('\n').map(|line| &line[1..]).collect();
    let file = Machine::from_toml(&file, Path::new("seen")).unwrap();
    assert_eq!(caches(&file), caches(&machine::presets::find(preset).unwrap()));
    let (seen, preset): (Value, Value) = (serde_json::from_str(ran.section("topology")).unwrap(), topology_of(preset));
    let of_nodes = |machine: &Value, key: &str| -> Vec<Value> {
        machine["node"].as_array().unwrap().iter().map(|node| node[key].clone()).collect()
    };
    for key in ["id", "cpus"] {
        assert_eq!(of_nodes(&seen, key), of_nodes(&preset, key), "{key}");
    }
    assert_eq!(seen["distances"]["matrix"], preset["distances"]["matrix"]);
    let cpus = preset["derived"]["cpu_count"].as_u64().unwrap();
    assert_eq!(ran.section("online"), format!("0-{}\n{cpus}\n", cpus - 1));
    // The kernel reserves some of each node's memory, and the first node has the holes below 1 MiB.
    for (memory, wanted) in of_nodes(&seen, "memory_bytes").iter().zip(of_nodes(&preset, "memory_bytes")) {
        let mib = memory.as_u64().unwrap() >> 20;
        let usual = if wanted == 0 { 0..=0 } else { memory_mib - 100..=memory_mib };
        assert!(usual.contains(&mib), "{mib} MiB");
    }
}

#[test]
fn two_nodes() {
    the_guest_is("small-2x2", 1024);
}

#[test]
fn four_nodes() {
    the_guest_is("small-4x2", 1024);
}

#[test]
fn eight_nodes() {
    the_guest_is("small-8x2", 1024);
}

#[test]
fn nodes_without_memory_and_without_cpus() {
    the_guest_is("odd-memoryless", 1024);
}

#[test]
fn memory_behind_cxl() {
    the_guest_is("odd-cxl", 1024);
}

#[test]
fn twenty_four_nodes() {
    the_guest_is("odd-24", 256);
}

/// Four last-level caches a node, of six cores each: their CPUs' IDs are not next to each other.
#[test]
fn caches_of_parts_of_nodes() {
    the_guest_is("epyc-9224x2-cxl", 512);
}

/// CPUs of two nodes in turn: memory is near to those that Linux says, in simulated time and in what is recorded.
#[test]
fn cpus_are_numbered_as_the_firmware_of_the_machine_does() {
    the_guest_is("opteron-2356x2", 1024);
    let lab = Lab::new();
    let script = "for memory in 1 0; do echo \"[$memory]\"; \
        ../nearside record --quiet --output /tmp/$memory -- ../nearside run --physcpubind 1 --membind $memory -- \
        ../nearside-workloads chase --size 32M --json; \
        echo \"[report $memory]\"; ../nearside report /tmp/$memory --json; done; echo '[end]'";
    let ran = lab.script("opteron-2356x2", &["--quiet", "--cpu-numbers", "preset"], script).succeeded();
    let latency = |memory: &str| ran.json(memory)["best_ns"].as_f64().unwrap();
    assert!(1.05 * latency("1") < latency("0"), "{} ns from node 1, {} ns from node 0", latency("1"), latency("0"));
    let local = |memory: &str| ran.json(&format!("report {memory}"))["counts"]["local_access_ratio"].as_f64().unwrap();
    assert!(local("1") > 0.9 && local("0") < 0.1, "{} and {} of the accesses are local", local("1"), local("0"));
}

/// Linux closes the gaps of the preset's numbers; the lab says which node is which, and a number of the preset is refused.
#[test]
fn nodes_with_gaps_in_their_numbers_are_renumbered_and_named() {
    let lab = Lab::new();
    let script = "cat /sys/devices/system/node/online /sys/devices/system/node/node*/cpulist; ../nearside run -N 2 -m 3 --show; \
        ../nearside run -N 0 -m 70 -- true";
    let ran = lab.script("odd-sparse", &["--memory-per-node", "256M"], script);
    let shown = "0-3\n0-1\n2-3\n4-5\n\npolicy: bind\npreferred node: 3\nphyscpubind: 4 5 \ncpubind: 2 \nnodebind: 2 \n\
        membind: 3 \npreferred: 3 \n";
    assert_eq!(ran.text(), shown, "{}", ran.error);
    for note in [
        "of odd-sparse's nodes, 3 is node 1, 8 is node 2, 70 is node 3\n",
        "there is no node 70: this machine has nodes 0-3\n",
    ] {
        assert!(ran.error.contains(note), "{note}: {}", ran.error);
    }
    assert!(
        !lab.script("odd-sparse", &["--memory-per-node", "256M", "--quiet"], "true").succeeded().error.contains("node")
    );
}

#[test]
fn settings_take_effect() {
    let show = "cd /sys/kernel/debug/sched/numa_balancing && \
        cat /proc/sys/kernel/numa_balancing scan_delay_ms scan_period_min_ms scan_period_max_ms && \
        cat /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs; \
        free -m | awk '/Mem/ { print ($2 > 450 && $2 < 640) }'; nproc; ls /sys/class/net; \
        timeout 5 sh -c 'exec 3<>/dev/tcp/127.0.0.1/9' 2>/dev/null; hostname";
    // Only root can read debugfs, and these settings.
    let show = if crate::support::is_root() {
        show.to_owned()
    } else {
        show.replace("cd /sys/kernel/debug/sched/numa_balancing && ", "")
    };
    let lab = Lab::new();
    let options = "--numa-balancing off --thp never --time-scale 10 --cpus-per-node 1 --memory-per-node 320M --json ../report.json";
    let options: Vec<&str> = options.split(' ').collect();
    let ran = lab.script("small-2x2", &options, &show);
    let wanted = if crate::support::is_root() {
        "0\n100\n100\n6000\nalways madvise [never]\n1000\n1\n2\nlo\nnearside-lab\n"
    } else {
        "0\n"
    };
    assert!(ran.text().starts_with(wanted), "{}{}", ran.text(), ran.error);
    let report = lab.json("report.json");
    assert_eq!(report["time_scale"], 10);
    assert_eq!(report["cpus"], 2);
    assert_eq!(report["memory_bytes"], serde_json::json!([320 << 20, 320 << 20]));
    assert!(ran.error.contains("time scale 10"), "{}", ran.error);
}

#[test]
fn other_settings_take_effect_and_files_of_the_host_do_not_change() {
    let lab = Lab::new();
    std::fs::write(lab.path("work/kept"), "as it was").unwrap();
    let script = "cat /proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled
        echo changed > kept; echo new > new; mkdir folder; cat kept; ls
        rm ../nearside-workloads; ls .. | grep -c workloads; mv ../nearside ../other; chmod 0 ../temporary
        : > /dev/shm/nearside-test; : > /tmp/nearside-lab-test-file; ls /tmp/nearside-lab-test-file";
    let before = std::fs::metadata(lab.path("nearside")).unwrap();
    let ran = lab.script("small-2x2", &["--quiet", "--numa-balancing", "on", "--thp", "madvise"], script).succeeded();
    let wanted = "1\nalways [madvise] never\nchanged\nfolder\nkept\nnew\n0\n/tmp/nearside-lab-test-file\n";
    if crate::support::is_root_to("change these settings") {
        assert_eq!((ran.text(), ran.error.as_str()), (wanted, ""));
    }
    assert_eq!(lab.text("work/kept"), "as it was");
    let names: Vec<_> = std::fs::read_dir(lab.path("work")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert!(lab.path("nearside-workloads").exists() && !lab.path("other").exists());
    assert_eq!(std::fs::metadata(lab.path("nearside")).unwrap().modified().unwrap(), before.modified().unwrap());
    assert!(!std::path::Path::new("/tmp/nearside-lab-test-file").exists());
}
