//! A machine file with measured numbers: Linux's description, with every measured number in its place.

use crate::curve::Curve;
use crate::error::MeasureError;
use crate::results::{LoadPoint, Results, WorkingSet};
use crate::statistics::Matrix;
use machine::{Cache, CacheKind, Coherence, Core, Latency, Link, LinkDirection, Machine, Node, Source, median_low};
use std::collections::BTreeMap;
use std::path::Path;

const MEASURED: &str = "measured";
const ASSUMED: &str = "assumed";
/// Above this many nodes, a link for each pair would claim more than was measured.
const MOST_LINKED: usize = 32;
/// Relative difference up to which opposite directions count as one link.
const ALIKE: f64 = 0.1;
const LINE: f64 = 64.0;
/// Instructions per cycle, where they are not known.
const ASSUMED_PER_CYCLE: f64 = 2.0;

/// The machine with the measured numbers; fields without a measurement are unchanged.
pub fn calibrated(machine: &Machine, results: &Results) -> Result<Machine, MeasureError> {
    let mut machine = machine.clone();
    let partial = if results.partial { " (partial)" } else { "" };
    let by = format!("nearside measure {} on {}{partial}", results.version, results.date);
    machine.description = format!("measured by {by}");
    let settings = &results.settings;
    let how = format!("measured by {by}: median of {} or more repeats", settings.repeats);
    machine.sources.insert(MEASURED.to_owned(), how);
    if let Some(matrix_ns) = results.latency_ns.as_ref().and_then(|matrix| whole_matrix(&machine.nodes, matrix)) {
        machine.latency =
            Some(Latency { matrix_ns, source: Some(Source::All(MEASURED.to_owned())), ..Latency::default() });
    }
    fill_controllers(&mut machine, results);
    fill_curve(&mut machine, results);
    machine.coherence = coherence(&machine, results).or(machine.coherence);
    fill_caches(&mut machine, results);
    machine.core = core(&machine, results).or(machine.core);
    fill_links(&mut machine, results);
    let used_assumption = machine.core.is_some() || !machine.links.is_empty();
    if used_assumption {
        let instructions = match results.instructions_per_cycle {
            Some(known) => format!("as simulated: {known}"),
            None => format!("assumed: {ASSUMED_PER_CYCLE}"),
        };
        let text = format!(
            "{instructions} instructions per cycle while nothing waits; a separate link for each pair of nodes"
        );
        machine.sources.insert(ASSUMED.to_owned(), text);
    }
    // The output must be readable by every reader of machine files.
    Machine::from_toml(&machine.to_toml()?, Path::new("the measured machine"))?;
    Ok(machine)
}

/// Adds the source of one field; those of the table's other fields stay.
fn with_source(old: Option<Source>, field: &str) -> Source {
    let mut by_field = match old {
        None => BTreeMap::new(),
        Some(Source::All(key)) => BTreeMap::from([("*".to_owned(), key)]),
        Some(Source::ByField(by_field)) => by_field,
    };
    by_field.insert(field.to_owned(), MEASURED.to_owned());
    Source::ByField(by_field)
}

fn value(matrix: &Matrix, from: usize, to: usize) -> Option<f64> {
    (*matrix.get(from)?.get(to)?)?.value
}

