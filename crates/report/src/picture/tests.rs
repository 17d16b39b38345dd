//! Invariants of text and picture, for machines of many shapes.

use super::scene::{self, Rect, Shape, Style, text_area};
use super::{MachineText, machine_to_svg};
use machine::*;
use proptest::prelude::*;
use quick_xml::events::Event;

/// A machine of `nodes` nodes in packages of `per_package`, with `cores` cores of `smt` CPUs per node, and an L3 for
/// every four cores.
fn machine(nodes: u32, per_package: u32, cores: u32, smt: u32) -> Machine {
    let total = nodes * cores;
    let core = move |core: u32| (0..smt).map(move |thread| CpuId(core + thread * total));
    let cpus = |first: u32, count: u32| -> CpuSet { (first..(first + count).min(total)).flat_map(core).collect() };
    let cache = |level, kind, shared_by| Cache {
        level,
        kind,
        size_bytes: 32 << (10 + 5 * u32::from(level - 1)),
        ways: 8,
        line_bytes: 64,
        latency_ns: Some(1.25 * f64::from(level)),
        shared_by,
        source: None,
    };
    let distance = |from: u32, to: u32| if from == to { 10 } else { 20 + from.abs_diff(to).min(30) };
    Machine {
        name: format!("{nodes}-nodes"),
        description: String::new(),
        sources: [("book".to_owned(), "A book & its <author>".to_owned())].into(),
        smt_cores: if smt > 1 { (0..total).map(|k| core(k).collect()).collect() } else { Vec::new() },
        core: None,
        coherence: None,
        control: None,
        disk: None,
        tlbs: Vec::new(),
        latency: None,
        distances: Some(Distances {
            matrix: (0..nodes).map(|from| (0..nodes).map(|to| distance(from, to)).collect()).collect(),
            source: None,
        }),
        packages: (0..nodes.div_ceil(per_package))
            .map(|id| Package { id: PackageId(id), cpus: cpus(id * per_package * cores, per_package * cores) })
            .collect(),
        nodes: (0..nodes)
            .map(|id| Node {
                id: NodeId(id),
                cpus: cpus(id * cores, cores),
                memory_bytes: 16 << 30,
                bandwidth_bytes_per_s: Some(38.4e9),
                write_cost: None,
                source: Some(Source::All("book".into())),
            })
            .collect(),
        caches: vec![
            cache(1, CacheKind::Data, Sharing::Core),
            cache(1, CacheKind::Instruction, Sharing::Core),
            cache(2, CacheKind::Unified, Sharing::Core),
            cache(3, CacheKind::Unified, Sharing::Cpus((0..total.div_ceil(4)).map(|k| cpus(4 * k, 4)).collect())),
        ],
        links: Vec::new(),
        routes: Vec::new(),
    }
}

fn link(machine: &mut Machine, from: u32, to: u32, direction: LinkDirection, bandwidth: f64) {
    let nodes = [NodeId(from), NodeId(to)];
    machine.links.push(Link { nodes, direction, bandwidth_bytes_per_s: bandwidth, latency_ns: None, source: None });
}

fn mesh(mut machine: Machine) -> Machine {
    let nodes = machine.nodes.len() as u32;
    for from in 0..nodes {
        (from + 1..nodes).for_each(|to| link(&mut machine, from, to, LinkDirection::Both, f64::from(from + 1) * 5e9));
    }
    machine
}

fn hypercube(mut machine: Machine) -> Machine {
    let nodes = machine.nodes.len() as u32;
    for from in 0..nodes {
        let ends = (0..10).map(|bit| from | 1 << bit).filter(|&to| to > from && to < nodes).collect::<Vec<_>>();
        for to in ends {
            link(&mut machine, from, to, LinkDirection::Both, 12.8e9);
        }
    }
    machine
}

