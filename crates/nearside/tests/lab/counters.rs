//! The model's measurements of known workloads: simulated time, counters and samples.

use crate::support::{Lab, RunOutput, topology_of};
use serde_json::Value;
use std::collections::BTreeSet;

/// The JSON in the last line of a workload's output.
fn said(ran: &RunOutput, line: usize) -> Value {
    serde_json::from_str(ran.text().lines().nth(line).unwrap()).unwrap()
}

/// A preset's latency from CPUs of one node to memory of another, ns.
fn latency_ns(preset: &Value, from: usize, to: usize) -> f64 {
    preset["derived"]["latency_ns"][from][to].as_f64().unwrap()
}

fn assert_within(part: f64, measured: f64, wanted: f64) {
    assert!((measured / wanted - 1.0).abs() <= part, "{measured} is not within {part} of {wanted}");
}

fn matrix(report: &Value) -> Vec<Vec<u64>> {
    let rows = report["dram_accesses_by_node"].as_array().unwrap();
    rows.iter().map(|row| row.as_array().unwrap().iter().map(|cell| cell.as_u64().unwrap()).collect()).collect()
}

/// Runs `chase` on node 0 with memory of a node.
fn chase(lab: &Lab, memory: &str) -> (RunOutput, Value) {
    let command =
        ["numactl", "-N0", memory, "../nearside-workloads", "chase", "--size", "64M", "--repeat", "2", "--json"];
    let ran = lab.run(lab.command("small-2x2", &["--json", "../report.json"], &command), b"").succeeded();
    let report = lab.json("report.json");
    (ran, report)
}

/// Local: the latencies of the thesis' table 1.2 within 3 %, and all accesses in their own cell of the matrix.
#[test]
fn a_local_chase_is_local() {
    let lab = Lab::with_whole_model();
    let (ran, report) = chase(&lab, "-m0");
    assert_within(0.03, said(&ran, 0)["best_ns"].as_f64().unwrap(), latency_ns(&topology_of("small-2x2"), 0, 0));
    assert!(report["local_access_ratio"].as_f64().unwrap() > 0.95, "{report}");
    let cells = matrix(&report);
    // Two walks over all lines, and the page faults that filled them.
    assert!(cells[0][0] > 2 * (64 << 20) / 64, "{cells:?}");
    assert!(cells[0][1] + cells[1][0] + cells[1][1] < cells[0][0] / 20, "{cells:?}");
    for key in ["simulated", "machine", "model_version", "time_scale", "cpus", "memory_bytes", "kernel", "command"] {
        assert!(!report[key].is_null(), "no {key} in {report}");
    }
    for key in ["exit_status", "boot_s", "host_s", "instructions", "time_s", "loads", "stores", "l1_hits", "l2_hits"] {
        assert!(report[key].is_number(), "no {key} in {report}");
    }
    for key in ["l3_hits", "dram_accesses", "dram_latency_mean_ns", "imbalance", "controllers", "links", "nodes"] {
        assert!(!report[key].is_null(), "no {key} in {report}");
    }
    assert_eq!((&report["simulated"], &report["machine"]), (&Value::Bool(true), &Value::from("small-2x2")));
    assert_eq!(report["command"][0], "numactl");
    for line in ["simulated on small-2x2 (2 nodes with 1 GiB each, 4 CPUs)", "local access ratio", "DRAM accesses from"]
    {
        assert!(ran.error.contains(line), "no {line:?} in {}", ran.error);
    }
}

