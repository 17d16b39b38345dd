//! Nodes: accesses between them, and the load of controllers.

use super::ranked::ThreadRow;
use super::text::{LONGEST_NAME, latency, share, short, time};
use crate::Table;
use crate::layout::Layout;
use machine::number::bandwidth;
use machine::number::count;
use machine::{Machine, NodeId};
use profile::{Counts, LatencyPart, NodePair, Saturation, Tally, ThreadUse, View, saturations};
use serde::Serialize;
use std::collections::BTreeMap;

/// Size of a cache line, bytes.
const LINE_BYTES: f64 = machine::LINE_BYTES as f64;
/// Most nodes in a table as text: those with the most accesses.
pub(crate) const MOST_NODES: usize = 8;

/// The memory of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Controller {
    /// The node.
    pub node: NodeId,
    /// The accesses that its memory serves.
    #[serde(flatten)]
    pub counts: Counts,
    /// Their bandwidth, bytes/s, as far as samples have weights.
    pub bytes_per_s: Option<f64>,
    /// That over the controller's maximum, 0 to 1; none if not in the machine's description.
    pub load: Option<f64>,
    /// Times of saturation.
    pub saturated: Vec<Saturation>,
}

/// The memory of each node. `matrix` is the view's, over `duration_ns`; `parts` are its latencies over time.
pub fn controllers(
    view: &View,
    matrix: &BTreeMap<(NodeId, NodeId), Tally>,
    parts: &[LatencyPart],
    duration_ns: u64,
) -> Vec<Controller> {
    let machine: &Machine = view.profile().machine();
    let mut tallies: BTreeMap<NodeId, Tally> =
        machine.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| (node.id, Tally::default())).collect();
    for ((_, to), tally) in matrix {
        tallies.entry(*to).or_default().merge(tally);
    }
    let seconds = duration_ns as f64 / 1e9;
    let all = saturations(parts);
    let controller = |(node, tally): (NodeId, Tally)| {
        let is_known = seconds > 0.0 && view.profile().counts_accesses();
        let bytes_per_s = is_known.then(|| (tally.local_accesses + tally.remote_accesses) * LINE_BYTES / seconds);
        let most = machine.node(node).and_then(|node| node.bandwidth_bytes_per_s);
        Controller {
            node,
            counts: tally.counts(view.tally()),
            bytes_per_s,
            load: bytes_per_s.zip(most).map(|(bytes, most)| bytes / most),
            saturated: all.iter().filter(|saturation| saturation.node == node).copied().collect(),
        }
    };
    tallies.into_iter().map(controller).collect()
}

/// Accesses by node of the CPU and node of the memory, as a table.
pub(crate) fn matrix_table(pairs: &[NodePair]) -> Table {
    let of = |end: fn(&NodePair) -> NodeId| busiest(pairs.iter().map(|pair| (end(pair), pair.counts.accesses)));
    let (from, to) = (of(|pair| pair.from), of(|pair| pair.to));
    let all: f64 = pairs.iter().map(|pair| pair.counts.accesses).sum();
    let heading = std::iter::once("  from \\ to".to_owned()).chain(to.iter().map(|node| format!("node {node}")));
    let mut table = Table::new(heading);
    for row in &from {
        let cell = |column: &NodeId| {
            let pair = pairs.iter().find(|pair| pair.from == *row && pair.to == *column);
            pair.map_or_else(|| "-".to_owned(), |pair| share(ratio(pair.counts.accesses, all)))
        };
        table.row(std::iter::once(format!("  node {row}")).chain(to.iter().map(cell)));
    }
    table
}

