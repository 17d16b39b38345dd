//! Latency over time, and times of memory saturation.

use crate::flow::Flow;
use crate::statistics::Share;
use machine::{Machine, NodeId};
use queueing::Distances;
use serde::Serialize;
use std::collections::BTreeMap;

/// Number of intervals that the time is divided into.
const PARTS: u64 = 64;
/// Standard errors by which a mean must exceed a threshold.
const Z: f64 = 1.96;
/// Fewest latencies whose mean can show saturation.
const FEWEST: u64 = 5;
/// Fewest samples of saturated memory in an interval to compare it with other nodes' memory: with fewer, another node may
/// have fewer than [`FEWEST`] by chance.
const FEWEST_COMPARED: u64 = 4 * FEWEST;
/// Part of the accesses to saturated memory from which on nodes are saturated at different times.
const AT_DIFFERENT_TIMES: f64 = 0.5;

/// Mean latency of one node's memory in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyPart {
    /// The node.
    pub node: NodeId,
    /// When the interval begins, ns.
    pub from_ns: u64,
    /// When it ends, ns.
    pub until_ns: u64,
    /// Number of observed latencies.
    pub samples: u64,
    /// Their mean, ns.
    pub latency_mean_ns: f64,
    /// Latency of the same accesses on an idle machine, ns; none if not in the machine's description.
    pub idle_ns: Option<f64>,
    /// Whether the mean exceeds, by 1.96 standard errors or more, the latency at four fifths of the bandwidth.
    pub saturated: bool,
    /// Whether the mean is below that latency by as much, or there are too few latencies to saturate the memory.
    #[serde(skip)]
    pub has_room: bool,
}

/// A time in which a node's memory was saturated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saturation {
    /// The node.
    pub node: NodeId,
    /// When it began, ns.
    pub from_ns: u64,
    /// When it ended, ns.
    pub until_ns: u64,
    /// Number of observed latencies.
    pub samples: u64,
    /// Their mean, ns.
    pub latency_mean_ns: f64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    samples: u64,
    ns: f64,
    squares: f64,
    idle_ns: f64,
    idle_known: u64,
}

impl Flow<'_> {
    /// Mean latency of each node's memory over time, in 64 equal intervals; those without accesses are omitted. Ordered
    /// by node, then time.
    pub fn latency_over_time(&self) -> Vec<LatencyPart> {
        let distances = Distances::new(self.profile().machine());
        let timed = || self.accesses().filter(|access| access.reaches_memory() && access.latency_ns.is_some());
        // Returns early if there are no latencies.
        let Some(first) = timed().next() else { return Vec::new() };
        let last = timed().next_back().unwrap_or(first);
        let (start, length) = (first.time_ns, ((last.time_ns - first.time_ns) / PARTS).max(1));
        let mut sums: BTreeMap<NodeId, [Sum; PARTS as usize]> = BTreeMap::new();
        for access in timed() {
            let (Some(from), Some(to), Some(ns)) = (access.from, access.to, access.latency_ns) else { continue };
            let part = ((access.time_ns - start) / length).min(PARTS - 1);
            let sum = &mut sums.entry(to).or_insert([Sum::default(); PARTS as usize])[part as usize];
            let ns = f64::from(ns);
            sum.samples += 1;
            sum.ns += ns;
            sum.squares += ns * ns;
            if let Some(idle_ns) = distances.idle_ns(from, to) {
                sum.idle_ns += idle_ns;
                sum.idle_known += 1;
            }
        }
        let factor = distances.saturated_factor();
        let part = |(node, part, sum): (NodeId, u64, &Sum)| {
            let n = sum.samples as f64;
            let mean = sum.ns / n;
            let error = ((sum.squares / n - mean * mean).max(0.0) / n).sqrt();
            let idle_ns = (sum.idle_known == sum.samples).then_some(sum.idle_ns / n);
            let from_ns = start + part * length;
            LatencyPart {
                node,
                from_ns,
                until_ns: if part == PARTS - 1 { last.time_ns } else { from_ns + length },
                samples: sum.samples,
                latency_mean_ns: mean,
                idle_ns,
                saturated: sum.samples >= FEWEST && idle_ns.is_some_and(|idle_ns| mean - Z * error > idle_ns * factor),
                has_room: sum.samples < FEWEST || idle_ns.is_some_and(|idle_ns| mean + Z * error < idle_ns * factor),
            }
        };
        let sums = sums.iter().flat_map(|(node, sums)| (0..).zip(sums).map(|(number, sum)| (*node, number, sum)));
        sums.filter(|(_, _, sum)| sum.samples > 0).map(part).collect()
    }
}

/// How many of the samples of saturated memory are of times at which the memory of another node was not. Means over all of
/// the time do not tell it: nodes that are saturated one after the other look busy alike.
pub(crate) fn saturated_alone(parts: &[LatencyPart], machine: &Machine) -> Share {
    let with_memory = machine.nodes.iter().filter(|node| node.memory_bytes > 0).count();
    let mut by_time: BTreeMap<u64, Vec<&LatencyPart>> = BTreeMap::new();
    for part in parts {
        by_time.entry(part.from_ns).or_default().push(part);
    }
    let mut share = Share { part: 0, of: 0, threshold: AT_DIFFERENT_TIMES };
    for nodes in by_time.into_values() {
        let is_compared = |part: &&&LatencyPart| part.saturated && part.samples >= FEWEST_COMPARED;
        let saturated: u64 = nodes.iter().filter(is_compared).map(|part| part.samples).sum();
        // Those without accesses have no part.
        let without_room = nodes.iter().filter(|part| !part.has_room).count();
        share.of += saturated;
        share.part += if without_room < with_memory { saturated } else { 0 };
    }
    share
}

/// Times in which a node's memory was saturated; adjacent intervals are merged.
pub fn saturations(parts: &[LatencyPart]) -> Vec<Saturation> {
    let mut found: Vec<Saturation> = Vec::new();
    for part in parts.iter().filter(|part| part.saturated) {
        match found.last_mut() {
            Some(last) if last.node == part.node && last.until_ns == part.from_ns => {
                let samples = last.samples + part.samples;
                let sum = last.latency_mean_ns * last.samples as f64 + part.latency_mean_ns * part.samples as f64;
                *last = Saturation { until_ns: part.until_ns, samples, latency_mean_ns: sum / samples as f64, ..*last };
            }
            _ => found.push(Saturation {
                node: part.node,
                from_ns: part.from_ns,
                until_ns: part.until_ns,
                samples: part.samples,
                latency_mean_ns: part.latency_mean_ns,
            }),
        }
    }
    found
}
