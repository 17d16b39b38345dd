//! `nearside show` on this host and on a saved system; in the lab: `lab_look.rs`.

use crate::support::RunOutput;
use saved_files::SavedFiles;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn show(arguments: &[&str]) -> RunOutput {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    RunOutput::from(command.arg("show").args(arguments).output().unwrap())
}

fn json_of(ran: &RunOutput) -> Value {
    serde_json::from_str(ran.text()).unwrap_or_else(|why| panic!("{why} in:\n{}", ran.text()))
}

fn sleeper() -> Child {
    Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
}

/// A system of two nodes with one process whose pages are of four sizes.
fn saved() -> SavedFiles {
    let root = SavedFiles::new();
    root.put("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    root.put("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n");
    root.put("sys/fs/cgroup/cpuset.mems.effective", "0-1\n");
    root.put("sys/devices/system/node/online", "0-1\n");
    for (node, cpus, distances) in [(0, "0-1", "10 16"), (1, "2-3", "16 10")] {
        let folder = format!("sys/devices/system/node/node{node}");
        root.put(&format!("{folder}/cpulist"), cpus);
        root.put(&format!("{folder}/distance"), distances);
        root.put(
            &format!("{folder}/meminfo"),
            &format!("Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 524288 kB\n"),
        );
    }
    let status = "Name:\tserver\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nVmSize:\t1 kB\n\
                  Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n";
    root.put("proc/7/status", status);
    root.put("proc/7/cgroup", "0::/system.slice/server\n");
    root.put("proc/7/smaps", include_str!("fixtures/mixed-page-sizes/smaps"));
    root.put("proc/7/numa_maps", include_str!("fixtures/mixed-page-sizes/numa_maps"));
    for (tid, policy) in [(7, "default"), (8, "interleave:0-1")] {
        root.put(&format!("proc/7/task/{tid}/status"), status);
        let stat = format!("{tid} (server) S {}2 0", "0 ".repeat(35));
        root.put(&format!("proc/7/task/{tid}/stat"), &stat);
        let numa_maps = include_str!("fixtures/mixed-page-sizes/numa_maps").replace("default", policy);
        root.put(&format!("proc/7/task/{tid}/numa_maps"), &numa_maps);
    }
    for (pid, status) in
        [(2, "Name:\tkthreadd\nState:\tS\nPid:\t2\nPPid:\t0\n"), (3, "Name:\tended\nState:\tZ (zombie)\n")]
    {
        root.put(&format!("proc/{pid}/status"), status);
    }
    root
}

fn show_saved(root: &Path, arguments: &[&str]) -> RunOutput {
    show(&[&["--root", root.to_str().unwrap()], arguments].concat())
}

#[test]
fn a_saved_process_is_reported_with_totals_that_know_mixed_page_sizes() {
    let root = saved();
    let told = json_of(&show_saved(root.path(), &["--json", "7"]).succeeded());
    // 10 pages of 2 MiB and one of 1 GiB are not 11 of either size, and a huge page is not a base page.
    assert_eq!(
        told["nodes"],
        json!([
            { "node": 0, "bytes": 6_u64 * 4096 + (1 << 30) },
            { "node": 1, "bytes": 2_u64 * 4096 + (4 << 20) + (20 << 20) },
        ])
    );
    assert_eq!(told["cpuset"], json!({ "cgroup": "/", "cpus": "0-3", "memory_nodes": "0-1" }));
    let policies: Vec<_> = told["threads"].as_array().unwrap().iter().map(|thread| &thread["policy"]).collect();
    assert_eq!(policies, ["default", "interleave:0-1"]);
    assert_eq!((&told["threads"][1]["cpu"], &told["threads"][1]["node"]), (&json!(2), &json!(1)));
    assert_eq!(told["notes"], json!([]));
    insta::assert_snapshot!(show_saved(root.path(), &["7"]).succeeded().text());
    insta::assert_snapshot!(show_saved(root.path(), &[]).succeeded().text());
}

#[test]
fn what_has_no_memory_is_refused_with_the_reason() {
    let root = saved();
    show_saved(root.path(), &["2"]).failed(1, &["process 2", "kernel thread"]);
    show_saved(root.path(), &["3"]).failed(1, &["process 3", "zombie", "parent"]);
    show_saved(root.path(), &["4"]).failed(1, &["has no process 4, or not all of its files"]);
    show_saved(Path::new("/nowhere"), &[])
        .failed(1, &["/nowhere/sys/devices/system/node is not there", "without NUMA"]);
    show(&["4294967295"]).failed(1, &["there is no process 4294967295"]);
    for (argument, said) in [("-1", "-1"), ("x", "there is no process `x`"), ("--watch=0", "from 0.01 to 86400")] {
        show(&[argument]).failed(2, &[said]);
    }
}

fn resident_bytes(pid: u32) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let rss = smaps.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix(" kB")).unwrap();
    rss.parse::<u64>().unwrap() * 1024
}