#[test]
fn a_remote_chase_is_remote() {
    let lab = Lab::with_whole_model();
    let (ran, report) = chase(&lab, "-m1");
    assert_within(0.03, said(&ran, 0)["best_ns"].as_f64().unwrap(), latency_ns(&topology_of("small-2x2"), 0, 1));
    assert!(report["local_access_ratio"].as_f64().unwrap() < 0.05, "{report}");
    let cells = matrix(&report);
    assert!(cells[0][1] > 2 * (64 << 20) / 64, "{cells:?}");
    assert!(cells[0][0] + cells[1][0] + cells[1][1] < cells[0][1] / 20, "{cells:?}");
    // All of it went through one controller, and over the link that CPUs of node 0 take to it; written data went back.
    let bytes = |list: &str, at: &dyn Fn(&Value) -> bool| -> f64 {
        let found = report[list].as_array().unwrap().iter().find(|entry| at(entry)).unwrap();
        found["bytes"].as_f64().unwrap()
    };
    let (read, written) = (cells[0][1] as f64 * 64.0, report["write_backs"].as_f64().unwrap() * 64.0);
    assert_within(0.1, bytes("controllers", &|entry| entry["node"] == 1), read + written);
    assert_within(0.1, bytes("links", &|entry| entry["from"] == 0 && entry["to"] == 1), read);
    assert_within(0.1, bytes("links", &|entry| entry["from"] == 1 && entry["to"] == 0), written);
}

/// Zero, one and two hops, from one boot.
#[test]
fn each_hop_costs_what_the_preset_says() {
    let preset = topology_of("small-8x2");
    let hops = |to: &usize| latency_ns(&preset, 0, *to);
    let mut nodes: Vec<usize> = (0..8).collect();
    nodes.sort_by(|a, b| hops(a).total_cmp(&hops(b)));
    let nodes = [nodes[0], nodes[1], nodes[7]];
    let run = |node: &usize| format!("numactl -N0 -m{node} ../nearside-workloads chase --size 32M --repeat 1 --json");
    let script = nodes.iter().map(run).collect::<Vec<_>>().join("; ");
    let lab = Lab::with_whole_model();
    let ran = lab.script("small-8x2", &["--quiet"], &script).succeeded();
    for (line, node) in nodes.iter().enumerate() {
        assert_within(0.03, said(&ran, line)["best_ns"].as_f64().unwrap(), hops(node));
    }
    assert!(hops(&nodes[0]) < hops(&nodes[1]) && hops(&nodes[1]) < hops(&nodes[2]), "three different distances");
}

/// A to D of each CPU (Gachod 2024, 5.3.2), as a recording keeps them, are the model's: threads on CPUs 0 and 3 read memory
/// of node 1, far and near.
#[test]
fn a_recording_counts_what_serves_each_cpu() {
    let lab = Lab::with_whole_model();
    let script = "near=../nearside; chmod 1777 /tmp
        $near record --quiet --cpu-counters --no-objects -o /tmp/trace -- numactl -m1 ../nearside-workloads chase \
            --size 32M --threads 2 --pin 0,3 --repeat 1 --json > /dev/null
        echo '[report]'; $near report /tmp/trace --json; echo '[text]'; $near report /tmp/trace; echo '[end]'";
    let ran = lab.script("small-2x2", &["--json", "../report.json"], script).succeeded();
    let report: Value = serde_json::from_str(ran.section("report")).unwrap();
    let nodes = report["trace"]["cpu_accesses"].as_array().unwrap();
    let count = |of: &Value, what: &str| of[what].as_u64().unwrap_or_else(|| panic!("no {what} in {of:#}"));
    let cpu = |number: u64| {
        let mut cpus = nodes.iter().flat_map(|node| node["cpus"].as_array().unwrap());
        cpus.find(|cpu| cpu["cpu"] == number).unwrap_or_else(|| panic!("no CPU {number} in {nodes:#?}"))
    };
    // A walk over all lines.
    let lines = (32 << 20) / 64;
    let (far, near) = (cpu(0), cpu(3));
    assert!(count(far, "remote_dram") > lines && count(far, "local_dram") < lines / 5, "{far:#}");
    assert!(count(near, "local_dram") > lines && count(near, "remote_dram") < lines / 5, "{near:#}");
    for what in ["local_dram", "remote_dram", "peer_modified", "peer_clean"] {
        for node in nodes {
            let sum: u64 = node["cpus"].as_array().unwrap().iter().map(|cpu| count(cpu, what)).sum();
            assert_eq!(count(node, what), sum, "{what} of {node:#}");
        }
    }
    assert!(nodes[0]["peer"].is_null(), "the lab counts modified and clean lines apart: {:#}", nodes[0]);
    // The model's own count covers the reports, too, which have their memory on their node.
    let cells = matrix(&lab.json("report.json"));
    assert_within(0.05, count(&nodes[0], "remote_dram") as f64, cells[0][1] as f64);
    let text = ran.section("text").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(" accesses beyond a CPU's caches: ") && text.contains(" % remote memory (B), "), "{text}");
}

