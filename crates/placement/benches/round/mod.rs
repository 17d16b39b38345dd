//! A large round on eight nodes, for benchmarks: also for `nearside-bench`.

use machine::{CpuId, CpuSet, NodeId, NodeSet, Pid, SMALL_PAGE, Tid, presets};
use placement::{
    Few, NodeAccesses, NodeMemory, Observation, Page, Policy, Process, Settings, Thread, Thresholds, Traffic,
};

const MACHINE: &str = "magny-cours-4p";
const NODES: u32 = 8;

/// `carrefour`, keeping at most this many pages per round.
pub fn policy(pages: u64) -> Result<Policy, Box<dyn std::error::Error>> {
    let thresholds = Thresholds { page_cap: pages, ..Thresholds::default() };
    let settings = Settings { thresholds, ..Settings::default() };
    Ok(Policy::new("carrefour".parse()?, &presets::find(MACHINE)?, settings)?)
}

/// Every kind of page that the rules distinguish: used by one node, shared and written, shared and read, local.
fn page(number: u64) -> Page {
    let node = |index: u64| NodeId((index % u64::from(NODES)) as u32);
    let by = |index: u64, accesses| NodeAccesses { node: node(index), accesses };
    let (one, other) = (by(number / 3, 2 + number % 5), by(number / 3 + 1 + number % 6, 1));
    Page {
        pid: Pid(1 + (number / 5000 % 4) as u32),
        address: (1 << 40) + number * SMALL_PAGE,
        page_bytes: SMALL_PAGE,
        node: if number.is_multiple_of(3) { NodeId(0) } else { node(number / 7) },
        accesses: Few::from_slice(&[one, other][..=(number % 2) as usize]),
        writes: u64::from(number % 4 == 1),
        threads: Few::new(),
        is_falsely_shared: false,
        frame: None,
        is_bound: false,
        is_replicable: false,
    }
}

/// A round of four processes on eight nodes, most of whose accesses go to node 0.
pub fn observation(pages: u64) -> Observation {
    let nodes = || (0..NODES).map(NodeId);
    let accesses = |from: NodeId, to: NodeId| if to == NodeId(0) { 30e6 } else { f64::from(1 + from.0) * 1e5 };
    let traffic = nodes().flat_map(|from| nodes().map(move |to| Traffic { from, to, accesses: accesses(from, to) }));
    let memory = |node| NodeMemory { node, total_bytes: 32 << 30, free_bytes: 28 << 30 };
    let cpus: CpuSet = (0..6 * NODES).map(CpuId).collect();
    let all = |pid| Process { cpu_share: 8.0, ..Process::new(Pid(pid), cpus.clone(), nodes().collect::<NodeSet>()) };
    let thread = |pid| Thread { modified_share: Some(0.01), ..Thread::new(Pid(pid), Tid(pid)) };
    let mut pages: Vec<Page> = (0..pages).map(page).collect();
    pages.sort_by_key(|page| (page.pid, page.address));
    Observation {
        round: 1,
        length_s: 1.0,
        traffic: traffic.collect(),
        memory: nodes().map(memory).collect(),
        processes: (1..5).map(all).collect(),
        threads: (1..5).map(thread).collect(),
        pages,
        ..Observation::default()
    }
}
