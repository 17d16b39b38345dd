//! The expected gain of another placement, from the machine's latencies and a queueing model.

use crate::flow::Flow;
use crate::ids::{ProcessId, ThreadId};
use crate::measurements::Measurements;
use crate::profile::{Access, Profile};
use crate::running::{Seen, running};
use crate::statistics::ratio;
use crate::view::View;
use machine::NodeId;
use queueing::{Class, Distances, LINE_BYTES, NodeShare, Served, scale, scaled, solve};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// Most intervals that the time is divided into; in each the objects are either in use or not.
const MOST_PARTS: u64 = 256;
/// Samples of the objects per interval, if evenly distributed.
const SAMPLES_A_PART: u64 = 8;
/// Most phases, and samples per phase if evenly distributed: behaviour within a phase is treated as uniform.
const MOST_PHASES: u64 = 16;
const SAMPLES_A_PHASE: u64 = 512;
/// Least memory-bound part of the time; smaller ones are rounded up.
const LEAST_BOUND: f64 = 1e-6;

/// The expected gain of another placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Speedup of the whole program, or within the time of the view: 1.37 is 37 % faster.
    pub speedup: f64,
    /// Speedup while the objects are in use.
    pub speedup_in_use: f64,
    /// Mean latency of all memory accesses while the objects are in use, as observed, ns.
    pub latency_before_ns: f64,
    /// The expected mean latency, ns.
    pub latency_after_ns: f64,
    /// The share of local accesses to memory while the objects are in use, 0 to 1.
    pub local_access_ratio_before: f64,
    /// The expected share, 0 to 1.
    pub local_access_ratio_after: f64,
    /// The part of the time in which the objects are in use, 0 to 1. Only this part changes.
    pub time_in_use: f64,
    /// The part of that time in which threads wait for memory, 0 to 1: as counted, or else estimated from latencies.
    pub memory_bound: f64,
}

/// Where the objects are placed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On the node of the accessing CPU.
    Local,
    /// Evenly on all nodes with memory.
    Interleaved,
    /// Each process runs on one node, with all its memory.
    ProcessesOnNodes(BTreeMap<ProcessId, NodeId>),
}

/// The placement, the nodes with memory, and the measurements before.
struct Placing<'a> {
    placement: &'a Placement,
    memory: &'a [NodeId],
    measured: &'a Measurements,
    /// How many CPUs have made accesses.
    cpus: usize,
    /// The part of the time that is waited for memory, of that waited for memory and other caches.
    memory_part: f64,
}

/// Accesses of one process's threads on one node.
#[derive(Clone, Default)]
struct Traffic {
    threads: HashSet<ThreadId>,
    samples: u64,
    /// By the memory's node: all accesses, and those to the objects.
    to: BTreeMap<NodeId, (f64, f64)>,
    accesses: f64,
    latencies_ns: f64,
}

/// An interval of time, as a program may do different things in sequence.
#[derive(Clone, Default)]
struct Phase {
    /// How long the objects were in use, ns.
    used_ns: f64,
    /// Summed by thread first, as there are many accesses but few threads.
    sums: FxHashMap<(ThreadId, NodeId, NodeId), Sum>,
}

/// Accesses by one thread from one node to one node: all, those to the objects, and their total latency.
#[derive(Clone, Copy, Default)]
struct Sum {
    seen: Option<Seen>,
    all: f64,
    placed: f64,
    latencies_ns: f64,
}

/// The expected effect on a phase.
struct PhaseGain {
    /// How long the objects were in use, ns.
    used_ns: f64,
    work: BTreeMap<(ProcessId, NodeId), Work>,
    accesses: f64,
    /// Mean latencies of these accesses.
    latency_ns: [f64; 2],
    local: [f64; 2],
    memory_bound: f64,
}

/// What a process's threads on a node do.
#[derive(Clone, Copy, Default)]
struct Work {
    threads: f64,
    samples: u64,
    accesses: f64,
    /// Sum of their latencies, as observed.
    latencies_ns: f64,
    /// Sum of their latencies and of the work beside them.
    total_ns: f64,
    /// How long a thread takes for its accesses and the work beside them, as observed and as expected after, relative to
    /// other threads of the process.
    busy: [f64; 2],
    /// The model's times of all accesses, before and after.
    before_ns: f64,
    after_ns: f64,
}

