//! The managed processes, and those that may become managed.

use crate::managed_process::{Inherited, ManagedProcess, SharedOut};
use crate::samples::ThreadSamples;
use linux::{Cpusets, Process, process_cpu_time, thread_cpu};
use machine::{CpuId, CpuSet, MemoryMode, MemoryPolicy, Pid, SMALL_PAGE, Tid};
use observe::ThreadCount;
use placement::{Mappings, NodeBytes, Page, Range, resident};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds after which a process's cpuset is read again.
const CPUSET_ROUNDS: u64 = 128;

/// The managed processes, and those that may become managed.
#[derive(Debug)]
pub(crate) struct Managed {
    processes: BTreeMap<Pid, ManagedProcess>,
    /// Processes that may become managed: they are new, or not yet known to be busy.
    candidates: BTreeMap<Pid, Candidate>,
    /// Processes that were managed at any time.
    seen: BTreeSet<Pid>,
    /// The program that was started, and what its children inherit: it may end before it is observed.
    program: Option<(Pid, Inherited)>,
    /// CPUs of the machine, for processes without a cpuset.
    cpus: CpuSet,
    cpusets: Cpusets,
    /// Whether CPU time of single threads is needed.
    watches_threads: bool,
}

/// A process that may become managed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidate {
    pub inherited: Inherited,
    pub parent: Option<Pid>,
    cpu_time: Duration,
}

impl Managed {
    pub fn new(cpus: CpuSet, watches_threads: bool) -> Self {
        Self {
            processes: BTreeMap::new(),
            candidates: BTreeMap::new(),
            seen: BTreeSet::new(),
            program: None,
            cpus,
            cpusets: Cpusets::find(),
            watches_threads,
        }
    }

    pub fn get(&self, pid: Pid) -> Option<&ManagedProcess> {
        self.processes.get(&pid)
    }

    pub fn get_mut(&mut self, pid: Pid) -> Option<&mut ManagedProcess> {
        self.processes.get_mut(&pid)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Pid, &ManagedProcess)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    pub fn thread_ids(&self) -> impl Iterator<Item = (Pid, Tid)> {
        self.iter().flat_map(|(pid, process)| process.threads.keys().map(move |tid| (pid, *tid)))
    }

