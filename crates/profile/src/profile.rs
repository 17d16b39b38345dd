//! A trace whose accesses belong to objects, threads and code.

use crate::code::{Code, Codes};
use crate::event_order;
use crate::ids::{ChainId, CodeId, FileId, ObjectId, SiteId, ThreadId};
use crate::measurements::Measurements;
use crate::object::{Object, PagePlacement, Process, SmallObjects, Thread};
use crate::samples::{NO_PHYSICAL, NONE, Row, Samples, Traits, leaves_caches};
use crate::site::{Site, Sites, qualified};
use crate::sweep::Sweep;
use crate::symbols::{File, Symbols};
use crate::way::{CellKey, KnownWay};
use machine::{CpuId, Machine, NodeId};
use std::ops::RangeInclusive;
use trace::{AccessKind, Count, Event, Sample, Served, Source, Stacks};

/// A part of the physical memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Whose it is.
    pub node: NodeId,
}

/// What was recorded, in whatever order it comes.
#[derive(Clone, Debug)]
pub struct Recording {
    machine: Machine,
    memory: Vec<MemoryRange>,
    wrappers: Vec<String>,
    counts: Vec<Count>,
    samples: Samples,
    events: Vec<Event>,
    outside_memory: u64,
    too_many: u64,
}

/// A trace whose accesses belong to objects, threads and code.
#[derive(Clone, Debug)]
pub struct Profile {
    machine: Machine,
    rows: Vec<Row>,
    ways: Vec<KnownWay>,
    cell_keys: Vec<CellKey>,
    codes: Codes,
    objects: Vec<Object>,
    site_of_object: Vec<SiteId>,
    sites: Vec<Site>,
    small_objects: Vec<SmallObjects>,
    threads: Vec<Thread>,
    processes: Vec<Process>,
    placements: Vec<PagePlacement>,
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
    /// What was accessed.
    pub object: ObjectId,
    /// The instruction.
    pub code: CodeId,
    /// Where the thread ran.
    pub cpu: CpuId,
    /// The node of that CPU, where the machine's description has it.
    pub from: Option<NodeId>,
    /// The node that the line came from or went to.
    pub to: Option<NodeId>,
    /// The virtual address.
    pub address: u64,
    /// The physical address.
    pub physical: Option<u64>,
    /// What it does.
    pub kind: AccessKind,
    /// What served it.
    pub served: Option<Served>,
    /// How long it took, ns.
    pub latency_ns: Option<f32>,
    /// It was the kernel's own.
    pub kernel: bool,
    /// How the code came there.
    pub chain: Option<ChainId>,
    /// So many accesses this one stands for; above 0.
    pub weight: f32,
    /// Who observed it.
    pub source: Source,
    /// The number of its thread and nodes among all that the profile has of them.
    pub(crate) cell: u32,
}

impl Access {
    /// Whether it left the core's caches and its node is known: caches of other cores, memory, or where the source does
    /// not tell what served it. Only such accesses are local or remote.
    pub fn reaches_memory(&self) -> bool {
        leaves_caches(self.served) && self.from.is_some() && self.to.is_some()
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
    /// Nothing yet, on this machine.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            memory: Vec::new(),
            wrappers: Vec::new(),
            counts: Vec::new(),
            samples: Samples::default(),
            events: Vec::new(),
            outside_memory: 0,
            too_many: 0,
        }
    }

    /// The machine's physical memory. Accesses with a physical address outside of it are left out (processors tell of
    /// such for instructions that read the clock), others get their node from it where the source tells none.
    #[must_use]
    pub fn with_memory(mut self, mut memory: Vec<MemoryRange>) -> Self {
        memory.sort_by_key(|range| range.start);
        self.memory = memory;
        self
    }

    /// Functions of the program that allocate for others, by name: the code that calls them is the site.
    #[must_use]
    pub fn with_wrappers(mut self, wrappers: Vec<String>) -> Self {
        self.wrappers = wrappers;
        self
    }

    /// What was counted beside the samples, in the order of time.
    #[must_use]
    pub fn with_counts(mut self, counts: Vec<Count>) -> Self {
        self.counts = counts;
        self
    }

    /// Takes samples of one stream or of several.
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
            // Positions have 32 bits, of which one value is for none.
            if self.samples.len() >= NONE as usize {
                self.too_many += 1;
                continue;
            }
            self.samples.push(&sample);
        }
    }

    /// Takes events of one stream or of several. Those of one time and thread stay in the order in which they come.
    pub fn add_events(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events);
    }

    /// Puts everything into the order of time and finds out what each access belongs to. `stacks` are those that
    /// samples and events name.
    pub fn into_profile(self, stacks: &Stacks, symbols: &dyn Symbols) -> Profile {
        let Self { machine, wrappers, counts, mut samples, mut events, outside_memory, too_many, .. } = self;
        event_order::sort(&mut events);
        samples.sort();
        let mut sweep = Sweep::new(&events, stacks, symbols);
        sweep.run(&events, &mut samples);
        let Sweep { mut codes, objects, threads, processes, placements, counted, .. } = sweep;
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
        let Samples { rows, ways, .. } = samples;
        let (ways, cell_keys) = KnownWay::all(&ways, |cpu| node_of(&node_of_cpu, cpu));
        Profile {
            machine,
            rows,
            ways,
            cell_keys,
            codes,
            objects,
            site_of_object,
            sites,
            small_objects,
            threads,
            processes,
            placements,
            counts,
            node_of_cpu,
            outside_memory,
            too_many,
        }
    }
}

