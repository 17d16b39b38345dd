//! The simulator of the kernel's NUMA balancing beside the kernel itself, by the kernel's own counters.

use crate::support::Lab;
use linux::Tid;
use machine::NodeId;
use placement::{KernelBalancing, SplitOptions};
use std::collections::BTreeMap;
use test_tools::Checks;

/// The program reads 8 MiB of small pages.
const BLOCKS: usize = 4;
const PAGES: u64 = 2048;
/// The rest of the program and other programs have pages, too: of all that was counted, this share may be theirs. Measured:
/// at most 3 %.
const OTHERS: f64 = 0.06;

/// What the simulator does in this number of passes with pages of node 0 that a thread on this node reads after each.
fn simulated(passes: u64, reader: NodeId) -> [u64; 3] {
    let mut memory = KernelBalancing::new(&[NodeId(0); BLOCKS], SplitOptions::default());
    (0..BLOCKS).for_each(|block| memory.make_small(block));
    for _ in 0..passes {
        memory.scan_all();
        for page in 0..PAGES as usize {
            memory.access(page, Tid(1), reader);
        }
    }
    let counts = memory.counts();
    [passes * PAGES, counts.faults, counts.moved]
}

/// One thread reads memory that another node's thread filled, and one on its own node: marked pages, hint faults and moved
/// pages are those of the simulator. The number of passes is the kernel's.
#[test]
fn the_simulator_of_balancing_counts_what_the_kernel_counts() {
    let lab = Lab::new();
    let script = include_str!("programs/kernel_balancing.sh");
    let options = ["--quiet", "--thp", "never", "--numa-balancing", "on", "--time-scale", "1000"];
    let ran = lab.script("small-4x2", &options, script).succeeded();
    let counted = |section: &str| -> [u64; 3] {
        let words = ran.section(section).lines().filter_map(|line| line.split_once(' '));
        let counts: BTreeMap<&str, u64> = words.filter_map(|(name, count)| Some((name, count.parse().ok()?))).collect();
        ["numa_pte_updates", "numa_hint_faults", "numa_pages_migrated"].map(|name| counts[name])
    };
    let (begin, remote, local) = (counted("begin"), counted("remote"), counted("local"));
    let checks = Checks::new();
    for (name, before, after, reader) in [("remote", begin, remote, NodeId(1)), ("local", remote, local, NodeId(0))] {
        checks.part(name, || {
            let kernel = [0, 1, 2].map(|count| after[count] - before[count]);
            let passes = (kernel[0] as f64 / PAGES as f64).round() as u64;
            let model = simulated(passes, reader);
            assert!(passes >= 2, "marked, faults, moved: {kernel:?}");
            for (kernel_count, model_count) in kernel.iter().zip(&model) {
                let apart = kernel_count.abs_diff(*model_count) as f64;
                assert!(apart <= OTHERS * kernel[0] as f64, "marked, faults, moved: {kernel:?}, simulated {model:?}");
            }
        });
    }
}
