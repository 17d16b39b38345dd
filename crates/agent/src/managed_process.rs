//! A managed process: its identity, settings and activity per round.

use crate::hints::{HintChange, Hints};
use crate::huge::PageSizes;
use crate::owner;
use crate::owners_ranges::OwnersRanges;
use crate::ranges::Mappings;
use crate::regions::RegionOrders;
use crate::replicable::Replicable;
use crate::samples::ThreadSamples;
use crate::status::Limits;
use linux::{Process, ThreadTimes, affinity, process_cpu_time, thread_policy, thread_times};
use machine::{CpuSet, MemoryMode, MemoryPolicy, NodeId, NodeSet, Pid, Tid};
use observe::ThreadCount;
use placement::NodeAccesses;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rounds after which a process's memory policy is read again.
const POLICY_ROUNDS: u64 = 16;

/// A managed process.
#[derive(Debug)]
pub(crate) struct ManagedProcess {
    /// Held open, so that it cannot be confused with a later process of the same PID.
    pub process: Process,
    pub name: String,
    pub record: placement::Process,
    pub threads: BTreeMap<Tid, ManagedThread>,
    pub sizes: PageSizes,
    pub owners: OwnersRanges,
    pub mappings: Mappings,
    pub replicable: Replicable,
    /// Its parent, where known.
    pub parent: Option<Pid>,
    /// Where it may run and have memory.
    pub limits: Limits,
    /// CPU sets that the agent gave its parent, or its threads: new ones may have inherited them.
    given: Vec<CpuSet>,
    memory_given: Option<MemoryPolicy>,
    /// The place that a request or the process's own hint chose: for policies, as if its owner had.
    chosen: Option<ChosenPlace>,
    is_requested: bool,
    hints: Hints,
    cpu_time: Duration,
    /// The round in which its memory policy is read next.
    policy_round: u64,
}

/// The place of a process that no policy decides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ChosenPlace {
    /// Where it is.
    Here,
    /// A node, with the CPUs that the process may have there.
    On(NodeId, CpuSet),
}

/// A thread of a managed process.
#[derive(Debug)]
pub(crate) struct ManagedThread {
    pub record: placement::Thread,
    times: Option<ThreadTimes>,
    /// The CPUs that the agent gave it last, or that it inherited from a thread that it gave them.
    given: Option<CpuSet>,
}

/// What a process inherits from its parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    /// The parent.
    pub parent: Option<Pid>,
    /// CPU sets that the agent gave.
    pub given: Vec<CpuSet>,
    /// The memory policy that the agent gave.
    pub memory: Option<MemoryPolicy>,
    /// CPUs that its cpuset allows, where known.
    pub cpus: Option<CpuSet>,
}

/// Counts of all CPUs in a round, to be divided among threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedOut {
    pub instructions: f64,
    pub cpu_time_s: f64,
    pub memory_wait_s: f64,
}

impl ManagedProcess {
    /// None if it has ended.
    pub fn new(process: Process, name: String, record: placement::Process, inherited: Inherited) -> Option<Self> {
        Some(Self {
            cpu_time: process_cpu_time(record.pid).ok()?,
            process,
            name,
            limits: Limits { cpus: record.cpus.clone(), nodes: record.nodes.clone(), ..Limits::default() },
            record,
            threads: BTreeMap::new(),
            sizes: PageSizes::default(),
            owners: OwnersRanges::default(),
            mappings: Mappings::default(),
            replicable: Replicable::default(),
            parent: inherited.parent,
            given: inherited.given,
            memory_given: inherited.memory,
            chosen: None,
            is_requested: false,
            hints: Hints::default(),
            policy_round: 0,
        })
    }

    /// It executed another program: it has one thread and new memory.
    pub fn exec(&mut self, name: &str, is_watched: bool) {
        name.clone_into(&mut self.name);
        let first = Tid(self.record.pid.0);
        self.threads.retain(|tid, _| *tid == first);
        self.sizes.forget();
        self.owners = OwnersRanges::default();
        self.replicable = Replicable::default();
        self.mappings = Mappings::default();
        self.begin_thread(first, is_watched);
        self.read_policy();
    }

    /// What its cpuset allows now.
    pub fn allow(&mut self, cpus: CpuSet, nodes: NodeSet) {
        (self.record.cpus, self.record.nodes) = (cpus.clone(), nodes.clone());
        (self.limits.cpus, self.limits.nodes) = (cpus, nodes);
    }

