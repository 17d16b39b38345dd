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
/// Of all that the kernel counts, this share may be other memory's. Measured: at most 3 %.
const OTHERS: f64 = 0.06;

/// Hint faults and moved pages of the simulator in this number of passes, with pages of node 0 that a thread on this node
/// reads after each.
fn simulated(passes: u64, reader: NodeId) -> [u64; 2] {
    let mut memory = KernelBalancing::new(&[NodeId(0); BLOCKS], SplitOptions::default());
    (0..BLOCKS).for_each(|block| memory.make_small(block));
    for _ in 0..passes {
        memory.scan_all();
        for page in 0..PAGES as usize {
            memory.access(page, Tid(1), reader);
        }
    }
    let counts = memory.counts();
    [counts.faults, counts.moved]
}

/// One thread reads memory that another node's thread filled, and one on its own node: for each page that the kernel has
/// marked there are as many hint faults as in the simulator, and as many pages move. A mark that a pass finds is not
/// counted again, and passes are not whole at the end of the program: their number is the kernel's.
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
            let [faults, moved] = simulated(passes, reader).map(|count| count as f64);
            let text = format!("marked, faults, moved: {kernel:?}; simulated in {passes} passes: {faults}, {moved}");
            assert!(passes >= 2, "{text}");
            let expected = faults * kernel[0] as f64 / (passes * PAGES) as f64;
            let others = OTHERS * kernel[0] as f64;
            // The program may end before it has touched what the last pass marked.
            let faults = expected - PAGES as f64..=expected + others;
            assert!(faults.contains(&(kernel[1] as f64)), "{text}");
            assert!((kernel[2] as f64 - moved).abs() <= others, "{text}");
        });
    }
}
