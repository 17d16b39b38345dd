//! What a placement would change: the round's traffic through the machine's queues, with rates that follow latencies.

use super::Matrix;
use super::demand::{ASSUMED_LINES, Demand};
use super::segments::{Sampled, Segment};
use crate::costs::Costs;
use queueing::{Class, Distances, LINE_BYTES, NodeShare, Served, scale, scaled, solve};
use serde::{Deserialize, Serialize};

/// Least part of the time that threads wait for memory; smaller ones are rounded up.
const LEAST_BOUND: f64 = 1e-3;
/// Where the pages of a segment are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Choice {
    /// Where they are.
    Leave,
    /// On all nodes with memory, by bandwidth.
    Deal,
    /// On the node with this index.
    Local(usize),
}

/// What a placement changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Effect {
    /// How many times as fast the threads run.
    pub speedup: f64,
    /// What an access takes, over what it took before.
    pub latency: f64,
}

impl Effect {
    pub const NONE: Self = Self { speedup: 1.0, latency: 1.0 };

    /// How many times as fast threads run when accesses take this part of what they took before, if they wait for memory
    /// as this forecast says. None where it says nothing about that.
    pub fn speedup_at(self, latency: f64) -> Option<f64> {
        let waited = (1.0 - 1.0 / self.speedup) / (1.0 - self.latency);
        let speedup = 1.0 / (1.0 - waited.max(0.0) * (1.0 - latency));
        (waited > 0.0 && speedup.is_finite() && speedup > 0.0).then_some(speedup)
    }
}

/// A round's traffic, and the rates at which the machine serves it.
pub(crate) struct Forecast<'a> {
    distances: Distances<'a>,
    pub costs: &'a Costs,
    pub segments: Vec<Segment>,
    /// Accesses that a sample stands for, by the CPU's node.
    per_sample: Vec<f64>,
    /// Accesses to memory that stays.
    fixed: Matrix,
    /// CPU time of each node's threads, over the round's length.
    busy: Vec<f64>,
    classes: Vec<Class>,
    /// The node index of each class.
    nodes: Vec<usize>,
    before: Vec<Served>,
}

impl<'a> Forecast<'a> {
    /// None if the machine's latencies are not known.
    pub fn new(demand: Demand, sampled: Sampled, costs: &'a Costs) -> Option<Self> {
        let Demand { traffic, latency_ns, busy, length_ns, is_assumed } = demand;
        let accesses = traffic.by_row();
        let seen = sampled.all();
        let per_sample: Vec<f64> = accesses
            .iter()
            .zip(seen.by_row())
            .map(|(accesses, samples)| if samples > 0.0 { accesses / samples } else { 0.0 })
            .collect();
        let fixed = sampled.fixed.with_rows(&per_sample).or_of(&traffic, &seen);
        let mut forecast = Self {
            distances: costs.distances(),
            costs,
            segments: sampled.segments,
            per_sample,
            fixed,
            busy,
            classes: Vec::new(),
            nodes: (0..costs.nodes().len()).filter(|&node| accesses[node] > 0.0).collect(),
            before: Vec::new(),
        };
        let now = forecast.traffic(&vec![Choice::Leave; forecast.segments.len()]);
        let class = |&node: &usize| {
            let (work_ns, lines) = if is_assumed {
                (0.0, forecast.busy[node] * ASSUMED_LINES)
            } else {
                // By Little's law: the lines under way for each running thread. With one or more it always waits.
                let rate = accesses[node] / length_ns;
                let bound = (latency_ns * rate / forecast.busy[node]).clamp(LEAST_BOUND, 1.0);
                let work_ns = latency_ns * (1.0 / bound - 1.0);
                (work_ns, rate * (latency_ns + work_ns))
            };
            Class {
                from: costs.nodes()[node].id,
                lines,
                work_ns,
                to: forecast.shares(&now, node),
                most_rate: f64::INFINITY,
            }
        };
        let classes: Vec<Class> = forecast.nodes.iter().map(class).collect();
        let weights: Vec<f64> = forecast.nodes.iter().map(|&node| accesses[node]).collect();
        let fitted = || scale(&classes, &weights, latency_ns, &forecast.distances);
        let factor = if is_assumed { 1.0 } else { fitted()? };
        forecast.classes = scaled(&classes, factor);
        forecast.before = solve(&forecast.classes, &forecast.distances)?;
        Some(forecast)
    }

