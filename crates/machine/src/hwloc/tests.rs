//! Round trips, hostile text, and files written by lstopo. `tests/hwloc_tools.rs` checks our output with hwloc's own
//! programs.

use crate::description::{Cache, CacheKind, Distances, Latency, Machine, Node, Package, Sharing};
use crate::ids::{CpuId, NodeId, PackageId};
use crate::routes::Routes;
use crate::set::CpuSet;
use proptest::prelude::*;
use std::path::Path;

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn node(id: u32, of: &str, gib: u64) -> Node {
    let memory_bytes = gib << 30;
    Node { id: NodeId(id), cpus: cpus(of), memory_bytes, bandwidth_bytes_per_s: None, write_cost: None, source: None }
}

fn cache(level: u8, kind: CacheKind, kib: u64, shared_by: Sharing) -> Cache {
    Cache { level, kind, size_bytes: kib << 10, ways: 8, line_bytes: 64, latency_ns: None, shared_by, source: None }
}

fn machine(nodes: Vec<Node>) -> Machine {
    Machine {
        name: "test".into(),
        description: String::new(),
        sources: [].into(),
        smt_cores: Vec::new(),
        core: None,
        coherence: None,
        control: None,
        disk: None,
        tlbs: Vec::new(),
        latency: None,
        distances: None,
        packages: Vec::new(),
        nodes,
        caches: Vec::new(),
        links: Vec::new(),
        routes: Vec::new(),
    }
}

fn odd() -> Machine {
    Machine::from_toml(include_str!("../../tests/fixtures/odd.toml"), Path::new("odd.toml")).unwrap()
}

/// A machine without its sources and texts, with its caches in a fixed order: what a round trip must keep.
fn bare(mut machine: Machine) -> Machine {
    machine.sources.clear();
    machine.description.clear();
    machine.nodes.iter_mut().for_each(|node| node.source = None);
    machine.caches.iter_mut().for_each(|cache| cache.source = None);
    machine.caches.sort_by_key(|cache| (cache.level, cache.kind));
    machine.smt_cores.sort_by_key(CpuSet::first);
    machine.distances.iter_mut().for_each(|distances| distances.source = None);
    machine.latency.iter_mut().for_each(|latency| latency.source = None);
    machine
}

fn there_and_back(machine: &Machine) -> Machine {
    bare(Machine::from_hwloc_xml(&machine.to_hwloc_xml().unwrap()).unwrap())
}

#[test]
fn an_odd_machine_comes_back_as_it_was() {
    let odd = odd();
    assert_eq!(there_and_back(&odd), odd);
}

