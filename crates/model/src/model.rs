//! The whole memory system of a machine.

mod measurement;

use crate::cache::{ALL_WAYS, Cache, Found};
use crate::checked_parts::{caches, core};
use crate::coherence::{self, Asked, Coherence, Peer, Supplier};
use crate::controls::{ControlHardware, Controls, Share};
use crate::core::{Core, Miss};
use crate::cpu::{Counts, Cpu, CpuCaches, LineCounts};
use crate::lines_in_turns::Moment;
use crate::memory_map::MemoryMap;
use crate::own_counts::add;
use crate::resources::{Lines, LinkEnds, Resources, columns, link_ends};
use crate::siblings::{PathUse, Siblings};
use crate::streams::Streams;
use crate::throttle::Throttle;
use crate::tlb::{Tlb, Translated, may_be_huge};
use crate::totals::Totals;
use crate::windows::Windows;
use crate::write_buffer::WriteBuffer;
use crate::{
    Access, AccessKind, LINE_BYTES, Level, Mechanism, Mechanisms, MemoryRange, ModelError, PageEntry, Request,
};
use machine::{CpuId, Machine, NodeId};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The memory system of a machine.
///
/// CPUs and nodes are numbered densely from 0, in ascending order of their IDs. Any thread may use the model at any
/// time, but each CPU's [`Model::access`] only one thread at a time.
pub struct Model {
    cpus: Box<[Cpu]>,
    caches: Box<[Cache]>,
    map: MemoryMap,
    windows: Windows,
    /// The time of the slowest active CPU, ps.
    slowest_ps: AtomicU64,
    coherence: Option<Coherence>,
    writes_back: bool,
    nodes: Box<[NodeId]>,
    links: Box<[LinkEnds]>,
    /// Nodes with memory: index and bandwidth, bytes/s.
    controllers: Box<[(usize, f64)]>,
    ps_per_instruction: f64,
    /// The counts when the measurement began.
    began: Mutex<Totals>,
    control: Option<ControlHardware>,
}

/// A line that missed L1.
struct Fetched {
    level: Level,
    node: u16,
    /// Its latency, ps.
    latency_ps: u32,
    keep: bool,
    /// Whether another cache had modified it.
    modified: bool,
    /// How long the CPU waits for its share of bandwidth, or for a line that is on its way already, ps.
    waits_ps: u64,
}

impl Fetched {
    /// A line of a cache.
    fn cached(level: Level, node: u16, latency_ps: u32) -> Self {
        Self { level, node, latency_ps, keep: true, modified: false, waits_ps: 0 }
    }
}