/// The nodes of threads and of the memory that they access, as a table.
pub(crate) fn thread_table(threads: &[ThreadRow]) -> Table {
    let nodes =
        busiest(threads.iter().flat_map(|thread| thread.memory_on.iter().map(|(node, accesses)| (*node, *accesses))));
    let heading = ["  thread".to_owned(), "runs on".to_owned()];
    let mut table = Table::new(heading.into_iter().chain(nodes.iter().map(|node| format!("memory {node}"))));
    for thread in threads {
        let all: f64 = thread.memory_on.values().sum();
        let name = thread.summary.name.as_deref().unwrap_or("");
        let cell = |node: &NodeId| match thread.memory_on.get(node) {
            Some(accesses) => share(ratio(*accesses, all)),
            None => "-".to_owned(),
        };
        let first = [format!("{:>8}", thread.summary.tid), runs_on(&thread.ran_on)];
        table.noted(first.into_iter().chain(nodes.iter().map(cell)), short(name, LONGEST_NAME));
    }
    table
}

/// A share; none of nothing, as in a damaged trace.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// The node that a thread ran on, with its share if there are several.
fn runs_on(nodes: &BTreeMap<NodeId, f64>) -> String {
    let all: f64 = nodes.values().sum();
    match nodes.iter().max_by(|(a, first), (b, second)| first.total_cmp(second).then(b.cmp(a))) {
        Some((node, _)) if nodes.len() == 1 => node.to_string(),
        Some((node, accesses)) => format!("{node} ({:.0} %)", 100.0 * accesses / all),
        None => "-".to_owned(),
    }
}

/// The memory of the busiest nodes, as a table.
pub(crate) fn controller_table(controllers: &[Controller], start_ns: u64, layout: Layout) -> String {
    let nodes = busiest(controllers.iter().map(|controller| (controller.node, controller.counts.accesses)));
    let heading = ["  memory of", "samples", "of all", "local", "latency", "carries", "load"];
    let mut table = Table::new(heading).optional(&[1, 2]);
    let mut saturated = String::new();
    for Controller { node, counts, bytes_per_s, load, saturated: times } in
        controllers.iter().filter(|controller| nodes.contains(&controller.node))
    {
        table.row([
            format!("  node {node}"),
            count(counts.samples),
            share(Some(counts.share)),
            share(counts.local_access_ratio),
            latency(counts.latency_mean_ns),
            bytes_per_s.map_or_else(|| "-".to_owned(), bandwidth),
            share(*load),
        ]);
        for Saturation { from_ns, until_ns, latency_mean_ns, .. } in times.iter().take(MOST_NODES) {
            let (from, until) = (time(from_ns - start_ns.min(*from_ns)), time(until_ns - start_ns.min(*until_ns)));
            let text = format!("node {node} saturated from {from} to {until}: {latency_mean_ns:.0} ns on average");
            saturated.push_str(&layout.wrapped("  ", &text));
        }
    }
    let left = controllers.len() - nodes.len().min(controllers.len());
    if left > 0 {
        table.row([format!("  and {left} less busy ones")]);
    }
    format!("{}{saturated}", layout.text(&table))
}

/// The nodes with the most accesses, in the order of their numbers.
fn busiest(accesses: impl Iterator<Item = (NodeId, f64)>) -> Vec<NodeId> {
    let mut sums: BTreeMap<NodeId, f64> = BTreeMap::new();
    for (node, more) in accesses {
        *sums.entry(node).or_default() += more;
    }
    let mut nodes: Vec<(NodeId, f64)> = sums.into_iter().collect();
    nodes.sort_by(|(a, first), (b, second)| second.total_cmp(first).then(a.cmp(b)));
    nodes.truncate(MOST_NODES);
    let mut nodes: Vec<NodeId> = nodes.into_iter().map(|(node, _)| node).collect();
    nodes.sort();
    nodes
}

/// The number of threads that do most of the accesses: all but 1 %.
pub(crate) fn busy_threads(threads: &[ThreadUse]) -> usize {
    let mut shares: Vec<f64> = threads.iter().map(|thread| thread.counts.share).collect();
    shares.sort_by(f64::total_cmp);
    let few = shares.iter().scan(0.0, |sum, share| {
        *sum += share;
        Some(*sum)
    });
    // Rounding must not count a thread more.
    shares.len() - few.take_while(|&sum| sum <= 0.01 + 1e-9).count()
}
