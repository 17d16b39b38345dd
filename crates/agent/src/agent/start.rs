//! Begins managing processes and threads: the program before it runs, others as soon as they are seen.

use super::Agent;
use crate::error::AgentError;
use crate::journal::OwnSwitch;
use crate::lifecycle::{LifecycleEvent, all_processes};
use crate::managed_process::Inherited;
use crate::managed_processes::Candidate;
use crate::memory::{asked_for, to_start_with, why};
use crate::owner::bound_to;
use linux::{Attempt, PageBatch, Pid, Process, SystemState, Tid, affinity, current_cpu, diagnose, process_cpu_time};
use machine::{CpuSet, MemoryMode, MemoryPolicy, NodeNumbering, NodeSet, chain};
use observe::Target;
use placement::{Lesson, LogLine, MemoryPlacement, PolicyName, Start, ThreadPolicy};
use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

/// How a program is to be started: see [`linux::ChildSetup::place`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramStart {
    /// CPUs for it and its children; none leaves them unrestricted.
    pub cpus: Option<CpuSet>,
    /// Memory policy for it and its children; none leaves this process's own.
    pub memory: Option<MemoryPolicy>,
    /// Nodes over which it is to spread what it touches before it makes threads, by the library that does so.
    pub spread: Option<NodeSet>,
}

impl ProgramStart {
    /// Whether it is what a lesson says: to spread memory needs a policy, which a program on one node, and a dry run, do not
    /// get.
    fn begins_with(&self, lesson: Lesson) -> bool {
        lesson != Lesson::Spread || self.memory.is_some()
    }
}

/// The policy by which the library spreads over nodes what a program touches first. No program has it by chance:
/// numactl, and most others, leave the numbering of nodes to the kernel.
fn spread_start_policy(nodes: NodeSet) -> MemoryPolicy {
    MemoryPolicy { numbering: NodeNumbering::Static, ..MemoryPolicy::new(MemoryMode::Interleave, nodes) }
}

/// Checks whether pages of a process may be moved; querying where they are needs the same privileges.
fn check_rights(pid: Pid) -> Result<(), AgentError> {
    let mut batch = PageBatch::with_capacity(1);
    batch.push(0, None);
    match batch.locate(pid) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let errno = error.raw_os_error().unwrap_or_default();
            let why = diagnose(Attempt::Look, errno, &SystemState::read(Some(pid))).to_string();
            Err(AgentError::NotPermitted { pid, why })
        }
        // A process that has ended needs no placement.
        _ => Ok(()),
    }
}

impl Agent {
    /// Begins with the processes that already run.
    pub(super) fn begin_managing(&mut self) -> Result<(), AgentError> {
        match self.options.target.clone() {
            Target::Program => {}
            Target::Pids(pids) => {
                for pid in pids {
                    check_rights(pid)?;
                    self.begin(pid, true, Inherited::default())?;
                }
            }
            Target::System => {
                for pid in all_processes() {
                    if let Ok(cpu_time) = process_cpu_time(pid) {
                        self.managed.add_candidate(pid, cpu_time);
                    }
                }
            }
        }
        Ok(())
    }

    /// How to start the program. The policy is queried with this process's PID; no policy uses its value.
    pub fn program_start(&mut self) -> Result<ProgramStart, AgentError> {
        let own = Pid(std::process::id());
        let Ok(process) = Process::open(own) else { return Ok(ProgramStart::default()) };
        let (cpus, nodes) = (self.managed.allowed_cpus(&process), process.status().unwrap_or_default().nodes);
        let mut record = placement::Process::new(own, cpus, nodes);
        record.memory_policy = linux::thread_policy(&process, Tid(own.0)).and_then(|words| asked_for(&words));
        let mut thread = placement::Thread::new(own, Tid(own.0));
        thread.bound_to = affinity(Tid::CALLER).ok().and_then(|now| bound_to(&now, &record.cpus, &[]));
        thread.cpu = current_cpu().ok().map(|(cpu, _)| cpu);
        let Start { cpus, memory, .. } = self.policy.clone().admit(&record, &thread);
        if let Some(memory) = &memory {
            let taught = self.options.lesson.map(|_| "earlier runs of this command were predicted to be faster so");
            let why = taught.unwrap_or_else(|| why(&self.options.policy.memory));
            self.ledger.explain(|| format!("start: take the program's memory by policy {memory}: {why}"));
        }
        let spread = self.policy.spread_start(&record, &thread);
        if let Some(nodes) = &spread {
            self.ledger.explain(|| {
                format!(
                    "start: if it can make threads, spread over nodes {nodes} what the program touches before it does: \
                     what one thread fills, many use"
                )
            });
        }
        if self.options.dry_run {
            return Ok(ProgramStart::default());
        }
        let memory = match memory {
            Some(policy) => Some(self.possible(&policy, cpus.as_ref())?),
            None => None,
        };
        Ok(ProgramStart { cpus, memory, spread })
    }

