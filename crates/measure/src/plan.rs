//! The measurement steps, their memory, and their expected duration: all decided before anything is measured.

use crate::error::MeasureError;
use crate::host::{Host, Usable};
use crate::missing::Missing;
use machine::number::counted;
use machine::{HUGE_PAGE, NodeId, size};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use strum::VariantArray;

/// Divisor of a node's free memory: half of it is left to other programs.
const FREE_SHARE: u64 = 2;
/// Minimum ratio of an array to the caches of a node, so that at most a quarter of a pass can be cached.
const TIMES_CACHES: u64 = 4;
const LEAST_SIZE: u64 = 64 << 20;
const MOST_SIZE: u64 = 2 << 30;
/// Smaller arrays no longer measure memory.
const SMALLEST_SIZE: u64 = 4 << 20;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Idle latency of every pair of nodes.
    Latency,
    /// Bandwidth of every pair of nodes, and of the whole machine.
    Bandwidth,
    /// Latency of each controller's memory while other cores load it.
    Loaded,
    /// Latency by working set: sizes and latencies of the caches.
    Caches,
    /// Latency of lines in another core's cache.
    CacheToCache,
    /// How cores of a node share the path to another node.
    Links,
}

impl Part {
    /// All parts, in the order in which they are measured.
    pub const ALL: [Self; 6] =
        [Self::Latency, Self::Bandwidth, Self::Loaded, Self::CacheToCache, Self::Links, Self::Caches];
}

/// The access pattern of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Access {
    /// Loads only.
    Read,
    /// Stores only.
    Write,
    /// One load per store; both count.
    Copy,
}

/// The number of streaming cores of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// One.
    One,
    /// All.
    All,
}

/// What the other core did to a line before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It has read it.
    Clean,
    /// It has written it.
    Modified,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A chase by one CPU of `from` in memory of `to`.
    Latency {
        /// The accessing node.
        from: NodeId,
        /// The memory's node.
        to: NodeId,
    },
    /// Streams by cores of `from` in memory of `to`.
    Bandwidth {
        /// The accessing node.
        from: NodeId,
        /// The memory's node.
        to: NodeId,
        /// The access pattern.
        access: Access,
        /// The number of cores.
        cores: Cores,
    },
    /// Streams by every core in its own node's memory.
    Machine {
        /// The access pattern.
        access: Access,
    },
    /// A chase and paced streams in memory of `to`, by cores of `from`, the nearest node with CPUs.
    Loaded {
        /// The accessing node.
        from: NodeId,
        /// The memory's node.
        to: NodeId,
    },
    /// A chase by a core of `reader` over lines in the cache of a core of `owner`.
    Transfer {
        /// The node of the reading core.
        reader: NodeId,
        /// The node of the core with the lines, and of their memory.
        owner: NodeId,
        /// What that core did to them.
        state: CopyState,
    },
    /// Streams by this many cores of `from` that read memory of `to`.
    Link {
        /// The accessing node.
        from: NodeId,
        /// The memory's node.
        to: NodeId,
        /// The number of cores.
        cores: usize,
    },
    /// Chases over growing working sets by one CPU of a node in its own memory.
    Caches {
        /// The node.
        node: NodeId,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency { from, to } => write!(f, "latency from node {from} to memory of {to}"),
            Self::Bandwidth { from, to, access, cores } => {
                let cores = if *cores == Cores::One { "one core" } else { "all cores" };
                write!(f, "{access} bandwidth of {cores} of node {from} in memory of {to}")
            }
            Self::Machine { access } => write!(f, "{access} bandwidth of the whole machine"),
            Self::Loaded { from, to } => write!(f, "latency under load of memory of node {to}, from node {from}"),
            Self::Transfer { reader, owner, state } => {
                let state = if *state == CopyState::Clean { "clean" } else { "modified" };
                write!(f, "{state} lines from a cache of node {owner} to a core of {reader}")
            }
            Self::Link { from, to, cores } => {
                write!(f, "read bandwidth of {} of node {from} in memory of {to}", counted(*cores, "core"))
            }
            Self::Caches { node } => write!(f, "caches of node {node}"),
        }
    }
}

/// The requested measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Fewer and shorter measurements.
    pub quick: bool,
    /// The parts to measure.
    pub parts: BTreeSet<Part>,
    /// Measurements per number; more are added if they spread.
    pub repeats: Option<usize>,
    /// Bytes per array; each node has at most one for latency and one for bandwidth.
    pub size_bytes: Option<u64>,
    /// The largest spread at which a number is reported.
    pub max_spread: f64,
    /// Whether to request huge pages, or none.
    pub huge_pages: bool,
}

