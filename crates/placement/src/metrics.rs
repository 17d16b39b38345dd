//! Metrics of a round's traffic: the global numbers that gates use.

use crate::costs::{Costs, LINE_BYTES};
use crate::observation::{ControllerLoad, LinkLoad, NodeMemory, Observation, Traffic};
use machine::{NodeId, imbalance};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Metrics of a round's traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Accesses that memory served, 1/µs; none if not counted.
    pub accesses_per_us: Option<f64>,
    /// Local accesses over all, 0 to 1; none without accesses.
    pub local_access_ratio: Option<f64>,
    /// Standard deviation (n - 1) of the loads of the controllers over their mean; loads are accesses, over the
    /// controller's part of bandwidth where they differ. None without accesses or with one controller.
    pub imbalance: Option<f64>,
    /// Utilisation of the busiest direction of a link by memory traffic, 0 to 1; none if links are not known. Links
    /// also carry coherence traffic, which does not depend on where memory is.
    pub busiest_link: Option<f64>,
    /// Used over total memory, 0 to 1; none if not known.
    pub memory_used: Option<f64>,
    /// Mean cost of an access, ns: measured, or else estimated from the machine's latencies and the load of controllers
    /// and links. None if neither is known.
    pub access_ns: Option<f64>,
    /// Standard error of a measured `access_ns`, ns; none if it is estimated, or the error is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_error_ns: Option<f64>,
}

/// Standard errors by which two costs must differ for the difference to count. Latencies of single accesses differ by
/// about their mean, so that the mean of 100 samples has an error of 10 %: a round with as few would often differ by 15 %
/// from another without any cause. At two errors, one in 40 rounds of an unchanged program is called slower, and moves
/// are reverted only after two such rounds.
const ERRORS: f64 = 2.0;

/// The cost of an access, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessCost {
    /// The cost, ns.
    pub access_ns: f64,
    /// Its standard error, ns; none if it is not measured.
    #[serde(default)]
    pub access_error_ns: Option<f64>,
}

impl AccessCost {
    /// Whether both are measured, or both estimated.
    pub fn is_like(self, other: Self) -> bool {
        self.access_error_ns.is_some() == other.access_error_ns.is_some()
    }

    /// How much it is above `factor` times the other, ns; none if it is not, or if samples leave that open. A
    /// measurement and an estimate are not compared.
    pub fn above_ns(self, factor: f64, other: Self) -> Option<f64> {
        let above_ns = self.access_ns - factor * other.access_ns;
        (self.is_like(other) && above_ns >= self.left_open_ns(factor, other)).then_some(above_ns)
    }

    /// By how much this may differ from `factor` times the other by chance, ns.
    pub fn left_open_ns(self, factor: f64, other: Self) -> f64 {
        let error = |cost: Self| cost.access_error_ns.unwrap_or(0.0);
        ERRORS * error(self).hypot(factor * error(other))
    }
}

impl Metrics {
    /// Metrics of this round.
    pub fn new(observation: &Observation, costs: &Costs) -> Self {
        let total: f64 = observation.traffic.iter().map(|traffic| traffic.accesses).sum();
        let counted = !observation.traffic.is_empty() && observation.length_s > 0.0;
        let local: f64 = observation.traffic.iter().filter(|t| t.from == t.to).map(|t| t.accesses).sum();
        let sum = |of: fn(&NodeMemory) -> u64| observation.memory.iter().map(|node| of(node) as f64).sum::<f64>();
        let (all, free) = (sum(|node| node.total_bytes), sum(|node| node.free_bytes));
        Self {
            accesses_per_us: counted.then(|| total / (observation.length_s * 1e6)),
            local_access_ratio: (total > 0.0).then(|| local / total),
            imbalance: imbalance(loads(observation, costs).into_iter().map(|(_, load)| load)),
            busiest_link: memory_link_loads(observation, costs)
                .into_values()
                .filter(|_| counted)
                .max_by(f64::total_cmp),
            memory_used: (all > 0.0).then(|| (1.0 - free / all).max(0.0)),
            access_ns: observation.latency_mean_ns.or_else(|| estimated_access_ns(observation, costs)),
            access_error_ns: observation.latency_mean_ns.and(observation.latency_error_ns),
        }
    }

    /// The cost of an access, if known.
    pub(crate) fn access_cost(&self) -> Option<AccessCost> {
        Some(AccessCost { access_ns: self.access_ns?, access_error_ns: self.access_error_ns })
    }
}