    /// It belongs on a node, with the CPUs that it may have there.
    pub fn choose_node(&mut self, node: NodeId, cpus: CpuSet, is_requested: bool) {
        self.is_requested = is_requested;
        self.choose(Some(ChosenPlace::On(node, cpus)));
    }

    /// It stays where it is from now on.
    pub fn stay(&mut self) {
        self.choose(Some(ChosenPlace::Here));
    }

    /// Policies decide again.
    pub fn free(&mut self) {
        self.choose(None);
    }

    fn choose(&mut self, chosen: Option<ChosenPlace>) {
        self.chosen = chosen;
        for tid in self.threads.keys().copied().collect::<Vec<_>>() {
            let bound_to = self.bound_to(tid);
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.record.bound_to = bound_to;
            }
        }
        self.read_policy();
    }

    /// The CPUs of a thread that no policy changes.
    fn bound_to(&self, tid: Tid) -> Option<CpuSet> {
        let now = affinity(tid).ok();
        match &self.chosen {
            Some(ChosenPlace::On(_, cpus)) if !cpus.is_empty() => Some(cpus.clone()),
            Some(ChosenPlace::Here) => now,
            _ => {
                let now = now?;
                owner::bound_to(&now, &self.record.cpus, self.given_to(tid, &now).as_slice())
            }
        }
    }

    /// The CPUs that a thread has from the agent, given that it has these now.
    pub fn given_to(&self, tid: Tid, now: &CpuSet) -> Option<CpuSet> {
        match self.threads.get(&tid) {
            Some(thread) => thread.given.clone(),
            None => self.given.contains(now).then(|| now.clone()),
        }
    }

    /// The agent gave a thread these CPUs.
    pub fn gave(&mut self, tid: Tid, cpus: &CpuSet) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.given = Some(cpus.clone());
        }
        if !self.given.contains(cpus) {
            self.given.push(cpus.clone());
        }
    }

    /// What its own hints changed since the last look.
    pub fn look_for_hints(&mut self) -> Option<HintChange> {
        self.hints.look(&self.process)
    }

    /// Reads which of its ranges have places of their own, if that is due.
    pub fn look_for_regions(&mut self, orders: &mut RegionOrders) {
        self.owners.order(&self.process, orders);
    }

    /// Whether a request chose its place, which hints do not change.
    pub fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// What its children inherit.
    pub fn bequeaths(&self) -> Inherited {
        Inherited {
            parent: Some(self.record.pid),
            given: self.given.clone(),
            memory: self.memory_given.clone(),
            cpus: Some(self.record.cpus.clone()),
        }
    }

    /// Adds a thread.
    pub fn begin_thread(&mut self, tid: Tid, is_watched: bool) {
        let record = placement::Thread::new(self.record.pid, tid);
        let times = if is_watched { thread_times(&self.process, tid).ok().flatten() } else { None };
        let given = affinity(tid).ok().filter(|now| self.given.contains(now));
        self.threads.insert(tid, ManagedThread { record, times, given });
        let bound_to = self.bound_to(tid);
        self.threads.entry(tid).and_modify(|thread| thread.record.bound_to = bound_to);
    }

    /// Reads the memory policy and the CPUs that the program or its owner set. One thread's policy counts for the whole
    /// process: the kernel does not report which pages were placed by it.
    pub fn read_policy(&mut self) {
        let of_thread = |tid| {
            let words = thread_policy(&self.process, tid)?;
            owner::asked_for(&words, self.memory_given.as_ref())
        };
        let others = self.threads.keys().copied().filter(|tid| tid.0 != self.record.pid.0);
        self.limits.owners_policy = std::iter::once(Tid(self.record.pid.0)).chain(others).find_map(of_thread);
        // Threads that have ended have no say.
        let now = self.threads.keys().filter_map(|tid| Some((*tid, affinity(*tid).ok()?)));
        let mut by_owner =
            now.map(|(tid, now)| owner::bound_to(&now, &self.record.cpus, self.given_to(tid, &now).as_slice()));
        let all = |mut all: CpuSet, cpus: Option<CpuSet>| {
            all.insert_all(&cpus?);
            Some(all)
        };
        let cpus = by_owner.try_fold(CpuSet::new(), all);
        self.limits.owners_cpus = cpus.filter(|cpus| !cpus.is_empty());
        let as_chosen = |chosen: &ChosenPlace| match chosen {
            ChosenPlace::Here => MemoryPolicy::new(MemoryMode::Local, NodeSet::new()),
            ChosenPlace::On(node, _) => MemoryPolicy::new(MemoryMode::Bind, [*node].into_iter().collect()),
        };
        self.record.memory_policy = self.chosen.as_ref().map(as_chosen).or_else(|| self.limits.owners_policy.clone());
    }

    /// Whether the program or its owner has set a memory policy since it was last read.
    pub fn has_new_policy(&mut self) -> bool {
        if self.chosen.is_some() || self.record.memory_policy.is_some() {
            return false;
        }
        self.read_policy();
        self.record.memory_policy.is_some()
    }

    /// The process's memory is to be placed differently from its inherited policy: existing pages are handled like
    /// those of processes that ran before.
    pub fn begins_with(&mut self, wanted: Option<&MemoryPolicy>) {
        self.record.adopted |= wanted.is_some_and(|wanted| Some(wanted) != self.memory_given.as_ref());
    }

    /// Updates its activity; none if it has ended.
    pub fn end_round(&mut self, round: u64, round_s: f64, watches_threads: bool) -> Option<()> {
        let cpu_time = process_cpu_time(self.record.pid).ok()?;
        let used_s = cpu_time.saturating_sub(self.cpu_time).as_secs_f64();
        if used_s == 0.0 && self.process.status().is_ok_and(|status| !status.has_memory && status.threads <= 1) {
            return None;
        }
        self.cpu_time = cpu_time;
        self.record.cpu_share = used_s / round_s;
        self.sizes.end_round(round);
        if round >= self.policy_round {
            self.read_policy();
            self.policy_round = round.saturating_add(POLICY_ROUNDS);
        }
        let process = &self.process;
        self.threads.retain(|tid, thread| !watches_threads || thread.read_times(process, *tid, round_s).is_some());
        Some(())
    }

    /// How long its threads run and wait is no longer known.
    pub fn forget_times(&mut self) {
        for thread in self.threads.values_mut() {
            thread.times = None;
            (thread.record.cpu_share, thread.record.waiting_share) = (0.0, 0.0);
        }
    }

    /// Adds a round's samples and counts to its threads.
    pub fn take_samples(
        &mut self,
        samples: &FxHashMap<(Pid, Tid), ThreadSamples>,
        round_s: f64,
        (work, all): (&FxHashMap<(Pid, Tid), ThreadCount>, SharedOut),
    ) {
        let pid = self.record.pid;
        let (mut served, mut writes) = (0.0, 0.0);
        self.record.samples = 0;
        for (tid, ManagedThread { record, .. }) in &mut self.threads {
            let none = ThreadSamples::default();
            let seen = samples.get(&(pid, *tid)).unwrap_or(&none);
            let misses = seen.all_served();
            (served, writes) = (served + misses, writes + seen.writes);
            self.record.samples += seen.samples;
            record.cpu = seen.cpu.or(record.cpu);
            record.accesses = Vec::<NodeAccesses>::from_iter(seen.accesses());
            record.cache_misses = (misses > 0.0 || all.instructions > 0.0).then_some(misses.round() as u64);
            // Without counts per thread, instructions of all CPUs are divided in proportion to each thread's CPU time
            // not spent waiting for memory.
            let works = |cpu_time_s: f64, waits_s: f64| (cpu_time_s - waits_s).max(cpu_time_s / 100.0);
            let part =
                works(record.cpu_share * round_s, seen.waited_ns / 1e9) / works(all.cpu_time_s, all.memory_wait_s);
            let instructions = all.instructions * part;
            record.instructions =
                (instructions.is_finite() && instructions > 0.0).then_some(instructions.round() as u64);
            if let Some(work) = work.get(&(pid, *tid)) {
                (record.instructions, record.cache_misses) = (Some(work.instructions), Some(work.misses));
            }
        }
        self.record.read_ratio = (served > 0.0).then(|| 1.0 - writes / served);
    }
}

impl ManagedThread {
    /// None if the thread has ended.
    fn read_times(&mut self, process: &Process, tid: Tid, round_s: f64) -> Option<()> {
        let times = thread_times(process, tid).ok()??;
        if let Some(before) = self.times.replace(times) {
            let share = |now: Duration, before: Duration| (now.saturating_sub(before).as_secs_f64() / round_s).min(1.0);
            self.record.cpu_share = share(times.ran, before.ran);
            self.record.waiting_share = share(times.waited, before.waited);
        }
        Some(())
    }
}
