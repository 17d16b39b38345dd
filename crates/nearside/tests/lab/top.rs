//! `nearside top` on a virtual machine.

use crate::support::Lab;
use serde_json::Value;
use test_tools::json_fields::assert_documented;

/// Two threads of node 1 read memory of node 0: as seen by the virtual PMU, and by page faults until the kernel moves
/// it to them.
#[test]
fn who_reads_from_another_node_is_seen_live() {
    let lab = Lab::new();
    let script = include_str!("programs/top.sh");
    let options = ["--quiet", "--thp", "never", "--numa-balancing", "off"];
    let ran = lab.script("small-4x2", &options, script).succeeded();
    let none = ran.section("none");
    assert!(
        none.starts_with("accesses are not observed") && none.contains("node 3") && none.contains("process"),
        "{none}"
    );
    for (section, source) in [("lab", "lab"), ("faults", "hint_fault")] {
        let reports: Vec<Value> =
            ran.section(section).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_documented("top", &reports);
        assert!(reports.iter().all(|report| report["source"] == source), "{reports:#?}");
        let rows = |kind: &'static str| {
            let rows = reports.iter().flat_map(|report| report["rows"].as_array().unwrap());
            rows.filter(move |row| row["kind"] == kind).collect::<Vec<&Value>>()
        };
        let samples: u64 = rows("process").iter().map(|row| row["samples"].as_u64().unwrap()).sum();
        assert!(samples > 500, "{section}: {samples}");
        let mut threads: Vec<u64> = rows("thread").iter().filter_map(|row| row["tid"].as_u64()).collect();
        threads.sort_unstable();
        threads.dedup();
        assert!(threads.len() >= 2, "{section}: {threads:?}");
        // The memory that the kernel moved was on node 0 before. A second pass over it may be in the same interval.
        let first = rows("process").into_iter().find(|row| row["samples"].as_u64() > Some(100)).unwrap();
        assert!(first["memory_on"]["0"].as_f64() > Some(0.3), "{section}: {first:#}");
        let most = rows("object").into_iter().max_by_key(|row| row["samples"].as_u64()).unwrap();
        assert!(most["samples"].as_u64() > Some(100) && most["name"] == "anonymous mapping", "{section}: {most:#}");
    }
    assert_eq!(ran.section("left"), "0\n", "balancing is switched off again");
}