/// The load of each controller: accesses over its part of the machine's bandwidth.
pub(crate) fn loads(observation: &Observation, costs: &Costs) -> Vec<(NodeId, f64)> {
    let mut accesses = vec![0.0; costs.nodes().len()];
    for traffic in &observation.traffic {
        if let Some(index) = costs.index_of(traffic.to) {
            accesses[index] += traffic.accesses;
        }
    }
    let nodes = costs.nodes().iter().zip(accesses).filter(|(node, _)| node.memory_bytes > 0);
    nodes.map(|(node, accesses)| (node.id, accesses / node.relative_bandwidth)).collect()
}

/// Estimated cost of imbalance per access, ns: the difference to the same accesses spread over all controllers, from
/// latencies and the load of controllers and links. 0 if there is none or it is not known.
pub(crate) fn avoidable_ns(observation: &Observation, costs: &Costs) -> f64 {
    let dealt = dealt(observation, costs);
    let both = estimated_access_ns(observation, costs).zip(estimated_access_ns(&dealt, costs));
    both.map_or(0.0, |(now, dealt)| (now - dealt).max(0.0))
}

/// The same accesses with memory spread over all controllers in proportion to bandwidth.
fn dealt(observation: &Observation, costs: &Costs) -> Observation {
    let nodes = || costs.nodes().iter().filter(|node| node.memory_bytes > 0);
    let all: f64 = nodes().map(|node| node.relative_bandwidth).sum();
    let mut of_node: BTreeMap<NodeId, f64> = BTreeMap::new();
    for traffic in &observation.traffic {
        *of_node.entry(traffic.from).or_default() += traffic.accesses;
    }
    let to_all = |(from, accesses): (NodeId, f64)| {
        nodes().map(move |to| Traffic { from, to: to.id, accesses: accesses * to.relative_bandwidth / all })
    };
    let traffic: Vec<Traffic> = of_node.into_iter().flat_map(to_all).collect();
    let carried = observation.controllers.iter().filter_map(|load| {
        let index = costs.index_of(load.node)?;
        Some(load.utilisation * costs.nodes()[index].relative_bandwidth)
    });
    let utilisation = carried.sum::<f64>() / all;
    let controllers = nodes().map(|node| ControllerLoad { node: node.id, utilisation }).collect();
    let dealt = Observation { length_s: observation.length_s, traffic, controllers, ..Observation::default() };
    let (before, after) = (memory_link_loads(observation, costs), memory_link_loads(&dealt, costs));
    let load = |link: &LinkLoad| {
        let of = |loads: &BTreeMap<_, f64>| loads.get(&(link.from, link.to)).copied().unwrap_or(0.0);
        // Coherence traffic stays the same.
        LinkLoad { utilisation: (link.utilisation - of(&before)).max(0.0) + of(&after), ..*link }
    };
    let links = observation.links.iter().map(load).collect();
    Observation { links, ..dealt }
}

/// Utilisation of each direction of a link by memory traffic, for links whose bandwidth is known.
fn memory_link_loads(observation: &Observation, costs: &Costs) -> BTreeMap<(NodeId, NodeId), f64> {
    let mut loads: BTreeMap<(NodeId, NodeId), f64> = BTreeMap::new();
    for traffic in &observation.traffic {
        for (from, to) in costs.links_between(traffic.from, traffic.to) {
            let Some(bandwidth) = costs.link_bandwidth_bytes_per_s(from, to) else { continue };
            *loads.entry((from, to)).or_default() += traffic.accesses * LINE_BYTES / observation.length_s / bandwidth;
        }
    }
    loads
}

fn estimated_access_ns(observation: &Observation, costs: &Costs) -> Option<f64> {
    let controllers: FxHashMap<NodeId, f64> =
        observation.controllers.iter().map(|load| (load.node, load.utilisation)).collect();
    let mut links = memory_link_loads(observation, costs);
    links.extend(observation.links.iter().map(|load| ((load.from, load.to), load.utilisation)));
    let (mut time_ns, mut accesses) = (0.0, 0.0);
    for traffic in observation.traffic.iter().filter(|traffic| traffic.accesses > 0.0) {
        let idle_ns = costs.latency_ns(traffic.from, traffic.to)?;
        let way = costs.links_between(traffic.from, traffic.to);
        let busiest = way.iter().filter_map(|link| links.get(link)).chain(controllers.get(&traffic.to));
        let utilisation = busiest.copied().fold(0.0, f64::max);
        time_ns += traffic.accesses * idle_ns * costs.stretch(utilisation);
        accesses += traffic.accesses;
    }
    (accesses > 0.0).then(|| time_ns / accesses)
}