#[test]
fn every_preset_keeps_its_nodes_caches_and_distances() {
    for name in crate::presets::names() {
        let preset = crate::presets::load(name).unwrap();
        let mut back = there_and_back(&preset);
        let routes = Routes::new(&preset).unwrap();
        let mut expected = bare(preset.clone());
        // hwloc cannot hold these.
        expected.core = None;
        expected.coherence = None;
        expected.control = None;
        expected.nodes.iter_mut().for_each(|node| node.write_cost = None);
        expected.links.clear();
        expected.routes.clear();
        expected.caches.iter_mut().for_each(|cache| cache.latency_ns = None);
        let nodes: Vec<NodeId> = expected.nodes.iter().map(|node| node.id).collect();
        let row = |from: NodeId| -> Option<Vec<f64>> {
            nodes.iter().map(|&to| routes.latency_ns(&preset, from, to)).collect()
        };
        let matrix: Option<Vec<Vec<f64>>> = nodes.iter().map(|&from| row(from)).collect();
        let known = preset.latency.as_ref().and(matrix);
        expected.latency = known.map(|matrix_ns| Latency { matrix_ns, ..Latency::default() });
        // It has whole nanoseconds.
        let cells = expected.latency.iter_mut().flat_map(|latency| latency.matrix_ns.iter_mut().flatten());
        cells.for_each(|latency_ns| *latency_ns = latency_ns.round_ties_even());
        // Nothing looks from a node without CPUs: what is read is another node's view.
        if let (Some(back), Some(expected)) = (&back.latency, &mut expected.latency) {
            let rows = preset.nodes.iter().zip(expected.matrix_ns.iter_mut().zip(&back.matrix_ns));
            let without_cpus = rows.filter(|(node, _)| node.cpus.is_empty());
            without_cpus.for_each(|(_, (expected, back))| expected.clone_from(back));
        }
        for (back, node) in back.nodes.iter_mut().zip(&expected.nodes) {
            let lost = back.bandwidth_bytes_per_s.unwrap_or(0.0) - node.bandwidth_bytes_per_s.unwrap_or(0.0);
            assert!(lost.abs() <= 0.5 * 1_048_576.0, "{name}: {lost}");
            back.bandwidth_bytes_per_s = node.bandwidth_bytes_per_s;
        }
        let instances = |m: &Machine| m.caches.iter().map(|c| m.cache_instances(c)).collect::<Vec<_>>();
        assert_eq!(instances(&back), instances(&expected), "{name}");
        back.caches.clear();
        expected.caches.clear();
        expected.tlbs.clear();
        assert_eq!(back, expected, "{name}");
    }
}

#[test]
fn what_is_no_tree_is_refused() {
    let mut crossing = machine(vec![node(0, "0-3", 1)]);
    crossing.packages =
        vec![Package { id: PackageId(0), cpus: cpus("0-1") }, Package { id: PackageId(1), cpus: cpus("2-3") }];
    crossing.caches = vec![cache(3, CacheKind::Unified, 1, Sharing::Cpus(vec![cpus("1-2")]))];
    let error = crossing.to_hwloc_xml().unwrap_err().to_string();
    let expected = "hwloc cannot hold this machine: the L3Cache of CPUs 1-2 overlaps another object without one having all CPUs of the other";
    assert_eq!(error, expected);
    crossing.caches = vec![cache(3, CacheKind::Unified, 1, Sharing::Cpus(vec![cpus("0-3"), cpus("1")]))];
    let error = crossing.to_hwloc_xml().unwrap_err().to_string();
    assert_eq!(error, "hwloc cannot hold this machine: the L3Cache of CPUs 1 is inside another L3Cache, of CPUs 0-3");
    crossing.caches = vec![cache(6, CacheKind::Unified, 1, Sharing::Core)];
    assert!(crossing.to_hwloc_xml().is_err());
}

#[test]
fn a_name_with_anything_in_it_is_escaped() {
    let mut named = machine(vec![node(0, "0", 1)]);
    named.name = "<a> & \"b\" \u{1} 'c' ü".into();
    assert_eq!(there_and_back(&named).name, "<a> & \"b\"   'c' ü");
}

const ONE_NODE: &str = r#"<topology version="2.0">
<object type="Machine" os_index="0" cpuset="0x3" gp_index="1">
<object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1" gp_index="2" local_memory="4096"/>
<object type="PU" os_index="0" cpuset="0x1" gp_index="3"/>
<object type="PU" os_index="1" cpuset="0x2" gp_index="4"/>
</object>
</topology>"#;

