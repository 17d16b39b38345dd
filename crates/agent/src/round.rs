//! The end of a round: observation, decisions and their outcome.

use crate::agent::{Agent, AgentError, since};
use crate::cpu_rotation::rotate_cpu;
use crate::managed_processes::SharedOut;
use crate::samples::RoundSamples;
use linux::{PageBatch, Pid, monotonic_ns};
use observe::Accesses;
use placement::{
    Action, Decision, LogLine, MemoryPlacement, Observation, Outcome, PageSample, Range, SMALL_PAGE, Step,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;

/// Rounds after which the state of the kernel's NUMA balancing is checked again.
const BALANCING_ROUNDS: u64 = 16;

impl Agent {
    /// Decides and acts. `began_ns` is when this call of `poll` began.
    pub(crate) fn end_round(&mut self, began_ns: u64) -> Result<(), AgentError> {
        let observation = self.observe()?;
        // In a dry run the policy must not remember steps that were not taken.
        let decision = if self.options.dry_run {
            self.policy.clone().decide(&observation)
        } else {
            self.policy.decide(&observation)
        };
        self.observing += since(began_ns);
        // Moving pages may have taken longer than a round.
        self.sample_on(observation.length_s);
        self.run_summary.add_round(&observation, &decision);
        let outcome = self.act(&decision)?;
        self.fill_status(&observation, &decision);
        if self.options.log.is_some() {
            let observation = Box::new(observation);
            self.write(|| LogLine::Round { observation, decision })?;
        }
        if !self.options.dry_run {
            self.policy.learn(&outcome);
            self.write(|| LogLine::Learned { outcome })?;
        }
        self.rotate_log()?;
        rotate_cpu();
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, AgentError> {
        let now = monotonic_ns();
        let length_s = Duration::from_nanos(now.saturating_sub(self.round_began_ns)).as_secs_f64().max(1e-6);
        self.round_began_ns = now;
        self.round += 1;
        if self.round.is_multiple_of(BALANCING_ROUNDS) {
            self.quiet_the_kernel()?;
        }
        self.begin_candidates(length_s)?;
        let RoundSamples { mut pages, missed, threads, traffic, uses, latency_mean_ns, latency_error_ns, count } =
            self.sample_tally.take(self.policy.sampling().page_cap, locate);
        let counted = self.counters.take(&mut self.counts, length_s, &self.machine);
        let shared_out = counted.as_ref().map_or_else(SharedOut::default, |counted| SharedOut {
            instructions: counted.instructions,
            cpu_time_s: counted.cpu_time_s,
            memory_wait_s: counted.memory_wait_s,
        });
        let work = std::mem::take(&mut self.thread_work);
        for pid in self.managed.end_round(self.round, length_s, &threads, (&work, shared_out)) {
            self.forget(pid)?;
        }
        let is_replicated = self.options.policy.memory == MemoryPlacement::Carrefour;
        let mut refreshed = FxHashSet::default();
        for page in &mut pages {
            let Some(process) = self.managed.processes.get_mut(&page.pid) else { continue };
            page.is_bound = process.owners.contain(page.address);
            let may_be = is_replicated && page.page_bytes == SMALL_PAGE && page.writes == 0;
            if may_be && refreshed.insert(page.pid) {
                process.replicable.refresh(&process.process);
            }
            page.is_replicable = may_be && process.replicable.contain(&process.process, page.address);
        }
        self.missed += missed;
        self.status_now().samples += count;
        let mut counted = counted.unwrap_or_default();
        let (controllers, links) = (std::mem::take(&mut counted.controllers), std::mem::take(&mut counted.links));
        Ok(Observation {
            round: self.round,
            length_s,
            traffic: counted.traffic(traffic, &uses),
            counters_running: None,
            controllers,
            links,
            latency_mean_ns,
            latency_error_ns,
            memory: if self.accesses.is_some() { self.memory.at(self.round) } else { Vec::new() },
            processes: self.managed.processes.values().map(|process| process.record.clone()).collect(),
            threads: self.managed.threads(),
            pages,
            samples_missed: missed,
            ranges: self.ranges(),
            budget_bytes: self.options.budget_bytes_per_s.map(|budget| (budget as f64 * length_s) as u64),
        })
    }

    /// Mappings, for the one policy that moves whole mappings.
    fn ranges(&mut self) -> Vec<Range> {
        if !self.policy.follows() {
            return Vec::new();
        }
        let processes = self.managed.processes.values_mut();
        processes.flat_map(|process| process.mappings.read(&process.process)).collect()
    }

    fn act(&mut self, decision: &Decision) -> Result<Outcome, AgentError> {
        let mut outcome = Outcome { round: decision.round, ..Outcome::default() };
        let all_done = if self.options.dry_run {
            Vec::new()
        } else {
            self.actor.carry_out(&decision.steps, &mut self.managed, &mut outcome)?
        };
        for (index, step) in decision.steps.iter().enumerate() {
            let done = all_done.get(index);
            if let Some(done) = done {
                self.run_summary.add_step(step.reason.rule, done);
                self.notes.extend(self.actor.news(done));
            }
            let moved = done.map_or((0, 0), |done| (done.pages_moved, done.bytes_moved));
            if let Some(pid) = step.action.pid() {
                let mut status = self.status_now();
                let process = status.processes.entry(pid).or_default();
                process.decided(decision.round, step.to_string());
                (process.pages_moved, process.bytes_moved) =
                    (process.pages_moved + moved.0, process.bytes_moved + moved.1);
            }
            if moved.0 > 0 || done.is_some_and(|done| done.pages_copied > 0) {
                self.memory.changed(decision.round, &step.action.fills());
            }
            let idle = (step.action == Action::Nothing).then_some(step.reason.rule);
            if self.options.explain && (idle.is_none() || std::mem::replace(&mut self.idle, idle) != idle) {
                self.explained.push(explanation(decision.round, step, done));
            }
        }
        Ok(outcome)
    }

    /// Fills in what is known from the start.
    pub(crate) fn begin_status(&self) {
        let mut status = self.status_now();
        status.policy = self.policy.name().to_string();
        status.source = self.source();
        status.round_s = self.options.round.as_secs_f64();
        status.notes.clone_from(&self.notes);
    }

    fn fill_status(&mut self, observation: &Observation, decision: &Decision) {
        let (cpu_time_s, time_s) = (self.cpu_time().as_secs_f64(), self.time().as_secs_f64());
        let samples_lost = self.missed + self.lost_by_source();
        let mut status = self.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (status.cpu_time_s, status.time_s, status.rounds) = (cpu_time_s, time_s, self.round);
        (status.metrics, status.samples_lost) = (decision.metrics.clone(), samples_lost);
        if status.notes.len() != self.notes.len() {
            status.notes.clone_from(&self.notes);
        }
        let run_summary = &self.run_summary;
        (status.pages_moved, status.bytes_moved) = (run_summary.pages_moved, run_summary.bytes_moved);
        status.pages_copied = run_summary.pages_copied;
        status.pages_refused = run_summary.all_refused();
        status.threads_moved = run_summary.threads_moved;
        status.pages_moved_by_rule.clone_from(run_summary.pages_by_rule());
        let managed = &self.managed.processes;
        status.processes.retain(|pid, _| managed.contains_key(pid));
        for process in &observation.processes {
            let Some(of) = managed.get(&process.pid) else { continue };
            let told = status.processes.entry(process.pid).or_default();
            if told.name != of.name {
                told.name.clone_from(&of.name);
            }
            (told.threads, told.cpu_share) = (of.threads.len() as u64, process.cpu_share);
        }
    }

    /// Sets the sampling rate after a round of this length.
    fn sample_on(&mut self, length_s: f64) {
        self.rate.learn(std::mem::take(&mut self.observing));
        self.rate.set_divisor(self.policy.sampling().divisor);
        let came = std::mem::take(&mut self.came);
        match &mut self.accesses {
            Some(Accesses::Lab(pmu)) => pmu.set_period(self.rate.next_period(pmu.period(), came, length_s)),
            Some(Accesses::Perf(source)) => {
                if let Some(hz) = self.rate.next_hz(self.machine.cpus().len()) {
                    source.set_rate(hz);
                }
            }
            // The kernel alone decides how many pages it marks.
            Some(Accesses::HintFaults(_)) | None => {}
        }
    }
}

fn explanation(round: u64, step: &Step, done: Option<&crate::act::Done>) -> String {
    let mut parts = vec![format!("round {round}: {step}")];
    let Some(done) = done else { return parts.concat() };
    let wanted = match &step.action {
        Action::MovePages { pages, .. } | Action::Replicate { pages, is_possible: true, .. } => pages.len() as u64,
        Action::InterleavePages { pages, .. } => pages.len() as u64,
        _ => done.pages_moved + done.pages_copied,
    };
    if done.pages_moved + done.pages_copied != wanted {
        parts.push(format!("; {} did", done.pages_moved + done.pages_copied));
        let refused = done.pages_refused.iter();
        parts.extend(refused.map(|(why, pages)| format!(", {pages} {}", why.word())));
    }
    parts.extend(done.note.iter().map(|note| format!("; {note}")));
    parts.concat()
}

/// Queries the node of each page and drops pages that no longer exist.
fn locate(samples: &mut Vec<PageSample>) {
    let page = |sample: &PageSample| (sample.pid, sample.address - sample.address % sample.page_bytes.max(1));
    let mut pages: Vec<(Pid, u64)> = samples.iter().map(page).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut nodes = FxHashMap::default();
    let mut batch = PageBatch::with_capacity(pages.len());
    for of_process in pages.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(pid, _)) = of_process.first() else { continue };
        batch.clear();
        for (_, address) in of_process {
            batch.push(*address, None);
        }
        if batch.locate(pid).is_ok() {
            nodes.extend(batch.statuses().filter_map(|(at, status)| Some(((pid, at), status.node().ok()?))));
        }
    }
    samples.retain_mut(|sample| match nodes.get(&page(sample)) {
        Some(node) => {
            sample.node = *node;
            true
        }
        None => false,
    });
}
