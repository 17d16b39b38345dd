//! Whether NUMA is the problem: does the program depend on memory, is its memory remote, and is memory contended?

use crate::gain::{Gain, Placement, gain};
use crate::ids::ThreadId;
use crate::latency::saturated_alone;
use crate::measurements::Measurements;
use crate::object::ObjectKind;
use crate::pattern::Pattern;
use crate::statistics::ratio;
use crate::statistics::{FEWEST, wilson};
use crate::tally::Tally;
use crate::verdict_text::{not_sure, text};
use crate::view::View;
use machine::{Machine, NodeId};
use queueing::{Distances, LINE_BYTES, NEARLY_FULL};
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread;

/// Memory accesses per instruction from which on there are many.
const MANY_ACCESSES: f64 = 0.005;
/// Least part of the time waiting for memory that matters.
const MEMORY_BOUND: f64 = 0.05;
/// Share of local accesses below which moving is worthwhile.
const MOST_LOCAL: f64 = 0.9;
/// Imbalance of controllers from which on a single one is the problem, not all.
const IMBALANCED: f64 = 0.35;
/// Least speedup that is worth acting on.
pub(crate) const WORTH_IT: f64 = 1.05;
/// Most of the time that an upper bound of a gain saves.
const MOST_SAVED: f64 = 0.99;
const Z_95: f64 = 1.96;
/// The verdict on accesses that were selected by their outcome.
const SELECTED: &str = "NUMA cannot be judged by these accesses: the filter selects them by where they go or how they are \
                        served; omit it for a verdict";
/// The verdict on a machine where nothing can be placed elsewhere.
const ONE_NODE: &str = "NUMA cannot be the problem: all CPUs and all memory of this machine are on one node";
/// The verdict on a trace without samples.
const UNOBSERVED: &str = "0 samples reached memory: too few to tell; where this machine samples no accesses, `nearside \
                          lab record` records the program on a simulated one";

/// The metric of nodes that are saturated at different times.
pub(crate) const SATURATED_ALONE: &str = "saturated_alone";
/// Part of the accesses from which on they are mostly to lines of other cores' caches.
pub(crate) const MOSTLY_FROM_CORES: f64 = 0.5;

/// The problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// Too few samples, or samples that were selected by their outcome.
    Unknown,
    /// Not NUMA: the program hardly waits for memory.
    NotMemoryBound,
    /// Not NUMA: accesses are local, and no controller or link is nearly saturated.
    None,
    /// Not NUMA: all controllers are equally busy at the same time, with local accesses. The program needs more bandwidth or fewer
    /// accesses.
    Bandwidth,
    /// NUMA: a controller or a link is nearly saturated while others are not.
    Contention,
    /// NUMA: much of the memory is remote.
    Distance,
    /// Not NUMA: accesses that leave a core's caches mostly take lines from other cores, wherever memory is.
    SharedLines,
}

/// A number that the verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its node or link, such as `0` or `0-3`; the worst of all.
    pub of: Option<String>,
    /// The value; none if not known.
    pub value: Option<f64>,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// The threshold, in the same unit.
    pub threshold: f64,
    /// Whether the value is on the bad side of the threshold.
    pub is_bad: bool,
    /// Whether it is from counters; otherwise it is estimated from samples.
    pub counted: bool,
    /// What it means.
    pub meaning: &'static str,
}

/// Whether NUMA is the problem, with the numbers behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The problem.
    pub problem: Problem,
    /// Whether placing memory or threads elsewhere can help.
    pub is_numa_problem: bool,
    /// What placing all memory ideally would gain; none without a NUMA problem, or if latencies are not known.
    pub potential: Option<Potential>,
    /// As text.
    pub text: String,
    /// The metrics, in order of evaluation.
    pub metrics: Vec<Metric>,
    /// Samples that reached memory.
    pub samples: u64,
    /// 95 % confidence interval of the local access ratio, assuming independent samples.
    pub local_access_ratio_interval: (f64, f64),
    /// The share of accesses that are not to a known object, 0 to 1.
    pub unknown_share: f64,
}