    /// What a placement of the segments would change; nothing if the model has no solution.
    pub fn effect(&self, choices: &[Choice]) -> Effect {
        self.effect_of(&self.traffic(choices))
    }

    /// What threads on other nodes would change: from one traffic to another, each in any unit. Nodes without any have that
    /// of the round.
    pub fn effect_between(&self, now: &Matrix, then: &Matrix) -> Effect {
        let whole = self.traffic(&vec![Choice::Leave; self.segments.len()]);
        let [now, then] = [now, then].map(|traffic| self.effect_of(&traffic.clone().or_of(&whole, traffic)));
        Effect { speedup: then.speedup / now.speedup, latency: then.latency / now.latency }
    }

    fn effect_of(&self, traffic: &Matrix) -> Effect {
        let placed = self.nodes.iter().zip(&self.classes);
        let classes: Vec<Class> =
            placed.map(|(&node, class)| Class { to: self.shares(traffic, node), ..class.clone() }).collect();
        let Some(after) = solve(&classes, &self.distances) else { return Effect::NONE };
        let (mut busy, mut time) = (0.0, 0.0);
        for ((&node, before), after) in self.nodes.iter().zip(&self.before).zip(&after) {
            busy += self.busy[node];
            time += self.busy[node] * before.rate / after.rate;
        }
        let effect = Effect { speedup: busy / time, latency: mean_ns(&after) / mean_ns(&self.before) };
        if effect.speedup.is_finite() && effect.latency.is_finite() { effect } else { Effect::NONE }
    }

    /// Accesses with segments placed.
    fn traffic(&self, choices: &[Choice]) -> Matrix {
        let mut traffic = self.fixed.clone();
        for (segment, choice) in self.segments.iter().zip(choices) {
            let uses = segment.uses.with_rows(&self.per_sample);
            match *choice {
                Choice::Leave => traffic.join(&uses, 1.0),
                Choice::Deal => traffic.spread(&uses.by_row(), &segment.dealt),
                Choice::Local(node) => {
                    let mut only = vec![0.0; segment.dealt.len()];
                    only[node] = 1.0;
                    traffic.spread(&uses.by_row(), &only);
                }
            }
        }
        traffic
    }

    fn shares(&self, traffic: &Matrix, from: usize) -> Vec<NodeShare> {
        let row = traffic.row(from);
        let all: f64 = row.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let share = |(accesses, node): (&f64, &crate::costs::NodeCosts)| {
            let part = accesses / all;
            (part > 0.0).then_some(NodeShare { to: node.id, part, bytes: part * LINE_BYTES })
        };
        row.iter().zip(self.costs.nodes()).filter_map(share).collect()
    }
}

/// What an access takes on average, ns.
fn mean_ns(served: &[Served]) -> f64 {
    let all: f64 = served.iter().map(|of| of.rate).sum();
    served.iter().map(|of| of.rate * of.latency_ns).sum::<f64>() / all
}

/// Bytes of a segment that a choice moves.
pub(crate) fn moved_bytes(segment: &Segment, choice: Choice) -> f64 {
    let all = segment.all_bytes();
    let stay: f64 = match choice {
        Choice::Leave => all,
        // Each page has its node by its address.
        Choice::Deal => segment.bytes.iter().zip(&segment.dealt).map(|(on, part)| on * part).sum(),
        Choice::Local(node) => segment.bytes[node],
    };
    all - stay
}
