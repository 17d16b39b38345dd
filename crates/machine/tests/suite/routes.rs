//! Routes and latencies, on presets and on synthetic machines.

use machine::{Direction, Hop, Machine, NodeId, Routes, presets};
use proptest::prelude::*;
use std::fmt::Write;
use std::path::Path;

fn machine(nodes: u32, rest: &str) -> Machine {
    let mut text = format!("name = \"test\"\n{rest}\n");
    for id in 0..nodes {
        writeln!(text, "[[node]]\nid = {id}\ncpus = \"{id}\"\nmemory_bytes = 1024").unwrap();
    }
    Machine::from_toml(&text, Path::new("test.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn link(a: u32, b: u32, more: &str) -> String {
    format!("[[link]]\nnodes = [{a}, {b}]\nbandwidth_bytes_per_s = 1e9\n{more}\n")
}

fn hops(machine: &Machine, from: u32, to: u32) -> Vec<(usize, Direction)> {
    let hops = Routes::new(machine).unwrap().hops(NodeId(from), NodeId(to)).unwrap();
    hops.iter().map(|hop| (hop.link, hop.direction)).collect()
}

use Direction::{Backward, Forward};

/// Table 1.2 of the specification of `MemProf` and Carrefour, 2.5, in the cycles given there.
#[test]
fn the_latencies_of_table_1_2() {
    let from_node_0: [(&str, f64, &[u32]); 3] = [
        ("opteron-8380x4", 2.5, &[261, 286, 286, 377]),
        ("opteron-6164x2", 1.7, &[175, 247, 247, 247]),
        ("opteron-6174x4", 2.2, &[151, 232, 232, 337, 232, 337, 232, 337]),
    ];
    for (preset, clock_ghz, cycles) in from_node_0 {
        let machine = presets::find(preset).unwrap();
        assert_eq!(machine.nodes.len(), cycles.len());
        for (to, &cycles) in cycles.iter().enumerate() {
            let latency_ns = machine.latency_ns(NodeId(0), NodeId(to as u32)).unwrap();
            assert!((latency_ns * clock_ghz - f64::from(cycles)).abs() < 0.01, "{preset} to {to}: {latency_ns}");
        }
    }
}

/// Table 1.2: the number of cores that saturate a controller and a link.
#[test]
fn cores_saturate_controllers_and_links_as_in_table_1_2() {
    for (preset, controller, weakest_link) in
        [("opteron-8380x4", 3, 1), ("opteron-6164x2", 1, 1), ("opteron-6174x4", 1, 1)]
    {
        let machine = presets::find(preset).unwrap();
        let core = machine.core.as_ref().unwrap().stream_bandwidth_bytes_per_s;
        let cores = |bandwidth: f64| (bandwidth / core).ceil() as u32;
        assert!(machine.nodes.iter().all(|node| cores(node.bandwidth_bytes_per_s.unwrap()) == controller), "{preset}");
        assert!(machine.links.iter().all(|link| cores(link.bandwidth_bytes_per_s) == weakest_link), "{preset}");
    }
}

/// Table 1.2, machine C: its bandwidths, at most two hops, and 7 to 3 in one hop where 3 to 7 takes two.
#[test]
fn the_network_of_machine_c() {
    let machine = presets::find("opteron-6174x4").unwrap();
    assert!(machine.nodes.iter().all(|node| node.bandwidth_bytes_per_s == Some(6.08e9)));
    let mut widths: Vec<f64> = machine.links.iter().map(|link| link.bandwidth_bytes_per_s).collect();
    widths.sort_by(f64::total_cmp);
    widths.dedup();
    assert_eq!(widths, [2.55e9, 3.83e9, 4.59e9]);
    let routes = Routes::new(&machine).unwrap();
    assert_eq!(routes.longest(), 2);
    assert_eq!(routes.hop_count(NodeId(7), NodeId(3)), Some(1));
    assert_eq!(routes.hop_count(NodeId(3), NodeId(7)), Some(2));
    // The firmware's distances agree.
    for (from, row) in machine.distances.unwrap().matrix.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            let hops = routes.hop_count(NodeId(from as u32), NodeId(to as u32));
            assert_eq!([10, 16, 22].get(hops.unwrap()), Some(distance), "{from} to {to}");
        }
    }
}

#[test]
fn shortest_routes_prefer_the_lowest_neighbour() {
    let machine = presets::find("opteron-8380x4").unwrap();
    assert_eq!(hops(&machine, 0, 3), [(0, Forward), (2, Forward)], "over node 1");
    assert_eq!(hops(&machine, 3, 0), [(2, Backward), (0, Backward)], "over node 1");
    assert_eq!(hops(&machine, 1, 2), [(0, Backward), (1, Forward)], "over node 0");
    assert_eq!(hops(&machine, 2, 2), []);
    let routes = Routes::new(&machine).unwrap();
    assert_eq!((routes.longest(), routes.hop_count(NodeId(0), NodeId(3))), (2, Some(2)));
    assert_eq!(routes.hops(NodeId(0), NodeId(9)), None);
}