/// What can be gained at most: by memory that is on the node of each access, or spread evenly over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Potential {
    /// Which of the two gains more.
    pub placement: IdealPlacement,
    /// Speedup of the whole program.
    pub speedup: f64,
    /// Its 95 % confidence interval, where latencies vary by as much as their mean.
    pub speedup_interval: (f64, f64),
}

/// A placement of all memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdealPlacement {
    /// On the node of each access.
    Local,
    /// Spread evenly over all nodes.
    Interleaved,
}

impl Potential {
    /// For a gain that is predicted from `samples` latencies.
    fn new(placement: IdealPlacement, gain: &Gain, samples: u64) -> Self {
        let (speedup, waiting) = (gain.speedup, gain.time_in_use * gain.memory_bound);
        let saved = 1.0 - 1.0 / speedup;
        let error = Z_95 * waiting / (samples.max(1) as f64).sqrt();
        let speedup_of = |saved: f64| 1.0 / (1.0 - saved.clamp(0.0, MOST_SAVED));
        Self { placement, speedup, speedup_interval: (speedup_of(saved - error), speedup_of(saved + error)) }
    }

    /// Whether it is worth acting on, even if it is at its lower bound.
    pub(super) fn is_worth_it(&self) -> bool {
        self.speedup_interval.0 >= WORTH_IT
    }
}

