//! Processes events and samples in chronological order: events change the address spaces, and each access is attributed
//! by the state at its time.

use crate::code::Codes;
use crate::ids::{ChainId, ObjectId, ProcessId, ThreadId};
use crate::object::{Object, PagePlacement, Process, Thread};
use crate::page_allocations::PageAllocation;
use crate::ranges::Piece;
use crate::samples::{AccessPath, NONE, Samples};
use crate::space::{Mapping, Space};
use crate::symbols::Symbols;
use machine::{Pid, Tid};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use trace::{Event, StackId, Stacks, What};

/// Most ancestors of a process.
const MOST_ANCESTORS: usize = 1000;

/// The state so far.
pub(crate) struct Sweep<'a> {
    pub codes: Codes,
    pub objects: Vec<Object>,
    pub threads: Vec<Thread>,
    pub processes: Vec<Process>,
    pub placements: Vec<PagePlacement>,
    pub allocations: Vec<PageAllocation>,
    /// Number of small objects and their bytes.
    pub counted: BTreeMap<ChainId, (u64, u64)>,
    /// Indexed like `processes`.
    pub spaces: Vec<Space>,
    pub mappings: Vec<Mapping>,
    pub process_ids: FxHashMap<Pid, ProcessId>,
    /// Number of live threads per process, indexed like `processes`.
    alive: Vec<u32>,
    pub thread_ids: FxHashMap<(ProcessId, Tid), ThreadId>,
    /// Counts changes of a process's or thread's number.
    renewals: u32,
    /// Files that some process executes.
    pub binaries: HashSet<Arc<str>>,
    pub stacks: &'a Stacks,
    pub symbols: &'a dyn Symbols,
    pub unnamed: Arc<str>,
}

/// A thread's last accessed object, which it is likely to access again.
#[derive(Clone, Copy)]
struct Recent {
    piece: Piece<ObjectId>,
    /// The value of `changes` for which the range is valid.
    changes: u32,
}

/// The current state of a caller of samples.
#[derive(Clone, Copy)]
struct Caller {
    renewals: u32,
    thread: ThreadId,
    process: ProcessId,
    /// The last small and the last large object: threads alternate between them.
    allocated: [Option<Recent>; 2],
    other: Option<Recent>,
}

/// Access paths by thread, each stored once.
#[derive(Default)]
struct AccessPaths {
    all: Vec<AccessPath>,
    numbers: FxHashMap<AccessPath, u32>,
    /// For each access path of the samples: the last thread of its caller, and the resulting number.
    known: Vec<Option<(u32, u32)>>,
}

impl AccessPaths {
    fn number(&mut self, path: AccessPath) -> u32 {
        let all = &mut self.all;
        *self.numbers.entry(path).or_insert_with(|| {
            all.push(path);
            all.len() as u32 - 1
        })
    }

    /// The number of the samples' path `of`.
    fn known(&mut self, of: u32, path: AccessPath) -> u32 {
        if let Some((_, number)) = self.known[of as usize].filter(|(thread, _)| *thread == path.caller) {
            return number;
        }
        let number = self.number(path);
        self.known[of as usize] = Some((path.caller, number));
        number
    }
}

impl<'a> Sweep<'a> {
    pub fn new(events: &[Event], stacks: &'a Stacks, symbols: &'a dyn Symbols) -> Self {
        let executed = |event: &Event| match &event.what {
            What::Mapped { name, executable: true, .. } => Some(name.clone()),
            _ => None,
        };
        Self {
            codes: Codes::new(),
            objects: Vec::new(),
            threads: Vec::new(),
            processes: Vec::new(),
            placements: Vec::new(),
            allocations: Vec::new(),
            counted: BTreeMap::new(),
            spaces: Vec::new(),
            mappings: Vec::new(),
            process_ids: FxHashMap::default(),
            alive: Vec::new(),
            thread_ids: FxHashMap::default(),
            renewals: 0,
            binaries: events.iter().filter_map(executed).collect(),
            stacks,
            symbols,
            unnamed: "".into(),
        }
    }