    /// The number of processes that were managed at any time.
    pub fn seen(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Adds a candidate; the CPU time that it used until now may be left out.
    pub fn add_candidate(&mut self, pid: Pid, cpu_time: Duration) {
        self.candidates.entry(pid).or_insert_with(|| Candidate { cpu_time, ..Candidate::default() });
    }

    pub fn is_candidate(&self, pid: Pid) -> bool {
        self.candidates.contains_key(&pid)
    }

    /// Removes and returns a candidate, busy or not.
    pub fn take_candidate(&mut self, pid: Pid) -> Option<Candidate> {
        self.candidates.remove(&pid)
    }

    /// Removes and returns the candidates that used more CPU time than this since the last call.
    pub fn take_busy_candidates(&mut self, least_s: f64) -> Vec<(Pid, Candidate)> {
        let mut busy = Vec::new();
        self.candidates.retain(|pid, candidate| {
            let Ok(cpu_time) = process_cpu_time(*pid) else { return false };
            let used_s = cpu_time.saturating_sub(candidate.cpu_time).as_secs_f64();
            candidate.cpu_time = cpu_time;
            let is_busy = used_s > least_s;
            if is_busy {
                busy.push((*pid, std::mem::take(candidate)));
            }
            !is_busy
        });
        busy
    }

    /// The program was started, and its children inherit this.
    pub fn set_program(&mut self, pid: Pid, inherited: Inherited) {
        self.program = Some((pid, inherited));
    }

    /// A process began. Returns what it inherits if it is to be managed at once: if its parent is managed and the policy
    /// is prompt. Otherwise it becomes a candidate.
    pub fn child_began(&mut self, pid: Pid, parent: Option<Pid>, is_prompt: bool) -> Option<Inherited> {
        let is_own = |pid: Pid| pid.0 == std::process::id();
        // For the program itself, this process is the parent.
        if self.processes.contains_key(&pid) || is_own(pid) || parent.is_some_and(is_own) {
            return None;
        }
        let inherited = self.inherited_from(parent);
        if is_prompt && inherited.parent.is_some() {
            return Some(inherited);
        }
        let candidate = || Candidate { inherited, parent, ..Candidate::default() };
        self.candidates.entry(pid).or_insert_with(candidate);
        None
    }

    /// Candidates whose parent this process is, each with the managed process from which it may have inherited CPUs.
    pub fn heirs_of(&self, parent: Pid) -> Vec<(Pid, Pid)> {
        let children = self.candidates.iter().filter(|(_, candidate)| candidate.parent == Some(parent));
        children.filter_map(|(pid, candidate)| Some((*pid, candidate.inherited.parent?))).collect()
    }

    /// What a child of this process inherits.
    fn inherited_from(&self, parent: Option<Pid>) -> Inherited {
        // A candidate passes on what it has inherited itself.
        if let Some(candidate) = parent.and_then(|parent| self.candidates.get(&parent)) {
            return candidate.inherited.clone();
        }
        let Some(giver) = parent.and_then(|parent| self.processes.get(&parent)) else {
            let program = self.program.as_ref().filter(|(pid, _)| Some(*pid) == parent);
            return program.map_or_else(Inherited::default, |(_, gives)| gives.clone());
        };
        giver.bequeaths()
    }

    /// Reads what the cpuset of a managed process allows now.
    pub fn read_cpuset(&mut self, pid: Pid) {
        let Some(managed) = self.processes.get(&pid) else { return };
        let cpus = self.allowed_cpus(&managed.process);
        let Ok(status) = managed.process.status() else { return };
        self.processes.entry(pid).and_modify(|managed| managed.allow(cpus, status.nodes));
    }

    /// CPUs that a process's cpuset allows.
    pub fn allowed_cpus(&self, process: &Process) -> CpuSet {
        let own = self.cpusets.cpus_of(process);
        own.map_or_else(|| self.cpusets.without_isolated(self.cpus.clone()), |cpus| cpus.intersection(&self.cpus))
    }

    /// Begins managing a process in its current state. None if it has ended or has no memory of its own.
    pub fn begin(&mut self, pid: Pid, adopted: bool, mut inherited: Inherited) -> Option<&ManagedProcess> {
        let process = Process::open(pid).ok()?;
        let status = process.status().ok().filter(|status| status.has_memory && !status.is_kernel_thread)?;
        let cpus = inherited.cpus.take().unwrap_or_else(|| self.allowed_cpus(&process));
        let mut record = placement::Process::new(pid, cpus, status.nodes);
        record.adopted = adopted;
        let mut managed = ManagedProcess::new(process, status.name, record, inherited)?;
        for tid in managed.process.threads().ok()?.iter() {
            managed.begin_thread(tid, self.watches_threads);
        }
        managed.read_policy();
        self.processes.insert(pid, managed);
        self.seen.insert(pid);
        self.processes.get(&pid)
    }

    /// Whether to read for how long threads run and wait. What is no longer read is not known.
    pub fn watch_threads(&mut self, watches: bool) {
        if std::mem::replace(&mut self.watches_threads, watches) && !watches {
            self.processes.values_mut().for_each(ManagedProcess::forget_times);
        }
    }

    /// All threads, in the form of observations.
    pub fn threads(&self) -> Vec<placement::Thread> {
        let threads = self.processes.values().flat_map(|process| process.threads.values());
        threads.map(|thread| thread.record.clone()).collect()
    }

    /// Adds a thread. False if its process is not managed or the thread is already known.
    pub fn begin_thread(&mut self, pid: Pid, tid: Tid) -> bool {
        let process = self.processes.get_mut(&pid).filter(|process| !process.threads.contains_key(&tid));
        process.map(|process| process.begin_thread(tid, self.watches_threads)).is_some()
    }

    /// Removes a thread; returns whether its process has ended.
    pub fn end_thread(&mut self, pid: Pid, tid: Tid) -> bool {
        if tid.0 == pid.0 {
            self.candidates.remove(&pid);
        }
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        process.threads.remove(&tid);
        process.threads.is_empty() && self.processes.remove(&pid).is_some()
    }

    /// A process executed another program: it has one thread and new memory. Returns whether it is managed.
    pub fn exec(&mut self, pid: Pid, name: &str) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        process.exec(name, self.watches_threads);
        true
    }

