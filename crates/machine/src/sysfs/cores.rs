//! Cores, packages and caches.

use super::tree::{CPUS, Tree};
use super::{SysfsError, source};
use crate::description::{Cache, CacheKind, Machine, Package, USUAL_LINE_BYTES};
use crate::ids::PackageId;
use crate::numbers::{CACHE_LEVEL, CACHE_LINE, CACHE_SIZE};
use crate::set::CpuSet;
use crate::simple_sharing::SimpleSharing;
use crate::size;
use std::collections::{BTreeMap, BTreeSet};

impl Tree {
    /// Fills packages and SMT cores. Reads one CPU per core: half of the files or less.
    pub fn read_cores(&mut self, cpus: &CpuSet, machine: &mut Machine) -> Result<(), SysfsError> {
        let mut found: Vec<(Option<u32>, CpuSet)> = Vec::new();
        let (mut seen, mut packaged, mut left_out) = (CpuSet::new(), CpuSet::new(), CpuSet::new());
        for cpu in cpus.iter() {
            if seen.contains(cpu) {
                continue;
            }
            let folder = format!("{CPUS}/cpu{cpu}/topology");
            // Kernels before 5.3 have the last two names only, those before 2.6.26 the last.
            let siblings = ["core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings"];
            let mut core = self.set(&folder, &siblings)?.unwrap_or_else(CpuSet::new).intersection(cpus);
            core.insert(cpu);
            if !core.intersection(&seen).is_empty() {
                left_out.insert(cpu);
                core = CpuSet::from_iter([cpu]);
            }
            seen.extend(core.iter());
            if !packaged.contains(cpu) {
                // -1 if the firmware does not provide it.
                let id: Option<i64> = self.parsed(&format!("{folder}/physical_package_id"))?;
                let id = id.and_then(|id| u32::try_from(id).ok());
                let siblings = ["package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"];
                let listed: Option<CpuSet> = self.set(&folder, &siblings)?;
                let listed = listed.map(|listed| listed.intersection(cpus)).filter(|listed| listed.contains(cpu));
                let package = listed.filter(|listed| listed.intersection(&packaged).is_empty());
                match package {
                    Some(package) => {
                        packaged.extend(package.iter());
                        found.push((id, package));
                    }
                    None => found.extend(id.map(|id| (Some(id), core.clone()))),
                }
            }
            if core.len() > 1 {
                machine.smt_cores.push(core);
            }
        }
        if !left_out.is_empty() {
            self.warn(format!(
                "the cores of CPUs {left_out} are left out: some of each core's CPUs are in another one"
            ));
        }
        machine.packages = packages(found, &packaged);
        Ok(())
    }

    /// All caches. Reads one of the CPUs that share a cache, and the levels of all.
    pub fn caches(&mut self, machine: &Machine) -> Result<Vec<Cache>, SysfsError> {
        let cpus = &machine.cpus();
        let mut by_shape: BTreeMap<Shape, BTreeSet<CpuSet>> = BTreeMap::new();
        // By index and level: different cores may have caches of different levels at one index.
        let mut seen: BTreeMap<(u32, u8), CpuSet> = BTreeMap::new();
        let mut taken: BTreeMap<(u8, CacheKind), CpuSet> = BTreeMap::new();
        let mut left_out: BTreeMap<u8, CpuSet> = BTreeMap::new();
        for cpu in cpus.iter() {
            for index in self.numbered(&format!("{CPUS}/cpu{cpu}/cache"), "index") {
                let folder = format!("{CPUS}/cpu{cpu}/cache/index{index}");
                let Some(level) = self.parsed(&format!("{folder}/level"))? else { continue };
                let seen = seen.entry((index, level)).or_default();
                if seen.contains(cpu) {
                    continue;
                }
                let listed: Option<CpuSet> = self.set(&folder, &["shared_cpu_list", "shared_cpu_map"])?;
                // Old kernels of Itanium list no CPU at all: such a cache is the core's.
                let core = || machine.smt_cores.iter().find(|core| core.contains(cpu)).cloned();
                let listed = listed.filter(|listed| !listed.is_empty()).or_else(core);
                let mut shared = listed.unwrap_or_default().intersection(cpus);
                shared.insert(cpu);
                seen.insert_all(&shared);
                let Some(shape) = self.cache_shape(&folder, level)? else { continue };
                let taken = taken.entry((shape.level, shape.kind)).or_default();
                if taken.intersection(&shared).is_empty() {
                    taken.insert_all(&shared);
                    by_shape.entry(shape).or_default().insert(shared);
                } else if by_shape.get(&shape).is_none_or(|sets| !sets.contains(&shared)) {
                    left_out.entry(level).or_default().insert(cpu);
                }
            }
        }
        for (level, cpus) in left_out {
            self.warn(format!(
                "level {level} caches of CPUs {cpus} are left out: some of each cache's CPUs have another one"
            ));
        }
        // Firmware that leaves out the line size leaves it out of the outer caches.
        let line_bytes = by_shape.keys().map(|shape| shape.line_bytes).find(|&bytes| bytes > 0);
        let line_bytes = line_bytes.unwrap_or(USUAL_LINE_BYTES);
        let simple = SimpleSharing::of(machine);
        let cache = |(shape, sets): (Shape, BTreeSet<CpuSet>)| Cache {
            level: shape.level,
            kind: shape.kind,
            size_bytes: shape.size_bytes,
            ways: shape.ways,
            line_bytes: if shape.line_bytes == 0 { line_bytes } else { shape.line_bytes },
            latency_ns: None,
            shared_by: simple.simplest(sets.into_iter().collect()),
            source: source(),
        };
        Ok(by_shape.into_iter().map(cache).collect())
    }

