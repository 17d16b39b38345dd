//! What another placement should gain: the machine's latencies, and queues, applied to it.

use crate::distances::Distances;
use crate::flow::Flow;
use crate::ids::{ProcessId, ThreadId};
use crate::profile::Access;
use crate::queueing::{Class, Served, solve};
use crate::tally::ratio;
use crate::view::View;
use machine::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// Parts of the time at most; in each the objects are in use or not.
const MOST_PARTS: u64 = 256;
/// Samples of the objects a part, if they came evenly.
const SAMPLES_A_PART: u64 = 8;
/// The traffic is taken to be at most so many times more or less than the samples stand for.
const MOST_SCALE: f64 = 100.0;
/// A latency that the model has within this of the observed one needs no scaling.
const CLOSE: f64 = 0.02;

/// What another placement should gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// How many times faster the program should be as a whole: 1.37 is 37 % faster.
    pub speedup: f64,
    /// How many times faster it should be while the objects are in use.
    pub speedup_in_use: f64,
    /// Mean latency of all accesses to memory while the objects are in use, as observed, ns.
    pub latency_before_ns: f64,
    /// What it should be, ns.
    pub latency_after_ns: f64,
    /// The share of local accesses to memory while the objects are in use, 0 to 1.
    pub local_access_ratio_before: f64,
    /// What it should be, 0 to 1.
    pub local_access_ratio_after: f64,
    /// The part of the time in which the objects are in use, 0 to 1: only there anything changes.
    pub time_in_use: f64,
    /// The part of that time in which threads wait for memory, 0 to 1, as far as latencies tell.
    pub memory_bound: f64,
}

/// Where the accesses to the objects go instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// To the node of whoever accesses.
    Local,
    /// To all nodes with memory alike.
    Interleaved,
    /// Each process runs on one node, and all its memory is there.
    ProcessesOnNodes(BTreeMap<ProcessId, NodeId>),
}

/// Accesses of one process's threads on one node.
#[derive(Clone, Default)]
struct Traffic {
    threads: HashSet<ThreadId>,
    /// By the memory's node: accesses, and those of the objects.
    to: BTreeMap<NodeId, (f64, f64)>,
    accesses: f64,
    latencies_ns: f64,
}

/// Accesses of one thread from one node to one node: all, those of the objects, and how long all took.
#[derive(Clone, Copy, Default)]
struct Sum {
    all: f64,
    placed: f64,
    latencies_ns: f64,
}

/// The gain of placing objects elsewhere: those of the flow, and any others for whose accesses `is_placed` holds. None
/// where no latencies of accesses or of the machine are known, or where the objects are not accessed.
pub(crate) fn gain(
    view: &View,
    flow: &Flow,
    distances: &Distances,
    is_placed: impl Fn(&Access) -> bool,
    placement: &Placement,
) -> Option<Gain> {
    let profile = view.profile();
    let (start, end) = profile.span_ns()?;
    let mean_ns = view.tally().latency_mean_ns()?;
    let times = || flow.accesses().filter(Access::reaches_memory).map(|access| access.time_ns);
    let parts = (times().count() as u64 / SAMPLES_A_PART).clamp(1, MOST_PARTS);
    let length = ((end - start) / parts + 1).max(1);
    let part = |time_ns: u64| ((time_ns - start) / length).min(parts - 1) as usize;
    let mut in_use = vec![false; parts as usize];
    for time_ns in times() {
        in_use[part(time_ns)] = true;
    }
    let used = in_use.iter().filter(|used| **used).count() as f64;
    let used_ns = used * length as f64;

    // By thread first: there are many accesses, and few threads.
    let mut sums: FxHashMap<(ThreadId, NodeId, NodeId), Sum> = FxHashMap::default();
    for access in view.accesses().filter(|access| access.reaches_memory() && in_use[part(access.time_ns)]) {
        let (Some(from), Some(to)) = (access.from, access.to) else { continue };
        let weight = f64::from(access.weight);
        let sum = sums.entry((access.thread, from, to)).or_default();
        sum.all += weight;
        sum.placed += if is_placed(&access) { weight } else { 0.0 };
        sum.latencies_ns += weight * access.latency_ns.map_or(mean_ns, f64::from);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(key, _)| *key);
    let mut traffic: BTreeMap<(ProcessId, NodeId), Traffic> = BTreeMap::new();
    for ((thread, from, to), sum) in sums {
        let process = profile.threads()[thread.index()].process;
        let traffic = traffic.entry((process, from)).or_default();
        traffic.threads.insert(thread);
        let (all, placed) = traffic.to.entry(to).or_default();
        *all += sum.all;
        *placed += sum.placed;
        traffic.accesses += sum.all;
        traffic.latencies_ns += sum.latencies_ns;
    }
    let before: Vec<Class> = traffic.iter().map(|((_, from), traffic)| traffic.class(*from, used_ns)).collect();
    let memory = memory_nodes(distances);
    let after: Vec<Class> = traffic
        .iter()
        .zip(&before)
        .map(|(((process, _), traffic), class)| traffic.placed(class, *process, placement, &memory))
        .collect();

    let observed_ns = ratio(
        traffic.values().map(|traffic| traffic.latencies_ns).sum(),
        traffic.values().map(|traffic| traffic.accesses).sum(),
    )?;
    let accesses: Vec<f64> = traffic.values().map(|traffic| traffic.accesses).collect();
    let scale = scale(&before, &accesses, observed_ns, distances)?;
    let served_before = solve(&scaled(&before, scale), distances)?;
    let served_after = solve(&scaled(&after, scale), distances)?;
    // The work stays the same, so each class takes as much longer as its lines come slower.
    let threads = || traffic.values().map(|traffic| traffic.threads.len() as f64);
    let slower = threads()
        .zip(served_before.iter().zip(&served_after))
        .map(|(threads, (before, after))| threads * before.rate / after.rate);
    let time = slower.sum::<f64>() / threads().sum::<f64>();
    let time_in_use = used / parts as f64;
    let local = |classes: &[Class]| weighted(classes.iter().map(Class::local_part), &accesses);
    let latency = |served: &[Served]| weighted(served.iter().map(|served| served.latency_ns), &accesses);
    let bound = before.iter().map(|class| 1.0 - class.work_ns / (class.work_ns + observed_ns));
    Some(Gain {
        speedup: 1.0 / (1.0 - time_in_use + time_in_use * time),
        speedup_in_use: 1.0 / time,
        latency_before_ns: observed_ns,
        latency_after_ns: observed_ns * latency(&served_after) / latency(&served_before),
        local_access_ratio_before: local(&before),
        local_access_ratio_after: local(&after),
        time_in_use,
        memory_bound: weighted(bound, &accesses),
    })
}

