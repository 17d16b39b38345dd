//! Begins managing processes and threads: the program before it runs, others as soon as they are seen.

use crate::act::Done;
use crate::agent::{Agent, AgentError, Candidate};
use crate::lifecycle::{LifecycleEvent, all_processes};
use crate::managed_processes::Inherited;
use crate::memory::{asked_for, to_start_with, why};
use crate::owner::bound_to;
use linux::{
    Attempt, MemoryMode, MemoryPolicy, PageBatch, Pid, Process, Switch, SystemState, Tid, affinity, current_cpu,
    diagnose, process_cpu_time,
};
use machine::{CpuSet, chain};
use observe::Target;
use placement::{LogLine, MemoryPlacement, PolicyName, Start, ThreadPolicy};
use std::io::ErrorKind;
use std::thread;

/// How a program is to be started: see [`linux::ChildSetup::place`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramStart {
    /// CPUs for it and its children; none leaves them unrestricted.
    pub cpus: Option<CpuSet>,
    /// Memory policy for it and its children; none leaves this process's own.
    pub memory: Option<MemoryPolicy>,
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
    pub(crate) fn begin_managing(&mut self) -> Result<(), AgentError> {
        match self.options.target.clone() {
            Target::Program => {}
            Target::Pids(pids) => {
                for pid in pids {
                    check_rights(pid)?;
                    self.begin(pid, true, Inherited::default())?;
                }
            }
            Target::System => {
                self.candidates.extend(all_processes().into_iter().filter_map(|pid| {
                    let cpu_time = process_cpu_time(pid).ok()?;
                    Some((pid, Candidate { cpu_time, ..Candidate::default() }))
                }));
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
        if let Some(memory) = memory.as_ref().filter(|_| self.options.explain) {
            let why = why(&self.options.policy.memory);
            self.explained.push(format!("start: take the program's memory by policy {memory}: {why}"));
        }
        if self.options.dry_run {
            return Ok(ProgramStart::default());
        }
        let memory = match memory {
            Some(policy) => Some(self.possible(&policy, cpus.as_ref())?),
            None => None,
        };
        Ok(ProgramStart { cpus, memory })
    }

    /// This memory policy, or the closest that the kernel supports. Weights are system-wide, and are set for it.
    fn possible(
        &mut self,
        policy: &placement::MemoryPolicy,
        cpus: Option<&CpuSet>,
    ) -> Result<MemoryPolicy, AgentError> {
        let mut memory = to_start_with(policy, cpus, |cpu| self.nodes.of_cpu(cpu));
        if memory.mode != MemoryMode::WeightedInterleave {
            return Ok(memory);
        }
        let tried = memory.clone();
        // A memory policy belongs to a thread, so a temporary thread tries it.
        let works = thread::spawn(move || linux::set_memory_policy(&tried)).join();
        if let Ok(Err(error)) = works {
            self.notes.push(format!("memory is interleaved without weights, which need Linux 6.9 ({error})"));
            memory.mode = MemoryMode::Interleave;
            return Ok(memory);
        }
        for weight in &policy.weights {
            let switch = Switch::interleave_weight(weight.node);
            let value = weight.weight.to_string();
            if switch.value().is_ok_and(|now| now == value) {
                continue;
            }
            self.actor.journal.will_set(&switch, &value)?;
            if let Err(error) = switch.set(&value) {
                self.notes.push(format!(
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
            self.actor.journal.was_started(pid, &own, cpus)?;
        }
        let given = start.cpus.iter().cloned().collect();
        let inherited = Inherited { given, memory: start.memory.clone(), ..Inherited::default() };
        self.managed.program = Some((pid, Inherited { parent: Some(pid), ..inherited.clone() }));
        self.begin(pid, false, inherited)?;
        self.begin_round();
        Ok(())
    }

    /// Begins managing a process.
    pub(crate) fn begin(&mut self, pid: Pid, adopted: bool, inherited: Inherited) -> Result<(), AgentError> {
        if !self.options.scope.has(pid) {
            return Ok(());
        }
        let Some(process) = self.managed.begin(pid, adopted, inherited) else { return Ok(()) };
        let threads: Vec<Tid> = process.threads.keys().copied().collect();
        self.seen.insert(pid);
        self.note_limits(pid);
        threads.into_iter().try_for_each(|tid| self.admit(pid, tid))
    }

    /// Notes where a process's owner or cpuset prevents the policy's placement.
    fn note_limits(&mut self, pid: Pid) {
        let Some(process) = self.managed.processes.get(&pid).filter(|_| !self.policy.has_nothing_to_place()) else {
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
            let new = self.actor.news(&Done { note: Some(note), ..Done::default() });
            self.notes.extend(new);
        }
    }

    /// Places a new thread.
    fn admit(&mut self, pid: Pid, tid: Tid) -> Result<(), AgentError> {
        let Some(process) = self.managed.processes.get_mut(&pid) else { return Ok(()) };
        let Some(thread) = process.threads.get(&tid) else { return Ok(()) };
        let start = self.policy.admit(&process.record, &thread.record);
        let line =
            LogLine::Admitted { process: process.record.clone(), thread: thread.record.clone(), start: start.clone() };
        let Start { cpus, cpus_reason, memory } = start;
        if tid.0 == pid.0 && !process.record.adopted {
            let wanted = memory.map(|memory| to_start_with(&memory, cpus.as_ref(), |cpu| self.nodes.of_cpu(cpu)));
            process.begins_with(wanted.as_ref());
        }
        if let Some(cpus) = cpus {
            if !self.options.dry_run {
                let done = self.actor.move_thread(process, tid, &cpus)?;
                self.run_summary.threads_moved += done.threads_moved;
                self.notes.extend(self.actor.news(&done));
            }
            let why = cpus_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            self.has_begun(pid, format!("run thread {tid} of process {pid} on CPUs {cpus}{why}"));
        }
        self.write(|| line)
    }

    /// Reports the decision about a new thread.
    fn has_begun(&mut self, pid: Pid, decided: String) {
        if self.options.explain {
            self.explained.push(format!("start: {decided}"));
        }
        let Some(managed) = self.managed.processes.get(&pid) else { return };
        let mut status = self.status_now();
        let process = status.processes.entry(pid).or_default();
        process.name.clone_from(&managed.name);
        process.threads = managed.threads.len() as u64;
        process.decided(self.round, decided);
    }

    /// Updates what is managed after a lifecycle event.
    pub(crate) fn apply(&mut self, event: LifecycleEvent) -> Result<(), AgentError> {
        match event {
            LifecycleEvent::Began { pid, parent } => self.take_child(pid, parent),
            LifecycleEvent::ThreadBegan { pid, tid } => match self.managed.begin_thread(pid, tid) {
                Some(_) => self.admit(pid, tid),
                None => Ok(()),
            },
            LifecycleEvent::ThreadEnded { pid, tid } => {
                if tid.0 == pid.0 {
                    self.candidates.remove(&pid);
                }
                if self.managed.end_thread(pid, tid) { self.forget(pid) } else { Ok(()) }
            }
            LifecycleEvent::Executed { pid, name } => {
                if !self.managed.processes.contains_key(&pid) && self.options.target == Target::System {
                    // It may match the selection now.
                    self.candidates.entry(pid).or_default();
                }
                if self.managed.processes.contains_key(&pid) && !self.options.scope.has(pid) {
                    return self.let_go(pid);
                }
                if !self.managed.exec(pid, &name) {
                    return Ok(());
                }
                self.policy.executed(pid);
                self.write(|| LogLine::Executed { pid })
            }
        }
    }

    /// Policies that place threads manage each process at once; others when it outlives a round.
    fn take_child(&mut self, pid: Pid, parent: Option<Pid>) -> Result<(), AgentError> {
        let is_known = self.managed.processes.contains_key(&pid) || pid.0 == std::process::id();
        // For the program itself, this process is the parent.
        let is_ours = parent.is_some_and(|parent| parent.0 == std::process::id());
        if is_known || is_ours {
            return Ok(());
        }
        let inherited = self.managed.inherited_from(parent);
        let has_managed_parent = inherited.parent.is_some();
        let is_prompt = self.options.policy.threads != ThreadPolicy::Kernel;
        if is_prompt && has_managed_parent {
            return self.begin(pid, false, inherited);
        }
        let candidate = || Candidate { inherited, parent, ..Candidate::default() };
        self.candidates.entry(pid).or_insert_with(candidate);
        Ok(())
    }

    /// Begins managing candidates that outlived a round: all of them for a program and given processes, and the busy
    /// ones for a whole system.
    pub(crate) fn begin_candidates(&mut self, round_s: f64) -> Result<(), AgentError> {
        let least_s = match self.options.target {
            Target::System => self.policy.settings().thresholds.cpu_share_min * round_s,
            Target::Program | Target::Pids(_) => 0.0,
        };
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
        for (pid, Candidate { inherited, parent, .. }) in busy {
            self.begin(pid, parent.is_none(), inherited)?;
        }
        Ok(())
    }

    /// Stops managing a process and restores its CPUs.
    fn let_go(&mut self, pid: Pid) -> Result<(), AgentError> {
        self.notes.extend(self.actor.journal.put_back_process(pid).failed);
        self.managed.processes.remove(&pid);
        self.forget(pid)
    }

    /// A process has ended.
    pub(crate) fn forget(&mut self, pid: Pid) -> Result<(), AgentError> {
        self.policy.forget(pid);
        self.write(|| LogLine::Ended { pid })
    }
}
