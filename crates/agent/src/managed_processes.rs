//! The managed processes: their identity, settings and activity per round.

use crate::huge::PageSizes;
use crate::owner;
use crate::owners_ranges::OwnersRanges;
use crate::ranges::Mappings;
use crate::replicable::Replicable;
use crate::samples::ThreadSamples;
use linux::{Cgroups, Process, ThreadTimes, affinity, process_cpu_time, thread_policy, thread_times};
use machine::{CpuSet, Pid, Tid};
use observe::ThreadCount;
use placement::NodeAccesses;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rounds after which a process's memory policy is read again.
const POLICY_ROUNDS: u64 = 16;

/// All managed processes.
#[derive(Debug)]
pub(crate) struct Managed {
    pub processes: BTreeMap<Pid, ManagedProcess>,
    /// The program that was started, and what its children inherit: it may end before it is observed.
    pub program: Option<(Pid, Inherited)>,
    /// CPUs of the machine, for processes without a cpuset.
    cpus: CpuSet,
    cgroups: Option<Cgroups>,
    /// Whether CPU time of single threads is needed.
    watches_threads: bool,
}

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
    /// CPU sets that the agent gave it or its parent.
    pub given: Vec<CpuSet>,
    memory_given: Option<linux::MemoryPolicy>,
    cpu_time: Duration,
}

/// A thread of a managed process.
#[derive(Debug)]
pub(crate) struct ManagedThread {
    pub record: placement::Thread,
    times: Option<ThreadTimes>,
}

/// What a process inherits from its parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    /// The parent.
    pub parent: Option<Pid>,
    /// CPU sets that the agent gave.
    pub given: Vec<CpuSet>,
    /// The memory policy that the agent gave.
    pub memory: Option<linux::MemoryPolicy>,
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

impl Managed {
    pub fn new(cpus: CpuSet, watches_threads: bool) -> Self {
        Self { processes: BTreeMap::new(), program: None, cpus, cgroups: Cgroups::find().ok(), watches_threads }
    }

    /// What a child of this process inherits.
    pub fn inherited_from(&self, parent: Option<Pid>) -> Inherited {
        let Some(giver) = parent.and_then(|parent| self.processes.get(&parent)) else {
            let program = self.program.as_ref().filter(|(pid, _)| Some(*pid) == parent);
            return program.map_or_else(Inherited::default, |(_, gives)| gives.clone());
        };
        Inherited {
            parent,
            given: giver.given.clone(),
            memory: giver.memory_given.clone(),
            cpus: Some(giver.record.cpus.clone()),
        }
    }

    /// CPUs that a process's cpuset allows.
    pub fn allowed_cpus(&self, process: &Process) -> CpuSet {
        let of = |cgroups: &Cgroups| cgroups.effective_cpuset(&cgroups.of(process).ok()?).ok()?;
        let cpuset = self.cgroups.as_ref().and_then(of);
        cpuset.map_or_else(|| self.cpus.clone(), |cpuset| cpuset.cpus.intersection(&self.cpus))
    }

    /// Begins managing a process in its current state. None if it has ended or has no memory of its own.
    pub fn begin(&mut self, pid: Pid, adopted: bool, inherited: Inherited) -> Option<&mut ManagedProcess> {
        let process = Process::open(pid).ok()?;
        let status = process.status().ok().filter(|status| status.has_memory && !status.is_kernel_thread)?;
        let Inherited { parent, given, memory, cpus } = inherited;
        let cpus = cpus.unwrap_or_else(|| self.allowed_cpus(&process));
        let mut record = placement::Process::new(pid, cpus, status.nodes);
        record.adopted = adopted;
        let mut managed = ManagedProcess {
            name: status.name,
            record,
            threads: BTreeMap::new(),
            sizes: PageSizes::default(),
            owners: OwnersRanges::default(),
            mappings: Mappings::default(),
            replicable: Replicable::default(),
            parent,
            given,
            memory_given: memory,
            cpu_time: process_cpu_time(pid).ok()?,
            process,
        };
        for tid in managed.process.threads().ok()?.iter() {
            managed.begin_thread(tid, self.watches_threads);
        }
        managed.read_policy();
        self.processes.insert(pid, managed);
        self.processes.get_mut(&pid)
    }