/// The gain of placing objects elsewhere: those of the flow, and any others for whose accesses `is_placed` holds. None
/// if latencies of the accesses or the machine are not known, or if the objects are not accessed.
pub(crate) fn gain(
    view: &View,
    flow: &Flow,
    distances: &Distances,
    is_placed: impl Fn(&Access) -> bool,
    placement: &Placement,
) -> Option<Gain> {
    let profile = view.profile();
    let (start, end) = view.span_ns()?;
    let (mean_ns, memory_part) = (view.tally().latency_mean_ns()?, view.tally().memory_part()?);
    let times = || flow.accesses().filter(Access::reaches_memory).map(|access| access.time_ns);
    let parts = (times().count() as u64 / SAMPLES_A_PART).clamp(1, MOST_PARTS);
    let length = ((end - start) / parts + 1).max(1);
    let part = |time_ns: u64| (time_ns.saturating_sub(start) / length).min(parts - 1);
    let mut used = vec![false; parts as usize];
    times().for_each(|time_ns| used[part(time_ns) as usize] = true);
    let in_use: Vec<u64> = (0..parts).filter(|part| used[*part as usize]).collect();
    let is_in_use = |access: &Access| access.reaches_memory() && used[part(access.time_ns) as usize];

    let samples = view.accesses().filter(is_in_use).count() as u64;
    let phases = (samples / SAMPLES_A_PHASE).clamp(1, MOST_PHASES).min(parts);
    let phase = |part: u64| (part * phases / parts) as usize;
    let mut found = vec![Phase::default(); phases as usize];
    for part in &in_use {
        found[phase(*part)].used_ns += length as f64;
    }
    for access in view.accesses().filter(is_in_use) {
        let (Some(from), Some(to)) = (access.from, access.to) else { continue };
        let weight = f64::from(access.weight);
        let sum = found[phase(part(access.time_ns))].sums.entry((access.thread, from, to)).or_default();
        let seen = Seen { samples: 1, first_ns: access.time_ns, last_ns: access.time_ns };
        sum.seen.get_or_insert(Seen { samples: 0, ..seen }).merge(seen);
        sum.all += weight;
        sum.placed += if is_placed(&access) { weight } else { 0.0 };
        sum.latencies_ns += weight * access.latency_ns.map_or(mean_ns, f64::from);
    }
    let memory = memory_nodes(distances);
    let mut gains = Vec::new();
    for (number, found) in (0..).zip(found).filter(|(_, found)| !found.sums.is_empty()) {
        let parts = || in_use.iter().filter(|part| phase(**part) == number);
        let (first, last) = (parts().next()?, parts().next_back()?);
        let measured = profile.measured(&(start + first * length..=start + (last + 1) * length));
        let cpus = view.groups().cpus.len();
        let placing = Placing { placement, memory: &memory, measured: &measured, cpus, memory_part };
        gains.push(found.gain(profile, distances, &placing)?);
    }
    if gains.is_empty() {
        return None;
    }
    let mut work: BTreeMap<ProcessId, BTreeMap<NodeId, Work>> = BTreeMap::new();
    let mut phases: BTreeMap<ProcessId, Vec<(f64, Vec<Work>)>> = BTreeMap::new();
    for gain in &gains {
        let mut of_phase: BTreeMap<ProcessId, Vec<Work>> = BTreeMap::new();
        for ((process, node), of_node) in &gain.work {
            work.entry(*process).or_default().entry(*node).or_default().add(of_node);
            of_phase.entry(*process).or_default().push(*of_node);
        }
        for (process, nodes) in of_phase {
            phases.entry(process).or_default().push((gain.used_ns, nodes));
        }
    }
    let (slower, threads): (Vec<f64>, Vec<f64>) = (work.into_values().zip(phases.into_values()))
        .map(|(nodes, phases)| (nodes.into_values().collect::<Vec<_>>(), shared_slowdown(&phases)))
        .map(|(nodes, shared)| (slowdown(&nodes, shared), nodes.iter().map(|work| work.threads).sum::<f64>()))
        .unzip();
    let time = weighted(slower.into_iter(), &threads);
    let accesses: Vec<f64> = gains.iter().map(|gain| gain.accesses).collect();
    let mean = |of: fn(&PhaseGain) -> f64| weighted(gains.iter().map(of), &accesses);
    let time_in_use = in_use.len() as f64 / parts as f64;
    Some(Gain {
        speedup: 1.0 / (1.0 - time_in_use + time_in_use * time),
        speedup_in_use: 1.0 / time,
        latency_before_ns: mean(|gain| gain.latency_ns[0]),
        latency_after_ns: mean(|gain| gain.latency_ns[1]),
        local_access_ratio_before: mean(|gain| gain.local[0]),
        local_access_ratio_after: mean(|gain| gain.local[1]),
        time_in_use,
        memory_bound: mean(|gain| gain.memory_bound),
    })
}

