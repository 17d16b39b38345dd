//! Latency over time, and when memory was saturated.

use crate::distances::Distances;
use crate::flow::Flow;
use machine::NodeId;
use serde::Serialize;
use std::collections::BTreeMap;

/// Parts that the time is cut into.
const PARTS: u64 = 64;
/// Standard errors that a mean is surely above.
const Z: f64 = 1.96;
/// Fewer latencies have no mean worth telling saturation from.
const FEWEST: u64 = 5;

/// The mean latency of one node's memory in a part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyPart {
    /// The node.
    pub node: NodeId,
    /// When the part begins, ns.
    pub from_ns: u64,
    /// When it ends, ns.
    pub until_ns: u64,
    /// Latencies that were observed.
    pub samples: u64,
    /// Their mean, ns.
    pub latency_mean_ns: f64,
    /// What the same accesses would take while nothing is busy, ns; none where the description of the machine does not
    /// tell.
    pub idle_ns: Option<f64>,
    /// The mean is, by twice its standard error or more, above the latency at four fifths of the bandwidth.
    pub saturated: bool,
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
    /// Latencies that were observed.
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
    /// The mean latency of each node's memory over time, in 64 equal parts of it; parts without accesses are left out.
    /// By node, then time.
    pub fn latency_over_time(&self) -> Vec<LatencyPart> {
        let distances = Distances::of(self.profile().machine());
        let timed = || self.accesses().filter(|access| access.reaches_memory() && access.latency_ns.is_some());
        // Without latencies, one look is enough to know.
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
            }
        };
        let sums = sums.iter().flat_map(|(node, sums)| (0..).zip(sums).map(|(number, sum)| (*node, number, sum)));
        sums.filter(|(_, _, sum)| sum.samples > 0).map(part).collect()
    }
}

/// Times in which a node's memory was saturated: neighbouring parts are one.
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
