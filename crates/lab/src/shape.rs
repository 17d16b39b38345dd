//! The shape of a virtual machine: a preset cut down to the requested size and renumbered as Linux will number it, with
//! QEMU's order of its CPUs and the place of each node's memory.

use crate::cache_groups::{Misshown, misshown};
use machine::{CpuId, CpuSet, Machine, NodeId, Sharing};
use model::MemoryRange;
use std::collections::BTreeMap;

/// Default memory of each node.
pub const MEMORY_PER_NODE: u64 = 1 << 30;
/// Maximum number of CPUs of QEMU's `pc` machine.
pub const CPUS_MAX: usize = 255;
/// Maximum number of nodes of QEMU.
pub const NODES_MAX: usize = 128;
/// Memory that a kernel with its first file system needs to boot.
const MEMORY_MIN: u64 = 512 << 20;
/// Of a node: all nodes together have addresses of QEMU's CPUs then.
const MEMORY_MOST: u64 = 1 << 44;
/// Unit of node memory in QEMU.
const MEMORY_UNIT: u64 = 2 << 20;
/// Guest memory up to 3 GiB lies below the devices; from 3.5 GiB on, all memory above 3 GiB moves to 4 GiB (QEMU,
/// `hw/i386/pc_piix.c`).
const LOW_MEMORY: u64 = 3 << 30;
const LOW_MEMORY_ALONE: u64 = LOW_MEMORY + (512 << 20);
const HIGH_MEMORY: u64 = 4 << 30;

/// Changes to a preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Memory of each node that has some, bytes; by default [`MEMORY_PER_NODE`].
    pub memory_per_node: Option<u64>,
    /// Keep only the first N CPUs of each node.
    pub cpus_per_node: Option<u32>,
    /// How Linux numbers CPUs.
    pub cpu_numbers: CpuNumbers,
}

/// How Linux numbers the CPUs of a virtual machine, from 0 without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuNumbers {
    /// Those of a package one after the other, of a node, and of a core.
    #[default]
    Nested,
    /// In the order of the preset's numbers, as the firmware of its machine does.
    Preset,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// The machine as its own Linux sees it.
    pub machine: Machine,
    /// Linux's number of each of QEMU's CPUs. The first one, which boots, has number 0.
    pub numbers: Vec<CpuId>,
    /// Addresses of each node's memory.
    pub memory: Vec<MemoryRange>,
    /// Packages, nodes per package, cores per node and CPUs per core, if all are alike.
    pub topology: Topology,
    /// Nodes that have another number than in the preset: that of the preset, and that of the virtual machine.
    pub renumbered: Vec<(NodeId, NodeId)>,
}

/// QEMU's nesting of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Packages.
    pub sockets: usize,
    /// Last-level caches per package if all are alike and within nodes, or else nodes.
    pub dies: usize,
    /// Cores of each of these.
    pub cores: usize,
    /// CPUs per core.
    pub threads: usize,
}

impl Topology {
    /// The ID of a CPU's interrupt controller: a field of bits for each level of the nesting (QEMU, `hw/i386/topology.h`).
    pub(crate) fn apic_id(self, index: usize) -> usize {
        let Self { dies, cores, threads, .. } = self;
        let bits = |count: usize| count.next_power_of_two().trailing_zeros();
        let (thread, core) = (index % threads, index / threads % cores);
        let (die, socket) = (index / (threads * cores) % dies, index / (threads * cores * dies));
        ((((socket << bits(dies)) | die) << bits(cores) | core) << bits(threads)) | thread
    }
}

/// Why a preset cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ShapeError {
    #[error("machine {machine} has no memory: give at least one node some, or ask for it with --memory-per-node")]
    NoMemory { machine: String },
    #[error("machine {machine} has no CPUs: give at least one node some")]
    NoCpus { machine: String },
    #[error("--cpus-per-node 0 leaves no CPU to run on: ask for at least 1")]
    ZeroCpus,
    #[error(
        "{asked} of memory per node is too little: Linux needs {least} in all; ask for more with --memory-per-node"
    )]
    TooLittleMemory { asked: String, least: String },
    #[error("{asked} of memory per node is more than a virtual machine's node may have: {most}")]
    TooMuchMemory { asked: String, most: String },
    #[error("{asked} is not a multiple of {unit}, the unit in which a node gets memory")]
    UnevenMemory { asked: String, unit: String },
    #[error(
        "machine {machine} has {has} CPUs, but QEMU's PC takes at most {CPUS_MAX}: choose a smaller machine or use --cpus-per-node"
    )]
    TooManyCpus { machine: String, has: usize },
    #[error("machine {machine} has {has} nodes, but QEMU takes at most {NODES_MAX}: choose a smaller machine")]
    TooManyNodes { machine: String, has: usize },
}

