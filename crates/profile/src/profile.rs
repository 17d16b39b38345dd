//! A trace whose accesses are attributed to objects, threads and code.

use crate::access_path::{CellKey, ResolvedPath};
use crate::code::{Code, Codes};
use crate::event_order;
use crate::ids::{ChainId, CodeId, FileId, ObjectId, SiteId, ThreadId};
use crate::measurements::{Measurements, of_cpus, of_machine};
use crate::object::{Object, PagePlacement, Process, SmallObjects, Thread};
use crate::page_allocations::{PageAllocation, find_addresses};
use crate::samples::{NO_PHYSICAL, NONE, Row, Samples, Traits, leaves_caches};
use crate::site::{Site, Sites, qualified};
use crate::sweep::Sweep;
use crate::symbols::{File, Symbols};
use machine::{CpuId, Machine, NodeId};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use trace::{AccessKind, Count, Counter, Event, Sample, Served, Source, Stacks, What};

/// A range of a node's physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Its node.
    pub node: NodeId,
}

/// A recording; its parts may be added in any order.
#[derive(Clone, Debug)]
pub struct Recording {
    machine: Machine,
    memory: Vec<MemoryRange>,
    wrappers: Vec<String>,
    counts: Vec<Count>,
    samples: Samples,
    events: Vec<Event>,
    /// Length of the names in events.
    name_bytes: u64,
    outside_memory: u64,
    too_many: u64,
}

/// A trace whose accesses are attributed to objects, threads and code.
#[derive(Clone, Debug)]
pub struct Profile {
    machine: Machine,
    rows: Vec<Row>,
    paths: Vec<ResolvedPath>,
    cell_keys: Vec<CellKey>,
    codes: Codes,
    objects: Vec<Object>,
    site_of_object: Vec<SiteId>,
    sites: Vec<Site>,
    small_objects: Vec<SmallObjects>,
    threads: Vec<Thread>,
    processes: Vec<Process>,
    placements: Vec<PagePlacement>,
    allocations: Vec<PageAllocation>,
    counts: Vec<Count>,
    node_of_cpu: Vec<u32>,
    outside_memory: u64,
    too_many: u64,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// When, ns.
    pub time_ns: u64,
    /// The thread.
    pub thread: ThreadId,
    /// The object.
    pub object: ObjectId,
    /// The instruction.
    pub code: CodeId,
    /// The CPU.
    pub cpu: CpuId,
    /// The node of that CPU, if the machine's description has it.
    pub from: Option<NodeId>,
    /// The node that the line came from or went to.
    pub to: Option<NodeId>,
    /// The virtual address.
    pub address: u64,
    /// The physical address.
    pub physical: Option<u64>,
    /// Load or store.
    pub kind: AccessKind,
    /// What served it.
    pub served: Option<Served>,
    /// Its latency, ns.
    pub latency_ns: Option<f32>,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// The call chain.
    pub chain: Option<ChainId>,
    /// Number of accesses that it stands for; above 0.
    pub weight: f32,
    /// The source of the sample.
    pub source: Source,
    /// Index of its thread and nodes among all combinations in the profile.
    pub(crate) cell: u32,
}

impl Access {
    /// Whether it left the core's caches and its node is known: it was served by caches of other cores, by memory, or
    /// by an unknown level.
    pub fn leaves_core(&self) -> bool {
        leaves_caches(self.served) && self.from.is_some() && self.to.is_some()
    }

    /// Whether memory served it, as far as known, and its node is known. Only such accesses are local or remote: a line that
    /// another core's cache has comes from there wherever its memory is.
    pub fn reaches_memory(&self) -> bool {
        self.leaves_core() && self.served != Some(Served::Peer)
    }

    /// Whether it went to another node.
    pub fn is_remote(&self) -> bool {
        self.reaches_memory() && self.from != self.to
    }

    /// Whether it went to the node of its CPU.
    pub fn is_local(&self) -> bool {
        self.reaches_memory() && self.from == self.to
    }
}