/// The arrays of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrays {
    pub node: NodeId,
    /// Bytes per array.
    pub bytes: usize,
}

/// The whole plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Measurements per number.
    pub repeats: usize,
    /// Bytes of each array on most nodes.
    pub size_bytes: u64,
    pub(crate) arrays: Vec<Arrays>,
    pub(crate) chase: bool,
    pub(crate) stream: bool,
    /// Loads per chase.
    pub(crate) loads: usize,
    /// Minimum bytes that each core streams.
    pub(crate) stream_bytes: usize,
    /// Points of a loaded curve, including the idle one.
    pub(crate) load_points: usize,
    /// Working sets per doubling of the size.
    pub(crate) sizes_per_doubling: usize,
    pub(crate) missing: Vec<Missing>,
    pub(crate) notes: Vec<String>,
    pub(crate) options: Options,
}

/// Makes the plan.
pub fn plan(host: &Host, options: &Options) -> Result<Plan, MeasureError> {
    let has = |part| options.parts.contains(&part);
    let chase = [Part::Latency, Part::Loaded, Part::CacheToCache, Part::Caches].into_iter().any(has);
    let stream = [Part::Bandwidth, Part::Loaded, Part::Links].into_iter().any(has);
    let caches = host.nodes.iter().map(|node| node.cache_bytes).max().unwrap_or(0);
    let usual = caches.saturating_mul(TIMES_CACHES).clamp(LEAST_SIZE, MOST_SIZE);
    let size_bytes = options.size_bytes.unwrap_or(usual).next_multiple_of(HUGE_PAGE);
    let count = u64::from(chase) + u64::from(stream);
    let (mut missing, mut notes) = (host.hidden.clone(), host.notes.clone());
    if options.size_bytes.is_none() && size_bytes < caches.saturating_mul(TIMES_CACHES) {
        let (caches, bytes) = (size::format(caches), size::format(size_bytes));
        notes.push(format!(
            "arrays are {bytes}, less than {TIMES_CACHES} times a node's caches ({caches}): these may hold part of them, \
             and bandwidth look higher than memory's; --size sets more"
        ));
    }
    // A control group's limit applies to all nodes together.
    let with_memory = host.nodes.iter().filter(|node| node.free_bytes > 0).count().max(1) as u64;
    let limit = host.memory_limit.map_or(u64::MAX, |limit| limit / with_memory);
    let mut arrays = Vec::new();
    for node in host.nodes.iter().filter(|node| node.free_bytes > 0) {
        let affordable = node.free_bytes.min(limit) / FREE_SHARE / count.max(1);
        let bytes = size_bytes.min(affordable / HUGE_PAGE * HUGE_PAGE);
        let least = if options.size_bytes.is_some() { size_bytes } else { SMALLEST_SIZE };
        if bytes < least {
            missing.push(Missing::new(
                format!("everything in memory of node {}", node.id),
                too_little(node, limit, least * count),
            ));
            continue;
        }
        if bytes < size_bytes {
            let (bytes, wanted) = (size::format(bytes), size::format(size_bytes));
            notes.push(format!(
                "node {} was measured on arrays of {bytes}, not {wanted}, as little of its memory is free: caches may \
                 hold part of them",
                node.id
            ));
        }
        arrays.push(Arrays { node: node.id, bytes: bytes as usize });
    }
    let quick = options.quick;
    let most = arrays.iter().map(|arrays| arrays.bytes).max().unwrap_or(0);
    let steps = steps(host, options, &arrays);
    let is_loaded = |node| steps.iter().any(|step| matches!(step, Step::Loaded { to, .. } if *to == node));
    for arrays in arrays.iter().filter(|arrays| has(Part::Loaded) && !is_loaded(arrays.node)) {
        let why = "one core measures while others load it, and there is one at most to use";
        missing.push(Missing::new(format!("latency under load in memory of node {}", arrays.node), why));
    }
    if steps.is_empty() {
        let mut why: Vec<String> = missing.iter().map(|Missing { what, why }| format!("  {what}: {why}")).collect();
        if why.is_empty() {
            why.push("  the request needs another core or another node, and there is none".to_owned());
        }
        return Err(MeasureError::Nothing { why: why.join("\n") });
    }
    Ok(Plan {
        steps,
        repeats: options.repeats.unwrap_or(if quick { 3 } else { 7 }),
        size_bytes,
        arrays,
        chase,
        stream,
        loads: if quick { 1 << 16 } else { 1 << 18 },
        stream_bytes: if quick { most / 2 } else { most },
        load_points: if quick { 8 } else { 12 },
        sizes_per_doubling: if quick { 1 } else { 2 },
        missing,
        notes,
        options: options.clone(),
    })
}

