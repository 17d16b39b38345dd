//! The feature sections of perf.data, which describe the machine and the recording. In pipe mode they are records.

use crate::attribute::Attribute;
use crate::bytes::Bytes;
use crate::cpu_core::{Core, main_id};
use machine::{CpuId, CpuSet, Machine, Node, NodeId, Source};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Key of perf.data in the sources of the machine description.
const PERF: &str = "perf";

/// From the kernel's tools/perf/util/header.h.
const BUILD_ID: u32 = 2;
const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;
const VERSION: u32 = 5;
const ARCH: u32 = 6;
const NRCPUS: u32 = 7;
const CPUDESC: u32 = 8;
const CPUID: u32 = 9;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;
const NUMA_TOPOLOGY: u32 = 14;
const MEM_TOPOLOGY: u32 = 22;

/// Maximum length of a list; perf writes shorter ones.
const MAX_WORDS: u32 = 1 << 16;
/// 64 TiB in blocks of 128 MiB.
const MAX_BLOCKS: usize = 1 << 19;
/// Flag of newer perf versions: the byte after a build ID is its length.
const BUILD_ID_SIZE: u16 = 1 << 15;

/// What a file contains besides its records.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// The host's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// perf's version.
    pub version: String,
    /// The architecture, as printed by `uname -m`.
    pub architecture: String,
    /// The command that recorded.
    pub command: Vec<String>,
    /// Names of events, with the IDs of their counters.
    events: Vec<Attribute>,
    /// The processor's base frequency, in GHz: cycles per nanosecond.
    pub cycles_per_ns: Option<f64>,
    /// The main ID register on Arm; 0 otherwise.
    processor: u64,
    /// Core types of individual CPUs, which may differ on Arm.
    pub cores: HashMap<CpuId, Core>,
    /// Conversion of Arm's generic timer to a time.
    pub timer: Option<Timer>,
    /// Build IDs by path.
    pub build_ids: HashMap<String, Arc<[u8]>>,
    /// Number of CPUs, if all are online.
    all_cpus: Option<u32>,
    nodes: Vec<Node>,
    node_of_cpu: HashMap<CpuId, NodeId>,
    /// Physical address ranges, sorted.
    memory: Vec<(Range<u64>, NodeId)>,
}

/// Conversion of a counter to the time of perf's clock: `struct perf_record_time_conv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    shift: u32,
    multiplier: u64,
    zero: u64,
    /// For counters of fewer than 64 bits: a reference count, and a mask of the valid bits.
    short: Option<(u64, u64)>,
}

impl Timer {
    pub(crate) fn parse(body: Bytes<'_>) -> Option<Self> {
        let mut from = body;
        let (shift, multiplier, zero) = (u32::try_from(from.u64()?).ok()?, from.u64()?, from.u64()?);
        // Older kernels give no more fields.
        let short =
            from.u64().zip(from.u64()).filter(|_| from.u16().is_some_and(|capabilities| capabilities >> 8 != 0));
        (shift < 64).then_some(Self { shift, multiplier, zero, short })
    }

    /// Converts a count to a time. `None` if the time is too far in the future.
    pub fn ns(self, count: u64) -> Option<u64> {
        let count = match self.short {
            Some((known, mask)) => known.wrapping_add(count.wrapping_sub(known) & mask),
            None => count,
        };
        let ns = (u128::from(count) * u128::from(self.multiplier)) >> self.shift;
        // The zero of the clock may be before that of the counter.
        u64::try_from(ns).ok().map(|ns| ns.wrapping_add(self.zero))
    }
}

impl Features {
    /// Those of a machine: its nodes, the node of each CPU, and the physical memory of each node, sorted by address.
    pub fn of_nodes(nodes: Vec<Node>, node_of_cpu: HashMap<CpuId, NodeId>, memory: Vec<(Range<u64>, NodeId)>) -> Self {
        Self { nodes, node_of_cpu, memory, ..Self::default() }
    }

