//! What a placement would change: the round's traffic through the machine's queues, with rates that follow latencies.

use super::Matrix;
use super::demand::{ASSUMED_LINES, Demand};
use super::segments::{Sampled, Segment};
use crate::costs::Costs;
use queueing::{Class, Distances, LINE_BYTES, NodeShare, Served, fit, scaled, solve};
use serde::{Deserialize, Serialize};

/// Least part of the time that threads wait for memory; smaller ones are rounded up.
const LEAST_BOUND: f64 = 1e-3;
/// How many times as much traffic there may be as was counted: write-backs and prefetches are not, as a rule. Accesses that
/// take longer than that explains take longer wherever memory is, as bursts and page walks make them; where they take
/// several times as long, there is more that was not counted.
const MOST_UNCOUNTED: f64 = 3.0;
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

/// A part of the round, in which memory of some nodes may be used more than in the whole.
struct Slice {
    /// How many times as many accesses go to each node's memory.
    factors: Vec<f64>,
    /// Accesses to memory that stays.
    fixed: Matrix,
    /// Accesses to each segment.
    segments: Vec<Matrix>,
}

/// A round's traffic, and the rates at which the machine serves it.
pub(crate) struct Forecast<'a> {
    distances: Distances<'a>,
    pub costs: &'a Costs,
    pub segments: Vec<Segment>,
    /// CPU time of each node's threads, over the round's length.
    busy: Vec<f64>,
    classes: Vec<Class>,
    /// The node index of each class.
    nodes: Vec<usize>,
    slices: Vec<Slice>,
    /// What an access takes besides, wherever its memory is.
    elsewhere_ns: f64,
    /// By part of the round.
    before: Vec<Vec<Served>>,
}