impl Work {
    fn add(&mut self, phase: &Self) {
        self.threads = self.threads.max(phase.threads);
        self.samples += phase.samples;
        self.accesses += phase.accesses;
        self.latencies_ns += phase.latencies_ns;
        self.total_ns += phase.total_ns;
        self.busy = [0, 1].map(|when| self.busy[when] + phase.busy[when]);
        self.before_ns += phase.before_ns;
        self.after_ns += phase.after_ns;
    }
}

/// The time after of a process over its time before, if its threads share the work of each phase as they get on: they take
/// their mean time. Of each phase its time, and the threads on each node.
fn shared_slowdown(phases: &[(f64, Vec<Work>)]) -> f64 {
    let of_phase = |nodes: &[Work]| {
        let threads: Vec<f64> = nodes.iter().map(|work| work.threads).collect();
        weighted(nodes.iter().map(|work| work.after_ns / work.before_ns), &threads)
    };
    let times: Vec<f64> = phases.iter().map(|(time_ns, _)| *time_ns).collect();
    weighted(phases.iter().map(|(_, nodes)| of_phase(nodes)), &times)
}

/// The time after of a process over its time before, from its threads on each node. The amount of work is fixed. Threads
/// that share it as they get on take `shared`. Where each thread has its part, they wait for the slowest: that is so as far
/// as threads take longer for their accesses where latency is higher, instead of accessing less.
fn slowdown(nodes: &[Work], shared: f64) -> f64 {
    let threads: Vec<f64> = nodes.iter().map(|work| work.threads).collect();
    let logarithms = |of: fn(&Work) -> f64| {
        let logarithms: Vec<f64> = nodes.iter().map(|work| of(work).ln()).collect();
        let mean = weighted(logarithms.iter().copied(), &threads);
        logarithms.into_iter().map(move |logarithm| logarithm - mean)
    };
    let busy = || logarithms(|work| work.busy[0]);
    let latency = || logarithms(|work| work.total_ns / work.accesses);
    let covariance = weighted(busy().zip(latency()).map(|(busy, latency)| busy * latency), &threads);
    let variance = weighted(latency().map(|latency| latency * latency), &threads);
    // Of random numbers of random latencies.
    let samples = nodes.iter().map(|work| work.samples).sum::<u64>() as f64 / nodes.len() as f64;
    let by_chance = 2.0 / samples;
    let sum = |of: fn(&Work) -> f64| nodes.iter().map(of).sum::<f64>();
    // Computing looks like waiting, and counts as shared.
    let memory_bound = sum(|work| work.latencies_ns) / sum(|work| work.total_ns);
    let fixed_parts = memory_bound * (covariance / (variance + by_chance)).clamp(0.0, 1.0);
    let most = |when: usize| nodes.iter().map(|work| work.busy[when]).fold(0.0, f64::max);
    let fixed = most(1) / most(0);
    fixed_parts * fixed + (1.0 - fixed_parts) * shared
}