#[test]
fn a_process_of_this_host_is_reported_until_it_ends() {
    let mut child = sleeper();
    let pid = child.id().to_string();
    let (told, resident) = loop {
        // It may still be loading its libraries.
        let before = resident_bytes(child.id());
        let told = json_of(&show(&["--json", &pid]).succeeded());
        if resident_bytes(child.id()) == before {
            break (told, before);
        }
    };
    assert_eq!((told["pid"].as_u64(), told["name"].as_str()), (Some(child.id().into()), Some("sleep")));
    let bytes: u64 = told["nodes"].as_array().unwrap().iter().map(|node| node["bytes"].as_u64().unwrap()).sum();
    // The zero page and the vdso count as resident, but are on no node in numa_maps.
    assert!(bytes <= resident && bytes + (64 << 10) >= resident, "{bytes} of {resident}");

    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    let mut watch = command.args(["show", "--json", "--watch=0.05", &pid]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_json = |line: String| serde_json::from_str::<Value>(&line).is_ok();
    assert!(lines.by_ref().take(2).all(is_json));
    // It stays a zombie until its parent has waited for it.
    child.kill().unwrap();
    assert!(lines.all(is_json));
    assert!(watch.wait().unwrap().success());
    show(&[&pid]).failed(1, &["zombie"]);
    child.wait().unwrap();
    show(&[&pid]).failed(1, &["there is no process"]);
}

/// A network card at node 1 and a disk whose node the firmware does not report.
fn put_devices(root: &SavedFiles) {
    let put = |address: &str, files: &[(&str, &str)]| {
        for (name, text) in files {
            root.put(&format!("sys/bus/pci/devices/{address}/{name}"), text);
        }
    };
    put("0000:3b:00.0", &[("class", "0x020000\n"), ("numa_node", "1\n"), ("net/eth7/mtu", "1500\n")]);
    put("0000:5e:00.0", &[("class", "0x010802\n"), ("numa_node", "-1\n"), ("nvme/nvme3/nvme3n1/size", "8\n")]);
}

#[test]
fn devices_are_beside_their_node() {
    let root = saved();
    put_devices(&root);
    let folder = root.path().to_str().unwrap();
    let devices = "\nDevices
node      PCI address   device    names
1        0000:3b:00.0  network     eth7
unknown  0000:5e:00.0     NVMe  nvme3n1
";
    let ran = show(&["--root", folder]);
    assert!(ran.text().ends_with(devices), "{}", ran.text());
    let topology = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
        RunOutput::from(command.args(["topology", "--from", folder]).args(arguments).output().unwrap())
    };
    // Below a heading, as all tables of a machine there.
    let (heading, rows) = devices.split_at("\nDevices\n".len());
    let indented: Vec<String> = rows.lines().map(|line| format!("  {line}\n")).collect();
    let ran = topology(&[]);
    assert!(ran.text().ends_with(&(heading.to_owned() + &indented.concat())), "{}", ran.text());
    let found = json_of(&topology(&["--json"]));
    assert_eq!(found["devices"][0]["names"], json!(["eth7"]));
    assert_eq!((&found["devices"][0]["node"], &found["devices"][1]["node"]), (&json!(1), &Value::Null));
}