    /// This memory policy, or the closest that the kernel supports. Weights are system-wide, and are set for it.
    fn possible(&mut self, policy: &MemoryPolicy, cpus: Option<&CpuSet>) -> Result<MemoryPolicy, AgentError> {
        let mut memory = to_start_with(policy, cpus, |cpu| self.observer.node_of_cpu(cpu));
        if memory.mode != MemoryMode::WeightedInterleave {
            return Ok(memory);
        }
        let tried = memory.clone();
        // A memory policy belongs to a thread, so a temporary thread tries it.
        let works = thread::spawn(move || linux::set_memory_policy(&tried)).join();
        if let Ok(Err(error)) = works {
            self.ledger.note(format!("memory is interleaved without weights, which need Linux 6.9 ({error})"));
            memory.mode = MemoryMode::Interleave;
            return Ok(memory);
        }
        for weight in &policy.weights {
            let switch = OwnSwitch::InterleaveWeight(weight.node);
            let value = weight.weight.to_string();
            if switch.switch().value().is_ok_and(|now| now == value) {
                continue;
            }
            if let Err(error) = self.actor.set(switch, &value)? {
                self.ledger.note(format!(
                    "memory is interleaved by the system's current weights ({}); setting those of this machine needs \
                     root",
                    chain(&error)
                ));
                break;
            }
        }
        Ok(memory)
    }

    /// Adds the program that was started this way.
    pub fn add_program(&mut self, pid: Pid, start: &ProgramStart) -> Result<(), AgentError> {
        if let (Some(cpus), Ok(own)) = (&start.cpus, affinity(Tid::CALLER)) {
            self.actor.was_started(pid, &own, cpus)?;
        }
        let given = start.cpus.iter().cloned().collect();
        let spread = start.spread.clone().map(spread_start_policy);
        let memory = start.memory.clone().or(spread);
        let inherited = Inherited { given, memory, ..Inherited::default() };
        self.spreads_start = start.spread.is_some();
        self.began_with = self.options.lesson.filter(|lesson| start.begins_with(*lesson));
        self.managed.set_program(pid, Inherited { parent: Some(pid), ..inherited.clone() });
        self.begin(pid, false, inherited)?;
        self.begin_round();
        Ok(())
    }

    /// Begins managing a process.
    fn begin(&mut self, pid: Pid, adopted: bool, inherited: Inherited) -> Result<(), AgentError> {
        if !self.options.scope.has(pid) {
            return Ok(());
        }
        let Some(process) = self.managed.begin(pid, adopted, inherited) else { return Ok(()) };
        let threads: Vec<Tid> = process.threads.keys().copied().collect();
        self.note_limits(pid);
        threads.into_iter().try_for_each(|tid| self.admit(pid, tid))
    }

    /// Notes where a process's owner or cpuset prevents the policy's placement.
    fn note_limits(&mut self, pid: Pid) {
        let Some(process) = self.managed.get(pid).filter(|_| !self.policy.has_nothing_to_place()) else {
            return;
        };
        let (name, record) = (&process.name, &process.record);
        let mut notes: Vec<String> = self
            .policy
            .denies(record)
            .into_iter()
            .map(|what| {
                format!(
                    "{name} cannot have {what}: its cpuset has CPUs {} and memory of nodes {}",
                    record.cpus, record.nodes
                )
            })
            .collect();
        let PolicyName { threads, memory } = self.policy.name();
        if self.policy.settings().respect_owner {
            let bound = process.threads.values().find_map(|thread| thread.record.bound_to.as_ref());
            if let Some(cpus) = bound.filter(|_| *threads != ThreadPolicy::Kernel) {
                notes.push(format!("{name} stays on CPUs {cpus}, which its owner has chosen (--override, or respect_owner = false, changes that)"));
            }
            if let Some(policy) = record.memory_policy.as_ref().filter(|_| *memory != MemoryPlacement::Default) {
                notes.push(format!("memory of {name} keeps its owner's policy {policy} (--override, or respect_owner = false, changes that)"));
            }
        }
        for note in notes {
            self.ledger.note_failure(Some(note));
        }
    }

    /// Places a new thread.
    fn admit(&mut self, pid: Pid, tid: Tid) -> Result<(), AgentError> {
        self.has_threads |= tid.0 != pid.0;
        let Some(process) = self.managed.get_mut(pid) else { return Ok(()) };
        let Some(thread) = process.threads.get(&tid) else { return Ok(()) };
        let start = self.policy.admit(&process.record, &thread.record);
        let line =
            LogLine::Admitted { process: process.record.clone(), thread: thread.record.clone(), start: start.clone() };
        let Start { cpus, cpus_reason, memory } = start;
        if tid.0 == pid.0 && !process.record.adopted {
            let wanted =
                memory.map(|memory| to_start_with(&memory, cpus.as_ref(), |cpu| self.observer.node_of_cpu(cpu)));
            process.begins_with(wanted.as_ref());
        }
        if let Some(cpus) = cpus {
            let is_moved = !self.options.dry_run;
            let done = is_moved.then(|| self.actor.move_thread(process, tid, &cpus)).transpose()?;
            let why = cpus_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let decided = format!("run thread {tid} of process {pid} on CPUs {cpus}{why}");
            self.ledger.add_start(self.round, process, decided, done);
        }
        Ok(self.ledger.write(|| line)?)
    }