impl View<'_> {
    /// The verdict on this view; for the whole program, on all its accesses.
    pub fn verdict(&self, measured: &Measurements) -> Verdict {
        let distances = Distances::new(self.profile().machine());
        let pattern = Pattern::of_all(self, &distances);
        let mut metrics = vec![
            self.accesses_per_instruction(measured),
            self.memory_bound(measured),
            self.local_access_ratio(),
            worst_latency(&pattern, &distances),
            self.controller_load(measured),
            self.link_load(measured, &distances),
            self.imbalance(measured),
        ];
        // Where loads are balanced over all of the time, nodes may be saturated one after the other all the same.
        if contended(&metrics) && !is_unbalanced(&metrics) {
            metrics.extend(self.saturated_alone());
        }
        let samples = self.tally().local_samples + self.tally().remote_samples;
        let from_cores = self.part_from_cores();
        let leaving = samples + self.tally().peer_samples;
        let problem =
            if self.selects_outcomes() { Problem::Unknown } else { problem(&metrics, [samples, leaving], from_cores) };
        let is_placed = matches!(problem, Problem::Contention | Problem::Distance | Problem::Bandwidth | Problem::None);
        let is_on_one_node = is_placed && has_one_node(self.profile().machine());
        let is_numa = matches!(problem, Problem::Contention | Problem::Distance) && !is_on_one_node;
        let potential = if is_numa { self.potential(&distances, pattern.remote.1) } else { None };
        let objects = self.profile().objects().iter().zip(&self.groups().objects);
        let unknown = objects.filter(|(object, _)| object.kind == ObjectKind::Unknown);
        let unknown: f64 = unknown.map(|(_, tally)| tally.accesses).sum();
        let local = self.local_access_ratio_interval();
        Verdict {
            problem,
            is_numa_problem: is_numa && potential.is_none_or(|potential| potential.is_worth_it()),
            text: match problem {
                _ if is_on_one_node => ONE_NODE.to_owned(),
                Problem::Unknown if self.selects_outcomes() => SELECTED.to_owned(),
                Problem::Unknown if self.profile().is_empty() => UNOBSERVED.to_owned(),
                Problem::Unknown if leaving == 0 && self.tally().samples > 0 => format!(
                    "none of the {} samples is known to have reached memory: record with `nearside record`, or `perf \
                     mem record`",
                    self.tally().samples
                ),
                _ => {
                    text(problem, &metrics, (samples, from_cores), potential.as_ref())
                        + &not_sure(problem, &metrics, local)
                }
            },
            potential,
            metrics,
            samples,
            local_access_ratio_interval: local,
            unknown_share: ratio(unknown, self.tally().accesses).unwrap_or(0.0),
        }
    }

    /// The part of the accesses that leave a core's caches which take a line from another core's.
    fn part_from_cores(&self) -> f64 {
        ratio(self.tally().peer_accesses, self.tally().leaving_accesses()).unwrap_or(0.0)
    }

    fn potential(&self, distances: &Distances, samples: u64) -> Option<Potential> {
        let flow = self.flow();
        let placed = |placement, distances: &Distances| gain(self, &flow, distances, |_| true, &placement);
        let (local, interleaved) = thread::scope(|scope| {
            // Distances keep what they have computed, for one thread.
            let local = scope.spawn(|| placed(Placement::Local, &Distances::new(self.profile().machine())));
            let interleaved = placed(Placement::Interleaved, distances);
            (local.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), interleaved)
        });
        let gains = [(IdealPlacement::Interleaved, interleaved), (IdealPlacement::Local, local)];
        let gains = gains.into_iter().filter_map(|(placement, gain)| Some((placement, gain?)));
        let (placement, gain) = gains.max_by(|(_, a), (_, b)| a.speedup.total_cmp(&b.speedup))?;
        Some(Potential::new(placement, &gain, samples))
    }

    fn accesses_per_instruction(&self, measured: &Measurements) -> Metric {
        let sampled = self.tally().local_accesses + self.tally().remote_accesses;
        let accesses = measured.memory_accesses.unwrap_or(sampled);
        let value = measured.instructions.and_then(|instructions| ratio(accesses, instructions));
        Metric {
            name: "accesses_per_instruction",
            of: None,
            value,
            unit: "",
            threshold: MANY_ACCESSES,
            is_bad: value.is_some_and(|value| value > MANY_ACCESSES),
            counted: measured.memory_accesses.is_some() && value.is_some(),
            meaning: "accesses that reach memory, an instruction",
        }
    }

    /// The part of their time in which threads wait for memory: as counted, or else from the latencies of the accesses
    /// that samples stand for, which may overlap.
    fn memory_bound(&self, measured: &Measurements) -> Metric {
        let value = measured.memory_bound.or_else(|| self.memory_bound_by_latencies());
        Metric {
            name: "memory_bound",
            of: None,
            value,
            unit: "",
            threshold: MEMORY_BOUND,
            is_bad: value.is_some_and(|value| value >= MEMORY_BOUND),
            counted: measured.memory_bound.is_some(),
            meaning: "part of the time in which threads wait for memory",
        }
    }

    fn memory_bound_by_latencies(&self) -> Option<f64> {
        let (mut waits, mut all) = (0.0, 0.0);
        let mut of_thread: BTreeMap<ThreadId, Tally> = BTreeMap::new();
        for ((thread, _, _), cell) in self.groups().cells.in_order(self.profile()) {
            of_thread.entry(thread).or_default().merge(&cell.tally);
        }
        for (thread, tally) in of_thread {
            let (first, last) = self.groups().times[thread.index()];
            let time = last.saturating_sub(first) as f64;
            waits += tally.cost(self.tally()).min(time);
            all += time;
        }
        // Threads that wait for a CPU, or for each other, do not wait for memory.
        let (first, last) = self.span_ns()?;
        let most = (self.groups().cpus.len() as u64).saturating_mul(last.saturating_sub(first)) as f64;
        let all = all.min(most);
        ratio(waits.min(all), all).filter(|_| self.tally().wait_mean_ns().is_some())
    }

    fn local_access_ratio(&self) -> Metric {
        let value = self.tally().local_access_ratio();
        Metric {
            name: "local_access_ratio",
            of: None,
            value,
            unit: "",
            threshold: MOST_LOCAL,
            is_bad: value.is_some_and(|value| value < MOST_LOCAL),
            counted: false,
            meaning: "accesses to memory of the CPU's own node, of all that reach memory",
        }
    }

    /// The interval of the share of accesses that [`local_access_ratio`](Self::local_access_ratio) reports.
    fn local_access_ratio_interval(&self) -> (f64, f64) {
        let samples = self.tally().effective_samples();
        let ratio = self.tally().local_access_ratio().unwrap_or(0.0);
        wilson((ratio * samples as f64).round() as u64, samples, Z_95)
    }

    fn controller_load(&self, measured: &Measurements) -> Metric {
        let machine = self.profile().machine();
        let mut loads = measured.controllers.clone();
        if loads.is_empty() && self.profile().counts_accesses() {
            let carried = self.memory_bytes_per_s();
            let load = |(node, bytes): (NodeId, f64)| Some((node, bytes / machine.node(node)?.bandwidth_bytes_per_s?));
            loads = carried.into_iter().filter_map(load).collect();
        }
        let of = |node: NodeId| node.to_string();
        load_metric(
            "controller_load",
            loads,
            of,
            !measured.controllers.is_empty(),
            "part of its bandwidth that the busiest controller carries",
        )
    }

    fn link_load(&self, measured: &Measurements, distances: &Distances) -> Metric {
        let mut loads = measured.links.clone();
        let links = &distances.machine.links;
        let is_estimated = loads.is_empty() && self.profile().counts_accesses();
        if let Some(routes) = distances.routes.as_ref().filter(|_| is_estimated) {
            let links_between =
                |from, to| routes.hops(from, to).unwrap_or_default().iter().map(|hop| hop.directed_link()).collect();
            for (directed, bytes) in self.bytes_per_s(links_between, Tally::leaving_accesses) {
                let Some(link) = links.get(directed / 2) else { continue };
                let [one, other] = link.nodes;
                let ends = if directed % 2 == 0 { (one, other) } else { (other, one) };
                loads.insert(ends, bytes / link.bandwidth_bytes_per_s);
            }
        }
        let of = |(from, to): (NodeId, NodeId)| format!("{from}-{to}");
        load_metric(
            "link_load",
            loads,
            of,
            !measured.links.is_empty(),
            "part of its bandwidth that the busiest direction of a link carries",
        )
    }

    fn imbalance(&self, measured: &Measurements) -> Metric {
        let machine = self.profile().machine();
        let counted = !measured.controllers.is_empty();
        let sampled = if counted { measured.controllers.clone() } else { self.memory_bytes_per_s() };
        let nodes = machine.nodes.iter().filter(|node| node.memory_bytes > 0);
        let value = machine::imbalance(nodes.map(|node| sampled.get(&node.id).copied().unwrap_or(0.0)));
        Metric {
            name: "imbalance",
            of: None,
            value,
            unit: "",
            threshold: IMBALANCED,
            is_bad: value.is_some_and(|value| value > IMBALANCED),
            counted,
            meaning: "standard deviation of the controllers' loads over their mean",
        }
    }

    /// Whether nodes are saturated at different times. None if there are too few accesses to saturated memory to tell.
    fn saturated_alone(&self) -> Option<Metric> {
        let alone = saturated_alone(&self.flow().latency_over_time(), self.profile().machine());
        (alone.of >= FEWEST).then(|| Metric {
            name: SATURATED_ALONE,
            of: None,
            value: Some(alone.value()),
            unit: "",
            threshold: alone.threshold,
            is_bad: alone.is_reached(),
            counted: false,
            meaning: "accesses to saturated memory while that of another node is not",
        })
    }

    /// Bandwidth of each node's memory, bytes/s. Lines from another core's cache do not come from there.
    fn memory_bytes_per_s(&self) -> BTreeMap<NodeId, f64> {
        self.bytes_per_s(|_, to| vec![to], |tally| tally.local_accesses + tally.remote_accesses)
    }

    /// Bandwidth of the accesses that the samples stand for, as far as they count, on each resource that they use, bytes/s.
    fn bytes_per_s<T: Ord>(
        &self,
        uses: impl Fn(NodeId, NodeId) -> Vec<T>,
        counts: impl Fn(&Tally) -> f64,
    ) -> BTreeMap<T, f64> {
        let seconds = self.time_ns().map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
        let mut found = BTreeMap::new();
        for ((from, to), tally) in self.pairs() {
            for resource in uses(from, to) {
                *found.entry(resource).or_default() += ratio(counts(&tally) * LINE_BYTES, seconds).unwrap_or(0.0);
            }
        }
        found
    }
}