impl Recording {
    /// An empty recording of this machine.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            memory: Vec::new(),
            wrappers: Vec::new(),
            counts: Vec::new(),
            samples: Samples::default(),
            events: Vec::new(),
            outside_memory: 0,
            name_bytes: 0,
            too_many: 0,
        }
    }

    /// The machine's physical memory. Accesses with a physical address outside of it are dropped (processors report
    /// such for instructions that read the clock); others get their node from it if the source reports none.
    #[must_use]
    pub fn with_memory(mut self, mut memory: Vec<MemoryRange>) -> Self {
        memory.sort_by_key(|range| range.start);
        self.memory = memory;
        self
    }

    /// Names of functions of the program that allocate for others: the code that calls them becomes the site.
    #[must_use]
    pub fn with_wrappers(mut self, wrappers: Vec<String>) -> Self {
        self.wrappers = wrappers;
        self
    }

    /// Counter readings, in chronological order.
    #[must_use]
    pub fn with_counts(mut self, counts: Vec<Count>) -> Self {
        self.counts = counts;
        self
    }

    /// Adds samples of one stream or several.
    pub fn add_samples(&mut self, samples: impl IntoIterator<Item = Sample>) {
        for mut sample in samples {
            if let Some(physical) = sample.physical.filter(|_| !self.memory.is_empty()) {
                let after = self.memory.partition_point(|range| range.start <= physical);
                let range =
                    after.checked_sub(1).and_then(|at| self.memory.get(at)).filter(|range| physical < range.end);
                let Some(range) = range else {
                    self.outside_memory += 1;
                    continue;
                };
                sample.node = sample.node.or(Some(range.node));
            }
            // Positions have 32 bits, with one value reserved for none.
            if self.samples.len() >= NONE as usize {
                self.too_many += 1;
                continue;
            }
            self.samples.push(&sample);
        }
    }

    /// Adds events of one stream or several. Those of one thread at the same time keep their order.
    pub fn add_events(&mut self, events: impl IntoIterator<Item = Event>) {
        let names = &mut self.name_bytes;
        self.events.extend(events.into_iter().inspect(|event| {
            if let What::Mapped { name, .. } | What::Named { name, .. } = &event.what {
                *names += name.len() as u64;
            }
        }));
    }

    /// Memory that samples and events take until they are a profile, in bytes: what a bound of memory is compared with.
    pub fn bytes(&self) -> u64 {
        self.samples.bytes() + (self.events.len() * size_of::<Event>()) as u64 + self.name_bytes
    }

    /// Sorts everything by time and attributes each access. `stacks` are the stacks of samples and events.
    pub fn into_profile(self, stacks: &Stacks, symbols: &dyn Symbols) -> Profile {
        let Self { machine, wrappers, counts, mut samples, mut events, outside_memory, too_many, .. } = self;
        event_order::sort(&mut events);
        samples.sort();
        let mut sweep = Sweep::new(&events, stacks, symbols);
        sweep.run(&events, &mut samples);
        let Sweep { mut codes, objects, threads, processes, placements, mut allocations, counted, .. } = sweep;
        codes.name(symbols);
        let mut node_of_cpu = Vec::new();
        for node in &machine.nodes {
            for cpu in node.cpus.iter() {
                let cpu = cpu.0 as usize;
                if node_of_cpu.len() <= cpu {
                    node_of_cpu.resize(cpu + 1, NONE);
                }
                node_of_cpu[cpu] = node.id.0;
            }
        }
        let mut sites = Sites::new(&codes, &wrappers);
        let site_of_object = objects.iter().map(|object| sites.of(object)).collect();
        let small_objects = sites.of_counted(&counted);
        let sites = sites.into_all();
        let Samples { rows, paths, .. } = samples;
        let with_physical = rows.iter().filter(|row| row.physical != NO_PHYSICAL);
        find_addresses(&mut allocations, with_physical.map(|row| (row.time_ns, row.address, row.physical)));
        let (paths, cell_keys) = ResolvedPath::all(&paths, |cpu| node_of(&node_of_cpu, cpu));
        Profile {
            machine,
            rows,
            paths,
            cell_keys,
            codes,
            objects,
            site_of_object,
            sites,
            small_objects,
            threads,
            processes,
            placements,
            allocations,
            counts,
            node_of_cpu,
            outside_memory,
            too_many,
        }
    }
}

impl Profile {
    /// The machine of the recording.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Counter readings over a time range, ns.
    pub(crate) fn measured(&self, time_ns: &RangeInclusive<u64>) -> Measurements {
        Measurements::new(&self.counts, &self.machine, time_ns)
    }

    /// Times of the first and last reading of the machine's counters, ns; none without any.
    pub(crate) fn counted_ns(&self) -> Option<(u64, u64)> {
        let mut times = of_machine(&self.counts).map(|count| count.time_ns);
        let first = times.next()?;
        Some((first, times.next_back().unwrap_or(first)))
    }

    /// Number of accesses.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Accesses from CPUs that the machine lacks.
    pub fn outside_cpus(&self) -> u64 {
        self.rows.iter().filter(|row| self.paths[row.path as usize].from.is_none()).count() as u64
    }

    /// Accesses that were dropped because their physical address is not memory.
    pub fn outside_memory(&self) -> u64 {
        self.outside_memory
    }

    /// Accesses that were dropped because there are more than 2^32 - 1.
    pub fn too_many(&self) -> u64 {
        self.too_many
    }

    /// All objects by number: allocated ones in chronological order, others at their first access.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Allocations that were only counted, by site, the most bytes first.
    pub fn small_objects(&self) -> &[SmallObjects] {
        &self.small_objects
    }

    /// All threads.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// All processes.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// All mapped files that contain code or objects.
    pub fn files(&self) -> &[File] {
        &self.codes.files
    }