/// Two threads on CPUs 0 and 3 read memory of node 1, far and near.
#[test]
fn samples_name_the_thread_its_cpu_and_the_memory() {
    let lab = Lab::with_whole_model();
    let workload =
        "echo $$; exec numactl -m1 ../nearside-workloads chase --size 32M --threads 2 --pin 0,3 --repeat 1 --json";
    let options = ["--samples", "../samples", "--sample-period", "100", "--json", "../report.json"];
    let ran = lab.script("small-2x2", &options, workload).succeeded();
    let pid: u64 = ran.text().lines().next().unwrap().parse().unwrap();
    let samples: Vec<Value> = lab.text("samples").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let report = lab.json("report.json");
    assert_eq!(report["samples"]["taken"], samples.len());
    // A host that is busy may not empty the ring in time; what it drops then is counted.
    let dropped = report["samples"]["dropped"].as_u64().unwrap() as usize;
    assert!(dropped * 100 <= samples.len(), "{dropped} of {} samples were dropped", samples.len());
    assert_eq!(report["samples"]["period"], 100);

    let number = |sample: &Value, key: &str| sample[key].as_u64().unwrap();
    // Loads by the workload's own code that were served by memory.
    let walk: Vec<&Value> = samples
        .iter()
        .filter(|sample| number(sample, "pid") == pid && sample["level"] == 4 && sample["store"] == false)
        .filter(|sample| number(sample, "instruction") >> 47 == 0)
        .collect();
    let lines = (32 << 20) / 64;
    for cpu in [0, 3] {
        let of_cpu: Vec<_> = walk.iter().filter(|sample| number(sample, "cpu") == cpu).collect();
        assert_within(0.1, of_cpu.len() as f64, f64::from(lines) / 100.0);
        let tids: BTreeSet<u64> = of_cpu.iter().map(|sample| number(sample, "tid")).collect();
        let main_tid =
            tids.iter().max_by_key(|tid| of_cpu.iter().filter(|s| number(s, "tid") == **tid).count()).unwrap();
        let near = of_cpu.iter().filter(|sample| number(sample, "tid") == *main_tid && sample["node"] == 1);
        let (latencies, names): (Vec<f64>, BTreeSet<&str>) =
            near.map(|sample| (sample["latency_ns"].as_f64().unwrap(), sample["name"].as_str().unwrap())).unzip();
        assert!(latencies.len() * 10 > of_cpu.len() * 9, "most samples are of one thread and of node 1");
        assert_eq!(names.len(), 1, "{names:?}");
        let wanted = latency_ns(&topology_of("small-2x2"), (cpu / 2) as usize, 1);
        assert_within(0.05, latencies.iter().sum::<f64>() / latencies.len() as f64, wanted);
    }
    let threads: BTreeSet<u64> = walk.iter().map(|sample| number(sample, "tid")).collect();
    assert!(threads.len() >= 2, "{threads:?}");
    // Time increases, addresses are the workload's, and levels are valid.
    assert!(
        walk.windows(2).filter(|pair| pair[0]["time_ns"].as_f64() > pair[1]["time_ns"].as_f64()).count() < walk.len()
    );
    assert!(samples.iter().all(|sample| (1..=5).contains(&number(sample, "level")) && number(sample, "cpu") < 4));
    // For hits in L1, only first writes are sampled: there are some, as memory that was read is written.
    let of_l1: Vec<&Value> = samples.iter().filter(|sample| sample["level"] == 1).collect();
    assert!(!of_l1.is_empty() && of_l1.iter().all(|sample| sample["store"] == true), "{} of L1", of_l1.len());
    let end_ns = report["time_s"].as_f64().unwrap() * 1e9;
    assert!(samples.iter().all(|sample| sample["time_ns"].as_f64().unwrap() <= end_ns * 1.01));
}