    /// Whether this section is used here.
    pub(crate) fn knows(feature: u32) -> bool {
        let known = [
            BUILD_ID,
            HOSTNAME,
            OSRELEASE,
            VERSION,
            ARCH,
            NRCPUS,
            CPUDESC,
            CPUID,
            CMDLINE,
            EVENT_DESC,
            NUMA_TOPOLOGY,
            MEM_TOPOLOGY,
        ];
        known.contains(&feature)
    }

    /// Reads a section. Sections that cannot be parsed leave the fields unknown: records do not depend on them.
    pub(crate) fn read(&mut self, feature: u32, section: Bytes<'_>) {
        let mut from = section;
        let text = |mut from: Bytes<'_>| from.counted_text().unwrap_or_default();
        match feature {
            HOSTNAME => self.host = text(section),
            OSRELEASE => self.kernel = text(section),
            VERSION => self.version = text(section),
            ARCH => self.architecture = text(section),
            NRCPUS => {
                let counts = from.u32().zip(from.u32());
                self.all_cpus = counts.filter(|(there, online)| there == online).map(|(cpus, _)| cpus);
            }
            CPUDESC => self.cycles_per_ns = self.cycles_per_ns.or_else(|| gigahertz(&text(section))),
            CPUID => self.processor = main_id(&text(section)),
            CMDLINE => self.command = command(section).unwrap_or_default(),
            EVENT_DESC => self.events = events(section).unwrap_or_default(),
            NUMA_TOPOLOGY => {
                self.nodes = nodes(section).unwrap_or_default();
                let cpus = |node: &Node| node.cpus.iter().map(|cpu| (cpu, node.id)).collect::<Vec<_>>();
                self.node_of_cpu = self.nodes.iter().flat_map(cpus).collect();
            }
            MEM_TOPOLOGY => self.memory = memory(section).unwrap_or_default(),
            BUILD_ID => while self.read_build_id(&mut from).is_some() {},
            _ => {}
        }
    }

    /// `struct perf_record_header_build_id`, with its header.
    fn read_build_id(&mut self, from: &mut Bytes<'_>) -> Option<()> {
        let (_type, misc, size) = (from.u32()?, from.u16()?, from.u16()?);
        let body = from.take(u64::from(size).checked_sub(8)?)?;
        self.add_build_id(misc, body)
    }

    /// Takes the body of such a record.
    pub(crate) fn add_build_id(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        let mut body = body;
        let _pid = body.u32()?;
        let Bytes(id) = body.take(20)?;
        let length = body.take(4)?.0.first().copied()?;
        let length = if misc & BUILD_ID_SIZE != 0 { usize::from(length) } else { 20 };
        let id = id.get(..length)?;
        self.build_ids.insert(body.text(), Arc::from(id));
        Some(())
    }