    /// Processes both in chronological order. An event at the time of an access happened before it.
    pub fn run(&mut self, events: &[Event], samples: &mut Samples) {
        let mut callers: Vec<Option<Caller>> = vec![None; samples.callers.len()];
        let mut paths = AccessPaths { known: vec![None; samples.paths.len()], ..AccessPaths::default() };
        let mut events = events.iter().peekable();
        for row in &mut samples.rows {
            while let Some(event) = events.next_if(|event| event.time_ns <= row.time_ns) {
                self.apply(event);
            }
            let path = samples.paths[row.path as usize];
            let number = path.caller as usize;
            let caller = match &mut callers[number] {
                Some(caller) if caller.renewals == self.renewals => caller,
                gone => gone.insert(self.caller(samples.callers[number])),
            };
            row.object = self.object(caller, row.address, row.time_ns).0;
            let process = caller.process;
            let path = AccessPath { caller: caller.thread.0, ..path };
            row.path = if path.node == NONE {
                let node = self.spaces[process.index()].node(row.address).map_or(NONE, |node| node.0);
                paths.number(AccessPath { node, ..path })
            } else {
                paths.known(row.path, path)
            };
            row.code = self.code(process, samples.instructions[row.code as usize]).0;
            if row.stack != NONE {
                row.stack = self.chain(process, StackId(row.stack)).0;
            }
        }
        events.for_each(|event| self.apply(event));
        samples.paths = paths.all;
    }

    /// The object at an address.
    fn object(&mut self, caller: &mut Caller, address: u64, time_ns: u64) -> ObjectId {
        let process = caller.process;
        let changes = self.spaces[process.index()].changes;
        let recent = |recent: &Recent| {
            let Recent { piece, changes: then } = recent;
            // The object itself is rarely in a cache, so it is checked last.
            let is_it = (piece.first..=piece.last).contains(&address)
                && *then == changes
                && self.objects[piece.value.index()].until_ns.is_none();
            is_it.then_some(piece.value)
        };
        if let Some(object) = caller.allocated.iter().flatten().find_map(recent) {
            return object;
        }
        let other = caller.other.as_ref().and_then(recent);
        if let Some(piece) = self.allocated(process, address, time_ns) {
            caller.allocated[usize::from(piece.is_small())] = Some(Recent { piece, changes });
            return piece.value;
        }
        other.unwrap_or_else(|| {
            let piece = self.other(process, address, time_ns);
            caller.other = Some(Recent { piece, changes });
            piece.value
        })
    }

    fn caller(&mut self, (pid, tid): (Pid, Tid)) -> Caller {
        let thread = self.thread(pid, tid);
        let (process, renewals) = (self.threads[thread.index()].process, self.renewals);
        Caller { renewals, thread, process, allocated: [None; 2], other: None }
    }

    /// The process that has this PID now; created if its start was not observed.
    pub(crate) fn process(&mut self, pid: Pid) -> ProcessId {
        match self.process_ids.get(&pid) {
            Some(&id) => id,
            None => self.add_process(pid),
        }
    }