    pub fn remove(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// Marks the pages that their owner has bound, and those that may have private copies. Without `by_page`, for a policy that
    /// places whole mappings, neither is looked for.
    pub fn mark_pages(&mut self, pages: &mut [Page], by_page: bool) {
        let mut refreshed = FxHashSet::default();
        let mut looked = FxHashSet::default();
        for page in pages {
            let Some(process) = self.processes.get_mut(&page.pid) else { continue };
            if by_page && looked.insert(page.pid) {
                process.owners.refresh(&process.process);
            }
            page.is_bound = process.owners.contain(page.address);
            let may_be = by_page && page.page_bytes == SMALL_PAGE && page.writes == 0;
            if may_be && refreshed.insert(page.pid) {
                process.replicable.refresh(&process.process);
            }
            page.is_replicable = may_be && process.replicable.contain(&process.process, page.address);
        }
    }

    /// Reads the CPU where each thread of these processes ran last, where no samples tell it.
    pub fn read_cpus(&mut self, users: &FxHashSet<Pid>) {
        for (_, managed) in self.processes.iter_mut().filter(|(pid, _)| users.contains(pid)) {
            for (tid, thread) in &mut managed.threads {
                thread.record.cpu = thread_cpu(&managed.process, *tid).or(thread.record.cpu);
            }
        }
    }

    /// On which CPUs these processes ran, and for which part of the time: equally, on those of their threads.
    pub fn running(&self, users: &FxHashSet<Pid>) -> Vec<(CpuId, f64)> {
        let used = self.processes.iter().filter(|(pid, _)| users.contains(pid));
        used.flat_map(|(_, managed)| {
            let part = managed.record.cpu_share / managed.threads.len().max(1) as f64;
            managed.threads.values().filter_map(move |thread| Some((thread.record.cpu?, part)))
        })
        .collect()
    }

    /// Memory of these processes by node, as it was last read; what several of them map counts once.
    pub fn resident(&self, users: &FxHashSet<Pid>) -> Vec<NodeBytes> {
        let used = self.processes.iter().filter(|(pid, _)| users.contains(pid));
        resident(used.flat_map(|(_, managed)| managed.mappings.last()))
    }

    /// Mappings, in the form of observations: of all processes, or of these.
    pub fn ranges(&mut self, which: Mappings, users: &FxHashSet<Pid>) -> Vec<Range> {
        let is_needed = |pid: &Pid| which == Mappings::All || users.contains(pid);
        let processes = self.processes.iter_mut().filter(|(pid, _)| is_needed(pid));
        processes
            .flat_map(|(_, process)| {
                let mut ranges = match which {
                    // What has moved already must not move again.
                    Mappings::All => process.mappings.read(&process.process),
                    Mappings::OfUsers => process.mappings.read_or_last(&process.process),
                };
                let is_ordered = |range: &Range| process.owners.is_ordered(&(range.start..range.end));
                // For a policy, its owner has placed it.
                for range in ranges.iter_mut().filter(|range| is_ordered(range)) {
                    range.memory_policy.get_or_insert(MemoryPolicy::plain(MemoryMode::Local));
                }
                ranges
            })
            .collect()
    }

    /// All processes, in the form of observations.
    pub fn records(&self) -> Vec<placement::Process> {
        self.processes.values().map(|process| process.record.clone()).collect()
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
        let is_due = |pid: &Pid| (round + u64::from(pid.0)).is_multiple_of(CPUSET_ROUNDS);
        for pid in self.processes.keys().copied().filter(is_due).collect::<Vec<_>>() {
            self.read_cpuset(pid);
        }
        for process in self.processes.values_mut() {
            process.take_samples(samples, round_s, counted);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A daemon that a child of a placed process starts, before that child ends.
    #[test]
    fn heirs_are_children_of_placed_processes_and_theirs() {
        let mut sleep = Command::new("sleep").arg("60").spawn().unwrap();
        let (placed, child, daemon) = (Pid(sleep.id()), Pid(u32::MAX - 1), Pid(u32::MAX - 2));
        let mut managed = Managed::new("0-1".parse().unwrap(), false);
        assert!(managed.begin(placed, false, Inherited::default()).is_some());
        assert!(managed.child_began(child, Some(placed), false).is_none());
        assert!(managed.child_began(daemon, Some(child), false).is_none());
        assert!(managed.child_began(Pid(u32::MAX - 3), Some(Pid(1)), false).is_none());
        assert_eq!(
            (managed.heirs_of(placed), managed.heirs_of(child)),
            (vec![(child, placed)], vec![(daemon, placed)])
        );
        assert_eq!((managed.heirs_of(daemon), managed.heirs_of(Pid(1))), (vec![], vec![]));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