/// Whether all CPUs and all memory are on one node, as far as the description goes.
fn has_one_node(machine: &Machine) -> bool {
    let count = |is: fn(&machine::Node) -> bool| machine.nodes.iter().filter(|node| is(node)).count();
    [count(|node| !node.cpus.is_empty()), count(|node| node.memory_bytes > 0)] == [1, 1]
}

fn load_metric<T>(
    name: &'static str,
    loads: BTreeMap<T, f64>,
    of: impl Fn(T) -> String,
    counted: bool,
    meaning: &'static str,
) -> Metric {
    let worst = loads.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    let value = worst.as_ref().map(|(_, load)| *load);
    Metric {
        name,
        of: worst.map(|(resource, _)| of(resource)),
        value,
        unit: "",
        threshold: NEARLY_FULL,
        is_bad: value.is_some_and(|value| value >= NEARLY_FULL),
        counted,
        meaning,
    }
}

fn worst_latency(pattern: &Pattern, distances: &Distances) -> Metric {
    let factor = |(node, home): (&NodeId, &crate::pattern::Home)| {
        let (latency_ns, idle_ns) = home.latency_ns()?;
        Some((*node, latency_ns / idle_ns, home.is_slower(distances.saturated_factor(), Z_95)))
    };
    let worst = pattern
        .homes
        .iter()
        .filter_map(factor)
        .max_by(|(_, a, sure), (_, b, also)| sure.cmp(also).then(a.total_cmp(b)));
    Metric {
        name: "latency_over_idle",
        of: worst.map(|(node, _, _)| node.to_string()),
        value: worst.map(|(_, factor, _)| factor),
        unit: "",
        threshold: distances.saturated_factor(),
        is_bad: worst.is_some_and(|(_, _, sure)| sure),
        counted: false,
        meaning: "mean latency of the slowest node's memory over that of an idle machine",
    }
}

