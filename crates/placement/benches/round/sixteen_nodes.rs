//! A contended round on sixteen nodes: `predict` has 50 mappings to place.

use machine::{CpuId, CpuSet, Link, Machine, Node, NodeId, NodeSet, Pid, SMALL_PAGE, Tid, presets};
use placement::{
    Few, NodeAccesses, NodeBytes, NodeMemory, Observation, Page, Policy, Process, Range, Settings, Thread, Traffic,
};

const HALF: &str = "nehalem-ex-8p";
const NODES: u32 = 16;
const CPUS_PER_NODE: u32 = 16;
/// Mappings.
pub const SEGMENTS: u64 = 50;
/// Their pages.
pub const PAGES: u64 = 1_000_000;
/// Sampled pages: as many samples as `predict` takes in a round.
const SAMPLED: u64 = 2048;
const RANGE_BYTES: u64 = PAGES / SEGMENTS * SMALL_PAGE;
const PID: Pid = Pid(7);
const LENGTH_S: f64 = 30.0;

/// `predict` on two eight-node machines, each of whose nodes is joined to its counterpart.
pub fn policy() -> Result<Policy, Box<dyn std::error::Error>> {
    let mut machine = presets::find(HALF)?;
    let Machine { nodes, links, .. } = machine.clone();
    let there = |node: NodeId| NodeId(node.0 + NODES / 2);
    let Some(model) = links.first().cloned() else { return Err("a machine without links".into()) };
    machine.links.extend(links.into_iter().map(|link| Link { nodes: link.nodes.map(there), ..link }));
    for node in nodes {
        machine.links.push(Link { nodes: [node.id, there(node.id)], ..model.clone() });
        let cpus = node.cpus.iter().map(|cpu| CpuId(cpu.0 + NODES / 2 * CPUS_PER_NODE)).collect();
        machine.nodes.push(Node { id: there(node.id), cpus, ..node });
    }
    machine.distances = None;
    if let Some(latency) = &mut machine.latency {
        // The machine has two hops at most; this one has three.
        latency.by_hops_ns.push(292.0);
    }
    Ok(Policy::new("predict".parse()?, &machine, Settings::default())?)
}

/// The time in which 256 threads wait for memory that is all on node 0: long enough for moving 4 GB to pay. Every other
/// mapping is used by all nodes, the others by one node each.
pub fn observation() -> Observation {
    let nodes = || (0..NODES).map(NodeId);
    let cpus: CpuSet = (0..NODES * CPUS_PER_NODE).map(CpuId).collect();
    let start = |segment: u64| (1 << 40) + segment * 2 * RANGE_BYTES;
    let page = |number: u64| {
        let segment = number % SEGMENTS;
        let of_segment = number / SEGMENTS;
        let user = if segment.is_multiple_of(2) { segment / 2 } else { of_segment };
        let node = NodeId((user % u64::from(NODES)) as u32);
        Page {
            pid: PID,
            address: start(segment) + of_segment * (RANGE_BYTES / (SAMPLED / SEGMENTS + 1)) / SMALL_PAGE * SMALL_PAGE,
            page_bytes: SMALL_PAGE,
            node: NodeId(0),
            accesses: Few::from_slice(&[NodeAccesses { node, accesses: 1 }]),
            writes: 0,
            threads: Few::new(),
            is_falsely_shared: false,
            frame: None,
            is_bound: false,
            is_replicable: false,
        }
    };
    let range = |segment| Range {
        pid: PID,
        start: start(segment),
        end: start(segment) + RANGE_BYTES,
        bytes: vec![NodeBytes { node: NodeId(0), bytes: RANGE_BYTES }],
        memory_policy: None,
        shared: None,
    };
    let mut pages: Vec<Page> = (0..SAMPLED).map(page).collect();
    pages.sort_by_key(|page| page.address);
    Observation {
        round: 1,
        length_s: LENGTH_S,
        traffic: nodes().map(|from| Traffic { from, to: NodeId(0), accesses: 15e6 * LENGTH_S }).collect(),
        latency_mean_ns: Some(1000.0),
        latency_error_ns: Some(5.0),
        memory: nodes().map(|node| NodeMemory { node, total_bytes: 32 << 30, free_bytes: 28 << 30 }).collect(),
        processes: vec![Process { cpu_share: 256.0, ..Process::new(PID, cpus.clone(), nodes().collect::<NodeSet>()) }],
        threads: cpus.iter().map(|cpu| Thread { cpu: Some(cpu), ..Thread::new(PID, Tid(7 + cpu.0)) }).collect(),
        ranges: (0..SEGMENTS).map(range).collect(),
        pages,
        ..Observation::default()
    }
}

/// The same with memory on all nodes, of which all threads use that of two at a time: each part of the round is
/// forecast for itself.
pub fn observation_in_turns() -> Observation {
    let mut round = observation();
    let node_of = |address: u64| NodeId(((address - (1 << 40)) / (2 * RANGE_BYTES)) as u32 % NODES);
    for page in &mut round.pages {
        page.node = node_of(page.address);
    }
    for range in &mut round.ranges {
        range.bytes[0].node = node_of(range.start);
    }
    let evenly = |pair: &Traffic| {
        let traffic = |to| Traffic { to: NodeId(to), accesses: pair.accesses / f64::from(NODES), ..*pair };
        (0..NODES).map(traffic).collect::<Vec<_>>()
    };
    round.traffic = round.traffic.iter().flat_map(evenly).collect();
    let accesses = SAMPLED / u64::from(NODES);
    let slice = |first| (first..first + 2).map(|node| NodeAccesses { node: NodeId(node), accesses }).collect();
    round.slices = (0..NODES).step_by(2).map(slice).collect();
    round
}