/// As lstopo writes it in a container that may not use every node's memory.
#[test]
fn cpus_of_a_node_that_hwloc_may_not_see_keep_it_and_cpus_of_none_are_left_out() {
    let narrow = ONE_NODE.replace("cpuset=\"0x3\" nodeset", "cpuset=\"0x1\" nodeset");
    let (machine, warnings) = Machine::from_saved_hwloc_xml(&narrow).unwrap();
    assert_eq!(
        (machine.cpus(), warnings),
        (cpus("0"), vec!["CPU 1 is left out: no NUMANode's cpuset has it".to_owned()])
    );
    let hidden = narrow.replace("PU\" os_index=\"1\"", "PU\" os_index=\"1\" complete_nodeset=\"0x4\"");
    let (machine, warnings) = Machine::from_saved_hwloc_xml(&hidden).unwrap();
    let nodes: Vec<_> = machine.nodes.iter().map(|node| (node.id.0, node.cpus.clone(), node.memory_bytes)).collect();
    assert_eq!(nodes, [(0, cpus("0"), 4096), (2, cpus("1"), 0)]);
    assert_eq!(warnings, Vec::<String>::new());
    let (machine, warnings) = Machine::from_saved_hwloc_xml(&ONE_NODE.replace("\"4096\"", "\"0\"")).unwrap();
    assert_eq!((machine.nodes[0].memory_bytes, warnings.len()), (0, 1));
}

#[test]
fn errors_name_their_line() {
    assert_eq!(Machine::from_hwloc_xml(ONE_NODE).unwrap().cpus(), cpus("0-1"));
    let deep = "<object type=\"Group\">".repeat(100);
    let many: String = (0..100).fold(String::new(), |many, n| many + &format!(" a{n}=\"\""));
    let distances = |inside: &str| {
        format!("</object>\n<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\">{inside}</distances2>")
    };
    let cases = [
        (("version=\"2.0\"", ""), "line 1: <topology>: has no version, as hwloc 1.x writes it"),
        (
            ("version=\"2.0\"", "version=\"4.0\""),
            "line 1: <topology>: is of version 4.0, nearside reads versions 2 and 3",
        ),
        (
            ("topology version", "root version"),
            "line 1: <root>: the only element outside others must be one <topology>",
        ),
        (("</topology>", ""), "line 7: <topology>: ends before </topology>"),
        (
            ("cpuset=\"0x3\" nodeset", "cpuset=\"0x3g\" nodeset"),
            "line 3: <object>: cpuset: `0x3g` is not a group of a set",
        ),
        (("cpuset=\"0x3\" nodeset", "nodeset"), "line 3: <NUMANode>: has no cpuset"),
        (("PU\" os_index=\"1\"", "PU\" os_index=\"0\""), "line 5: <PU>: os_index 0 is another PU's already"),
        (
            ("PU\" os_index=\"1\"", "PU\" os_index=\"4294967295\""),
            "line 5: <PU>: has no os_index, or one above 1048576",
        ),
        (
            ("\"4096\"", "\"99999999999999999999\""),
            "line 3: <object>: local_memory is `99999999999999999999`, which is not a number",
        ),
        (("\"4096\"", "\"&big;\""), "line 3: <object>: "),
        (("<topology", "<!DOCTYPE a [<!ENTITY b \"bb\">]><topology"), "line 1: <DOCTYPE>: must not define anything"),
        (
            ("<object type=\"Machine\"", &format!("{deep}<object type=\"Machine\"")),
            "line 2: <object>: is nested more than 64 deep",
        ),
        (
            ("<object type=\"Machine\"", &format!("<object{many} type=\"Machine\"")),
            "line 2: <object>: has more than 64 attributes",
        ),
        (("os_index=\"1\"", "os_index=\"1\" os_index=\"2\""), "line 5: <object>: "),
        (("</object>", "</topology>"), "line 6: <XML>: "),
        (("</object>", &distances("")), "line 7: <distances2>: is of 2 nodes, but has 0 indexes and 0 values"),
        (("</object>", &distances("<indexes>0 x</indexes>")), "line 7: <distances2>: `x` is not a number"),
    ];
    for ((from, to), message) in cases {
        let error = Machine::from_hwloc_xml(&ONE_NODE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("hwloc XML, {message}")), "{error}\n{message}");
    }
    let error = Machine::from_hwloc_xml("<topology version=\"2.0\"/>").unwrap_err().to_string();
    assert!(error.starts_with("the hwloc XML does not describe a valid machine"), "{error}");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let end = ONE_NODE.find("</topology>").unwrap();
    for cut in 0..end {
        assert!(Machine::from_hwloc_xml(&ONE_NODE[..cut]).is_err(), "{}", &ONE_NODE[..cut]);
    }
}

