//! The machine as shown in sysfs: `/sys`, or a tree saved from another machine.

use crate::bounded;
use crate::description::{Cache, CacheKind, Distances, Machine, Node, Package, Sharing};
use crate::ids::{NodeId, PackageId};
use crate::pairs::LatencyPairs;
use crate::set::{CpuSet, NodeSet};
use crate::size;
use crate::source::Source;
use crate::validate::MAX_NODES;
use crate::violation::{Violation, lines};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The key of [`Machine::sources`] for data from sysfs.
const SOURCE: &str = "sysfs";

/// More entries in one CPU's cache directory than any CPU has caches.
const MAX_CACHES: usize = 32;

/// Why a sysfs tree does not give a machine.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// The tree has no CPUs.
    #[error(
        "{} shows neither devices/system/node/online nor devices/system/cpu/online: name the root of a sysfs tree, such as /sys",
        root.display()
    )]
    NotSysfs {
        /// The given directory.
        root: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not in the kernel's format.
    #[error("{} holds `{text}`: {why}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The beginning of its contents.
        text: String,
        /// The error.
        why: String,
    },
    /// The tree describes an impossible machine.
    #[error("the tree at {} breaks rules of a machine:\n{}", root.display(), lines(violations))]
    Rules {
        /// The given directory.
        root: PathBuf,
        /// The broken rules.
        violations: Vec<Violation>,
    },
}

impl Machine {
    /// Reads the machine from a sysfs tree: `/sys`, or the root of a saved one. Offline CPUs and nodes are left out. A
    /// kernel without NUMA gives one node; its memory is in `../proc/meminfo`, relative to the root.
    pub fn from_sysfs(root: &Path) -> Result<Self, SysfsError> {
        let tree = Tree { root: root.to_owned() };
        let online: Option<CpuSet> = tree.parsed("devices/system/cpu/online")?;
        let nodes: Option<NodeSet> = tree.parsed("devices/system/node/online")?;
        let (nodes, distances) = match (nodes, &online) {
            (Some(ids), online) => (tree.nodes(&ids, online.as_ref())?, tree.distances(&ids)?),
            (None, Some(online)) => (vec![tree.only_node(online)?], None),
            (None, None) => return Err(SysfsError::NotSysfs { root: tree.root }),
        };
        let mut machine = Self {
            name: "host".to_owned(),
            description: String::new(),
            sources: BTreeMap::from([(SOURCE.to_owned(), format!("Linux, sysfs tree {}", root.display()))]),
            smt_cores: Vec::new(),
            core: None,
            coherence: None,
            disk: None,
            tlbs: Vec::new(),
            latency: None,
            distances,
            packages: Vec::new(),
            nodes,
            caches: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
        };
        let cpus = machine.cpus();
        tree.read_cores(&cpus, &mut machine)?;
        machine.caches = tree.caches(&cpus)?;
        for index in 0..machine.caches.len() {
            let sharing = simplest_sharing(&machine, &machine.caches[index]);
            machine.caches[index].shared_by = sharing;
        }
        tree.read_performance(&mut machine)?;
        let violations = machine.validate();
        if violations.is_empty() { Ok(machine) } else { Err(SysfsError::Rules { root: tree.root, violations }) }
    }
}

struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The text of a file, trimmed; `None` if there is no such file or the kernel has no value.
    fn text(&self, path: &str) -> Result<Option<String>, SysfsError> {
        let path = self.root.join(path);
        match bounded::text(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(source) => Err(SysfsError::Read { path, source }),
        }
    }

    fn wrong(&self, path: &str, text: &str, why: &dyn fmt::Display) -> SysfsError {
        SysfsError::Text { path: self.root.join(path), text: text.chars().take(60).collect(), why: why.to_string() }
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&self, path: &str) -> Result<Option<T>, SysfsError> {
        let Some(text) = self.text(path)? else { return Ok(None) };
        text.parse().map(Some).map_err(|why: T::Err| self.wrong(path, &text, &why))
    }

    fn nodes(&self, ids: &NodeSet, online: Option<&CpuSet>) -> Result<Vec<Node>, SysfsError> {
        if ids.is_empty() || ids.len() > MAX_NODES {
            let why = format!("a machine has 1 to {MAX_NODES} nodes");
            return Err(self.wrong("devices/system/node/online", &ids.to_string(), &why));
        }
        ids.iter()
            .map(|id| {
                let folder = format!("devices/system/node/node{id}");
                let cpulist = format!("{folder}/cpulist");
                let cpus: CpuSet = self.parsed(&cpulist)?.ok_or_else(|| SysfsError::Read {
                    path: self.root.join(&cpulist),
                    source: ErrorKind::NotFound.into(),
                })?;
                let meminfo = format!("{folder}/meminfo");
                let text = self.text(&meminfo)?.unwrap_or_default();
                Ok(Node {
                    id,
                    cpus: online.map_or_else(|| cpus.clone(), |online| cpus.intersection(online)),
                    memory_bytes: self.memory_bytes(&meminfo, &text)?.unwrap_or(0),
                    bandwidth_bytes_per_s: None,
                    write_cost: None,
                    source: source(),
                })
            })
            .collect()
    }

    /// The only node of a kernel without NUMA: every CPU and the whole memory.
    fn only_node(&self, online: &CpuSet) -> Result<Node, SysfsError> {
        let meminfo = "../proc/meminfo";
        let text = self.text(meminfo)?.unwrap_or_default();
        let memory_bytes = self.memory_bytes(meminfo, &text)?.unwrap_or(0);
        Ok(Node {
            id: NodeId(0),
            cpus: online.clone(),
            memory_bytes,
            bandwidth_bytes_per_s: None,
            write_cost: None,
            source: source(),
        })
    }

    /// The total in a `meminfo`, of a node (`Node 0 MemTotal: 123 kB`) or of the machine (`MemTotal: 123 kB`).
    fn memory_bytes(&self, path: &str, text: &str) -> Result<Option<u64>, SysfsError> {
        let Some(line) = text.lines().find(|line| line.split_whitespace().any(|word| word == "MemTotal:")) else {
            return Ok(None);
        };
        let number = line.split_whitespace().skip_while(|word| *word != "MemTotal:").nth(1);
        let kib = number.and_then(|number| number.parse::<u64>().ok());
        let bytes = kib.and_then(|kib| kib.checked_mul(1024));
        bytes.map(Some).ok_or_else(|| self.wrong(path, line, &"MemTotal is followed by a number of kB"))
    }

    /// The firmware's distances, if every node has a row.
    fn distances(&self, ids: &NodeSet) -> Result<Option<Distances>, SysfsError> {
        let mut matrix = Vec::with_capacity(ids.len());
        for id in ids.iter() {
            let path = format!("devices/system/node/node{id}/distance");
            let Some(text) = self.text(&path)? else { return Ok(None) };
            let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
            matrix.push(row.map_err(|why| self.wrong(&path, &text, &why))?);
        }
        Ok(Some(Distances { matrix, source: source() }))
    }

    /// Fills packages and SMT cores. Reads one CPU per core: half of the files or less.
    fn read_cores(&self, cpus: &CpuSet, machine: &mut Machine) -> Result<(), SysfsError> {
        let mut packages: BTreeMap<PackageId, CpuSet> = BTreeMap::new();
        let mut seen = CpuSet::new();
        for cpu in cpus.iter() {
            if seen.contains(cpu) {
                continue;
            }
            let folder = format!("devices/system/cpu/cpu{cpu}/topology");
            // Kernels before 5.3 have the second name only.
            let siblings: Option<CpuSet> = match self.parsed(&format!("{folder}/core_cpus_list"))? {
                Some(siblings) => Some(siblings),
                None => self.parsed(&format!("{folder}/thread_siblings_list"))?,
            };
            let mut core = siblings.map(|siblings| siblings.intersection(cpus)).unwrap_or_default();
            core.insert(cpu);
            seen.extend(core.iter());
            // -1 if the firmware does not provide it.
            let package: Option<i64> = self.parsed(&format!("{folder}/physical_package_id"))?;
            if let Some(package) = package.and_then(|id| u32::try_from(id).ok()) {
                packages.entry(PackageId(package)).or_default().extend(core.iter());
            }
            if core.len() > 1 {
                machine.smt_cores.push(core);
            }
        }
        machine.packages = packages.into_iter().map(|(id, cpus)| Package { id, cpus }).collect();
        Ok(())
    }

    /// All caches. Reads one of the CPUs that share a cache.
    fn caches(&self, cpus: &CpuSet) -> Result<Vec<Cache>, SysfsError> {
        let mut by_shape: BTreeMap<Shape, Vec<CpuSet>> = BTreeMap::new();
        let mut seen = vec![CpuSet::new(); MAX_CACHES];
        for cpu in cpus.iter() {
            for (index, seen) in seen.iter_mut().enumerate() {
                if seen.contains(cpu) {
                    continue;
                }
                let folder = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
                let Some(level) = self.parsed(&format!("{folder}/level"))? else { break };
                let mut shared =
                    self.parsed(&format!("{folder}/shared_cpu_list"))?.unwrap_or_else(CpuSet::new).intersection(cpus);
                shared.insert(cpu);
                seen.extend(shared.iter());
                if let Some(shape) = self.cache_shape(&folder, level)? {
                    by_shape.entry(shape).or_default().push(shared);
                }
            }
        }
        let cache = |(shape, sets): (Shape, Vec<CpuSet>)| Cache {
            level: shape.level,
            kind: shape.kind,
            size_bytes: shape.size_bytes,
            ways: shape.ways,
            line_bytes: shape.line_bytes,
            latency_ns: None,
            shared_by: Sharing::Cpus(sets),
            source: source(),
        };
        Ok(by_shape.into_iter().map(cache).collect())
    }

    /// `None` for a cache whose size or line size the kernel does not know: the firmware of many small machines does
    /// not provide it.
    fn cache_shape(&self, folder: &str, level: u8) -> Result<Option<Shape>, SysfsError> {
        let path = |file: &str| format!("{folder}/{file}");
        let (Some(kind), Some(size), Some(line_bytes)) =
            (self.text(&path("type"))?, self.text(&path("size"))?, self.parsed(&path("coherency_line_size"))?)
        else {
            return Ok(None);
        };
        let kind = match kind.as_str() {
            "Data" => CacheKind::Data,
            "Instruction" => CacheKind::Instruction,
            "Unified" => CacheKind::Unified,
            _ => return Err(self.wrong(&path("type"), &kind, &"a cache is Data, Instruction or Unified")),
        };
        let size_bytes = size::parse(&size).map_err(|why| self.wrong(&path("size"), &size, &why))?;
        let ways: u32 = self.parsed(&path("ways_of_associativity"))?.unwrap_or(0);
        // Some kernels subtract the part of a cache that the hardware reserves from its size, but not from its ways.
        let set_bytes = u64::from(ways) * u64::from(line_bytes);
        let fits = set_bytes > 0 && size_bytes.is_multiple_of(set_bytes);
        Ok(Some(Shape { level, kind, size_bytes, ways: if fits { ways } else { 0 }, line_bytes }))
    }

    /// Reads the HMAT's values for the nearest initiators of each node's memory.
    fn read_performance(&self, machine: &mut Machine) -> Result<(), SysfsError> {
        let mut pairs = LatencyPairs::new(machine.nodes.len());
        for to in 0..machine.nodes.len() {
            let folder = format!("devices/system/node/node{}/access0/initiators", machine.nodes[to].id);
            // Megabytes; 0 if the firmware does not provide it.
            let bandwidth: Option<u64> = self.parsed(&format!("{folder}/read_bandwidth"))?;
            machine.nodes[to].bandwidth_bytes_per_s = bandwidth.filter(|&mb| mb > 0).map(|mb| mb as f64 * 1e6);
            let latency: Option<u64> = self.parsed(&format!("{folder}/read_latency"))?;
            if let Some(latency_ns) = latency.filter(|&ns| ns > 0) {
                for (from, node) in machine.nodes.iter().enumerate() {
                    if self.root.join(&folder).join(format!("node{}", node.id)).exists() {
                        pairs.set(from, to, latency_ns as f64);
                    }
                }
            }
        }
        machine.latency = pairs.into_latency(&machine.nodes, source());
        Ok(())
    }
}

/// The common properties of caches in one entry.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    level: u8,
    kind: CacheKind,
    size_bytes: u64,
    ways: u32,
    line_bytes: u32,
}

/// `core`, `node` or `package` if equivalent to a list of sets.
fn simplest_sharing(machine: &Machine, cache: &Cache) -> Sharing {
    let sets = |shared_by: &Sharing| -> BTreeSet<CpuSet> {
        machine.cache_instances(&Cache { shared_by: shared_by.clone(), ..cache.clone() }).into_iter().collect()
    };
    let listed = sets(&cache.shared_by);
    let simple = [Sharing::Core, Sharing::Node, Sharing::Package].into_iter().find(|simple| sets(simple) == listed);
    simple.unwrap_or_else(|| cache.shared_by.clone())
}

#[allow(clippy::unnecessary_wraps, reason = "every table holds an Option<Source>")]
fn source() -> Option<Source> {
    Some(Source::All(SOURCE.to_owned()))
}