    /// The node of a CPU.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.node_of_cpu.get(&cpu).copied()
    }

    /// The core type of a CPU.
    pub fn core(&self, cpu: CpuId) -> Core {
        self.cores.get(&cpu).copied().unwrap_or_else(|| self.all_cores())
    }

    /// The core type of all CPUs without one of their own.
    pub fn all_cores(&self) -> Core {
        Core { processor: self.processor, cycles_per_ns: self.cycles_per_ns }
    }

    /// The CPU of a counter: perf opens one on each CPU, in order.
    pub fn cpu_of_counter(&self, event: &Attribute, id: u64) -> Option<u32> {
        let all = self.all_cpus? as usize == event.ids.len();
        let index = event.ids.iter().position(|counter| *counter == id).filter(|_| all)?;
        u32::try_from(index).ok()
    }

    /// The node of a physical address.
    pub fn node_of_memory(&self, address: u64) -> Option<NodeId> {
        let index = self.memory.partition_point(|(range, _)| range.end <= address);
        self.memory.get(index).filter(|(range, _)| range.contains(&address)).map(|(_, node)| *node)
    }

    /// Whether a physical address is outside memory. `false` if the memory is unknown.
    pub fn is_outside_of_memory(&self, address: u64) -> bool {
        !self.memory.is_empty() && self.node_of_memory(address).is_none()
    }

    /// The machine's nodes with their CPUs and memory, which is all that perf records.
    pub fn machine(&self) -> Option<Machine> {
        let source = || Some(Source::All(PERF.to_owned()));
        let machine = Machine {
            name: "recorded".to_owned(),
            description: self.host.clone(),
            sources: BTreeMap::from([(PERF.to_owned(), "the perf.data file".to_owned())]),
            smt_cores: Vec::new(),
            core: None,
            coherence: None,
            control: None,
            disk: None,
            latency: None,
            distances: None,
            packages: Vec::new(),
            nodes: self.nodes.iter().map(|node| Node { source: source(), ..node.clone() }).collect(),
            caches: Vec::new(),
            tlbs: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
        };
        (!machine.nodes.is_empty() && machine.validate().is_empty()).then_some(machine)
    }

    /// The physical memory of each node, sorted by address; empty if perf did not record it.
    pub fn memory(&self) -> &[(Range<u64>, NodeId)] {
        &self.memory
    }

    /// The only other node, if there are exactly two.
    pub fn other_node(&self, node: NodeId) -> Option<NodeId> {
        match self.nodes.as_slice() {
            [a, b] if a.id == node => Some(b.id),
            [a, b] if b.id == node => Some(a.id),
            _ => None,
        }
    }

    /// Names of events, by the IDs of their counters.
    pub(crate) fn names(&self) -> HashMap<u64, &str> {
        let mut names = HashMap::new();
        for event in &self.events {
            for id in &event.ids {
                names.entry(*id).or_insert(event.name.as_str());
            }
        }
        names
    }

    /// The name of the event with this number.
    pub(crate) fn name_of(&self, number: usize) -> Option<&str> {
        self.events.get(number).map(|event| event.name.as_str())
    }
}

/// Parses `Intel(R) Xeon(R) CPU E5-2660 v4 @ 2.00GHz`.
fn gigahertz(description: &str) -> Option<f64> {
    let (_, clock) = description.rsplit_once("@ ")?;
    clock.trim().strip_suffix("GHz")?.parse().ok().filter(|clock| *clock > 0.0)
}

fn command(mut from: Bytes<'_>) -> Option<Vec<String>> {
    let count = from.u32()?.min(MAX_WORDS);
    (0..count).map(|_| from.counted_text()).collect()
}

fn events(mut from: Bytes<'_>) -> Option<Vec<Attribute>> {
    let (count, size) = (from.u32()?.min(MAX_WORDS), from.u32()?);
    let event = |from: &mut Bytes<'_>| {
        let (attribute, _) = Attribute::parse(from.take(size.into())?)?;
        let count = from.u32()?;
        let name = from.counted_text()?;
        let ids = from.take_u64s(count.into())?.u64s().collect();
        Some(Attribute { name, ids, ..attribute })
    };
    (0..count).map(|_| event(&mut from)).collect()
}

fn new_node(id: NodeId, cpus: CpuSet, memory_bytes: u64) -> Node {
    Node { id, cpus, memory_bytes, bandwidth_bytes_per_s: None, write_cost: None, source: None }
}

fn nodes(mut from: Bytes<'_>) -> Option<Vec<Node>> {
    let count = from.u32()?.min(MAX_WORDS);
    let node = |from: &mut Bytes<'_>| {
        let id = NodeId(from.u32()?);
        let (all_kib, _free_kib) = (from.u64()?, from.u64()?);
        let cpus = from.counted_text()?.parse().unwrap_or_default();
        Some(new_node(id, cpus, all_kib.saturating_mul(1024)))
    };
    let mut nodes: Vec<Node> = Vec::new();
    let mut known = CpuSet::default();
    for _ in 0..count {
        let node = node(&mut from)?;
        // A CPU is of one node. Names of large sets are short, so that a small file could name them again and again.
        if !known.intersection(&node.cpus).is_empty() {
            return None;
        }
        known.insert_all(&node.cpus);
        nodes.push(node);
    }
    nodes.sort_by_key(|node| node.id);
    Some(nodes)
}

