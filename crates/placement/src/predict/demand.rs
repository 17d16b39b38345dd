//! A round's accesses, and what one takes: measured, or estimated as far as the source leaves it open.
//!
//! | source | accesses | what one takes |
//! |---|---|---|
//! | samples of the processor, or of the lab | counted, or samples times their weight | sampled |
//! | counters alone | counted | as the machine's latencies and the counted load say |
//! | hint faults alone | as if each running thread always had one line under way | the machine's latencies |

use super::Matrix;
use super::segments::Sampled;
use crate::costs::Costs;
use crate::metrics::Metrics;
use crate::observation::{Observation, Tells};
use machine::Pid;
use std::collections::BTreeMap;

/// Lines under way for each running thread, where nothing counts accesses. A thread that follows pointers has one all the
/// time; streams have some ten, and programs that compute hardly any.
pub(super) const ASSUMED_LINES: f64 = 1.0;
/// Least CPU time of a node's threads, over the round's length: a node with accesses has a running thread.
const LEAST_BUSY: f64 = 0.01;

/// A round's accesses, and what one takes.
pub(super) struct Demand {
    pub traffic: Matrix,
    pub latency_ns: f64,
    /// CPU time of each node's threads, over the round's length.
    pub busy: Vec<f64>,
    pub length_ns: f64,
    /// Nothing counts accesses: there are none to fit the model to, and no gain can be checked.
    pub is_assumed: bool,
}

impl Demand {
    /// None if the latencies of the machine are not known, or there are no accesses.
    pub fn new(observation: &Observation, sampled: &Sampled, costs: &Costs, metrics: &Metrics) -> Option<Self> {
        let length_ns = Some(observation.length_s * 1e9).filter(|ns| ns.is_finite() && *ns > 0.0)?;
        let busy = busy(observation, costs);
        let is_assumed = is_assumed(observation);
        let (traffic, latency_ns) = if is_assumed {
            assumed(sampled, costs, &busy, length_ns)?
        } else {
            (counted(observation, costs), metrics.access_ns.filter(|ns| ns.is_finite() && *ns > 0.0)?)
        };
        let all = traffic.all();
        (all.is_finite() && all > 0.0).then_some(Self { traffic, latency_ns, busy, length_ns, is_assumed })
    }

    /// Accesses in a nanosecond of CPU time.
    pub fn accesses_per_ns(&self) -> f64 {
        self.traffic.all() / (self.length_ns * self.busy.iter().sum::<f64>())
    }
}

/// Whether nothing counts accesses, and nothing tells which of them memory serves.
pub(super) fn is_assumed(observation: &Observation) -> bool {
    observation.tells == Tells::Uses && observation.traffic.is_empty()
}

/// What was counted.
pub(super) fn counted(observation: &Observation, costs: &Costs) -> Matrix {
    let mut traffic = Matrix::new(costs.nodes().len());
    for pair in &observation.traffic {
        if let Some((from, to)) = costs.index_of(pair.from).zip(costs.index_of(pair.to)) {
            traffic.add(from, to, pair.accesses);
        }
    }
    traffic
}

/// Accesses to where pages were used, by Little's law at the machine's latencies; and what one takes.
fn assumed(sampled: &Sampled, costs: &Costs, busy: &[f64], length_ns: f64) -> Option<(Matrix, f64)> {
    let uses = sampled.all();
    let distances = costs.distances();
    let mut per_use = vec![0.0; busy.len()];
    let (mut accesses, mut time_ns) = (0.0, 0.0);
    for (from, busy) in busy.iter().enumerate() {
        let row = uses.row(from);
        let all: f64 = row.iter().sum();
        if all <= 0.0 {
            continue;
        }
        let mut idle_ns = 0.0;
        for (to, used) in row.iter().enumerate().filter(|(_, used)| **used > 0.0) {
            idle_ns += used / all * distances.idle_ns(costs.nodes()[from].id, costs.nodes()[to].id)?;
        }
        let of_node = busy * ASSUMED_LINES * length_ns / idle_ns;
        per_use[from] = of_node / all;
        accesses += of_node;
        time_ns += of_node * idle_ns;
    }
    (accesses > 0.0).then(|| (uses.with_rows(&per_use), time_ns / accesses))
}

/// CPU time of each node's threads, over the round's length. A process's time is that of its threads whose CPU is known:
/// in equal parts, unless each thread's own was read.
fn busy(observation: &Observation, costs: &Costs) -> Vec<f64> {
    let mut threads: BTreeMap<Pid, Vec<(usize, f64)>> = BTreeMap::new();
    for thread in &observation.threads {
        let node = thread.cpu.and_then(|cpu| costs.node_of_cpu(cpu)).and_then(|node| costs.index_of(node));
        if let Some(node) = node {
            threads.entry(thread.pid).or_default().push((node, thread.cpu_share));
        }
    }
    let mut busy = vec![0.0; costs.nodes().len()];
    for process in &observation.processes {
        let Some(threads) = threads.get(&process.pid) else { continue };
        let is_read = threads.iter().any(|(_, share)| *share > 0.0);
        let equal = (process.cpu_share / threads.len() as f64).min(1.0);
        for (node, share) in threads {
            busy[*node] += if is_read { *share } else { equal };
        }
    }
    busy.iter().map(|busy| busy.max(LEAST_BUSY)).collect()
}
