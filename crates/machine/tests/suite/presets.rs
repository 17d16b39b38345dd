//! Presets against the published figures of their machines; if those come from a specification, the test names the
//! claim. Table 1.2 of the `MemProf` and Carrefour study is in `routes.rs`.

use machine::{CpuId, CpuSet, Machine, NodeId, Routes, Sharing, presets};

fn preset(name: &str) -> Machine {
    presets::find(name).unwrap_or_else(|error| panic!("{error}"))
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// The nodes on the route from one node to another.
fn via(machine: &Machine, from: u32, to: u32) -> Vec<u32> {
    let mut at = NodeId(from);
    let hops = Routes::new(machine).unwrap().hops(at, NodeId(to)).unwrap();
    let mut passed = Vec::new();
    for hop in hops {
        let [first, second] = machine.links[hop.link].nodes;
        at = if at == first { second } else { first };
        passed.push(at.0);
    }
    passed.pop();
    passed
}

/// One core's read bandwidth from a node: limited by its width, and by its lines in flight.
fn one_core(machine: &Machine, from: u32, to: u32) -> f64 {
    let core = machine.core.as_ref().unwrap();
    let latency_ns = machine.latency_ns(NodeId(from), NodeId(to)).unwrap();
    core.stream_bandwidth_bytes_per_s.min(f64::from(core.stream_lines) * 64e9 / latency_ns)
}

fn assert_within(what: &str, found: f64, published: f64, tolerance: f64) {
    let off = found / published - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {found:.5e} is {:.1} % off {published:.5e}", off * 100.0);
}

/// Performance isolation, 4.1 and 4.3, C4, C5, C11, C16.
#[test]
fn magny_cours_4p() {
    let machine = preset("magny-cours-4p");
    assert_eq!((machine.packages.len(), machine.nodes.len(), machine.cpus().len()), (4, 8, 48));
    assert_within("STREAM Copy", one_core(&machine, 0, 0), 5_949.103_7e6, 0.001);
    // C5: six cores, each left with 39 %; C4: two cores do not yet fill a controller.
    let controller = machine.nodes[0].bandwidth_bytes_per_s.unwrap();
    assert_within("controller", controller, 6.0 * 0.39 * 5_949.1e6, 0.01);
    assert!(controller > 2.0 * one_core(&machine, 0, 0));
    // C11: one core fills a link.
    for (index, link) in machine.links.iter().enumerate() {
        assert_within("link", link.bandwidth_bytes_per_s, 2e9, 0.01);
        let [a, b] = link.nodes;
        assert!(one_core(&machine, a.0, b.0) > link.bandwidth_bytes_per_s, "link {index}");
    }
    // C16: local latency differs by 21 %.
    let local: Vec<f64> = (0..8).map(|node| machine.latency_ns(NodeId(node), NodeId(node)).unwrap()).collect();
    let (least, most) = (local.iter().copied().fold(f64::MAX, f64::min), local.iter().copied().fold(0.0, f64::max));
    assert_within("spread", most / least, 1.21, 0.01);
}

/// Performance isolation, 4.1: at most two hops; 7 reaches 5 through 4, 1 reaches 4 and 5 directly, and (7.2, setup 2)
/// no traffic of node 1 passes node 4.
#[test]
fn the_routes_of_magny_cours_4p() {
    let machine = preset("magny-cours-4p");
    assert_eq!(Routes::new(&machine).unwrap().longest(), 2);
    assert_eq!(via(&machine, 7, 5), [4]);
    assert_eq!(via(&machine, 1, 4), []);
    assert_eq!(via(&machine, 1, 5), []);
    assert!((0..8).filter(|&to| to != 4).all(|to| !via(&machine, 1, to).contains(&4)));
    // Eight connections leave a package, some of them for I/O hubs.
    for package in 0..4 {
        let inside = |node: NodeId| node.0 / 2 == package;
        let leaving = machine.links.iter().filter(|link| inside(link.nodes[0]) != inside(link.nodes[1]));
        assert_eq!(leaving.count(), 6, "package {package}");
    }
}

/// Performance isolation, 4.1 and 4.4: without the directory it is the same machine, except for the megabyte of each L3
/// that the directory takes.
#[test]
fn magny_cours_4p_without_directory() {
    let with = preset("magny-cours-4p");
    let without = preset("magny-cours-4p-no-directory");
    let l3 = |machine: &Machine| machine.caches.iter().find(|cache| cache.level == 3).unwrap().size_bytes;
    assert_eq!((l3(&with), l3(&without)), (5 << 20, 6 << 20));
    assert_eq!((&without.core, &without.latency), (&with.core, &with.latency));
    assert_eq!((&without.nodes, &without.packages), (&with.nodes, &with.packages));
    assert_eq!((&without.links, &without.routes), (&with.links, &with.routes));
    let above_l3 =
        |machine: &Machine| machine.caches.iter().filter(|cache| cache.level < 3).cloned().collect::<Vec<_>>();
    assert_eq!(above_l3(&without), above_l3(&with));
}

/// The hypothetical machine differs only in what it is for, so that results on both can be compared.
#[test]
fn magny_cours_4p_with_control() {
    let (without, with) = (preset("magny-cours-4p"), preset("magny-cours-4p-control"));
    assert_eq!((without.controlled_ways(), with.controlled_ways()), (None, Some(40)));
    let Machine { name, description, sources, .. } = without.clone();
    assert_eq!(Machine { name, description, sources, control: None, ..with }, without);
}

/// Performance isolation, 4.2, 4.3 and C6; the flat firmware distances are from the field survey, 5.5.
#[test]
fn nehalem_ex_8p() {
    let machine = preset("nehalem-ex-8p");
    let counts = (machine.packages.len(), machine.nodes.len(), machine.cores().len(), machine.cpus().len());
    assert_eq!(counts, (8, 8, 64, 128));
    assert_eq!(Routes::new(&machine).unwrap().longest(), 2);
    assert_within("STREAM Copy", one_core(&machine, 0, 0), 5_344.764_6e6, 0.001);
    // Two cores double the bandwidth of one.
    assert!(machine.nodes[0].bandwidth_bytes_per_s.unwrap() > 2.0 * one_core(&machine, 0, 0));
    let distances = machine.distances.unwrap().matrix;
    assert!((0..64).all(|pair| distances[pair / 8][pair % 8] == if pair / 8 == pair % 8 { 10 } else { 12 }));
}

/// NUMA manager, 8.0, 8.1, 8.3: C1, C5, C7, C9.
#[test]
fn xeon_x5650() {
    const GIB: f64 = 1_073_741_824.0;
    let machine = preset("xeon-x5650x2");
    assert_eq!((machine.cores().len(), machine.cpus().len()), (12, 24));
    assert_eq!((&machine.nodes[0].cpus, &machine.nodes[1].cpus), (&cpus("0-11"), &cpus("12-23")));
    // C1, plus about 18 ns of page walk and instructions per read.
    let read = |to| machine.latency_ns(NodeId(0), NodeId(to)).unwrap() + 18.0;
    assert_within("slow-down of random reads", read(1) / read(0), 1.422, 0.01);
    assert_within("local Triad", one_core(&machine, 0, 0), 7.8 * GIB, 0.01);
    // C7: "almost" 10 GiB/s.
    assert_within("link", machine.links[0].bandwidth_bytes_per_s, 10.0 * GIB, 0.02);
    // C9: instances start on CPU 12; the 8th and the 10th share a core with the one before.
    for instance in [8, 10] {
        let core = CpuSet::from_iter([CpuId(10 + instance), CpuId(11 + instance)]);
        assert!(machine.smt_cores.contains(&core), "{core}");
    }
}

/// NUMA in `HelenOS`, 6.1.
#[test]
fn opteron_2356() {
    let machine = preset("opteron-2356x2");
    assert_eq!((&machine.nodes[0].cpus, &machine.nodes[1].cpus), (&cpus("0,2,4,6"), &cpus("1,3,5,7")));
    assert_eq!(machine.nodes.iter().map(|node| node.memory_bytes >> 20).collect::<Vec<_>>(), [8190, 8192]);
    assert_eq!(machine.distances.unwrap().matrix, [[10, 20], [20, 10]]);
    assert!((machine.core.unwrap().clock_hz - 2_294.424e6).abs() < 1.0);
}

/// Linux NUMA balancing, 5.1.
#[test]
fn xeon_6130() {
    for (name, nodes, memory_gib) in [("xeon-6130x2", 2, 192), ("xeon-6130x4", 4, 768)] {
        let machine = preset(name);
        assert_eq!((machine.packages.len(), machine.nodes.len(), machine.cores().len()), (nodes, nodes, 16 * nodes));
        assert_eq!(machine.nodes.iter().map(|node| node.memory_bytes >> 30).sum::<u64>(), memory_gib);
        let round_robin = |cpu: CpuId| machine.node_of_cpu(cpu) == Some(NodeId(cpu.0 % nodes as u32));
        assert!(machine.cpus().iter().all(round_robin), "{name}");
    }
}

/// Field survey, 5.1: idle latency and bandwidth of rows C, F, G and H, between the lowest and the highest of each
/// class.
#[test]
fn modern_machines_have_the_latencies_and_bandwidths_of_the_survey() {
    // For pairs of nodes in the same node, the same package, another package: lowest and highest latency, ns; and
    // bandwidth.
    type Class = ((f64, f64), (f64, f64));
    let survey: [(&str, usize, [Option<Class>; 3]); 4] = [
        ("xeon-8180x2", 1, [Some(((81.3, 81.4), (107.9e9, 108.3e9))), None, Some(((131.1, 131.1), (50.8e9, 51.0e9)))]),
        (
            "epyc-9224x2-cxl",
            2,
            [
                Some(((105.9, 107.5), (99.8e9, 101.3e9))),
                Some(((115.6, 117.1), (99.8e9, 101.2e9))),
                Some(((199.0, 200.7), (76.6e9, 77.6e9))),
            ],
        ),
        // Bandwidth: 369.6 GB/s of all four.
        ("epyc-9354px1-nps4", 4, [Some(((104.6, 106.5), (92.2e9, 92.4e9))), Some(((112.9, 118.6), (0.0, 1e12))), None]),
        (
            "xeon-6980px2-snc3",
            3,
            [
                Some(((102.0, 138.7), (187.8e9, 188.7e9))),
                Some(((122.1, 208.5), (187.8e9, 188.7e9))),
                Some(((392.4, 513.2), (90.6e9, 94.6e9))),
            ],
        ),
    ];
    for (name, of_package, classes) in survey {
        let machine = preset(name);
        let routes = Routes::new(&machine).unwrap();
        let with_cpus = machine.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
        for (from, to) in (0..with_cpus).flat_map(|from| (0..with_cpus).map(move |to| (from, to))) {
            let class = if from == to { 0 } else { 1 + usize::from(from / of_package != to / of_package) };
            let ((least_ns, most_ns), (least, most)) = classes[class].unwrap();
            let (from, to) = (NodeId(from as u32), NodeId(to as u32));
            let latency_ns = machine.latency_ns(from, to).unwrap();
            assert!((least_ns..=most_ns).contains(&latency_ns), "{name}, {from} to {to}: {latency_ns} ns");
            let links = routes.hops(from, to).unwrap();
            let links = links.iter().map(|hop| machine.links[hop.link].bandwidth_bytes_per_s);
            let bandwidth = links.fold(machine.node(to).unwrap().bandwidth_bytes_per_s.unwrap(), f64::min);
            assert!((least..=most).contains(&bandwidth), "{name}, {from} to {to}: {bandwidth:e}");
        }
    }
}

/// Field survey, 5.1 row F and 5.5.
#[test]
fn the_expander_of_epyc_9224() {
    let machine = preset("epyc-9224x2-cxl");
    let expander = machine.node(NodeId(4)).unwrap();
    assert!(expander.cpus.is_empty() && expander.memory_bytes > 120 << 30);
    for (from, latency_ns, distance) in [(0, 279.4, 50), (1, 278.8, 50), (2, 363.8, 60), (3, 363.5, 60)] {
        assert_eq!(machine.latency_ns(NodeId(from), NodeId(4)), Some(latency_ns));
        assert_eq!(machine.distances.as_ref().unwrap().matrix[from as usize][4], distance);
        // All traffic goes through the first node, and the expander itself is the bottleneck.
        assert!(from == 0 || via(&machine, from, 4) == [0]);
    }
    let bandwidth = expander.bandwidth_bytes_per_s.unwrap();
    assert_within("expander", bandwidth, 17.6e9, 0.001);
    assert!(machine.links.iter().all(|link| link.bandwidth_bytes_per_s > bandwidth));
}

/// Field survey, 5.2, the column "saturated": with all cores busy and all their lines in flight, latency is what those
/// lines take at the memory's bandwidth (Little's law).
#[test]
fn lines_under_way_give_the_published_latency_at_full_load() {
    for (name, published_ns) in [("xeon-8180x2", 282.66), ("epyc-9354px1-nps4", 471.66), ("xeon-6980px2-snc3", 378.26)]
    {
        let machine = preset(name);
        let lines = machine.cores().len() as f64 * f64::from(machine.core.as_ref().unwrap().stream_lines);
        let bandwidth: f64 = machine.nodes.iter().filter_map(|node| node.bandwidth_bytes_per_s).sum();
        assert_within(name, lines * 64e9 / bandwidth, published_ns, 0.02);
    }
}

/// Processors whose dies have an L3 each have two of them per node.
#[test]
fn two_l3_caches_a_node() {
    for (name, cores) in [("epyc-9224x2-cxl", 6), ("epyc-9354px1-nps4", 4)] {
        let machine = preset(name);
        let l3 = machine.caches.iter().find(|cache| cache.level == 3).unwrap();
        assert!(matches!(l3.shared_by, Sharing::Cpus(_)), "{name}");
        let instances = machine.cache_instances(l3);
        for node in machine.nodes.iter().filter(|node| !node.cpus.is_empty()) {
            let inside = |cache: &&CpuSet| cache.iter().all(|cpu| node.cpus.contains(cpu));
            assert_eq!(instances.iter().filter(inside).count(), 2, "{name}, node {}", node.id);
        }
        assert!(instances.iter().all(|cpus| cpus.len() == 2 * cores), "{name}");
    }
}

/// Numbers on both sides of 64, with gaps, keep their places in routes, latencies and what hwloc gets.
#[test]
fn odd_sparse() {
    let machine = preset("odd-sparse");
    assert_eq!(machine.nodes.iter().map(|node| node.id.0).collect::<Vec<_>>(), [0, 3, 8, 70]);
    assert_eq!(machine.cpus(), cpus("0-1,6,9,64-65"));
    assert_eq!((machine.node_of_cpu(CpuId(9)), machine.node_of_cpu(CpuId(2))), (Some(NodeId(3)), None));
    assert_eq!(via(&machine, 0, 70), []);
    assert_eq!(Routes::new(&machine).unwrap().longest(), 1);
    let latency = |from, to| machine.latency_ns(NodeId(from), NodeId(to));
    assert_eq!((latency(70, 70), latency(8, 70), latency(8, 1)), (Some(102.9412), Some(145.2941), None));
}
