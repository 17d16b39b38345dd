//! The results of a measurement. The same types are its JSON: field names are stable, units are in the names, and
//! fields may be added. `docs/measure.md` is the manual.

use crate::firmware::Firmware;
use crate::levels::CacheLevel;
use crate::missing::Missing;
use crate::plan::{Access, CopyState, Cores, Part, Plan, Step};
use crate::statistics::{Matrix, Number};
use machine::NodeId;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// All results. Parts that were not requested are absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of nearside.
    pub version: String,
    /// `2026-01-31`, UTC.
    pub date: String,
    /// The measured machine's name.
    pub machine: String,
    /// Whether it is a virtual machine of the lab, whose times are simulated.
    pub simulated: bool,
    /// Whether a requested part is missing.
    pub partial: bool,
    /// The missing parts and the reasons.
    pub missing: Vec<Missing>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Instructions that a core executes in a cycle while nothing waits, where that is known: in the lab.
    #[serde(skip)]
    pub instructions_per_cycle: Option<f64>,
    /// The settings of the measurement.
    pub settings: Settings,
    /// Rows and columns of every matrix.
    pub nodes: Vec<NodeId>,
    /// Idle latency of dependent loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Matrix>,
    /// Bandwidth of streams; bytes as the program counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<Bandwidth>,
    /// Latency of each node's memory while other cores load it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_latency: Option<Vec<LoadedCurve>>,
    /// Latency of lines in another core's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_to_cache_ns: Option<Transfers>,
    /// Read bandwidth of several cores of one node in another node's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_sharing: Option<Vec<LinkSharing>>,
    /// Latency by working set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<Caches>,
    /// The firmware's distances against measured latency; absent if either is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
}

/// The settings of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Fewer and shorter measurements.
    pub quick: bool,
    /// Minimum measurements per number.
    pub repeats: usize,
    /// Bytes per array.
    pub size_bytes: u64,
    /// The largest spread at which a number is reported.
    pub max_spread: f64,
    /// The share of the arrays on huge pages; `None` if the kernel does not report it.
    pub huge_page_share: Option<f64>,
}

/// Bandwidth by pair of nodes and of the whole machine, bytes/s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// One core of the row's node.
    pub one_core: ByAccess<Matrix>,
    /// All cores of the row's node together, even if there is only one.
    pub all_cores: ByAccess<Matrix>,
    /// All cores of all nodes together, each in its own node's memory.
    pub machine: ByAccess<Option<Number>>,
}

/// A value for each kind of access.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByAccess<T> {
    /// Loads only.
    pub read: T,
    /// Stores only; the reads of lines before they are written are not counted.
    pub write: T,
    /// One load per store; both count.
    pub copy: T,
}

impl<T> ByAccess<T> {
    /// The value for this kind of access.
    pub fn get(&self, access: Access) -> &T {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
            Access::Copy => &self.copy,
        }
    }

    fn get_mut(&mut self, access: Access) -> &mut T {
        match access {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
            Access::Copy => &mut self.copy,
        }
    }
}

/// Latency of a node's memory by load, in the order of increasing load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedCurve {
    /// The node of the memory and its controller.
    pub node: NodeId,
    /// The node whose cores chased and loaded.
    pub from: NodeId,
    /// The number of loading cores.
    pub loading_cores: usize,
    /// The points, idle first.
    pub points: Vec<LoadPoint>,
}

/// One point of a loaded curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Read bandwidth of all cores together from the node.
    pub load_bytes_per_s: Number,
    /// Latency of a load meanwhile.
    pub latency_ns: Number,
}

/// Latency of lines in another core's cache: rows are the reading nodes, columns those of the core with the lines. On
/// the diagonal both cores belong to one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// The other core has read them.
    pub clean: Matrix,
    /// The other core has written them.
    pub modified: Matrix,
}

/// How cores of one node share the path to another node's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkSharing {
    /// The accessing node.
    pub from: NodeId,
    /// The memory's node.
    pub to: NodeId,
    /// By increasing number of cores.
    pub points: Vec<SharePoint>,
}

/// The bandwidth of a number of cores together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharePoint {
    /// The number of cores.
    pub cores: usize,
    /// Total read bandwidth.
    pub bandwidth_bytes_per_s: Number,
}

/// Latency by working set, and the caches found in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Caches {
    /// The node whose core chased in its own memory.
    pub node: NodeId,
    /// The core's clock while it works, Hz.
    pub clock_hz: Number,
    /// By increasing size.
    pub working_sets: Vec<WorkingSet>,
    /// The caches found in the working sets; memory, after the last of them, is not listed.
    pub levels: Vec<CacheLevel>,
}