fn fixture(text: &str) -> Machine {
    Machine::from_hwloc_xml(text).unwrap()
}

fn nodes(machine: &Machine) -> Vec<(u32, String, u64)> {
    machine.nodes.iter().map(|node| (node.id.0, node.cpus.to_string(), node.memory_bytes >> 20)).collect()
}

fn expect(nodes: &[(u32, &str, u64)]) -> Vec<(u32, String, u64)> {
    nodes.iter().map(|&(id, cpus, mib)| (id, cpus.to_owned(), mib)).collect()
}

/// hwloc 3 wrote these from the files of version 2.
#[test]
fn a_machine_is_the_same_in_version_3() {
    let pairs = [
        (
            include_str!("../../tests/fixtures/hwloc/2-dies-groups-sparse-nodes.xml"),
            include_str!("../../tests/fixtures/hwloc/2-dies-groups-sparse-nodes.v3.xml"),
        ),
        (
            include_str!("../../tests/fixtures/hwloc/2-nodes-distances-memattrs.xml"),
            include_str!("../../tests/fixtures/hwloc/2-nodes-distances-memattrs.v3.xml"),
        ),
        (
            include_str!("../../tests/fixtures/hwloc/2-packages-6-nodes-nested-l1i.xml"),
            include_str!("../../tests/fixtures/hwloc/2-packages-6-nodes-nested-l1i.v3.xml"),
        ),
    ];
    for (of_version_2, of_version_3) in pairs {
        assert!(of_version_3.contains("<topology version=\"3.0\">"));
        assert_eq!(fixture(of_version_3), fixture(of_version_2));
    }
}

#[test]
fn latencies_and_bandwidths_that_no_machine_has_are_left_out_with_a_warning() {
    let text = include_str!("../../tests/fixtures/hwloc/2-nodes-distances-memattrs.xml");
    let odd = text.replace("value=\"89\"", "value=\"0\"").replace("value=\"1234\"", "value=\"999999999\"");
    let (machine, warnings) = Machine::from_saved_hwloc_xml(&odd).unwrap();
    assert_eq!(machine.latency, None);
    assert!(machine.nodes.iter().all(|node| node.bandwidth_bytes_per_s.is_none()));
    for begin in ["latencies are left out: they must be", "bandwidths are left out: they must be"] {
        assert!(warnings.iter().any(|warning| warning.starts_with(begin)), "{begin}: {warnings:?}");
    }
}

/// hwloc 3 wrote the XML from the tree. `bare` drops the sources; the tree has no name of its own.
#[test]
fn version_3_says_of_a_real_machine_what_its_sysfs_tree_says() {
    let archive: &[u8] = include_bytes!("../../tests/fixtures/hwloc/8amd64-4n2c.tar.bz2");
    let (by_sysfs, warnings) = Machine::from_archive(archive, Path::new("8amd64-4n2c.tar.bz2")).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let mut by_hwloc = fixture(include_str!("../../tests/fixtures/hwloc/8amd64-4n2c.v3.xml"));
    assert_eq!((by_hwloc.nodes.len(), by_hwloc.caches.len(), by_hwloc.packages.len()), (4, 3, 4));
    by_hwloc.name = by_sysfs.name.clone();
    assert_eq!(bare(by_hwloc), bare(by_sysfs));
}