#[test]
fn a_route_of_the_description_wins() {
    let links = [link(0, 1, ""), link(1, 2, ""), link(0, 2, "")].concat();
    let machine = machine(3, &format!("[[route]]\nfrom = 0\nto = 2\nvia = [1]\n{links}"));
    assert_eq!(hops(&machine, 0, 2), [(0, Forward), (1, Forward)]);
    assert_eq!(hops(&machine, 2, 0), [(2, Backward)], "each direction has its own route");
    assert_eq!(Routes::new(&machine).unwrap().longest(), 2);
}

#[test]
fn a_link_may_carry_one_direction_only() {
    // As on machine C: 7 to 3 takes one hop, 3 to 7 two.
    let machine = machine(3, &[link(0, 1, "direction = \"forward\""), link(1, 2, ""), link(2, 0, "")].concat());
    assert_eq!(hops(&machine, 0, 1), [(0, Forward)]);
    assert_eq!(hops(&machine, 1, 0), [(1, Forward), (2, Forward)]);
}

#[test]
fn of_parallel_links_the_first_that_carries_the_direction_is_used() {
    let machine = machine(2, &[link(0, 1, "direction = \"forward\""), link(1, 0, ""), link(0, 1, "")].concat());
    assert_eq!(hops(&machine, 0, 1), [(0, Forward)]);
    assert_eq!(hops(&machine, 1, 0), [(1, Forward)]);
}

#[test]
fn without_links_every_other_node_is_one_abstract_hop_away() {
    let machine = machine(3, "latency = { by_hops_ns = [80, 120] }");
    let routes = Routes::new(&machine).unwrap();
    assert_eq!(routes.hops(NodeId(0), NodeId(2)), Some(vec![]));
    assert_eq!(routes.hop_count(NodeId(0), NodeId(2)), Some(1));
    assert_eq!(machine.latency_ns(NodeId(0), NodeId(2)), Some(120.0));
    assert_eq!(machine.latency_ns(NodeId(1), NodeId(1)), Some(80.0));
}

#[test]
fn latencies_come_from_hops_matrix_or_links() {
    let links = [link(0, 1, "latency_ns = 30"), link(1, 2, "latency_ns = 40")].concat();
    let by_links = machine(3, &format!("latency = {{ by_hops_ns = [80] }}\n{links}"));
    assert_eq!(by_links.latency_ns(NodeId(2), NodeId(0)), Some(150.0));
    let matrix = machine(2, "latency = { matrix_ns = [[80, 120], [130, 90]] }");
    assert_eq!(matrix.latency_ns(NodeId(1), NodeId(0)), Some(130.0));
    assert_eq!(matrix.latency_ns(NodeId(1), NodeId(5)), None);
    assert_eq!(machine(2, "").latency_ns(NodeId(0), NodeId(1)), None);
}

/// Promise of the design: 1,024 nodes. A torus of 32 x 32.
#[test]
fn a_torus_of_1024_nodes() {
    const SIDE: u32 = 32;
    let mut links = String::new();
    for (x, y) in (0..SIDE).flat_map(|x| (0..SIDE).map(move |y| (x, y))) {
        links += &link(x * SIDE + y, (x + 1) % SIDE * SIDE + y, "");
        links += &link(x * SIDE + y, x * SIDE + (y + 1) % SIDE, "");
    }
    let machine = machine(SIDE * SIDE, &links);
    let routes = Routes::new(&machine).unwrap();
    assert_eq!(routes.longest(), 32);
    assert_eq!(routes.hop_count(NodeId(0), NodeId(16 * SIDE + 16)), Some(32));
    assert_eq!(routes.hop_count(NodeId(0), NodeId(31 * SIDE)), Some(1));
}

proptest! {
    /// On any connected machine every route leads to its destination, over links that exist and carry its direction,
    /// and no step is further from the destination than the previous one.
    #[test]
    fn routes_lead_to_their_end(
        nodes in 2_u32..8,
        extra in proptest::collection::vec((0_u32..8, 0_u32..8, any::<bool>()), 0..12),
    ) {
        // A one-way ring joins all nodes.
        let mut links = String::new();
        for node in 0..nodes {
            links += &link(node, (node + 1) % nodes, "direction = \"forward\"");
        }
        for (a, b, forward) in extra.into_iter().filter(|&(a, b, _)| a != b && a < nodes && b < nodes) {
            links += &link(a, b, if forward { "direction = \"forward\"" } else { "" });
        }
        let machine = machine(nodes, &links);
        let routes = Routes::new(&machine).unwrap();
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (NodeId(from), NodeId(to)))) {
            let mut at = from;
            let hops = routes.hops(from, to).unwrap();
            prop_assert!(hops.len() <= routes.longest());
            for (index, Hop { link, direction }) in hops.iter().enumerate() {
                prop_assert_eq!(routes.hop_count(at, to), Some(hops.len() - index));
                let link = &machine.links[*link];
                let [first, second] = link.nodes;
                let (tail, head) = if *direction == Forward { (first, second) } else { (second, first) };
                prop_assert!(*direction == Forward || link.direction == machine::LinkDirection::Both);
                prop_assert_eq!(tail, at);
                at = head;
            }
            prop_assert_eq!(at, to);
        }
    }
}