impl<'a> Forecast<'a> {
    /// `slices` as [`super::slices`] has them. None if the machine's latencies are not known.
    pub fn new(demand: Demand, sampled: Sampled, slices: Vec<Vec<f64>>, costs: &'a Costs) -> Option<Self> {
        let Demand { traffic, latency_ns, busy, length_ns, is_assumed } = demand;
        let accesses = traffic.by_row();
        let seen = sampled.all();
        let per_sample: Vec<f64> = accesses
            .iter()
            .zip(seen.by_row())
            .map(|(accesses, samples)| if samples > 0.0 { accesses / samples } else { 0.0 })
            .collect();
        let fixed = sampled.fixed.with_rows(&per_sample).or_of(&traffic, &seen);
        let slice = |factors: Vec<f64>| {
            let uses = |segment: &Segment| segment.uses.with_rows(&per_sample).with_columns(&factors);
            let segments = sampled.segments.iter().map(uses).collect();
            Slice { fixed: fixed.with_columns(&factors), segments, factors }
        };
        let slices = slices.into_iter().map(slice).collect();
        let mut forecast = Self {
            distances: costs.distances(),
            costs,
            segments: sampled.segments,
            busy,
            classes: Vec::new(),
            nodes: (0..costs.nodes().len()).filter(|&node| accesses[node] > 0.0).collect(),
            slices,
            elsewhere_ns: 0.0,
            before: Vec::new(),
        };
        let now = forecast.placed(&vec![Choice::Leave; forecast.segments.len()]);
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
            Class { from: costs.nodes()[node].id, lines, work_ns, to: Vec::new(), most_rate: f64::INFINITY }
        };
        let classes: Vec<Class> = forecast.nodes.iter().map(class).collect();
        let modelled = |factor: f64| {
            let slices = forecast.solved(&scaled(&classes, factor), &now)?;
            let mut all = Mean::default();
            for (class, &node) in forecast.nodes.iter().enumerate() {
                let mut of_class = Mean::default();
                for slice in &slices {
                    of_class.add(slice[class].rate, slice[class].latency_ns);
                }
                all.add(accesses[node], of_class.value());
            }
            Some(all.value())
        };
        let factor = if is_assumed { 1.0 } else { fit(latency_ns, modelled)? };
        let counted_ns = modelled(1.0)?;
        let most = MOST_UNCOUNTED * f64::max(latency_ns / counted_ns - 1.0, 1.0);
        let mut classes = scaled(&classes, factor.min(most));
        if factor > most {
            forecast.elsewhere_ns = latency_ns - counted_ns;
            for class in &mut classes {
                class.work_ns += forecast.elsewhere_ns;
            }
        }
        forecast.before = forecast.solved(&classes, &now)?;
        forecast.classes = classes;
        Some(forecast)
    }

    /// What a placement of the segments would change; nothing if the model has no solution.
    pub fn effect(&self, choices: &[Choice]) -> Effect {
        self.effect_of(&self.placed(choices))
    }

    /// What threads on other nodes would change: from one traffic to another, each in any unit. Nodes without any have that
    /// of the round.
    pub fn effect_between(&self, now: &Matrix, then: &Matrix) -> Effect {
        let whole = self.placed(&vec![Choice::Leave; self.segments.len()]);
        let [now, then] = [now, then].map(|traffic| {
            let of_slice =
                |(slice, whole): (&Slice, &Matrix)| traffic.with_columns(&slice.factors).or_of(whole, traffic);
            self.effect_of(&self.slices.iter().zip(&whole).map(of_slice).collect::<Vec<_>>())
        });
        Effect { speedup: then.speedup / now.speedup, latency: then.latency / now.latency }
    }

    /// What traffic in each part of the round would change: the same accesses take longer, or less long.
    fn effect_of(&self, slices: &[Matrix]) -> Effect {
        let Some(after) = self.solved(&self.classes, slices) else { return Effect::NONE };
        let (mut busy, mut time) = (0.0, 0.0);
        let [mut latency_before, mut latency_after] = [Mean::default(); 2];
        for (before, after) in self.before.iter().zip(&after) {
            for ((&node, before), after) in self.nodes.iter().zip(before).zip(after) {
                busy += self.busy[node];
                time += self.busy[node] * before.rate / after.rate;
                latency_before.add(before.rate, before.latency_ns + self.elsewhere_ns);
                latency_after.add(before.rate, after.latency_ns + self.elsewhere_ns);
            }
        }
        let effect = Effect { speedup: busy / time, latency: latency_after.value() / latency_before.value() };
        if effect.speedup.is_finite() && effect.latency.is_finite() { effect } else { Effect::NONE }
    }

    /// What classes of threads get in each part of the round.
    fn solved(&self, classes: &[Class], slices: &[Matrix]) -> Option<Vec<Vec<Served>>> {
        let slice = |traffic: &Matrix| {
            let shared = |(&node, class): (&usize, &Class)| Class { to: self.shares(traffic, node), ..class.clone() };
            let classes: Vec<Class> = self.nodes.iter().zip(classes).map(shared).collect();
            solve(&classes, &self.distances)
        };
        slices.iter().map(slice).collect()
    }

    /// Accesses in each part of the round, with segments placed.
    fn placed(&self, choices: &[Choice]) -> Vec<Matrix> {
        self.slices.iter().map(|slice| self.traffic(slice, choices)).collect()
    }

    fn traffic(&self, slice: &Slice, choices: &[Choice]) -> Matrix {
        let mut traffic = slice.fixed.clone();
        for ((segment, uses), choice) in self.segments.iter().zip(&slice.segments).zip(choices) {
            match *choice {
                Choice::Leave => traffic.join(uses, 1.0),
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

/// A mean of weighted values.
#[derive(Clone, Copy, Default)]
struct Mean {
    weights: f64,
    sum: f64,
}

impl Mean {
    fn add(&mut self, weight: f64, value: f64) {
        self.weights += weight;
        self.sum += weight * value;
    }

    fn value(self) -> f64 {
        self.sum / self.weights
    }
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