/// One working set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// Its size.
    pub size_bytes: u64,
    /// Load latency.
    pub latency_ns: Number,
}

/// The result of a step.
pub(crate) enum Outcome {
    Number(Number),
    Curve(LoadedCurve),
    Caches(Caches),
}

impl Results {
    /// Results of a plan before its first step.
    pub(crate) fn new(plan: &Plan, nodes: Vec<NodeId>) -> Self {
        let has = |part| plan.options.parts.contains(&part);
        let matrix = || vec![vec![None; nodes.len()]; nodes.len()];
        let by_access = || ByAccess { read: matrix(), write: matrix(), copy: matrix() };
        let bandwidth = || Bandwidth { one_core: by_access(), all_cores: by_access(), machine: ByAccess::default() };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: crate::date::today(),
            machine: String::new(),
            simulated: false,
            partial: !plan.missing.is_empty(),
            missing: plan.missing.clone(),
            notes: plan.notes.clone(),
            instructions_per_cycle: None,
            settings: Settings {
                quick: plan.options.quick,
                repeats: plan.repeats,
                size_bytes: plan.size_bytes,
                max_spread: plan.options.max_spread,
                huge_page_share: None,
            },
            latency_ns: has(Part::Latency).then(matrix),
            bandwidth_bytes_per_s: has(Part::Bandwidth).then(bandwidth),
            loaded_latency: has(Part::Loaded).then(Vec::new),
            cache_to_cache_ns: has(Part::CacheToCache).then(|| Transfers { clean: matrix(), modified: matrix() }),
            link_sharing: has(Part::Links).then(Vec::new),
            caches: None,
            firmware: None,
            nodes,
        }
    }

    /// Copies the bandwidth of nodes that have one core only, which the plan measures once, to that of all cores.
    pub(crate) fn copy_only_cores(&mut self, has_one_core: impl Fn(NodeId) -> bool) {
        let Some(bandwidth) = &mut self.bandwidth_bytes_per_s else { return };
        for &access in Access::VARIANTS {
            let rows = bandwidth.all_cores.get_mut(access).iter_mut().zip(bandwidth.one_core.get(access));
            for ((all, one), _) in rows.zip(&self.nodes).filter(|(_, node)| has_one_core(**node)) {
                all.clone_from(one);
            }
        }
    }

    /// Stores the result of a step.
    pub(crate) fn take(&mut self, step: Step, outcome: Outcome) {
        let index = |id: NodeId| self.nodes.iter().position(|node| *node == id);
        match (step, outcome) {
            (Step::Latency { from, to }, Outcome::Number(number)) => {
                set(self.latency_ns.as_mut(), (index(from), index(to)), number);
            }
            (Step::Bandwidth { from, to, access, cores }, Outcome::Number(number)) => {
                let at = (index(from), index(to));
                let Some(bandwidth) = &mut self.bandwidth_bytes_per_s else { return };
                let matrices = if cores == Cores::One { &mut bandwidth.one_core } else { &mut bandwidth.all_cores };
                set(Some(matrices.get_mut(access)), at, number);
            }
            (Step::Machine { access }, Outcome::Number(number)) => {
                if let Some(bandwidth) = &mut self.bandwidth_bytes_per_s {
                    *bandwidth.machine.get_mut(access) = Some(number);
                }
            }
            (Step::Transfer { reader, owner, state }, Outcome::Number(number)) => {
                let at = (index(reader), index(owner));
                let Some(transfers) = &mut self.cache_to_cache_ns else { return };
                let matrix = if state == CopyState::Clean { &mut transfers.clean } else { &mut transfers.modified };
                set(Some(matrix), at, number);
            }
            (Step::Link { from, to, cores }, Outcome::Number(bandwidth_bytes_per_s)) => {
                let Some(sharing) = &mut self.link_sharing else { return };
                let point = SharePoint { cores, bandwidth_bytes_per_s };
                match sharing.last_mut() {
                    Some(last) if (last.from, last.to) == (from, to) => last.points.push(point),
                    _ => sharing.push(LinkSharing { from, to, points: vec![point] }),
                }
            }
            (_, Outcome::Curve(curve)) => self.loaded_latency.get_or_insert_default().push(curve),
            (_, Outcome::Caches(caches)) => self.caches = Some(caches),
            // The runner returns a number for every other step.
            (Step::Loaded { .. } | Step::Caches { .. }, Outcome::Number(_)) => {}
        }
    }
}

fn set(matrix: Option<&mut Matrix>, (row, column): (Option<usize>, Option<usize>), number: Number) {
    let cell = matrix.zip(row.zip(column)).and_then(|(matrix, (row, column))| matrix.get_mut(row)?.get_mut(column));
    if let Some(cell) = cell {
        *cell = Some(number);
    }
}