fn too_little(node: &Usable, limit: u64, needed: u64) -> String {
    let limit = if limit < node.free_bytes {
        format!(", and its control group allows {} per node", size::format(limit))
    } else {
        String::new()
    };
    format!(
        "{} are free there{limit}; {} are needed, plus the same amount for other programs: free some, or ask \
         for a smaller --size",
        node.free(),
        size::format(needed)
    )
}

fn steps(host: &Host, options: &Options, arrays: &[Arrays]) -> Vec<Step> {
    let has_cores = |node: &&Usable| !node.cores.is_empty();
    let from: Vec<&Usable> = host.nodes.iter().filter(has_cores).collect();
    let to: Vec<NodeId> = arrays.iter().map(|arrays| arrays.node).collect();
    let pairs = || from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
    let mut steps = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| options.parts.contains(part)) {
        match part {
            Part::Latency => steps.extend(pairs().map(|(from, to)| Step::Latency { from: from.id, to })),
            Part::Bandwidth => {
                for &access in Access::VARIANTS {
                    for (from, to) in pairs() {
                        let step = |cores| Step::Bandwidth { from: from.id, to, access, cores };
                        steps.push(step(Cores::One));
                        // With one core both are the same.
                        steps.extend((from.cores.len() > 1).then(|| step(Cores::All)));
                    }
                    let local = from.iter().any(|from| to.contains(&from.id));
                    steps.extend(local.then_some(Step::Machine { access }));
                }
            }
            Part::Loaded => {
                // Its own cores load a controller; those of other nodes might load a link instead, but for memory without
                // CPUs there are no others.
                let nearest = |to: NodeId| {
                    let may = |from: &&&Usable| from.id == to || host.cores(to).is_empty();
                    let loads = |from: &&&Usable| loaders(host, from.id) > 0;
                    from.iter().filter(may).filter(loads).min_by_key(|from| (distance(host, from.id, to), from.id))
                };
                steps.extend(to.iter().filter_map(|&to| Some(Step::Loaded { from: nearest(to)?.id, to })));
            }
            Part::CacheToCache => {
                for (reader, owner) in pairs() {
                    let enough =
                        if reader.id == owner { reader.cores.len() > 1 } else { !host.cores(owner).is_empty() };
                    for state in [CopyState::Clean, CopyState::Modified].into_iter().filter(|_| enough) {
                        steps.push(Step::Transfer { reader: reader.id, owner, state });
                    }
                }
            }
            Part::Links => {
                let first = from.first().map(|first| first.id);
                for (from, to) in
                    pairs().filter(|(from, to)| from.id != *to && (!options.quick || Some(from.id) == first))
                {
                    let counts = counts(from.cores.len()).into_iter();
                    steps.extend(counts.map(|cores| Step::Link { from: from.id, to, cores }));
                }
            }
            Part::Caches => {
                let local = from.iter().find(|from| to.contains(&from.id));
                steps.extend(local.map(|node| Step::Caches { node: node.id }));
            }
        }
    }
    steps
}

/// The number of cores that can load memory while one core of this node chases.
pub(crate) fn loaders(host: &Host, from: NodeId) -> usize {
    host.cores(from).len().saturating_sub(1)
}

/// The firmware's distance; local if there is none.
fn distance(host: &Host, from: NodeId, to: NodeId) -> u32 {
    let index = |id| host.machine.nodes.iter().position(|node| node.id == id);
    let known = || host.machine.distances.as_ref()?.matrix.get(index(from)?)?.get(index(to)?).copied();
    known().unwrap_or(if from == to { 10 } else { 20 })
}

/// 1, 2, 3, 4, 6, 8, 12 … and all.
fn counts(cores: usize) -> Vec<usize> {
    // No machine has more than 2^30 cores.
    let series = (0..30).flat_map(|bit| [1 << bit, 3 << bit]).filter(|count| *count < cores);
    let counts: BTreeSet<usize> = series.chain((cores > 0).then_some(cores)).collect();
    counts.into_iter().collect()
}