    /// Updates what is managed with the lifecycle events since the last call.
    pub(super) fn follow_lifecycle(&mut self, is_over: bool) -> Result<(), AgentError> {
        let events = self.observer.lifecycle_events(&self.managed, &self.options.target, is_over);
        events.into_iter().try_for_each(|event| self.apply(event))
    }

    /// Updates what is managed after a lifecycle event.
    fn apply(&mut self, event: LifecycleEvent) -> Result<(), AgentError> {
        match event {
            LifecycleEvent::Began { pid, parent } => {
                if self.options.target == Target::Program {
                    self.forks.began(pid);
                }
                match self.managed.child_began(pid, parent, self.policy.is_prompt()) {
                    Some(inherited) => {
                        let giver = inherited.parent;
                        self.begin(pid, false, inherited)?;
                        giver.map_or(Ok(()), |giver| Ok(self.actor.will_outlive(pid, giver)?))
                    }
                    None => Ok(()),
                }
            }
            LifecycleEvent::ThreadBegan { pid, tid } => {
                // Also of processes that end before they are managed.
                self.has_threads |= tid.0 != pid.0;
                if self.managed.begin_thread(pid, tid) { self.admit(pid, tid) } else { Ok(()) }
            }
            LifecycleEvent::ThreadEnded { pid, tid } => {
                if tid.0 == pid.0 {
                    self.forks.ended(pid);
                    for (heir, giver) in self.managed.heirs_of(pid) {
                        self.actor.will_outlive(heir, giver)?;
                    }
                }
                if self.managed.end_thread(pid, tid) { self.forget(pid) } else { Ok(()) }
            }
            LifecycleEvent::Executed { pid, name } => {
                self.forks.executed(pid);
                let is_managed = self.managed.get(pid).is_some();
                if !is_managed && self.options.target == Target::System {
                    // It may match the selection now.
                    self.managed.add_candidate(pid, Duration::ZERO);
                }
                if is_managed && !self.options.scope.has(pid) {
                    return self.let_go(pid);
                }
                if !self.managed.exec(pid, &name) {
                    return Ok(());
                }
                self.huge_pages.iter_mut().for_each(|huge_pages| huge_pages.forget(pid));
                self.policy.executed(pid);
                Ok(self.ledger.write(|| LogLine::Executed { pid })?)
            }
        }
    }

    /// Begins managing candidates that outlived a round: all of them for a program and given processes, and the busy
    /// ones for a whole system.
    pub(super) fn begin_candidates(&mut self, round_s: f64) -> Result<(), AgentError> {
        let least_s = match self.options.target {
            Target::System => self.policy.settings().thresholds.cpu_share_min * round_s,
            Target::Program | Target::Pids(_) => 0.0,
        };
        let busy = self.managed.take_busy_candidates(least_s);
        busy.into_iter().try_for_each(|(pid, candidate)| self.begin_candidate(pid, candidate))
    }

    pub(super) fn begin_candidate(&mut self, pid: Pid, candidate: Candidate) -> Result<(), AgentError> {
        let Candidate { inherited, parent, .. } = candidate;
        if let Some(giver) = inherited.parent {
            self.actor.will_outlive(pid, giver)?;
        }
        self.begin(pid, parent.is_none(), inherited)
    }

    /// Stops managing a process and restores its CPUs.
    pub(super) fn let_go(&mut self, pid: Pid) -> Result<(), AgentError> {
        self.actor.put_back_process(pid).failed.into_iter().for_each(|failed| self.ledger.note_failure(Some(failed)));
        self.managed.remove(pid);
        self.forget(pid)
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, pid: Pid) -> Result<(), AgentError> {
        self.huge_pages.iter_mut().for_each(|huge_pages| huge_pages.forget(pid));
        self.policy.forget(pid);
        Ok(self.ledger.write(|| LogLine::Ended { pid })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_spread_as_a_lesson_says_only_by_a_policy() {
        let with = |memory: Option<MemoryPolicy>| ProgramStart { memory, ..ProgramStart::default() };
        let spread = spread_start_policy("0-3".parse().unwrap());
        assert!(with(Some(spread)).begins_with(Lesson::Spread));
        // All of its CPUs are on one node, or the run is a dry one.
        assert!(!with(None).begins_with(Lesson::Spread));
        assert!(with(None).begins_with(Lesson::FirstTouch) && with(None).begins_with(Lesson::NoThreads));
    }
}