    fn add_process(&mut self, pid: Pid) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        self.process_ids.insert(pid, id);
        self.processes.push(Process { pid, parent: None, name: None, from_ns: None, until_ns: None });
        self.spaces.push(Space::default());
        self.alive.push(0);
        self.renewals += 1;
        id
    }

    /// The thread that has this TID now; created if its start was not observed.
    pub(crate) fn thread(&mut self, pid: Pid, tid: Tid) -> ThreadId {
        let process = self.process(pid);
        match self.thread_ids.get(&(process, tid)) {
            Some(&id) => id,
            None => self.add_thread(process, tid, None),
        }
    }

    pub(crate) fn add_thread(&mut self, process: ProcessId, tid: Tid, from_ns: Option<u64>) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        let name = self.processes[process.index()].name.clone();
        self.threads.push(Thread { process, tid, name, from_ns, until_ns: None });
        self.thread_ids.insert((process, tid), id);
        self.alive[process.index()] += 1;
        self.renewals += 1;
        id
    }

    pub(crate) fn start_process(&mut self, time_ns: u64, pid: Pid, parent: Option<Pid>) {
        let parent = parent.map(|parent| self.process(parent));
        if let Some(&known) = self.process_ids.get(&pid) {
            // Two sources may report the same process, and slightly different clocks may date a fork's actions before
            // its start.
            let Process { from_ns, until_ns, .. } = self.processes[known.index()];
            if until_ns.is_none() {
                if from_ns.is_none() {
                    self.begin_process(known, time_ns, parent);
                }
                return;
            }
        }
        let process = self.add_process(pid);
        self.begin_process(process, time_ns, parent);
    }

    fn begin_process(&mut self, process: ProcessId, time_ns: u64, parent: Option<ProcessId>) {
        // A trace may name a descendant, or the process itself, whose tables have what this process has ended already.
        // One may also have a chain of any length; real ones are short.
        let is_wrong = |(depth, ancestor): (usize, ProcessId)| ancestor == process || depth >= MOST_ANCESTORS;
        let parent = parent.filter(|&parent| !self.ancestry(parent).enumerate().any(is_wrong));
        let inherited = parent.and_then(|parent| self.processes[parent.index()].name.clone());
        if let Some(parent) = parent {
            self.spaces[process.index()] = self.spaces[parent.index()].forked();
        }
        let process = &mut self.processes[process.index()];
        process.from_ns = Some(time_ns);
        process.parent = parent;
        process.name = process.name.take().or(inherited);
    }

    /// A process, its parent, and so on.
    fn ancestry(&self, process: ProcessId) -> impl Iterator<Item = ProcessId> {
        std::iter::successors(Some(process), |process| self.processes[process.index()].parent)
    }

    pub(crate) fn end_thread(&mut self, time_ns: u64, pid: Pid, tid: Tid) {
        let thread = self.thread(pid, tid);
        let Thread { process, until_ns, .. } = &mut self.threads[thread.index()];
        let process = *process;
        if until_ns.replace(time_ns).is_some() {
            return;
        }
        self.alive[process.index()] -= 1;
        // Threads that were not observed yet may still run: only the end of the first thread shows that none does.
        let first = self.thread_ids.get(&(process, Tid(pid.0))).map(|thread| &self.threads[thread.index()]);
        if self.alive[process.index()] == 0 && first.is_some_and(|first| first.until_ns.is_some()) {
            self.processes[process.index()].until_ns = Some(time_ns);
            self.clear(process, time_ns);
        }
    }

    /// A thread executes another program, and has the process's first TID from then on: all others have ended, the first
    /// one as well if it was another one, whose end is reported before.
    pub(crate) fn end_others(&mut self, time_ns: u64, process: ProcessId, tid: Tid) {
        let own = self.thread_ids.get(&(process, tid)).map(|thread| self.threads[thread.index()].until_ns);
        let is_alive = own == Some(None);
        if self.alive[process.index()] > u32::from(is_alive) {
            let of_process = self.thread_ids.iter().filter(|((of, other), _)| *of == process && *other != tid);
            for (_, other) in of_process {
                self.threads[other.index()].until_ns.get_or_insert(time_ns);
            }
            self.alive[process.index()] = is_alive.into();
        }
        if own.flatten().is_some() {
            self.add_thread(process, tid, Some(time_ns));
        }
    }

    /// Clears the address space of a process.
    pub(crate) fn clear(&mut self, process: ProcessId, time_ns: u64) {
        let changes = self.spaces[process.index()].changes + 1;
        let space = std::mem::replace(&mut self.spaces[process.index()], Space { changes, ..Space::default() });
        let gone = space
            .objects
            .overlapping(0, u64::MAX)
            .map(|(_, piece)| space.copies.get(&piece.value).copied().unwrap_or(piece.value));
        for object in gone.chain(space.others.into_values()) {
            let object = &mut self.objects[object.index()];
            if object.process == process {
                object.until_ns = object.until_ns.or(Some(time_ns));
            }
        }
    }
}