impl Plan {
    /// The expected duration on a typical machine, seconds: 150 ns per load, 5 GB/s per stream, half a millisecond to
    /// start.
    pub fn expected_s(&self) -> f64 {
        let arrays: usize = self.arrays.iter().map(|arrays| arrays.bytes).sum();
        let fill =
            arrays as f64 * (f64::from(u8::from(self.chase)) * 20e-9 / 64.0 + f64::from(u8::from(self.stream)) / 2e9);
        fill + self.steps.iter().map(|step| self.expected_step_s(step)).sum::<f64>()
    }

    /// The expected duration of one step, seconds.
    pub(crate) fn expected_step_s(&self, step: &Step) -> f64 {
        let (chase, stream) = (self.loads as f64 * 150e-9, self.stream_bytes as f64 / 5e9);
        let once = match step {
            Step::Latency { .. } | Step::Transfer { .. } => chase,
            Step::Bandwidth { .. } | Step::Machine { .. } | Step::Link { .. } => stream,
            Step::Loaded { .. } => self.load_points as f64 * 3.0 * chase,
            Step::Caches { .. } => 14.0 * self.sizes_per_doubling as f64 * chase / 2.0,
        };
        (once + 0.5e-3) * self.repeats as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn options() -> Options {
        let parts = Part::ALL.into_iter().collect();
        Options { quick: false, parts, repeats: None, size_bytes: None, max_spread: 0.1, huge_pages: true }
    }

    fn host(preset: &str, cpus: &str, free_bytes: u64) -> Host {
        Host::new(presets::find(preset).unwrap(), &cpus.parse().unwrap(), None, |_| free_bytes)
    }

    fn count(plan: &Plan, which: impl Fn(&Step) -> bool) -> usize {
        plan.steps.iter().filter(|step| which(step)).count()
    }

    #[test]
    fn every_pair_of_nodes_is_measured() {
        let plan = plan(&host("opteron-6164x2", "0-23", 12 << 30), &options()).unwrap();
        assert_eq!(count(&plan, |step| matches!(step, Step::Latency { .. })), 16);
        assert_eq!(count(&plan, |step| matches!(step, Step::Bandwidth { .. })), 16 * 3 * 2);
        assert_eq!(count(&plan, |step| matches!(step, Step::Machine { .. })), 3);
        assert_eq!(count(&plan, |step| matches!(step, Step::Loaded { .. })), 4);
        assert_eq!(count(&plan, |step| matches!(step, Step::Transfer { .. })), 16 * 2);
        assert_eq!(count(&plan, |step| matches!(step, Step::Link { .. })), 12 * 5);
        assert_eq!(count(&plan, |step| matches!(step, Step::Caches { .. })), 1);
        assert!(plan.missing.is_empty() && plan.notes.is_empty());
    }

    #[test]
    fn quick_is_under_a_minute_on_four_nodes() {
        let host = host("opteron-6164x2", "0-23", 12 << 30);
        let seconds = plan(&host, &Options { quick: true, ..options() }).unwrap().expected_s();
        assert!(seconds > 1.0 && seconds < 20.0, "{seconds} s");
    }

    #[test]
    fn one_core_leaves_latency_bandwidth_and_caches() {
        let plan = plan(&host("small-2x2", "1", 1 << 30), &options()).unwrap();
        assert_eq!(count(&plan, |step| matches!(step, Step::Latency { .. })), 2);
        assert_eq!(count(&plan, |step| matches!(step, Step::Loaded { .. } | Step::Transfer { .. })), 0);
        // CPUs of a node, and what takes two of one.
        assert_eq!(plan.missing.len(), 3, "{:?}", plan.missing);
    }

    #[test]
    fn arrays_shrink_with_free_memory_unless_a_size_was_asked_for() {
        let little = host("small-2x2", "0-3", 100 << 20);
        let shrunk = plan(&little, &options()).unwrap();
        assert_eq!((shrunk.arrays[0].bytes, shrunk.notes.len()), (24 << 20, 2));
        let asked = Options { size_bytes: Some(64 << 20), ..options() };
        let text = plan(&little, &asked).unwrap_err().to_string();
        assert!(text.contains("100 MiB are free there; 128 MiB are needed"), "{text}");
        let mut limited = host("small-2x2", "0-3", 1 << 30);
        limited.memory_limit = Some(64 << 20);
        assert_eq!(plan(&limited, &options()).unwrap().arrays[1].bytes, 8 << 20);
    }

    #[test]
    fn counts_of_cores_end_with_all() {
        assert_eq!([counts(0), counts(1), counts(2), counts(6)], [vec![], vec![1], vec![1, 2], vec![1, 2, 3, 4, 6]]);
        assert_eq!(counts(13), [1, 2, 3, 4, 6, 8, 12, 13]);
    }
}