/// The files are written by lstopo 2.9.0: see `tests/fixtures/hwloc/README.md`.
#[test]
fn nodes_smaller_than_packages_with_several_l3_and_smt() {
    let machine = fixture(include_str!("../../tests/fixtures/hwloc/2-packages-4-nodes-8-l3-smt.xml"));
    assert_eq!(
        nodes(&machine),
        expect(&[(0, "0-15", 1024), (1, "16-31", 1024), (2, "32-47", 1024), (3, "48-63", 1024)])
    );
    let packages: Vec<_> = machine.packages.iter().map(|p| (p.id.0, p.cpus.to_string())).collect();
    assert_eq!(packages, [(0, "0-31".to_owned()), (1, "32-63".to_owned())]);
    assert_eq!(machine.smt_cores.len(), 32);
    let [l3] = &machine.caches[..] else { panic!("{:?}", machine.caches) };
    let sets: Vec<CpuSet> = (0..8).map(|l3| (l3 * 8..l3 * 8 + 8).map(CpuId).collect()).collect();
    assert_eq!((l3.level, l3.size_bytes, &l3.shared_by), (3, 16 << 20, &Sharing::Cpus(sets)));
}

#[test]
fn nodes_larger_than_packages() {
    let machine = fixture(include_str!("../../tests/fixtures/hwloc/2-nodes-4-packages.xml"));
    assert_eq!(nodes(&machine), expect(&[(0, "0-3", 1024), (1, "4-7", 1024)]));
    assert_eq!(machine.packages.len(), 4);
}

#[test]
fn of_nodes_that_share_cpus_the_smallest_has_them() {
    let machine = fixture(include_str!("../../tests/fixtures/hwloc/2-packages-6-nodes-nested-l1i.xml"));
    let small = [(0, "0-1", 953), (1, "2-3", 953), (2, "", 7629), (3, "4-5", 953), (4, "6-7", 953), (5, "", 7629)];
    assert_eq!(nodes(&machine), expect(&small));
    let kinds: Vec<_> = machine.caches.iter().map(|c| (c.level, c.kind, c.shared_by.clone())).collect();
    let [data, instruction, unified] = [CacheKind::Data, CacheKind::Instruction, CacheKind::Unified];
    let expected = [(1, data), (1, instruction), (2, unified), (3, unified)];
    assert_eq!(kinds, expected.map(|(level, kind)| (level, kind, Sharing::Core)));
}

#[test]
fn distances_latency_and_bandwidth_that_hwloc_was_given() {
    let machine = fixture(include_str!("../../tests/fixtures/hwloc/2-nodes-distances-memattrs.xml"));
    assert_eq!(machine.distances.unwrap().matrix, [[10, 21], [22, 10]]);
    assert_eq!(machine.latency.unwrap().matrix_ns, [[89.0, 140.0], [141.0, 90.0]]);
    let bandwidth: Vec<_> = machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s).collect();
    assert_eq!(bandwidth, [Some(1234.0 * 1_048_576.0), None]);
}

#[test]
fn groups_and_dies_are_passed_over() {
    let machine = fixture(include_str!("../../tests/fixtures/hwloc/2-dies-groups-sparse-nodes.xml"));
    assert_eq!(nodes(&machine), expect(&[(0, "0-1", 1024), (5, "2-3", 1024)]));
    assert_eq!(machine.packages.len(), 1);
}

#[test]
fn what_lstopo_wrote_comes_back_as_it_was() {
    for text in [
        include_str!("../../tests/fixtures/hwloc/2-packages-4-nodes-8-l3-smt.xml"),
        include_str!("../../tests/fixtures/hwloc/2-nodes-4-packages.xml"),
        include_str!("../../tests/fixtures/hwloc/2-packages-6-nodes-nested-l1i.xml"),
        include_str!("../../tests/fixtures/hwloc/2-nodes-distances-memattrs.xml"),
        include_str!("../../tests/fixtures/hwloc/2-dies-groups-sparse-nodes.xml"),
    ] {
        let machine = bare(fixture(text));
        assert_eq!(there_and_back(&machine), machine);
    }
}