/// Parses memory by node: a bit for each block.
fn memory(mut from: Bytes<'_>) -> Option<Vec<(Range<u64>, NodeId)>> {
    let (version, block, count) = (from.u64()?, from.u64()?, from.u64()?);
    if version != 1 || count > u64::from(MAX_WORDS) {
        return None;
    }
    let mut memory = Vec::new();
    for _ in 0..count {
        let node = NodeId(u32::try_from(from.u64()?).ok()?);
        let (_blocks, bits) = (from.u64()?, from.u64()?);
        let words = from.take_u64s(bits.div_ceil(64))?.u64s();
        let set = words
            .zip(0_u64..)
            .flat_map(|(word, at)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit));
        for number in set.take(MAX_BLOCKS.saturating_sub(memory.len())) {
            let start = number.checked_mul(block)?;
            memory.push((start..start.checked_add(block)?, node));
        }
    }
    Some(joined(memory))
}

/// Sorts the ranges, and joins adjacent ones of a node.
fn joined(mut memory: Vec<(Range<u64>, NodeId)>) -> Vec<(Range<u64>, NodeId)> {
    memory.sort_by_key(|(range, _)| range.start);
    memory.dedup_by(|(next, node), (range, before)| {
        let continues = node == before && next.start == range.end;
        range.end = if continues { next.end } else { range.end };
        continues
    });
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_timer_become_times() {
        let timer =
            |words: &[u64]| Timer::parse(Bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>()));
        // 25 MHz: 40 ns per count, minus an offset of 1000 ns.
        let plain = timer(&[20, 40 << 20, 1000_u64.wrapping_neg()]).unwrap();
        assert_eq!(plain.ns(1_000_000), Some(39_999_000));
        assert_eq!(plain.ns(u64::MAX), None);
        // A 56-bit counter that has wrapped.
        let known = (3 << 56) - 10;
        let short = timer(&[0, 1, 0, known, (1 << 56) - 1, 0x0101]).unwrap();
        assert_eq!(short.ns(5), Some((3 << 56) + 5));
        assert_eq!(timer(&[0, 1, 0, known, (1 << 56) - 1, 0x0001]).unwrap().ns(5), Some(5));
        assert_eq!(timer(&[64, 1, 0]), None);
        assert_eq!(timer(&[20, 1]), None);
    }

    #[test]
    fn nodes_that_share_cpus_are_not_believed() {
        let node = |id: u32, cpus: &str| {
            let length = (cpus.len() as u32).to_le_bytes();
            [&id.to_le_bytes()[..], &[0; 16], &length, cpus.as_bytes()].concat()
        };
        let known = |cpus: [&str; 2]| {
            let section = [&2_u32.to_le_bytes()[..], &node(0, cpus[0]), &node(1, cpus[1])].concat();
            nodes(Bytes(&section)).map(|nodes| nodes.iter().map(|node| node.cpus.len()).collect::<Vec<_>>())
        };
        assert_eq!(known(["0-3", "4-5"]), Some(vec![4, 2]));
        assert_eq!(known(["0-1048575", "0-1048575"]), None);
    }

    #[test]
    fn cpus_have_their_own_core_or_that_of_all() {
        let own = Core { processor: 0x410f_d0c0, cycles_per_ns: Some(2.5) };
        let known = Features { processor: 7, cores: HashMap::from([(CpuId(3), own)]), ..Features::default() };
        assert_eq!([3, 4].map(|cpu| known.core(CpuId(cpu)).processor), [0x410f_d0c0, 7]);
        assert_eq!((own.nanoseconds(250), own.nanoseconds(0)), (Some(100.0), None));
    }
}