/// `None` if a pair that an access can take is unknown. Pairs that no access can take (from a node without CPUs, to one
/// without memory) get the opposite direction's latency or, failing that, the largest.
fn whole_matrix(nodes: &[Node], matrix: &Matrix) -> Option<Vec<Vec<f64>>> {
    let at = |from, to| value(matrix, from, to);
    let pairs = || (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
    let largest = pairs().filter_map(|(from, to)| at(from, to)).max_by(f64::total_cmp)?;
    let mut rows = Vec::with_capacity(nodes.len());
    for (from, initiator) in nodes.iter().enumerate() {
        let mut row = Vec::with_capacity(nodes.len());
        for (to, target) in nodes.iter().enumerate() {
            let taken = !initiator.cpus.is_empty() && target.memory_bytes > 0;
            row.push(match at(from, to) {
                Some(ns) => ns,
                None if taken => return None,
                None => at(to, from).unwrap_or(largest),
            });
        }
        rows.push(row);
    }
    Some(rows)
}

/// The bandwidth of a controller: the highest read bandwidth that all cores of any node reached.
fn fill_controllers(machine: &mut Machine, results: &Results) {
    let Some(bandwidth) = &results.bandwidth_bytes_per_s else { return };
    let count = machine.nodes.len();
    for (to, node) in machine.nodes.iter_mut().enumerate() {
        let drawn = |from| value(&bandwidth.all_cores.read, from, to);
        if let Some(most) = (0..count).filter_map(drawn).max_by(f64::total_cmp) {
            node.bandwidth_bytes_per_s = Some(most);
            node.source = Some(with_source(node.source.take(), "bandwidth_bytes_per_s"));
        }
    }
}

/// How latency grows with load: fitted to all controllers together, as a machine file has one curve.
fn fill_curve(machine: &mut Machine, results: &Results) {
    let (Some(curves), Some(latency)) = (&results.loaded_latency, &machine.latency) else { return };
    let bandwidth = |node| machine.node(node).and_then(|node| node.bandwidth_bytes_per_s);
    let mut points = Vec::new();
    for curve in curves {
        let idle = curve.points.first().and_then(|point| point.latency_ns.value);
        let (Some(idle_ns), Some(bandwidth)) = (idle, bandwidth(curve.node)) else { continue };
        let told =
            |point: &LoadPoint| Some((point.load_bytes_per_s.value? / bandwidth, point.latency_ns.value? / idle_ns));
        points.extend(curve.points.iter().filter_map(told));
    }
    let Some(Curve { rise, slope }) = Curve::near(&points) else { return };
    let mut source = with_source(latency.source.clone(), "loaded_rise");
    source = with_source(Some(source), "loaded_slope");
    let (loaded_rise, loaded_slope) = (Some(rise), Some(slope));
    let latency = latency.clone();
    machine.latency = Some(Latency { loaded_rise, loaded_slope, source: Some(source), ..latency });
}

/// Latency of lines in other caches without the path: the latency minus the path to that node's memory and back.
fn coherence(machine: &Machine, results: &Results) -> Option<Coherence> {
    let (transfers, latency) = (results.cache_to_cache_ns.as_ref()?, results.latency_ns.as_ref()?);
    let modified = &transfers.modified;
    let nodes = 0..machine.nodes.len();
    let pairs = || nodes.clone().flat_map(|from| nodes.clone().map(move |to| (from, to)));
    let between = pairs().filter(|(from, to)| from != to).filter_map(|(from, to)| {
        let way_ns = value(latency, from, to)? - value(latency, to, to)?;
        Some(value(modified, from, to)? - way_ns)
    });
    let siblings = nodes.clone().filter_map(|node| value(modified, node, node));
    let line_ns = median_low(between.filter(|ns| *ns > 0.0))?;
    let source = Some(Source::All(MEASURED.to_owned()));
    Some(Coherence { line_ns, sibling_ns: median_low(siblings), directory_ns: None, probes: None, source })
}

/// For each data cache that Linux reports, the median latency of the working sets that it holds and the previous level
/// does not. Near either size, both levels serve a part: of two in the middle, the lower has less of the next level's.
fn fill_caches(machine: &mut Machine, results: &Results) {
    let Some(measured) = &results.caches else { return };
    let data = |cache: &Cache| cache.kind != CacheKind::Instruction;
    let sizes: Vec<(u8, u64)> = machine.caches.iter().filter(|c| data(c)).map(|c| (c.level, c.size_bytes)).collect();
    for cache in machine.caches.iter_mut().filter(|cache| data(cache)) {
        let before = sizes.iter().filter(|(level, _)| *level < cache.level).map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let held = |set: &&WorkingSet| set.size_bytes * 2 > before * 3 && set.size_bytes * 5 <= cache.size_bytes * 4;
        let latencies = measured.working_sets.iter().filter(held).filter_map(|set| set.latency_ns.value);
        if let Some(median) = median_low(latencies) {
            cache.latency_ns = Some(median);
            cache.source = Some(with_source(cache.source.take(), "latency_ns"));
        }
    }
}

/// The number of lines in flight follows from bandwidth and latency by Little's law.
fn core(machine: &Machine, results: &Results) -> Option<Core> {
    let bandwidth = &results.bandwidth_bytes_per_s.as_ref()?.one_core;
    let latency = results.latency_ns.as_ref()?;
    let clock_hz = results.caches.as_ref()?.clock_hz.value?;
    let local = |matrix: &Matrix| (0..machine.nodes.len()).find_map(|node| value(matrix, node, node));
    let (read, write, local_ns) = (local(&bandwidth.read)?, local(&bandwidth.write)?, local(latency)?);
    let lines = |bytes_per_s: f64| (bytes_per_s * local_ns * 1e-9 / LINE).ceil().max(1.0) as u32;
    let by_field = [("instructions_per_cycle", ASSUMED), ("*", MEASURED)];
    Some(Core {
        clock_hz,
        instructions_per_cycle: results.instructions_per_cycle.unwrap_or(ASSUMED_PER_CYCLE),
        stream_bandwidth_bytes_per_s: read,
        stream_lines: lines(read),
        store_lines: lines(write),
        load_lines: None,
        reorder_instructions: None,
        source: Some(Source::ByField(by_field.map(|(field, key)| (field.to_owned(), key.to_owned())).into())),
    })
}

/// Linux reports no links. With one per pair of nodes, of the measured bandwidth, each pair alone gets what it got
/// here; which pairs share wires is unknown.
fn fill_links(machine: &mut Machine, results: &Results) {
    let Some(bandwidth) = &results.bandwidth_bytes_per_s else { return };
    let count = machine.nodes.len();
    if count > MOST_LINKED || !machine.links.is_empty() {
        return;
    }
    let drawn = |from, to| value(&bandwidth.all_cores.read, from, to);
    let ids: Vec<_> = machine.nodes.iter().map(|node| node.id).collect();
    let mut links = Vec::new();
    for one in 0..count {
        for other in one + 1..count {
            let by_field = [("bandwidth_bytes_per_s", MEASURED), ("*", ASSUMED)];
            let mut link = |from: usize, to: usize, direction, bandwidth_bytes_per_s| {
                links.push(Link {
                    nodes: [ids[from], ids[to]],
                    direction,
                    bandwidth_bytes_per_s,
                    latency_ns: None,
                    source: Some(Source::ByField(
                        by_field.map(|(field, key)| (field.to_owned(), key.to_owned())).into(),
                    )),
                });
            };
            match (drawn(one, other), drawn(other, one)) {
                (Some(there), Some(back)) if (there / back - 1.0).abs() > ALIKE => {
                    link(one, other, LinkDirection::Forward, there);
                    link(other, one, LinkDirection::Forward, back);
                }
                (Some(there), Some(back)) => link(one, other, LinkDirection::Both, f64::midpoint(there, back)),
                (Some(only), None) | (None, Some(only)) => link(one, other, LinkDirection::Both, only),
                // Without all of them, nodes could be unreachable from each other.
                (None, None) => {
                    let silent = [one, other].map(|node| machine.nodes[node].cpus.is_empty());
                    if silent != [true, true] {
                        return;
                    }
                }
            }
        }
    }
    machine.links = links;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::plan::{Access, Cores, Options, Part, Step, plan};
    use crate::results::{Bandwidth, Caches, LoadedCurve, Outcome};
    use crate::statistics::Number;
    use machine::{Routes, presets};
    use proptest::prelude::*;

    fn number(value: f64) -> Number {
        Number { value: Some(value), spread: 0.01, repeats: 3 }
    }

    /// A preset as Linux would report it, and the results of measuring it.
    fn measured(preset: &str, skip: Option<Step>) -> (Machine, Machine, Results) {
        let truth = presets::find(preset).unwrap();
        let routes = Routes::new(&truth).unwrap();
        let mut shown = Machine {
            core: None,
            latency: None,
            coherence: None,
            disk: None,
            links: Vec::new(),
            routes: Vec::new(),
            ..truth.clone()
        };
        shown.nodes.iter_mut().for_each(|node| node.bandwidth_bytes_per_s = None);
        shown.caches.iter_mut().for_each(|cache| cache.latency_ns = None);
        let host = Host::new(shown.clone(), &truth.cpus(), None, |_| 1 << 30);
        let parts = Part::ALL.into_iter().collect();
        let options =
            Options { quick: true, parts, repeats: None, size_bytes: None, max_spread: 0.1, huge_pages: true };
        let plan = plan(&host, &options).unwrap();
        let mut results = Results::new(&plan, truth.nodes.iter().map(|node| node.id).collect());
        for step in plan.steps.into_iter().filter(|step| Some(*step) != skip) {
            let outcome = match step {
                Step::Latency { from, to } => Outcome::Number(number(routes.latency_ns(&truth, from, to).unwrap())),
                Step::Bandwidth { from, to, access: Access::Read, cores: Cores::All } if from == to => {
                    Outcome::Number(number(truth.node(from).unwrap().bandwidth_bytes_per_s.unwrap()))
                }
                Step::Caches { node } => Outcome::Caches(Caches {
                    node,
                    clock_hz: number(1.7e9),
                    working_sets: [(4, 1.7), (32, 1.8), (64, 2.5), (128, 7.0), (256, 7.2), (600, 20.0), (2048, 35.0)]
                        .map(|(kib, ns)| WorkingSet { size_bytes: kib << 10, latency_ns: number(ns) })
                        .into(),
                    levels: Vec::new(),
                }),
                Step::Loaded { from, to } => {
                    let bandwidth = truth.node(to).unwrap().bandwidth_bytes_per_s.unwrap();
                    let point = |u: f64| LoadPoint {
                        load_bytes_per_s: number(u * bandwidth),
                        latency_ns: number(100.0 * (1.0 + if u > 0.0 { 0.04 + 0.145 * u / (1.0 - u) } else { 0.0 })),
                    };
                    let points = [0.0, 0.2, 0.4, 0.6, 0.8].map(point).into();
                    Outcome::Curve(LoadedCurve { node: to, from, loading_cores: 3, points })
                }
                Step::Transfer { reader, owner, .. } if reader == owner => Outcome::Number(number(53.0)),
                Step::Transfer { reader, owner, .. } => {
                    let latency = |from| routes.latency_ns(&truth, from, owner).unwrap();
                    Outcome::Number(number(latency(reader) - latency(owner) + 64.0))
                }
                _ => Outcome::Number(number(4e9)),
            };
            results.take(step, outcome);
        }
        results.copy_only_cores(|node| host.cores(node).len() == 1);
        (truth, shown, results)
    }

    #[test]
    fn what_is_measured_of_a_preset_is_that_preset() {
        for preset in ["opteron-6164x2", "opteron-8380x4", "small-8x2"] {
            let (truth, shown, results) = measured(preset, None);
            let machine = calibrated(&shown, &results).unwrap();
            let (routes, true_routes) = (Routes::new(&machine).unwrap(), Routes::new(&truth).unwrap());
            for (from, to) in truth.nodes.iter().flat_map(|from| truth.nodes.iter().map(move |to| (from.id, to.id))) {
                assert_eq!(routes.latency_ns(&machine, from, to), true_routes.latency_ns(&truth, from, to));
            }
            let bandwidths =
                |machine: &Machine| machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s).collect::<Vec<_>>();
            assert_eq!(bandwidths(&machine), bandwidths(&truth));
            assert_eq!(machine.links.len(), truth.nodes.len() * (truth.nodes.len() - 1) / 2);
            let latencies: Vec<_> = machine.caches.iter().map(|cache| cache.latency_ns).collect();
            assert_eq!(latencies, [Some(1.7), None, Some(7.0), Some(35.0)]);
            let core = machine.core.as_ref().unwrap();
            let node = truth.nodes[0].id;
            let under_way = (4e9 * true_routes.latency_ns(&truth, node, node).unwrap() * 1e-9 / 64.0).ceil() as u32;
            assert_eq!((core.clock_hz, core.stream_bandwidth_bytes_per_s, core.stream_lines), (1.7e9, 4e9, under_way));
            let latency = machine.latency.as_ref().unwrap();
            let curve = [latency.loaded_rise, latency.loaded_slope].map(Option::unwrap);
            assert!((curve[0] - 0.04).abs() < 1e-6 && (curve[1] - 0.145).abs() < 1e-6, "{curve:?}");
            let coherence = machine.coherence.as_ref().unwrap();
            assert!((coherence.line_ns - 64.0).abs() < 1e-6 && coherence.sibling_ns == Some(53.0), "{coherence:?}");
            assert_eq!(machine.missing_sources(), []);
            assert!(machine.sources["measured"].contains("nearside measure"), "{:?}", machine.sources);
        }
    }

    #[test]
    fn the_only_core_of_a_node_is_all_of_its_cores() {
        let mut results = measured("small-2x2", None).2;
        let before = results.bandwidth_bytes_per_s.clone().unwrap();
        results.copy_only_cores(|node| node == machine::NodeId(1));
        let Bandwidth { one_core, all_cores, .. } = results.bandwidth_bytes_per_s.unwrap();
        assert_ne!(before.all_cores.read, one_core.read, "two cores of node 0 have more than one");
        assert_eq!((&all_cores.read[0], &all_cores.read[1]), (&before.all_cores.read[0], &one_core.read[1]));
    }

    #[test]
    fn a_pair_without_a_number_leaves_no_matrix() {
        let step = Step::Latency { from: machine::NodeId(1), to: machine::NodeId(0) };
        let (_, shown, results) = measured("small-2x2", Some(step));
        assert_eq!(calibrated(&shown, &results).unwrap().latency, None);
    }

    #[test]
    fn nothing_measured_changes_nothing_but_the_description() {
        let (_, shown, mut results) = measured("small-2x2", None);
        (results.latency_ns, results.bandwidth_bytes_per_s, results.caches) = (None, None, None);
        let machine = calibrated(&shown, &results).unwrap();
        assert_eq!((&machine.nodes, &machine.caches, &machine.links), (&shown.nodes, &shown.caches, &shown.links));
    }

    proptest! {
        #[test]
        fn whatever_was_measured_makes_a_machine_file_or_an_error(
            ns in prop::collection::vec(prop::option::of(1e-3_f64..1e9), 4),
            bandwidth in prop::collection::vec(prop::option::of(1.0_f64..1e15), 4),
        ) {
            let (_, shown, mut results) = measured("small-2x2", None);
            let matrix = |values: &[Option<f64>]| -> Matrix {
                values.chunks(2).map(|row| row.iter().map(|value| value.map(number)).collect()).collect()
            };
            results.latency_ns = Some(matrix(&ns));
            results.bandwidth_bytes_per_s.as_mut().unwrap().all_cores.read = matrix(&bandwidth);
            if let Ok(machine) = calibrated(&shown, &results) {
                prop_assert_eq!(machine.validate(), []);
            }
        }
    }
}
