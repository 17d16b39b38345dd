//! What the kernel does beside samples, in the lab: `record --kernel-events`, and the metrics of `explore`.

use super::hugepages::compile;
use crate::support::Lab;
use serde_json::Value;
use test_tools::Checks;

/// F10, F20, F22 and F23 of the study of Linux's balancing: page allocations with their size, of which those with a sample
/// are mapped, and counts of moves of threads, also beside the runs of a campaign. Without rights, a note says why not.
#[test]
fn page_allocations_and_moves_of_threads_are_recorded_beside_samples() {
    let lab = Lab::new();
    compile(&lab);
    let script = include_str!("programs/kernel_events.sh");
    let ran = lab.script("small-4x2", &["--quiet", "--numa-balancing", "on"], script).succeeded();
    let json = |section: &str| -> Value { serde_json::from_str(ran.section(section)).unwrap() };
    let checks = Checks::new();
    checks.part("allocations", || {
        let report = json("report");
        let by_size = report["kernel"]["page_allocations"].as_array().unwrap();
        let of = |bytes: u64, field: &str| {
            let row = by_size.iter().find(|row| row["bytes"] == bytes);
            row.and_then(|row| row[field].as_u64()).unwrap_or_else(|| panic!("{by_size:#?}"))
        };
        // Of 13 MiB that begin with a huge page, the last half of one may be of small pages; what balancing moves is
        // allocated again.
        assert!((6..=14).contains(&of(2 << 20, "mapped")), "{by_size:#?}");
        assert!(of(4096, "unmapped") > 0, "page tables and the like have no samples: {by_size:#?}");
        for row in by_size {
            let [all, mapped, unmapped] =
                ["allocations", "mapped", "unmapped"].map(|field| row[field].as_u64().unwrap());
            assert!(all == mapped + unmapped && row["bytes"].as_u64().unwrap().is_power_of_two(), "{row:#}");
        }
    });
    checks.part("moves", || {
        // Each of the four threads goes to the CPU that is meant for it.
        let moves = json("report")["kernel"]["thread_moves"].clone();
        assert!(moves["migrations"].as_u64() >= Some(3), "{moves:#}");
        assert!(["numa_moves", "numa_stays", "numa_swaps"].iter().all(|count| moves[count].is_u64()), "{moves:#}");
    });
    checks.part("text", || {
        let text = ran.section("text").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(" times 2 MiB of physical memory, ") && text.contains(" unmapped, as no sample is in them"),
            "{text}"
        );
        assert!(text.contains(" moved to another CPU; by NUMA balancing "), "{text}");
    });
    checks.part("user", || {
        let said = ran.section("user");
        assert!(said.ends_with("status 0\n") && said.contains("mm_page_alloc") && said.contains("sudo"), "{said}");
    });
    checks.part("explored", || {
        let metrics = json("explored")["outcome"]["measured"]["metrics"].clone();
        assert!(metrics["sched.thread_migrations"].as_f64() >= Some(3.0), "{metrics:#}");
        assert!(metrics["sched.numa_swaps"].is_number(), "{metrics:#}");
    });
}