impl Model {
    /// Creates a model with empty caches at time 0, for a machine with this physical memory, which may be less than the
    /// description's. Fails if the description lacks the core, latencies, caches or bandwidths; the error names the
    /// field. Parts whose numbers the description lacks are disabled.
    pub fn new(machine: &Machine, memory: &[MemoryRange], mechanisms: &Mechanisms) -> Result<Self, ModelError> {
        let machine = &mechanisms.applied_to(machine);
        let nodes: Box<[NodeId]> = machine.nodes.iter().map(|node| node.id).collect();
        if nodes.len() > usize::from(u16::MAX) {
            return Err(ModelError::OutOfRange {
                machine: machine.name.clone(),
                field: "the number of nodes".to_owned(),
                value: nodes.len().to_string(),
                rule: "the model supports at most 65,535",
            });
        }
        let core = core(machine)?;
        let map = MemoryMap::new(memory, nodes.len())?;
        let resources = Resources::new(machine, memory)?;
        let (caches, cpu_caches) = caches(machine, &map)?;
        let mut homes: Vec<(CpuId, u16)> = Vec::new();
        for (index, node) in machine.nodes.iter().enumerate() {
            homes.extend(node.cpus.iter().map(|cpu| (cpu, index as u16)));
        }
        homes.sort_unstable();
        let ps_per_instruction = 1e12 / (core.clock_hz * core.instructions_per_cycle);
        let mut cores: Vec<coherence::Core> = Vec::new();
        let mut by_cache = HashMap::new();
        let mut core_of = |node, caches: CpuCaches| {
            *by_cache.entry(caches.data).or_insert_with(|| {
                cores.push(coherence::Core { node, caches });
                cores.len() - 1
            })
        };
        let cpus: Box<[Cpu]> = homes
            .iter()
            .zip(cpu_caches)
            .map(|(&(_, node), caches)| {
                Ok(Cpu {
                    node,
                    caches,
                    core_index: core_of(node, caches),
                    core: Core::new(core, ps_per_instruction),
                    tlb: Tlb::new(machine)?,
                    path_use: PathUse::default(),
                    counts: Counts::default(),
                    found_hits: Counts::default(),
                    streams: Streams::default(),
                    lines: LineCounts::new(columns(nodes.len())),
                    write_buffer: WriteBuffer::new(core.stream_lines),
                    level3_ways: AtomicU64::new(ALL_WAYS),
                    throttle: Throttle::default(),
                })
            })
            .collect::<Result<_, ModelError>>()?;
        let has_memory = |index: &usize| memory.iter().any(|range| range.node == *index);
        let bandwidth = |index: usize| machine.nodes[index].bandwidth_bytes_per_s.map(|bandwidth| (index, bandwidth));
        let began = Totals::zero(nodes.len() * columns(nodes.len()));
        let siblings = Siblings::new(machine, mechanisms.has(Mechanism::Siblings));
        Ok(Self {
            cpus,
            caches,
            coherence: Coherence::new(machine, cores, map.end)?,
            writes_back: mechanisms.has(Mechanism::WriteBacks),
            map,
            windows: Windows::new(resources, siblings, nodes.len()),
            slowest_ps: AtomicU64::new(0),
            links: link_ends(machine).into(),
            controllers: (0..nodes.len()).filter(has_memory).filter_map(bandwidth).collect(),
            nodes,
            ps_per_instruction,
            began: Mutex::new(began),
            control: ControlHardware::of(machine),
        })
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Time of an instruction that waits for nothing, ps.
    pub fn ps_per_instruction(&self) -> f64 {
        self.ps_per_instruction
    }

    /// The largest power of 2 that divides the numbers of sets of all L1 data caches.
    pub fn common_l1_sets(&self) -> u64 {
        let sets = self.cpus.iter().filter_map(|cpu| Some(self.caches.get(cpu.caches.data as usize)?.sets()));
        1 << sets.map(u64::trailing_zeros).min().unwrap_or(0)
    }

    /// A CPU's access at its own time, ps. `page_entry` is called for a page that is in no TLB, and returns the page
    /// table entry with the frame, which the walk reads. If it returns `None`, the walk takes no time.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    #[inline]
    pub fn access(
        &self,
        cpu: usize,
        time_ps: u64,
        request: Request,
        page_entry: impl FnOnce() -> Option<PageEntry>,
    ) -> Access {
        let cpu = &self.cpus[cpu];
        let Request { kind, physical, virtual_address, .. } = request;
        let line = physical / LINE_BYTES;
        add(cpu.counts.of(kind), 1);
        let translation_ps = match cpu.tlb.as_ref().map(|tlb| (tlb, tlb.translate(virtual_address, physical))) {
            None => 0,
            Some((_, Translated::Known(ps))) => ps,
            Some((tlb, Translated::Unknown)) => {
                let entry = page_entry();
                let huge = entry.map_or_else(|| may_be_huge(virtual_address, physical), |entry| entry.huge);
                tlb.learn(virtual_address, huge);
                self.walk(cpu, tlb, time_ps, entry)
            }
        };
        let first = if kind == AccessKind::Instruction { cpu.caches.instruction } else { cpu.caches.data };
        let Some(cache) = self.caches.get(first as usize) else {
            return self.miss(cpu, time_ps, &request, translation_ps);
        };
        let (mut stall_ps, mut keep, mut first_write) = (0, true, false);
        match cache.access(line, kind == AccessKind::Store) {
            Found::Missed(written) => {
                if let Some(written) = written.filter(|_| first == cpu.caches.last) {
                    self.write_back(cpu, time_ps, self.windows.slot(time_ps), written);
                }
                return self.miss(cpu, time_ps, &request, translation_ps);
            }
            Found::Dirtied => {
                let slot = self.windows.slot(time_ps);
                if first != cpu.caches.last {
                    self.dirty(cpu, time_ps, slot, line);
                }
                (stall_ps, keep) = self.take(cpu, time_ps, slot, line);
                first_write = true;
            }
            Found::Hit => {}
        }
        if translation_ps > 0 {
            stall_ps += cpu.core.translation_ps(time_ps + stall_ps, translation_ps);
        }
        let latency_ps = cache.latency_ps.saturating_add(translation_ps);
        Access { stall_ps, latency_ps, node: cpu.node, level: Level::L1, wants_value: false, first_write, keep }
    }

    /// Passes a value that was loaded from the line of the last access with `wants_value`.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    #[inline]
    pub fn loaded(&self, cpu: usize, value: u64) {
        self.cpus[cpu].core.reorder.loaded(value);
    }

    /// Stall of a CPU, by its own time, for loads that it cannot run further ahead of, ps. Must be added to its time
    /// before other CPUs see that time.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    pub fn catch_up(&self, cpu: usize, time_ps: u64) -> u64 {
        self.cpus[cpu].core.reorder.catch_up(time_ps)
    }