/// Builds the shape of a virtual machine from a preset.
pub fn shape(preset: &Machine, changes: Changes) -> Result<Shape, ShapeError> {
    let name = || preset.name.clone();
    if changes.cpus_per_node == Some(0) {
        return Err(ShapeError::ZeroCpus);
    }
    let per_node = changes.cpus_per_node.map_or(usize::MAX, |count| count as usize);
    let nested = nested(preset, per_node);
    let numbers = numbers(&nested, changes.cpu_numbers);
    let mut machine = renumbered(preset, &nested.into_iter().zip(numbers.iter().copied()).collect());
    let cpus = machine.cpus().len();
    let nodes = machine.nodes.len();
    // Before the CPUs: fewer of them do not help a machine of too many nodes.
    if nodes > NODES_MAX {
        return Err(ShapeError::TooManyNodes { machine: name(), has: nodes });
    }
    if cpus > CPUS_MAX {
        return Err(ShapeError::TooManyCpus { machine: name(), has: cpus });
    }
    if cpus == 0 {
        return Err(ShapeError::NoCpus { machine: name() });
    }
    let memory = changes.memory_per_node.unwrap_or(MEMORY_PER_NODE);
    let text = machine::size::format;
    if memory > MEMORY_MOST {
        return Err(ShapeError::TooMuchMemory { asked: text(memory), most: text(MEMORY_MOST) });
    }
    if !memory.is_multiple_of(MEMORY_UNIT) {
        return Err(ShapeError::UnevenMemory { asked: text(memory), unit: text(MEMORY_UNIT) });
    }
    for node in machine.nodes.iter_mut().filter(|node| node.memory_bytes > 0) {
        node.memory_bytes = memory;
    }
    match machine.nodes.iter().map(|node| node.memory_bytes).sum::<u64>() {
        0 if memory > 0 => Err(ShapeError::NoMemory { machine: name() }),
        total if total < MEMORY_MIN => {
            Err(ShapeError::TooLittleMemory { asked: text(memory), least: text(MEMORY_MIN) })
        }
        _ => {
            let nodes = preset.nodes.iter().map(|node| node.id).zip(machine.nodes.iter().map(|node| node.id));
            let renumbered = nodes.filter(|(before, now)| before != now).collect();
            let topology = topology(&machine);
            Ok(Shape { memory: place_memory(&machine), topology, machine, numbers, renumbered })
        }
    }
}

impl Shape {
    /// The machine with CPUs as QEMU numbers them: those of a package one after the other, of a node, and of a core.
    pub fn nested(&self) -> Machine {
        renumbered(&self.machine, &self.numbers.iter().copied().zip((0..).map(CpuId)).collect())
    }

    /// What a user has to know of a machine whose caches Linux shows as shared by other CPUs; `None` usually.
    pub fn cache_note(&self) -> Option<String> {
        let Misshown { level, is, seen } = misshown(&self.nested(), self.topology)?;
        let number = |cpus: CpuSet| -> CpuSet {
            cpus.iter().filter_map(|cpu| self.numbers.get(cpu.0 as usize).copied()).collect()
        };
        Some(format!(
            "Linux in the virtual machine shows caches with other CPUs than share them: level {level} of CPUs {} as one of \
             CPUs {}; they are simulated as the machine has them",
            number(is),
            number(seen)
        ))
    }

    /// What a user has to know who asked for this many CPUs of each node; `None` where a node has as many.
    pub fn cpus_note(&self, asked: u32) -> Option<String> {
        let most = self.machine.nodes.iter().map(|node| node.cpus.len()).max().unwrap_or(0);
        let name = &self.machine.name;
        (asked as usize > most)
            .then(|| format!("--cpus-per-node {asked} changes nothing: nodes of {name} have at most {most}"))
    }