impl Phase {
    fn gain(self, profile: &Profile, distances: &Distances, placing: &Placing) -> Option<PhaseGain> {
        let mut sums: Vec<_> = self.sums.into_iter().collect();
        sums.sort_by_key(|(key, _)| *key);
        let mut traffic: BTreeMap<(ProcessId, NodeId), Traffic> = BTreeMap::new();
        let mut seen: BTreeMap<ThreadId, Seen> = BTreeMap::new();
        for ((thread, from, to), sum) in sums {
            let process = profile.threads()[thread.index()].process;
            let traffic = traffic.entry((process, from)).or_default();
            traffic.threads.insert(thread);
            if let Some(of_sum) = sum.seen {
                traffic.samples += of_sum.samples;
                seen.entry(thread).and_modify(|seen| seen.merge(of_sum)).or_insert(of_sum);
            }
            let (all, placed) = traffic.to.entry(to).or_default();
            *all += sum.all;
            *placed += sum.placed;
            traffic.accesses += sum.all;
            traffic.latencies_ns += sum.latencies_ns;
        }
        let threads: Vec<f64> = traffic.values().map(|traffic| traffic.threads.len() as f64).collect();
        let accesses: Vec<f64> = traffic.values().map(|traffic| traffic.accesses).collect();
        let latency_ns = ratio(traffic.values().map(|traffic| traffic.latencies_ns).sum(), accesses.iter().sum())?;
        // Threads that wait for each other have no outstanding lines.
        let counted = placing.measured.running;
        let running = counted.unwrap_or_else(|| running(seen.into_values(), placing.cpus, self.used_ns));
        let time_ns = self.used_ns * (running / threads.iter().sum::<f64>()).min(1.0);
        // By Little's law: the average number of outstanding lines per thread. With one or more the thread always waits
        // for memory; with fewer it also computes. The computing time exceeds the time without waiting, as computation
        // overlaps accesses.
        let under_way = latency_ns * accesses.iter().sum::<f64>() / (threads.iter().sum::<f64>() * time_ns);
        let measured = placing.measured.memory_bound.unwrap_or(0.0) * placing.memory_part;
        let bound = under_way.max(measured).clamp(LEAST_BOUND, 1.0);
        let work_ns = latency_ns * (1.0 / bound - 1.0);
        let class = |((_, from), traffic): (&(_, NodeId), &Traffic)| traffic.class(*from, time_ns, work_ns, placing);
        let before: Vec<Class> = traffic.iter().map(class).collect();
        let placed = |(((process, _), traffic), class): ((&(ProcessId, NodeId), &Traffic), &Class)| {
            traffic.placed(class, *process, placing)
        };
        let after: Vec<Class> = traffic.iter().zip(&before).map(placed).collect();

        let scale = scale(&before, &accesses, latency_ns, distances)?;
        // If traffic was counted there is no more of it: other costs, such as page walks, grow everywhere.
        let scale = if placing.measured.bytes_per_access.is_empty() { scale } else { scale.min(1.0) };
        let served_before = solve(&scaled(&before, scale), distances)?;
        let served_after = solve(&scaled(&after, scale), distances)?;
        let local = |classes: &[Class]| weighted(classes.iter().map(Class::local_part), &accesses);
        let latency = |served: &[Served]| weighted(served.iter().map(|served| served.latency_ns), &accesses);
        let served = served_before.iter().zip(&served_after);
        let work = (traffic.iter().zip(served))
            .map(|((class, traffic), (before, after))| (*class, traffic.work(work_ns, [before.rate, after.rate])));
        let bound = before.iter().map(|class| 1.0 - class.work_ns / (class.work_ns + latency_ns));
        Some(PhaseGain {
            used_ns: self.used_ns,
            work: work.collect(),
            accesses: accesses.iter().sum(),
            latency_ns: [latency_ns, latency_ns * latency(&served_after) / latency(&served_before)],
            local: [local(&before), local(&after)],
            memory_bound: weighted(bound, &accesses),
        })
    }
}

impl Traffic {
    /// The class of threads with these accesses in this time, and this much work per line.
    fn class(&self, from: NodeId, time_ns: f64, work_ns: f64, placing: &Placing) -> Class {
        let latency_ns = self.latencies_ns / self.accesses;
        let lines = self.accesses / time_ns * (latency_ns + work_ns);
        let to = self.to.iter().map(|(&to, (all, _))| share(to, all / self.accesses, to, placing.measured)).collect();
        Class { from, lines, work_ns, to, most_rate: f64::INFINITY }
    }

    /// What the threads do if they do this much work per line, and get lines at these rates before and after.
    fn work(&self, work_ns: f64, rates: [f64; 2]) -> Work {
        let (samples, accesses, latencies_ns) = (self.samples, self.accesses, self.latencies_ns);
        let threads = self.threads.len() as f64;
        let [before_ns, after_ns] = rates.map(|rate| accesses / rate);
        let total_ns = latencies_ns + accesses * work_ns;
        let busy = total_ns / threads;
        let busy = [busy, busy * after_ns / before_ns];
        Work { threads, samples, accesses, latencies_ns, total_ns, busy, before_ns, after_ns }
    }