/// Two packages, each with a CXL expander: memory-only nodes.
fn with_expanders() -> Machine {
    let mut machine = machine(2, 1, 8, 2);
    for id in [2, 5] {
        let memory_bytes = 64 << 30;
        machine.nodes.push(Node {
            id: NodeId(id),
            cpus: CpuSet::new(),
            memory_bytes,
            bandwidth_bytes_per_s: None,
            write_cost: None,
            source: None,
        });
    }
    link(&mut machine, 0, 1, LinkDirection::Both, 40e9);
    link(&mut machine, 0, 2, LinkDirection::Both, 64e9);
    link(&mut machine, 1, 5, LinkDirection::Forward, 64e9);
    machine
}

/// The shapes that the layout is made for.
fn shapes() -> Vec<Machine> {
    let mut without_memory = mesh(machine(2, 1, 4, 1));
    without_memory.nodes[1].memory_bytes = 0;
    let mut twins = machine(2, 1, 4, 1);
    link(&mut twins, 0, 1, LinkDirection::Forward, 10e9);
    link(&mut twins, 1, 0, LinkDirection::Forward, 5e9);
    vec![
        machine(1, 1, 4, 2),
        mesh(machine(2, 1, 8, 2)),
        mesh(machine(3, 1, 4, 1)),
        mesh(machine(4, 1, 4, 1)),
        mesh(machine(4, 2, 6, 1)),
        mesh(machine(8, 8, 4, 1)),
        hypercube(machine(8, 2, 6, 1)),
        hypercube(machine(16, 4, 8, 1)),
        machine(16, 4, 16, 2),
        machine(2, 1, 128, 2),
        with_expanders(),
        without_memory,
        twins,
    ]
}

fn areas(shapes: &[Shape], wanted: Style) -> Vec<Rect> {
    let areas = shapes.iter().filter_map(|shape| match shape {
        Shape::Box { area, style } if *style == wanted => Some(*area),
        _ => None,
    });
    areas.collect()
}

#[test]
fn every_text_is_apart_from_every_other_and_within_the_page() {
    for machine in shapes() {
        let scene = scene::of(&machine);
        let page = Rect { x: 0.0, y: 0.0, width: scene.width, height: scene.height };
        let texts: Vec<_> = scene.shapes.iter().filter_map(text_area).filter(|area| area.width > 0.0).collect();
        for (i, text) in texts.iter().enumerate() {
            assert!(
                page.contains((text.x, text.y)) && page.contains((text.right(), text.bottom())),
                "{}: {text:?}",
                machine.name
            );
            // Lines of one block are close together: only real overlaps count.
            let other = texts.iter().skip(i + 1).find(|other| text.grown(-2.0).overlaps(other.grown(-2.0)));
            assert_eq!(other, None, "{}: text at {text:?}", machine.name);
        }
    }
}

#[test]
fn boxes_are_apart_and_links_and_labels_keep_off_them() {
    for machine in shapes() {
        let scene = scene::of(&machine);
        let nodes = areas(&scene.shapes, Style::Node);
        assert_eq!(nodes.len(), machine.nodes.len(), "{}", machine.name);
        for (i, node) in nodes.iter().enumerate() {
            assert!(!nodes.iter().skip(i + 1).any(|other| node.overlaps(*other)), "{}", machine.name);
        }
        let labels = areas(&scene.shapes, Style::Behind);
        assert!(!labels.iter().any(|label| nodes.iter().any(|node| label.overlaps(*node))), "{}", machine.name);
        let curves: Vec<_> = scene.shapes.iter().filter(|shape| matches!(shape, Shape::Curve { .. })).collect();
        assert_eq!(curves.len(), machine.links.len(), "{}", machine.name);
        for curve in curves {
            let Shape::Curve { points, .. } = curve else { continue };
            let inside = |step: u8| {
                let at = super::links::point(points, f64::from(step) / 50.0);
                nodes.iter().any(|node| node.grown(-1.0).contains(at))
            };
            assert!(!(0..=50).any(inside), "{}: {points:?}", machine.name);
        }
        let bandwidths = scene
            .shapes
            .iter()
            .filter(|shape| matches!(shape, Shape::Text { text, size: 11.0, .. } if text.ends_with("GB/s")));
        assert_eq!(bandwidths.count(), machine.links.len(), "{}: every link has its label", machine.name);
    }
}