    /// What a user of a machine file with gaps in its numbers has to know; `None` where nodes keep their numbers.
    pub fn numbering_note(&self) -> Option<String> {
        /// Nodes that are named.
        const MOST: usize = 8;
        let named = self.renumbered.iter().take(MOST).map(|(before, now)| format!("{before} is node {now}"));
        let more = self.renumbered.len().saturating_sub(MOST);
        let named: Vec<String> = named.chain((more > 0).then(|| format!("{more} more"))).collect();
        let note = format!(
            "Linux numbers the nodes and CPUs of a virtual machine from 0 without gaps; of {}'s nodes, {}",
            self.machine.name,
            named.join(", ")
        );
        (!self.renumbered.is_empty()).then_some(note)
    }
}

/// The CPUs that are kept, the first ones of each node, in QEMU's order: those of a package one after the other, of a
/// node, of a last-level cache, and of a core. That of the lowest number is the first one.
fn nested(preset: &Machine, per_node: usize) -> Vec<CpuId> {
    let packages: Vec<CpuSet> = preset.packages.iter().map(|package| package.cpus.clone()).collect();
    let (packages, caches, cores) = (firsts(&packages), firsts(&last_level_caches(preset)), firsts(&preset.cores()));
    let mut kept: Vec<_> = (preset.nodes.iter())
        .flat_map(|node| node.cpus.iter().take(per_node).map(|cpu| (cpu, node.cpus.first())))
        .map(|(cpu, of_node)| {
            (
                packages.get(&cpu).copied().or(of_node),
                of_node,
                caches.get(&cpu).or(cores.get(&cpu)),
                cores.get(&cpu),
                cpu,
            )
        })
        .collect();
    kept.sort_unstable();
    kept.into_iter().map(|(_, _, _, _, cpu)| cpu).collect()
}

/// The CPUs of each cache of the third level.
fn last_level_caches(machine: &Machine) -> Vec<CpuSet> {
    machine.caches.iter().filter(|cache| cache.level == 3).flat_map(|cache| machine.cache_instances(cache)).collect()
}

/// The first CPU of each CPU's set.
fn firsts(sets: &[CpuSet]) -> BTreeMap<CpuId, CpuId> {
    sets.iter().flat_map(|set| set.iter().filter_map(|cpu| Some((cpu, set.first()?)))).collect()
}

/// Linux's number of each of these CPUs.
fn numbers(nested: &[CpuId], by: CpuNumbers) -> Vec<CpuId> {
    let mut sorted = nested.to_vec();
    sorted.sort_unstable();
    let number = |(index, cpu): (usize, &CpuId)| match by {
        CpuNumbers::Nested => index,
        CpuNumbers::Preset => sorted.partition_point(|other| other < cpu),
    };
    nested.iter().enumerate().map(number).map(|number| CpuId(number as u32)).collect()
}

/// The machine with only these CPUs, with their new numbers, and with nodes numbered from 0 without gaps.
fn renumbered(preset: &Machine, new_cpu: &BTreeMap<CpuId, CpuId>) -> Machine {
    let new_node: BTreeMap<NodeId, NodeId> =
        preset.nodes.iter().enumerate().map(|(new, node)| (node.id, NodeId(new as u32))).collect();
    let cpus = |set: &CpuSet| -> CpuSet { set.iter().filter_map(|cpu| new_cpu.get(&cpu).copied()).collect() };
    let node = |id: NodeId| new_node.get(&id).copied().unwrap_or(id);

    let mut machine = preset.clone();
    for entry in &mut machine.nodes {
        (entry.id, entry.cpus) = (node(entry.id), cpus(&entry.cpus));
    }
    for package in &mut machine.packages {
        package.cpus = cpus(&package.cpus);
    }
    machine.packages.retain(|package| !package.cpus.is_empty());
    let keep = |sets: &[CpuSet], least: usize| sets.iter().map(&cpus).filter(|set| set.len() >= least).collect();
    machine.smt_cores = keep(&preset.smt_cores, 2);
    for cache in &mut machine.caches {
        if let Sharing::Cpus(sets) = &mut cache.shared_by {
            *sets = keep(sets, 1);
        }
    }
    for link in &mut machine.links {
        link.nodes = link.nodes.map(node);
    }
    for route in &mut machine.routes {
        (route.from, route.to) = (node(route.from), node(route.to));
        route.via.iter_mut().for_each(|via| *via = node(*via));
    }
    machine
}