impl Profile {
    /// The machine that was recorded on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What counters told of a time, ns.
    pub(crate) fn measured(&self, time_ns: &RangeInclusive<u64>) -> Measurements {
        Measurements::of(&self.counts, &self.machine, time_ns)
    }

    /// How many accesses there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Accesses that were left out as their physical address is no memory.
    pub fn outside_memory(&self) -> u64 {
        self.outside_memory
    }

    /// Accesses that were left out as there are more than 2^32 - 1.
    pub fn too_many(&self) -> u64 {
        self.too_many
    }

    /// Every object, in the order of its number: those that were allocated in the order of time, and others when they
    /// were first accessed.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// What was allocated and counted only, by site, the most bytes first.
    pub fn small_objects(&self) -> &[SmallObjects] {
        &self.small_objects
    }

    /// Every thread.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Every process.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Every mapped file that code or an object is in.
    pub fn files(&self) -> &[File] {
        &self.codes.files
    }

    /// Pages as they were placed and moved, in the order of time.
    pub fn placements(&self) -> &[PagePlacement] {
        &self.placements
    }

    /// A file.
    pub fn file(&self, id: FileId) -> Option<&File> {
        self.codes.files.get(id.index())
    }

    /// A place in code.
    pub fn code(&self, id: CodeId) -> Option<&Code> {
        self.codes.places.get(id.index())
    }

    /// Where objects of one kind come from.
    pub fn site(&self, id: SiteId) -> Option<&Site> {
        self.sites.get(id.index())
    }

    /// The numbers of all sites.
    pub fn site_ids(&self) -> impl ExactSizeIterator<Item = SiteId> + use<> {
        (0..self.sites.len() as u32).map(SiteId)
    }

    /// A call chain, innermost first.
    pub fn chain(&self, id: ChainId) -> &[CodeId] {
        self.codes.chains.get(id.index()).map_or(&[], |chain| chain)
    }

    /// The node of a CPU.
    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        node_of(&self.node_of_cpu, cpu)
    }

    /// When the first and the last access were, ns; none without accesses.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.rows.first()?.time_ns, self.rows.last()?.time_ns))
    }

    /// Every access, in the order of time.
    pub fn accesses(&self) -> impl ExactSizeIterator<Item = Access> + '_ {
        self.rows.iter().map(|row| self.access(row))
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The threads and nodes that accesses are counted by, ascending.
    pub(crate) fn cell_keys(&self) -> &[CellKey] {
        &self.cell_keys
    }

    /// The thread of an access.
    pub(crate) fn thread_of(&self, row: &Row) -> ThreadId {
        self.ways[row.way as usize].thread
    }

    pub(crate) fn sites_of_objects(&self) -> &[SiteId] {
        &self.site_of_object
    }

    /// Whether some code is of a function of this name, with what it takes or without.
    pub fn has_function(&self, name: &str) -> bool {
        let mut functions = self.codes.places.iter().filter_map(|place| place.function.as_ref());
        functions.any(|function| *function.name == *name || qualified(&function.name).0 == name)
    }

    /// Of each object, whether several threads access it.
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

    /// The access at a position that there is.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> Access {
        self.access(&self.rows[at])
    }

    #[inline]
    fn access(&self, row: &Row) -> Access {
        let KnownWay { thread, cpu, from, to, cell } = self.ways[row.way as usize];
        let Traits { kind, served, kernel, source } = Traits::of(row.traits);
        Access {
            time_ns: row.time_ns,
            thread,
            object: ObjectId(row.object),
            code: CodeId(row.code as u32),
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

/// The node of a CPU, of a list by the number of the CPU.
fn node_of(nodes: &[u32], cpu: CpuId) -> Option<NodeId> {
    nodes.get(cpu.0 as usize).copied().filter(|&node| node != NONE).map(NodeId)
}