impl Traffic {
    /// The class of threads that does this in so long.
    fn class(&self, from: NodeId, time_ns: f64) -> Class {
        let latency_ns = self.latencies_ns / self.accesses;
        // By Little's law each thread has so many lines under way on average. With one or more it always waits for
        // memory; with less it works in between.
        let under_way = self.latencies_ns / (self.threads.len() as f64 * time_ns);
        let work_ns = latency_ns * (1.0 / under_way.min(1.0) - 1.0);
        let lines = self.accesses / time_ns * (latency_ns + work_ns);
        let to = self.to.iter().map(|(&to, (all, _))| (to, all / self.accesses)).collect();
        Class { from, lines, work_ns, to }
    }

    /// The same threads with the same work after placing.
    fn placed(&self, class: &Class, process: ProcessId, placement: &Placement, memory: &[NodeId]) -> Class {
        let mut to: BTreeMap<NodeId, f64> = BTreeMap::new();
        let mut from = class.from;
        for (&node, (all, placed)) in &self.to {
            *to.entry(node).or_default() += (all - placed) / self.accesses;
            let placed = placed / self.accesses;
            match placement {
                Placement::Local => *to.entry(class.from).or_default() += placed,
                Placement::Interleaved => {
                    for &node in memory {
                        *to.entry(node).or_default() += placed / memory.len() as f64;
                    }
                }
                Placement::ProcessesOnNodes(nodes) => {
                    from = nodes.get(&process).copied().unwrap_or(from);
                    *to.entry(from).or_default() += placed;
                }
            }
        }
        Class { from, to: to.into_iter().collect(), ..class.clone() }
    }
}

impl Class {
    fn local_part(&self) -> f64 {
        self.to.iter().filter(|(to, _)| *to == self.from).map(|(_, part)| part).sum()
    }
}

/// How much more traffic there is than the samples stand for. Latency tells: prefetches are not sampled, and a source
/// may not know how many accesses a sample stands for.
fn scale(classes: &[Class], accesses: &[f64], observed_ns: f64, distances: &Distances) -> Option<f64> {
    let modelled = |scale: f64| {
        let served = solve(&scaled(classes, scale), distances)?;
        Some(weighted(served.iter().map(|served| served.latency_ns), accesses))
    };
    if (modelled(1.0)? / observed_ns - 1.0).abs() < CLOSE {
        return Some(1.0);
    }
    let (mut low, mut high) = (1.0 / MOST_SCALE, MOST_SCALE);
    for _ in 0..24 {
        let middle = (low * high).sqrt();
        if modelled(middle)? < observed_ns { low = middle } else { high = middle }
    }
    Some(high)
}

fn scaled(classes: &[Class], scale: f64) -> Vec<Class> {
    classes.iter().map(|class| Class { lines: class.lines * scale, ..class.clone() }).collect()
}

/// Nodes that have memory, by the machine's description.
fn memory_nodes(distances: &Distances) -> Vec<NodeId> {
    distances.machine.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect()
}

fn weighted(values: impl Iterator<Item = f64>, weights: &[f64]) -> f64 {
    values.zip(weights).map(|(value, weight)| value * weight).sum::<f64>() / weights.iter().sum::<f64>()
}