/// `samples` are those that reached memory, and `leaving` also those that other cores' caches served.
fn problem(metrics: &[Metric], [samples, leaving]: [u64; 2], from_cores: f64) -> Problem {
    let metric = |name: &str| metrics.iter().find(|metric| metric.name == name);
    let is_bad = |name: &str| metric(name).is_some_and(|metric| metric.is_bad);
    // Accesses an instruction are of memory only.
    let waits_for_cores = || metric("memory_bound").is_none_or(|bound| bound.value.is_none() || bound.is_bad);
    if leaving < FEWEST {
        Problem::Unknown
    } else if from_cores >= MOSTLY_FROM_CORES && waits_for_cores() {
        Problem::SharedLines
    } else if samples < FEWEST {
        Problem::Unknown
    } else if !waits(metrics) {
        Problem::NotMemoryBound
    } else if contended(metrics) && (is_unbalanced(metrics) || is_bad(SATURATED_ALONE)) {
        Problem::Contention
    } else if is_bad("local_access_ratio") {
        Problem::Distance
    } else if contended(metrics) {
        Problem::Bandwidth
    } else {
        Problem::None
    }
}

/// Whether memory or a link is nearly saturated.
fn contended(metrics: &[Metric]) -> bool {
    let contended = ["latency_over_idle", "controller_load", "link_load"];
    metrics.iter().any(|metric| metric.is_bad && contended.contains(&metric.name))
}

/// Whether one node's memory, or a link, has more to carry than the others.
fn is_unbalanced(metrics: &[Metric]) -> bool {
    metrics.iter().any(|metric| metric.is_bad && ["imbalance", "link_load"].contains(&metric.name))
}

/// Whether the program waits for memory, by the counted time, or else by accesses per instruction as in the study, or
/// else by latencies. True if nothing is known.
fn waits(metrics: &[Metric]) -> bool {
    let known = |name: &str| metrics.iter().find(|metric| metric.name == name && metric.value.is_some());
    let waiting = known("memory_bound");
    let decides = waiting.filter(|metric| metric.counted).or(known("accesses_per_instruction")).or(waiting);
    decides.is_none_or(|metric| metric.is_bad)
}