    /// Placements and moves of pages, in chronological order.
    pub fn placements(&self) -> &[PagePlacement] {
        &self.placements
    }

    /// Physical memory that the kernel allocated, in chronological order; empty where that was not recorded.
    pub fn page_allocations(&self) -> &[PageAllocation] {
        &self.allocations
    }

    /// What served the accesses of each CPU during the recording: empty where that was not counted, or not at both ends.
    pub fn cpu_accesses(&self) -> BTreeMap<CpuId, BTreeMap<Counter, u64>> {
        of_cpus(&self.counts)
    }

    /// What the kernel did with threads of all programs during the recording: empty where that was not counted.
    pub fn thread_moves(&self) -> BTreeMap<Counter, u64> {
        let of = |counter: &Counter| {
            let mut values = self.counts.iter().filter(|count| count.counter == *counter).map(|count| count.value);
            let first = values.next()?;
            Some((*counter, values.next_back().unwrap_or(first).saturating_sub(first)))
        };
        Counter::SCHEDULING.iter().filter_map(of).collect()
    }

    /// A file.
    pub fn file(&self, id: FileId) -> Option<&File> {
        self.codes.files.get(id.index())
    }

    /// A code location.
    pub fn code(&self, id: CodeId) -> Option<&Code> {
        self.codes.places.get(id.index())
    }

    /// A site.
    pub fn site(&self, id: SiteId) -> Option<&Site> {
        self.sites.get(id.index())
    }

    /// IDs of all sites.
    pub fn site_ids(&self) -> impl ExactSizeIterator<Item = SiteId> + use<> {
        (0..self.sites.len() as u32).map(SiteId)
    }

    /// A call chain, innermost first.
    pub fn chain(&self, id: ChainId) -> &[CodeId] {
        self.codes.chains.get(id.index()).map_or(&[], |chain| chain)
    }

    /// Whether its samples stand for a number of accesses, from which bandwidths follow: see [`Source::counts_accesses`].
    pub fn counts_accesses(&self) -> bool {
        self.paths.iter().all(|path| Traits::from_packed(path.traits).source.counts_accesses())
    }

    /// The node of a CPU.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        node_of(&self.node_of_cpu, cpu)
    }

    /// Times of the first and last access, ns; none without accesses.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.rows.first()?.time_ns, self.rows.last()?.time_ns))
    }

    /// All accesses, in chronological order.
    pub fn accesses(&self) -> impl ExactSizeIterator<Item = Access> + '_ {
        self.rows.iter().map(|row| self.access(row))
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The combinations of thread and nodes that accesses are counted by, ascending.
    pub(crate) fn cell_keys(&self) -> &[CellKey] {
        &self.cell_keys
    }

    /// The thread of an access.
    pub(crate) fn thread_of(&self, row: &Row) -> ThreadId {
        self.paths[row.path as usize].thread
    }

    pub(crate) fn sites_of_objects(&self) -> &[SiteId] {
        &self.site_of_object
    }

    /// Whether there is code of a function of this name, with or without its parameters.
    pub fn has_function(&self, name: &str) -> bool {
        let mut functions = self.codes.places.iter().filter_map(|place| place.function.as_ref());
        functions.any(|function| *function.name == *name || qualified(&function.name).0 == name)
    }

    /// Whether each object is accessed by several threads.
    pub(crate) fn shared_objects(&self) -> Vec<bool> {
        let mut threads = vec![(None, false); self.objects.len()];
        for row in &self.rows {
            let thread = Some(self.thread_of(row));
            let (last, shared) = &mut threads[row.object as usize];
            *shared |= last.is_some() && *last != thread;
            *last = thread;
        }
        threads.into_iter().map(|(_, shared)| shared).collect()
    }

    pub(crate) fn codes(&self) -> &[Code] {
        &self.codes.places
    }

    /// The access at a valid position.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> Access {
        self.access(&self.rows[at])
    }

    #[inline]
    fn access(&self, row: &Row) -> Access {
        let ResolvedPath { thread, cpu, from, to, cell, traits } = self.paths[row.path as usize];
        let Traits { kind, served, kernel, source } = Traits::from_packed(traits);
        Access {
            time_ns: row.time_ns,
            thread,
            object: ObjectId(row.object),
            code: CodeId(row.code),
            cpu,
            from,
            to,
            address: row.address,
            physical: Some(row.physical).filter(|&physical| physical != NO_PHYSICAL),
            kind,
            served,
            latency_ns: Some(row.latency_ns).filter(|ns| !ns.is_nan()),
            kernel,
            chain: (row.stack != NONE).then_some(ChainId(row.stack)),
            weight: row.weight,
            source,
            cell,
        }
    }
}

/// The node of a CPU, from a list indexed by CPU.
fn node_of(nodes: &[u32], cpu: CpuId) -> Option<NodeId> {
    nodes.get(cpu.0 as usize).copied().filter(|&node| node != NONE).map(NodeId)
}