    /// The same threads with the same work after placing.
    fn placed(&self, class: &Class, process: ProcessId, placing: &Placing) -> Class {
        let &Placing { placement, memory, measured, .. } = placing;
        let from = match placement {
            Placement::ProcessesOnNodes(nodes) => nodes.get(&process).copied().unwrap_or(class.from),
            Placement::Local | Placement::Interleaved => class.from,
        };
        let mut to = Vec::new();
        for (&was, (all, placed)) in &self.to {
            to.push(share(was, (all - placed) / self.accesses, was, measured));
            let placed = placed / self.accesses;
            match placement {
                Placement::Local | Placement::ProcessesOnNodes(_) => to.push(share(from, placed, was, measured)),
                Placement::Interleaved => {
                    let part = placed / memory.len() as f64;
                    to.extend(memory.iter().map(|&node| share(node, part, was, measured)));
                }
            }
        }
        Class { from, to, ..class.clone() }
    }
}

/// Lines from a node, with write-backs as measured on the node that they came from before.
fn share(to: NodeId, part: f64, was: NodeId, measured: &Measurements) -> NodeShare {
    let bytes = measured.bytes_per_access.get(&was).map_or(LINE_BYTES, |bytes| bytes.max(LINE_BYTES));
    NodeShare { to, part, bytes: part * bytes }
}

/// Nodes that have memory, by the machine's description.
fn memory_nodes(distances: &Distances) -> Vec<NodeId> {
    distances.machine.nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect()
}

fn weighted(values: impl Iterator<Item = f64>, weights: &[f64]) -> f64 {
    values.zip(weights).map(|(value, weight)| value * weight).sum::<f64>() / weights.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads on each of two nodes, whose accesses take 179 and 216 ns, and then the same, without other work.
    fn slowdown_with(accesses: [f64; 2]) -> f64 {
        let nodes = [0, 1].map(|node| {
            let latencies_ns = accesses[node] * [179.0, 216.0][node];
            let (threads, slower) = (2.0, [1.10, 0.90][node]);
            let busy = [latencies_ns / threads, latencies_ns / threads * slower];
            let (samples, accesses, before_ns, after_ns) = (10_000, accesses[node], 1.0, slower);
            Work { threads, samples, accesses, latencies_ns, total_ns: latencies_ns, busy, before_ns, after_ns }
        });
        slowdown(&nodes, shared_slowdown(&[(1.0, nodes.to_vec())]))
    }

    #[test]
    fn threads_with_parts_of_their_own_wait_for_the_slowest() {
        // Half of the accesses each, although one has to wait longer for them: after, it is the other that takes longer.
        let fixed = slowdown_with([400e3, 400e3]);
        assert!((fixed - (179.0 * 1.10) / 216.0).abs() < 1e-2, "{fixed}");
        // As many as they get on with, and different parts.
        for other in [400e3 * 179.0 / 216.0, 100e3] {
            let shared = slowdown_with([400e3, other]);
            assert!((shared - 1.0).abs() < 1e-3, "{shared}");
        }
    }

    /// One thread on node 0 fills the memory that four on each node then use, at equal latencies. Those on node 1 get by
    /// with two thirds of the time: the second phase takes five sixths, and the first one as long as before.
    #[test]
    fn a_serial_beginning_does_not_look_like_slow_memory_and_is_not_faster() {
        let work = |threads: f64, each_ns: f64, slower: f64| {
            let total_ns = threads * each_ns;
            let busy = [each_ns, each_ns * slower];
            let (samples, before_ns, after_ns) = (10_000, total_ns, total_ns * slower);
            Work { threads, samples, accesses: total_ns, latencies_ns: total_ns, total_ns, busy, before_ns, after_ns }
        };
        let phases = [vec![work(1.0, 100e3, 1.0)], vec![work(4.0, 400e3, 1.0), work(4.0, 400e3, 2.0 / 3.0)]];
        let mut first = phases[0][0];
        first.add(&phases[1][0]);
        let shared = shared_slowdown(&[(100e3, phases[0].clone()), (400e3, phases[1].clone())]);
        let time = slowdown(&[first, phases[1][1]], shared);
        assert!((time - (100.0 + 400.0 * 5.0 / 6.0) / 500.0).abs() < 1e-2, "{time}");
    }
}