fn place_memory(machine: &Machine) -> Vec<MemoryRange> {
    let total: u64 = machine.nodes.iter().map(|node| node.memory_bytes).sum();
    let low = if total < LOW_MEMORY_ALONE { total } else { LOW_MEMORY };
    let mut ranges = Vec::new();
    let mut start = 0;
    for (node, bytes) in machine.nodes.iter().map(|node| node.memory_bytes).enumerate() {
        let end = start + bytes;
        let (low_end, high_start) = (end.min(low), start.max(low));
        if start < low_end {
            ranges.push(MemoryRange { start, end: low_end, node });
        }
        if high_start < end {
            let move_up = |address: u64| address - low + HIGH_MEMORY;
            ranges.push(MemoryRange { start: move_up(high_start), end: move_up(end), node });
        }
        start = end;
    }
    ranges
}

/// QEMU's dies are the last-level caches, where each is a part of a node, or else the nodes. Linux does not see them, but
/// they have their own ranges of IDs, by which it finds the CPUs that share a cache.
fn topology(machine: &Machine) -> Topology {
    let cpus = machine.cpus().len();
    let threads = machine.smt_cores.first().map_or(1, CpuSet::len);
    let sockets = machine.packages.len().max(1);
    let nodes: Vec<CpuSet> =
        machine.nodes.iter().map(|node| node.cpus.clone()).filter(|node| !node.is_empty()).collect();
    let caches = last_level_caches(machine);
    let is_in_node = |cache: &CpuSet| nodes.iter().any(|node| cache.is_subset(node));
    // IDs of interrupt controllers above 254 need hardware that QEMU's PC lacks: Linux leaves their CPUs out.
    let fits = |each: usize, count: usize| each.next_power_of_two() * count.next_power_of_two() <= CPUS_MAX;
    let caches_alike = caches.iter().all(|cache| cache.len() * caches.len() == cpus && is_in_node(cache));
    let caches = Some(caches.len()).filter(|count| caches_alike && *count > 0 && fits(cpus / count, *count));
    let dies = caches.unwrap_or(nodes.len()) / sockets;
    let cores = cpus / (sockets * dies.max(1) * threads);
    let topology = Topology { sockets, dies, cores, threads };
    let nodes_alike = nodes.iter().all(|node| node.len() == cpus / nodes.len());
    let packages_alike = machine.packages.iter().all(|package| package.cpus.len() * sockets == cpus);
    let cores_alike = threads == 1 || machine.smt_cores.iter().map(CpuSet::len).all(|size| size == threads);
    let covers = sockets * dies * cores * threads == cpus && [0, cpus].contains(&(machine.smt_cores.len() * threads));
    // Also, the table of CPUs that names them has a byte for each.
    let fits = || cpus == 0 || topology.apic_id(cpus - 1) < CPUS_MAX;
    // Of numbers that do not cover the CPUs, some may be 0.
    if nodes_alike && packages_alike && cores_alike && covers && fits() {
        topology
    } else {
        // QEMU nests CPUs evenly or not at all; Linux gets the nodes separately, and they stay right.
        let dies = caches.unwrap_or(1);
        Topology { sockets: 1, dies, cores: cpus / dies, threads: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(toml: &str) -> Machine {
        Machine::from_toml(toml, std::path::Path::new("test.toml")).unwrap_or_else(|why| panic!("{why}"))
    }

    fn small() -> Machine {
        preset(
            r#"
            name = "small"
            smt_cores = ["0,8", "1,9", "2,10", "3,11"]
            package = [{ id = 0, cpus = "0-1,8-9" }, { id = 1, cpus = "2-3,10-11" }]
            node = [
                { id = 0, cpus = "0-1,8-9", memory_bytes = "8G" },
                { id = 4, cpus = "2-3,10-11", memory_bytes = "8G" },
                { id = 9, memory_bytes = "8G" },
            ]
            cache = [{ level = 2, kind = "unified", size_bytes = "512K", ways = 16, line_bytes = 64, shared_by = ["0,8", "1,9", "2,10", "3,11"] }]
            "#,
        )
    }

    /// Packages and cores of any sizes, in one node or two, without caches.
    #[test]
    fn no_nesting_of_cpus_is_too_uneven() {
        let list = |cpus: &[usize]| cpus.iter().map(|cpu| CpuId(*cpu as u32)).collect::<CpuSet>();
        let mut machine = small();
        machine.caches.clear();
        for count in 1..=6_usize {
            let cpus: Vec<usize> = (0..count).collect();
            // Each bit says whether a package, or a core, ends after a CPU.
            for (packages, cores) in (0..1 << (count - 1)).flat_map(|a| (0..1 << (count - 1)).map(move |b| (a, b | a)))
            {
                let split = |ends: usize| cpus.chunk_by(move |cpu, _| ends & (1 << cpu) == 0).map(list);
                machine.smt_cores = split(cores).collect();
                machine.packages = split(packages)
                    .zip(0..)
                    .map(|(cpus, id)| machine::Package { id: machine::PackageId(id), cpus })
                    .collect();
                for first in 1..=count {
                    (machine.nodes[0].cpus, machine.nodes[1].cpus) = (list(&cpus[..first]), list(&cpus[first..]));
                    let Topology { sockets, dies, cores, threads } = topology(&machine);
                    assert_eq!(sockets * dies * cores * threads, count, "{machine:?}");
                }
            }
        }
    }

    #[test]
    fn cpus_and_nodes_are_numbered_as_qemu_does() -> Result<(), ShapeError> {
        let shape = shape(&small(), Changes::default())?;
        let cpus: Vec<String> = shape.machine.nodes.iter().map(|node| node.cpus.to_string()).collect();
        assert_eq!(cpus, ["0-3", "4-7", ""]);
        assert_eq!(
            shape.machine.cores().iter().map(CpuSet::to_string).collect::<Vec<_>>(),
            ["0-1", "2-3", "4-5", "6-7"]
        );
        assert_eq!(shape.topology, Topology { sockets: 2, dies: 1, cores: 2, threads: 2 });
        assert_eq!(shape.machine.nodes[2].id, NodeId(2));
        let note = "Linux numbers the nodes and CPUs of a virtual machine from 0 without gaps; of small's nodes, 4 is node 1, \
                    9 is node 2";
        assert_eq!(shape.numbering_note().as_deref(), Some(note));
        assert_eq!((shape.cpus_note(4), shape.cpus_note(5).is_some()), (None, true));
        Ok(())
    }

    #[test]
    fn cpus_and_nodes_are_numbered_as_the_preset_does() -> Result<(), ShapeError> {
        let changes = Changes { cpu_numbers: CpuNumbers::Preset, ..Changes::default() };
        let numbered = shape(&small(), changes)?;
        let sets = |machine: &Machine| -> Vec<Vec<String>> {
            let nodes = machine.nodes.iter().map(|node| node.cpus.to_string()).collect();
            vec![nodes, machine.cores().iter().map(CpuSet::to_string).collect()]
        };
        // Numbers 4 to 7 are missing in the preset.
        assert_eq!(sets(&numbered.machine)[0], ["0-1,4-5", "2-3,6-7", ""]);
        assert_eq!(sets(&numbered.machine)[1], ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(numbered.numbers, [0, 4, 1, 5, 2, 6, 3, 7].map(CpuId));
        assert_eq!(sets(&numbered.nested()), sets(&shape(&small(), Changes::default())?.machine));
        // The CPU that boots has the lowest number, also where not all have a package.
        let mut partly = small();
        partly.packages.remove(1);
        assert_eq!(shape(&partly, changes)?.numbers[0], CpuId(0));
        Ok(())
    }

    #[test]
    fn interrupt_controllers_have_a_field_of_bits_for_each_level() {
        let topology = Topology { sockets: 4, dies: 2, cores: 6, threads: 1 };
        let ids: Vec<usize> = [0, 5, 6, 11, 12, 47].map(|index| topology.apic_id(index)).to_vec();
        assert_eq!(ids, [0, 5, 8, 13, 16, 61]);
    }

    /// Linux leaves out CPUs whose interrupt controllers have larger numbers than its PC has room for.
    #[test]
    fn packages_whose_numbers_of_interrupt_controllers_are_too_large_are_not_shown() {
        // Three nodes of 40 cores need 2 and 6 bits for the numbers of a package.
        let of_node = |node: usize| (0..40).map(|core| (6 * core + node).to_string()).collect::<Vec<_>>().join(",");
        let of_package = |first: usize| [first, first + 2, first + 4].map(of_node).join(",");
        let package = |id: usize| format!("{{ id = {id}, cpus = \"{}\" }}", of_package(id));
        let node = |id: usize| format!("{{ id = {id}, cpus = \"{}\", memory_bytes = \"8G\" }}", of_node(id));
        let packages = [0, 1].map(package).join(",");
        let nodes = [0, 1, 2, 3, 4, 5].map(node).join(",");
        let machine = preset(&format!("name = \"turns\"\npackage = [{packages}]\nnode = [{nodes}]\n"));
        for cpu_numbers in [CpuNumbers::Preset, CpuNumbers::Nested] {
            let made = shape(&machine, Changes { cpu_numbers, ..Changes::default() }).unwrap();
            assert_eq!(made.topology, Topology { sockets: 1, dies: 1, cores: 240, threads: 1 });
            assert_eq!(made.topology.apic_id(239), 239);
        }
    }

    #[test]
    fn memory_leaves_out_the_hole_below_4_gib() -> Result<(), ShapeError> {
        let ranges = |gib: u64| {
            let changes = Changes { memory_per_node: Some(gib << 30), cpus_per_node: None, ..Changes::default() };
            shape(&small(), changes).map(|shape| {
                shape.memory.iter().map(|range| (range.start >> 30, range.end >> 30, range.node)).collect::<Vec<_>>()
            })
        };
        assert!(matches!(ranges(1 << 33), Err(ShapeError::TooMuchMemory { .. })), "the sum would be too large");
        assert_eq!(ranges(1)?, [(0, 1, 0), (1, 2, 1), (2, 3, 2)]);
        assert_eq!(ranges(2)?, [(0, 2, 0), (2, 3, 1), (4, 5, 1), (5, 7, 2)]);
        Ok(())
    }

    #[test]
    fn fewer_cpus_a_node_keep_the_shape() -> Result<(), ShapeError> {
        let shape = shape(&small(), Changes { memory_per_node: None, cpus_per_node: Some(2), ..Changes::default() })?;
        assert_eq!(shape.machine.cpus().len(), 4);
        assert!(shape.machine.smt_cores.is_empty(), "the first two CPUs of each node are two cores");
        assert_eq!(shape.topology, Topology { sockets: 2, dies: 1, cores: 2, threads: 1 });
        Ok(())
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let with = |memory, cpus| {
            shape(&small(), Changes { memory_per_node: memory, cpus_per_node: cpus, ..Changes::default() }).err()
        };
        assert_eq!(with(None, Some(0)), Some(ShapeError::ZeroCpus));
        assert!(matches!(with(Some(64 << 20), None), Some(ShapeError::TooLittleMemory { .. })));
        assert!(matches!(with(Some((1 << 30) + 1), None), Some(ShapeError::UnevenMemory { .. })));
        let mut huge = small();
        huge.nodes[0].cpus = (0..300).map(CpuId).collect();
        assert!(matches!(shape(&huge, Changes::default()), Err(ShapeError::TooManyCpus { has: 300, .. })));
        let node = small().nodes.remove(0);
        huge.nodes = (0..129).map(|id| machine::Node { id: NodeId(id), ..node.clone() }).collect();
        let why = shape(&huge, Changes::default()).unwrap_err();
        assert!(matches!(why, ShapeError::TooManyNodes { has: 129, .. }), "{why}");
        assert!(!why.to_string().contains("--cpus-per-node"), "no CPU is too many: {why}");
    }
}