#[test]
fn a_machine_of_1024_nodes_and_8192_cpus() {
    let mut large = machine((0..1024).map(|id| node(id, &format!("{}-{}", id * 8, id * 8 + 7), 1)).collect());
    large.smt_cores = (0..4096).map(|core| cpus(&format!("{}-{}", core * 2, core * 2 + 1))).collect();
    large.caches = vec![
        cache(1, CacheKind::Data, 32, Sharing::Core),
        cache(2, CacheKind::Unified, 512, Sharing::Core),
        cache(3, CacheKind::Unified, 4096, Sharing::Node),
    ];
    let row = |from| (0..1024).map(|to| if from == to { 10 } else { 20 }).collect();
    large.distances = Some(Distances { matrix: (0..1024).map(row).collect(), source: None });
    assert_eq!(there_and_back(&large), large);
}

/// Machines of `packages` x `nodes` x `cores` x `threads`, with gaps in every numbering and memory-only nodes.
fn regular() -> impl Strategy<Value = Machine> {
    let shape = (1..4_u32, 1..4_u32, 1..4_u32, 1..3_u32);
    (shape, 1..40_u32, 0..3_u32, any::<bool>()).prop_map(
        |((packages, per_package, cores, threads), gap, memory_only, spread)| {
            let total = packages * per_package * cores;
            // Siblings are adjacent, or half the machine apart, as on most x86 machines.
            let cpu = |core: u32, thread: u32| {
                CpuId(gap * if spread { thread * total + core } else { core * threads + thread })
            };
            let set = |cores: std::ops::Range<u32>| {
                cores.flat_map(|c| (0..threads).map(move |t| cpu(c, t))).collect::<CpuSet>()
            };
            let cpu_nodes = (0..packages * per_package)
                .map(|n| Node { cpus: set(n * cores..(n + 1) * cores), ..node(n * gap, "", 1 + u64::from(n)) });
            let memory_nodes = (0..memory_only).map(|n| node((packages * per_package + n) * gap, "", 7));
            let mut machine = machine(cpu_nodes.chain(memory_nodes).collect());
            let package = |p| Package {
                id: PackageId(p * gap),
                cpus: set(p * per_package * cores..(p + 1) * per_package * cores),
            };
            machine.packages = (0..packages).map(package).collect();
            machine.smt_cores = (0..total).map(|core| set(core..core + 1)).filter(|core| core.len() > 1).collect();
            machine.caches =
                vec![cache(1, CacheKind::Data, 32, Sharing::Core), cache(1, CacheKind::Instruction, 32, Sharing::Core)];
            machine
        },
    )
}

proptest! {
    #[test]
    fn any_regular_machine_comes_back_as_it_was(machine in regular()) {
        prop_assert_eq!(machine.validate(), []);
        prop_assert_eq!(there_and_back(&machine), machine);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = Machine::from_hwloc_xml(&text);
    }

    #[test]
    fn damaged_text_never_panics(from in any::<prop::sample::Index>(), length in 0..40_usize, with in "[0-9a-z<>\"=&;/ ]{0,20}") {
        let whole = odd().to_hwloc_xml().unwrap();
        let from = from.index(whole.len());
        let mut text = whole.clone();
        text.replace_range(from..(from + length).min(whole.len()), &with);
        let _ = Machine::from_hwloc_xml(&text);
    }
}

/// The L3 of an Opteron 6164 HE: a part of it is reserved, which its size lacks and its ways have.
#[test]
fn ways_that_do_not_fit_the_size_are_unknown() {
    let caches = vec![cache(3, CacheKind::Unified, 5120, Sharing::Node)];
    let xml = Machine { caches, ..machine(vec![node(0, "0-3", 1)]) }.to_hwloc_xml().unwrap();
    let odd = xml.replace("cache_associativity=\"8\"", "cache_associativity=\"48\"");
    assert_ne!(odd, xml);
    let read = Machine::from_hwloc_xml(&odd).unwrap();
    assert_eq!((read.caches[0].ways, read.caches[0].size_bytes), (0, 5_242_880));
}