    /// All threads, in the form of observations.
    pub fn threads(&self) -> Vec<placement::Thread> {
        let threads = self.processes.values().flat_map(|process| process.threads.values());
        threads.map(|thread| thread.record.clone()).collect()
    }

    /// Adds a thread. None if its process is not managed or the thread is already known.
    pub fn begin_thread(&mut self, pid: Pid, tid: Tid) -> Option<&mut ManagedProcess> {
        let process = self.processes.get_mut(&pid)?;
        if process.threads.contains_key(&tid) {
            return None;
        }
        process.begin_thread(tid, self.watches_threads);
        Some(process)
    }

    /// Removes a thread; returns whether its process has ended.
    pub fn end_thread(&mut self, pid: Pid, tid: Tid) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        process.threads.remove(&tid);
        process.threads.is_empty() && self.processes.remove(&pid).is_some()
    }

    /// A process executed another program: it has one thread and new memory. Returns whether it is managed.
    pub fn exec(&mut self, pid: Pid, name: &str) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        name.clone_into(&mut process.name);
        process.threads.retain(|tid, _| tid.0 == pid.0);
        process.sizes.forget();
        process.owners = OwnersRanges::default();
        process.replicable = Replicable::default();
        process.begin_thread(Tid(pid.0), self.watches_threads);
        process.read_policy();
        true
    }

    /// Updates all processes at the end of a round; returns those that have ended.
    pub fn end_round(
        &mut self,
        round: u64,
        round_s: f64,
        samples: &FxHashMap<(Pid, Tid), ThreadSamples>,
        counted: (&FxHashMap<(Pid, Tid), ThreadCount>, SharedOut),
    ) -> Vec<Pid> {
        let mut ended = Vec::new();
        for (pid, process) in &mut self.processes {
            if process.end_round(round, round_s, self.watches_threads).is_none() {
                ended.push(*pid);
            }
        }
        for pid in &ended {
            self.processes.remove(pid);
        }
        for process in self.processes.values_mut() {
            process.take_samples(samples, round_s, counted);
        }
        ended
    }
}

impl ManagedProcess {
    fn begin_thread(&mut self, tid: Tid, is_watched: bool) {
        let mut record = placement::Thread::new(self.record.pid, tid);
        let now = affinity(tid).ok();
        record.bound_to = now.and_then(|now| owner::bound_to(&now, &self.record.cpus, &self.given));
        let times = if is_watched { thread_times(&self.process, tid).ok().flatten() } else { None };
        self.threads.insert(tid, ManagedThread { record, times });
    }

    /// Reads the memory policy that the program or its owner set. One thread's policy counts for the whole process: the
    /// kernel does not report which pages were placed by it.
    fn read_policy(&mut self) {
        let of_thread = |tid| {
            let words = thread_policy(&self.process, tid)?;
            owner::asked_for(&words, self.memory_given.as_ref())
        };
        let others = self.threads.keys().copied().filter(|tid| tid.0 != self.record.pid.0);
        self.record.memory_policy = std::iter::once(Tid(self.record.pid.0)).chain(others).find_map(of_thread);
    }

    /// The process's memory is to be placed differently from its inherited policy: existing pages are handled like
    /// those of processes that ran before.
    pub fn begins_with(&mut self, wanted: Option<&linux::MemoryPolicy>) {
        self.record.adopted |= wanted.is_some_and(|wanted| Some(wanted) != self.memory_given.as_ref());
    }

    fn end_round(&mut self, round: u64, round_s: f64, watches_threads: bool) -> Option<()> {
        let cpu_time = process_cpu_time(self.record.pid).ok()?;
        let used_s = cpu_time.saturating_sub(self.cpu_time).as_secs_f64();
        if used_s == 0.0 && self.process.status().is_ok_and(|status| !status.has_memory && status.threads <= 1) {
            return None;
        }
        self.cpu_time = cpu_time;
        self.record.cpu_share = used_s / round_s;
        self.sizes.end_round(round);
        if round.is_multiple_of(POLICY_ROUNDS) {
            self.read_policy();
        }
        let process = &self.process;
        self.threads.retain(|tid, thread| !watches_threads || thread.read_times(process, *tid, round_s).is_some());
        Some(())
    }

    fn take_samples(
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
            record.modified_share = (misses > 0.0).then(|| seen.writes / misses);
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