#[test]
fn frames_hold_the_nodes_of_their_package_and_no_other() {
    let scene = scene::of(&hypercube(machine(8, 2, 6, 1)));
    let nodes = areas(&scene.shapes, Style::Node);
    let frames = areas(&scene.shapes, Style::Package);
    assert_eq!(frames.len(), 4);
    for (package, frame) in frames.iter().enumerate() {
        let inside: Vec<_> = (0..nodes.len()).filter(|&node| frame.contains(nodes[node].centre())).collect();
        assert_eq!(inside, [2 * package, 2 * package + 1]);
    }
}

#[test]
fn whatever_a_machine_is_called_the_picture_is_xml() {
    let mut machine = mesh(machine(2, 1, 2, 1));
    machine.name = "<script>&\"'\u{1}]]>".to_owned();
    machine.description = "a\u{0}b <b>&amp;</b> \u{ffff}".to_owned();
    let svg = machine_to_svg(&machine);
    assert!(!svg.contains("<script>") && !svg.contains(['\u{0}', '\u{1}', '\u{ffff}']));
    assert_eq!(texts_of_xml(&svg).first().map(String::as_str), Some("<script>&\"'\u{fffd}]]>"));
}

/// The text of every element of well-formed XML.
fn texts_of_xml(xml: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let (mut texts, mut depth) = (vec![String::new()], 0);
    loop {
        match reader.read_event().unwrap() {
            Event::Text(text) => *texts.last_mut().unwrap() += &text,
            Event::GeneralRef(entity) => {
                let entity = format!("&{};", &*entity);
                *texts.last_mut().unwrap() += &quick_xml::escape::unescape(&entity).unwrap();
            }
            Event::Start(_) => depth += 1,
            Event::End(_) => {
                depth -= 1;
                texts.push(String::new());
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    texts.into_iter().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

#[test]
fn a_thousand_nodes_stay_a_page_of_text_and_a_picture() {
    let machine = hypercube(machine(1024, 8, 4, 2));
    let text = MachineText::new(&machine).to_string();
    assert!(text.lines().count() < 60, "{text}");
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
    assert!(text.contains("1024 nodes, 8192 CPUs, 4096 cores, 128 packages, 16 TiB"), "{text}");
    let svg = machine_to_svg(&machine);
    assert!(svg.len() < 1_000_000, "{} bytes", svg.len());
    assert!(svg.contains("1024 nodes of 8 CPUs, 16 GiB") && svg.contains("the mean of 16 x 16 pairs"));
}

#[test]
fn values_of_many_pairs_are_in_ascending_order() {
    let mut machine = hypercube(machine(64, 8, 1, 1));
    let by_hops_ns = vec![90.0, 104.4, 950.5, 1020.0, 1100.0, 1200.0, 1300.0];
    machine.latency = Some(Latency { by_hops_ns, matrix_ns: Vec::new(), ..Latency::default() });
    let text = MachineText::new(&machine).to_string();
    let table = text.split("Latency").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let values: Vec<&str> = table.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(values, ["90.0", "104.4", "950.5", "1020.0", "1100.0", "1200.0", "1300.0"]);
}

#[test]
fn sets_that_do_not_compress_wrap_and_end() {
    let mut machine = machine(2, 1, 1, 1);
    machine.nodes[0].cpus = (0..600).map(|k| CpuId(2 * k)).collect();
    machine.nodes[1].cpus = (0..600).map(|k| CpuId(2 * k + 1)).collect();
    let text = MachineText::new(&machine).to_string();
    assert!(text.lines().count() < 40 && text.lines().all(|line| line.len() <= 110), "{text}");
    assert!(text.contains("..."));
}

#[test]
fn the_text_names_what_is_missing_or_one_way() {
    let text = MachineText::new(&with_expanders()).to_string();
    assert!(text.contains("  5     -        64 GiB          -      0  -\n"), "{text}");
    assert!(text.contains("  1 -> 5    64 GB/s  one way\n"), "{text}");
}

#[test]
fn the_text_fits_the_terminal_at_any_width() {
    let mut long = hypercube(machine(16, 4, 8, 1));
    long.description = "a machine with many nodes ".repeat(9);
    long.latency = Some(Latency { by_hops_ns: vec![199.0, 200.1, 1300.0], ..Latency::default() });
    long.sources.insert("report".to_owned(), "https://example.org/a/long/address/".repeat(4));
    long.nodes[0].cpus = (0..90).map(|k| CpuId(2 * k)).collect();
    for machine in shapes().into_iter().chain([long, hypercube(machine(1024, 8, 4, 2))]) {
        for width in [60, 80, 120] {
            let text = format!("{:width$}", MachineText::new(&machine).simulated(true).with_sources(true));
            let longest = text.lines().map(crate::columns::width).max();
            assert!(longest <= Some(width), "{longest:?} of {width}:\n{text}");
            assert!(text.starts_with(&format!("{} (simulated)", machine.name)), "{text}");
        }
    }
}

#[test]
fn latencies_of_one_table_have_the_same_decimals() {
    let text = |by_hops_ns: &[f64]| {
        let mut machine = mesh(machine(2, 1, 4, 1));
        machine.latency = Some(Latency { by_hops_ns: by_hops_ns.to_vec(), ..Latency::default() });
        MachineText::new(&machine).to_string()
    };
    let (mixed, whole) = (text(&[199.0, 200.1]), text(&[90.0, 200.0]));
    assert!(mixed.contains("     0  199.0  200.1\n     1  200.1  199.0\n"), "{mixed}");
    assert!(whole.contains("     0   90  200\n     1  200   90\n"), "{whole}");
}

#[test]
fn sources_tell_what_they_are_for() {
    let machine = machine(2, 1, 1, 1);
    let text = MachineText::new(&machine).with_sources(true).to_string();
    assert!(text.ends_with("\n\nSources\n  book\n      A book & its <author>\n      for node (2)\n"), "{text}");
}

#[test]
fn a_distance_that_says_no_way_is_no_number() {
    let mut machine = machine(2, 1, 1, 1);
    machine.distances.as_mut().unwrap().matrix[0][1] = 255;
    let scene = scene::of(&machine);
    let unknown = scene.shapes.iter().filter(|shape| matches!(shape, Shape::Heat { heat: None, .. }));
    assert_eq!(unknown.count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Handmade descriptions need not keep the rules: tables may be ragged, IDs unknown, sets overlapping.
    #[test]
    fn any_description_can_be_drawn(
        nodes in 0_u32..40, per_package in 1_u32..5, cores in 0_u32..20, smt in 1_u32..3,
        ends in proptest::collection::vec((0_u32..42, 0_u32..42, any::<bool>(), -1e9..1e12_f64), 0..50),
        table in proptest::option::of(proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..42), 0..42)),
        times in proptest::collection::vec(proptest::collection::vec(any::<f64>(), 0..42), 0..42),
    ) {
        let mut machine = machine(nodes, per_package, cores, smt);
        for (from, to, both, bandwidth) in ends {
            link(&mut machine, from, to, if both { LinkDirection::Both } else { LinkDirection::Forward }, bandwidth);
        }
        machine.distances = table.map(|matrix| Distances { matrix, source: None });
        machine.latency = Some(Latency { matrix_ns: times, ..Latency::default() });
        let _ = MachineText::new(&machine).to_string();
        texts_of_xml(&machine_to_svg(&machine));
    }
}