    /// `None` for a cache whose kind or size the kernel does not know: the firmware of many small machines does not
    /// provide it, or provides what no cache is. A line size of 0 is unknown.
    fn cache_shape(&mut self, folder: &str, level: u8) -> Result<Option<Shape>, SysfsError> {
        let path = |file: &str| format!("{folder}/{file}");
        let (Some(kind), Some(size)) = (self.text(&path("type"))?, self.text(&path("size"))?) else { return Ok(None) };
        let line_bytes: u32 = self.parsed(&path("coherency_line_size"))?.unwrap_or(0);
        let kind = match kind.as_str() {
            "Data" => CacheKind::Data,
            "Instruction" => CacheKind::Instruction,
            "Unified" => CacheKind::Unified,
            _ => return Err(self.wrong(&path("type"), &kind, &"a cache is Data, Instruction or Unified")),
        };
        let size_bytes = size::parse(&size).map_err(|why| self.wrong(&path("size"), &size, &why))?;
        let ways: u32 = self.parsed(&path("ways_of_associativity"))?.unwrap_or(0);
        let is_line = line_bytes == 0 || (line_bytes.is_power_of_two() && CACHE_LINE.holds(line_bytes.into()));
        if !is_line || !CACHE_LEVEL.holds(level.into()) || !CACHE_SIZE.holds(size_bytes as f64) {
            let text = format!("level {level}, {size_bytes} bytes in lines of {line_bytes}");
            self.warn(format!("the cache of {folder} is left out: no cache has {text}"));
            return Ok(None);
        }
        // Some kernels subtract the part of a cache that the hardware reserves from its size, but not from its ways.
        let set_bytes = u64::from(ways) * u64::from(line_bytes);
        let fits = set_bytes > 0 && size_bytes.is_multiple_of(set_bytes);
        Ok(Some(Shape { level, kind, size_bytes, ways: if fits { ways } else { 0 }, line_bytes }))
    }
}

/// Packages in ascending order of ID: the sets that the kernel lists, or else the CPUs of each number. If one has no
/// number, or two have the same, all are numbered in the order of their first CPUs.
fn packages(found: Vec<(Option<u32>, CpuSet)>, listed: &CpuSet) -> Vec<Package> {
    let mut sets: Vec<(Option<u32>, CpuSet)> = Vec::new();
    for (id, cpus) in found {
        let same = sets.iter_mut().find(|(other, set)| *other == id && set.intersection(listed).is_empty());
        match same.filter(|_| cpus.intersection(listed).is_empty()) {
            Some((_, set)) => set.extend(cpus.iter()),
            None => sets.push((id, cpus)),
        }
    }
    let ids: BTreeSet<u32> = sets.iter().filter_map(|(id, _)| *id).collect();
    let numbered = ids.len() == sets.len();
    let package = |(number, (id, cpus)): (u32, (Option<u32>, CpuSet))| Package {
        id: PackageId(id.filter(|_| numbered).unwrap_or(number)),
        cpus,
    };
    let mut packages: Vec<Package> = (0..).zip(sets).map(package).collect();
    packages.sort_by_key(|package| package.id);
    packages
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