    /// Flushes a CPU's TLBs, as it switched to another address space, or its own has changed.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    pub fn forget_pages(&self, cpu: usize) {
        if let Some(tlb) = &self.cpus[cpu].tlb {
            tlb.forget();
        }
    }

    /// Counts L1 hits that the caller has detected itself: repeated use of the most recent line of a set, which changes
    /// no state. Any thread may add them.
    ///
    /// # Panics
    ///
    /// When there is no such CPU.
    pub fn add_l1_hits(&self, cpu: usize, loads: u64, stores: u64) {
        let hits = &self.cpus[cpu].found_hits;
        hits.loads.fetch_add(loads, Relaxed);
        hits.stores.fetch_add(stores, Relaxed);
    }

    /// Reads a page table entry. A CPU has one walker, so walks are serialized. Returns the latency, ps.
    #[cold]
    fn walk(&self, cpu: &Cpu, tlb: &Tlb, time_ps: u64, entry: Option<PageEntry>) -> u32 {
        add(&cpu.counts.page_walks, 1);
        let Some(entry) = entry else { return 0 };
        let slot = self.windows.slot(time_ps);
        let latency_ps = self.fetch(cpu, time_ps, slot, entry.address / LINE_BYTES, AccessKind::Load).latency_ps;
        // A walker is never busy beyond the latency of a few lines, unless time went back.
        let latest = time_ps + 16 * u64::from(latency_ps);
        let begin = tlb.walker_until_ps.load(Relaxed).clamp(time_ps, latest);
        let end = begin + u64::from(latency_ps);
        tlb.walker_until_ps.store(end, Relaxed);
        u32::try_from(end - time_ps).unwrap_or(u32::MAX)
    }

    fn miss(&self, cpu: &Cpu, time_ps: u64, request: &Request, translation_ps: u32) -> Access {
        let &Request { kind, physical, virtual_address, instruction } = request;
        let line = physical / LINE_BYTES;
        let slot = self.windows.slot(time_ps);
        let Fetched { level, node, latency_ps, keep, modified, waits_ps } = self.fetch(cpu, time_ps, slot, line, kind);
        if level == Level::L1 {
            let translated_ps = if translation_ps > 0 { cpu.core.translation_ps(time_ps, translation_ps) } else { 0 };
            let (stall_ps, latency_ps) = (translated_ps + waits_ps, latency_ps.saturating_add(translation_ps));
            return Access { stall_ps, latency_ps, node, level, wants_value: false, first_write: false, keep };
        }
        add(&cpu.counts.l1_misses, 1);
        let in_stream = cpu.streams.miss(line);
        add(&cpu.counts.stream_misses, u64::from(in_stream));
        let wants_value = !in_stream && kind == AccessKind::Load && cpu.core.reorder.overlaps();
        let after_ps = if wants_value { cpu.core.reorder.producer(instruction, virtual_address) } else { 0 };
        match level {
            Level::L2 => add(&cpu.counts.l2_hits, 1),
            Level::L3 => add(&cpu.counts.l3_hits, 1),
            Level::Peer => {
                add(&cpu.counts.peer_hits, 1);
                add(&cpu.counts.peer_modified_hits, u64::from(modified));
            }
            Level::L1 | Level::Dram => {}
        }
        let miss = Miss { kind, in_stream, level, latency_ps, translation_ps, after_ps, alone: !keep };
        let room_ps = cpu.write_buffer.wait_ps(time_ps);
        let time_ps = time_ps + room_ps;
        let stall_ps =
            room_ps + waits_ps + cpu.core.stall_ps(time_ps, &miss, |busy_ps| cpu.path_use.stretched(slot, busy_ps));
        let latency_ps = latency_ps.saturating_add(translation_ps);
        Access { stall_ps, latency_ps, node, level, wants_value, first_write: false, keep }
    }

    /// Fetches a line that missed L1.
    fn fetch(&self, cpu: &Cpu, time_ps: u64, slot: usize, line: u64, kind: AccessKind) -> Fetched {
        let store = kind == AccessKind::Store;
        let mut found = None;
        let level3_ways = cpu.level3_ways.load(Relaxed);
        for (index, level, ways) in
            [(cpu.caches.level2, Level::L2, ALL_WAYS), (cpu.caches.level3, Level::L3, level3_ways)]
        {
            let Some(cache) = self.caches.get(index as usize) else { continue };
            let is_last = index == cpu.caches.last;
            if let Found::Missed(evicted) = cache.access_in(line, store && is_last, ways) {
                match evicted {
                    Some(written) if is_last => self.write_back(cpu, time_ps, slot, written),
                    Some(written) => self.dirty(cpu, time_ps, slot, written),
                    None => {}
                }
            } else {
                if store && !is_last {
                    self.dirty(cpu, time_ps, slot, line);
                }
                found = Some(Fetched::cached(level, cpu.node, cache.latency_ps));
                break;
            }
        }
        // A line that only its own core's caches can have has no other holder, unless it is written.
        let may_be_elsewhere = store || found.as_ref().is_none_or(|found| found.level != Level::L2);
        let supplier = if may_be_elsewhere { self.ask_others(cpu, time_ps, line, kind) } else { None };
        if let Some(Supplier::Itself { wait_ps }) = supplier {
            let latency_ps = self.caches.get(cpu.caches.data as usize).map_or(0, |cache| cache.latency_ps);
            return Fetched {
                keep: false,
                waits_ps: wait_ps.into(),
                ..Fetched::cached(Level::L1, cpu.node, latency_ps)
            };
        }
        if let Some(Supplier::Peer(peer)) = supplier {
            let own_ps = found.map_or(0, |found| found.latency_ps);
            let latency_ps = self.transfer(cpu, slot, peer).max(own_ps);
            let (keep, modified) = (!peer.in_turns, peer.modified);
            return Fetched { keep, modified, ..Fetched::cached(Level::Peer, peer.node, latency_ps) };
        }
        found.unwrap_or_else(|| {
            let node = self.map.node_of(line * LINE_BYTES);
            let latency_ps = self.memory_ps(cpu, slot, Lines::Read, node);
            add(&cpu.counts.dram_latency_ps, u64::from(latency_ps));
            let waits_ps = cpu.throttle.take(time_ps);
            Fetched { waits_ps, ..Fetched::cached(Level::Dram, node as u16, latency_ps) }
        })
    }

    /// Queries the caches of other cores. A line that they will want back is not kept.
    fn ask_others(&self, cpu: &Cpu, time_ps: u64, line: u64, kind: AccessKind) -> Option<Supplier> {
        let coherence = self.coherence.as_ref()?;
        let home = self.map.node_of(line * LINE_BYTES);
        let moment = Moment { time_ps, slowest_ps: self.slowest_ps.load(Relaxed) };
        let asked = Asked { me: cpu.core_index, line, home, kind, moment };
        let supplier = coherence.access(&self.caches, &asked)?;
        if matches!(supplier, Supplier::Itself { .. } | Supplier::Peer(Peer { in_turns: true, .. })) {
            for cache in [cpu.caches.data, cpu.caches.level2].into_iter().filter(|cache| *cache != cpu.caches.last) {
                self.caches.get(cache as usize).map(|cache| cache.remove(line));
            }
        }
        Some(supplier)
    }

    /// The first write to a line that the CPU's own caches have: other caches give it up. Returns the stall, ps, and
    /// whether the core keeps the line.
    fn take(&self, cpu: &Cpu, time_ps: u64, slot: usize, line: u64) -> (u64, bool) {
        let kind = AccessKind::Store;
        let peer = match self.ask_others(cpu, time_ps, line, kind) {
            None => return (0, true),
            Some(Supplier::Itself { wait_ps }) => return (wait_ps.into(), false),
            Some(Supplier::Peer(peer)) => peer,
        };
        let (level, latency_ps) = (Level::Peer, self.transfer(cpu, slot, peer));
        let miss =
            Miss { kind, in_stream: false, level, latency_ps, translation_ps: 0, after_ps: 0, alone: peer.in_turns };
        let stall_ps = cpu.core.stall_ps(time_ps, &miss, |busy_ps| cpu.path_use.stretched(slot, busy_ps));
        (stall_ps, !peer.in_turns)
    }

    /// Transfers a line from another cache. Returns the latency, ps.
    fn transfer(&self, cpu: &Cpu, slot: usize, peer: Peer) -> u32 {
        if !peer.other_cache {
            return peer.latency_ps;
        }
        let queued_ps = self.queued_ps(cpu, slot, Lines::Transferred, usize::from(peer.node));
        peer.latency_ps.saturating_add(queued_ps)
    }

    /// Counts a line between a CPU and memory, and returns its latency, ps.
    fn memory_ps(&self, cpu: &Cpu, slot: usize, lines: Lines, node: usize) -> u32 {
        let columns = columns(self.nodes.len());
        let pair = usize::from(cpu.node) * columns + lines.column(self.nodes.len(), node);
        self.windows.resources().idle_ps[pair].saturating_add(self.queued_ps(cpu, slot, lines, node))
    }

    /// Counts a line, and returns its queueing time, ps.
    fn queued_ps(&self, cpu: &Cpu, slot: usize, lines: Lines, node: usize) -> u32 {
        let nodes = self.nodes.len();
        let column = lines.column(nodes, node);
        cpu.lines.add(slot, column);
        self.windows.delay_ps(slot, usize::from(cpu.node) * columns(nodes) + column)
    }

    /// A line was written in an upper cache: the last-level cache writes it back when it is evicted. If that has evicted it
    /// already, the second level passes it on when it evicts it, and without that it goes to memory now.
    fn dirty(&self, cpu: &Cpu, time_ps: u64, slot: usize, line: u64) {
        let is_in = |cache: u32| self.caches.get(cache as usize).is_some_and(|cache| cache.dirty(line));
        if !is_in(cpu.caches.last) && !is_in(cpu.caches.level2) {
            self.write_back(cpu, time_ps, slot, line);
        }
    }

    /// Writes a line back to memory. No access waits for it, but the CPU's next one for room in its buffer, and its next
    /// line from memory for its share of bandwidth.
    fn write_back(&self, cpu: &Cpu, time_ps: u64, slot: usize, line: u64) {
        if self.writes_back {
            cpu.throttle.take(time_ps);
            add(&cpu.counts.write_backs, 1);
            let latency_ps = self.memory_ps(cpu, slot, Lines::Written, self.map.node_of(line * LINE_BYTES));
            cpu.write_buffer.add(time_ps, latency_ps);
        }
    }

    /// Sets the time of the slowest active CPU, ps: no active CPU will make an access before it. Queues are derived
    /// from it, so call it before any CPU runs more than [`crate::MAX_QUANTUM_PS`] ahead of the slowest, and before a
    /// sleeping CPU continues. All CPUs' accesses up to then must happen before this call, by a lock or by release and
    /// acquire. Any thread may call it; times that do not increase are ignored.
    pub fn advance(&self, slowest_ps: u64) {
        self.slowest_ps.store(slowest_ps, Relaxed);
        self.windows.advance(slowest_ps, &self.cpus);
    }

    /// The machine's control hardware, if it has any.
    pub fn control(&self) -> Option<&ControlHardware> {
        self.control.as_ref()
    }

    /// Obeys control words that the hardware accepts: from now on every CPU fills these ways and keeps this limit. Any
    /// thread may call it.
    pub fn obey(&self, controls: &Controls) {
        for (index, cpu) in self.cpus.iter().enumerate() {
            let share = self.control.as_ref().and_then(|control| controls.share_of(index, control.cache_of(index)?));
            let Share { ways, bytes_per_s } = share.unwrap_or(Share { ways: 0, bytes_per_s: 0 });
            let has_all = self.control.as_ref().and_then(|control| control.ways).is_none_or(|all| all.all == ways);
            cpu.level3_ways.store(if has_all { ALL_WAYS } else { ways }, Relaxed);
            cpu.throttle.set(bytes_per_s);
        }
    }
}
