//! The end of a round: observation, decisions and their outcome.

use super::{Agent, first_line, round_length::rounds_in_one};
use crate::counters::uses_by_time;
use crate::cpu_rotation::rotate_cpu;
use crate::error::AgentError;
use crate::huge_pages::Advisers;
use crate::managed_process::SharedOut;
use crate::observer::RoundReadings;
use crate::samples::RoundSamples;
use linux::monotonic_ns;
use machine::{Pid, SMALL_PAGE};
use placement::{Decision, LogLine, Observation, Outcome, Process, Tells};
use rustc_hash::FxHashSet;

/// Rounds after which the state of the kernel's NUMA balancing is checked again.
const BALANCING_ROUNDS: u64 = 16;
/// Rounds after which it is checked again whether a process is to be managed: it may have got a grant, or another user.
const SCOPE_ROUNDS: u64 = 32;

impl Agent {
    /// Decides and acts. `began_ns` is when this call of `poll` began.
    pub(super) fn end_round(&mut self, began_ns: u64) -> Result<(), AgentError> {
        self.advisers.iter_mut().for_each(Advisers::look);
        let mut observation = self.observe()?;
        self.ledger.work_time().add_observing(began_ns);
        let ordered_ns = monotonic_ns();
        // What users order comes before what the policy finds.
        self.move_requested()?;
        self.move_regions()?;
        observation.budget_bytes = self.budget.left();
        let helped = self.actor.take_helped();
        self.ledger.work_time().add_moving(ordered_ns, helped);
        let observed_ns = monotonic_ns();
        let decision =
            if self.options.dry_run { self.policy.try_out(&observation) } else { self.policy.decide(&observation) };
        self.ledger.work_time().add_deciding(observed_ns);
        self.ledger.work_time().add_observing(observed_ns);
        let (cost, divisor) = (self.ledger.work_time().take_observing(), self.sampling_divisor());
        self.own = cost;
        self.rounds_in_next = rounds_in_one(cost, self.options.round, self.idle_rounds());
        // Moving pages may have taken longer than a round.
        self.observer.adjust_rate(cost, divisor, observation.length_s, &self.machine);
        self.ledger.add_round(&observation, &decision);
        let decided_ns = monotonic_ns();
        let outcome = self.act(&decision)?;
        self.judge_huge_pages();
        let helped = self.actor.take_helped();
        self.ledger.work_time().add_moving(decided_ns, helped);
        self.ledger.update_status(&observation, &decision, (&self.managed, self.policy.costs()), self.observer.lost());
        self.ledger.write(|| LogLine::Round { observation: Box::new(observation), decision })?;
        if !self.options.dry_run {
            self.policy.learn(&outcome);
            self.ledger.write(|| LogLine::Learned { outcome })?;
        }
        self.ledger.rotate_log(|| first_line(&self.machine, &self.policy, &self.options));
        rotate_cpu();
        Ok(())
    }

    /// Verdicts on huge pages need as many samples as may be taken, also where the policy has settled.
    fn sampling_divisor(&self) -> u64 {
        let is_shown = self.huge_pages.as_ref().is_some_and(|huge_pages| huge_pages.status().is_some());
        if is_shown { 1 } else { self.policy.sampling().divisor }
    }

    /// Rounds in which there is nothing to decide. Verdicts on huge pages are of single rounds.
    fn idle_rounds(&self) -> u64 {
        if self.huge_pages.is_some() { 0 } else { self.policy.idle_rounds() }
    }

    fn judge_huge_pages(&mut self) {
        let Some(huge_pages) = &mut self.huge_pages else { return };
        let respects_owner = self.options.settings.respect_owner;
        let judged = huge_pages.judge(&mut self.managed, respects_owner, self.advisers.as_mut());
        for (pid, what) in judged.decided {
            self.ledger.add_huge_pages(self.round, pid, what);
        }
        judged.failed.into_iter().for_each(|why| self.ledger.note_failure(Some(why)));
        if let Some(status) = huge_pages.status() {
            self.ledger.update_huge_pages(status);
        }
    }

    /// Stops managing processes that the selection leaves out by now; each is looked at in its turn. `before` is the
    /// previous round.
    fn leave_what_is_out_of_scope(&mut self, before: u64) -> Result<(), AgentError> {
        let turn = |round: u64, pid: Pid| round.wrapping_add(pid.0.into()) / SCOPE_ROUNDS;
        let is_due = |pid: &Pid| turn(self.round, *pid) > turn(before, *pid);
        let due: Vec<Pid> = self.managed.iter().map(|(pid, _)| pid).filter(is_due).collect();
        for pid in due {
            if !self.options.scope.has(pid) {
                self.let_go(pid)?;
            }
        }
        Ok(())
    }

    fn observe(&mut self) -> Result<Observation, AgentError> {
        let length_s = self.observer.next_round();
        self.budget.add_round(self.options.budget_bytes_per_s, length_s);
        let before = self.round;
        self.round += self.rounds_in_next;
        if self.round / BALANCING_ROUNDS > before / BALANCING_ROUNDS {
            self.quiet_the_kernel()?;
        }
        self.leave_what_is_out_of_scope(before)?;
        self.begin_candidates(length_s)?;
        self.follow_hints()?;
        self.look_for_regions();
        let RoundReadings { samples, counts, thread_work } =
            self.observer.take(length_s, self.policy.sampling().page_cap, &self.machine);
        let RoundSamples {
            mut pages,
            missed,
            threads,
            traffic,
            slices,
            uses,
            latency_mean_ns,
            latency_error_ns,
            count,
        } = samples;
        let counts = counts.unwrap_or_default();
        let shared_out = SharedOut {
            instructions: counts.instructions,
            cpu_time_s: counts.cpu_time_s,
            memory_wait_s: counts.memory_wait_s,
        };
        self.managed.watch_threads(self.policy.watches_threads());
        for pid in self.managed.end_round(self.round, length_s, &threads, (&thread_work, shared_out)) {
            self.forget(pid)?;
        }
        self.managed.mark_pages(&mut pages, self.options.policy.memory.is_carrefour());
        if let Some(huge_pages) = &self.huge_pages {
            huge_pages.mark(&mut pages);
        }
        self.ledger.add_samples(count, missed);
        let tells = self.observer.tells();
        let processes = self.managed.records();
        let pids: FxHashSet<Pid> = if tells == Tells::Counts {
            let is_busy = |process: &&Process| process.cpu_share > self.options.settings.thresholds.cpu_share_min;
            processes.iter().filter(is_busy).map(|process| process.pid).collect()
        } else {
            pages.iter().map(|page| page.pid).collect()
        };
        let samples = pages.iter().fold(0_u64, |sum, page| sum.saturating_add(page.samples()));
        let needs_ranges = self.policy.needs_ranges(self.round, samples);
        let ranges = needs_ranges.map_or_else(Vec::new, |which| self.managed.ranges(which, &pids));
        let uses = if tells == Tells::Counts {
            self.managed.read_cpus(&pids);
            uses_by_time(&self.managed.running(&pids), &self.managed.resident(&pids), self.policy.costs())
        } else {
            uses
        };
        Ok(Observation {
            round: self.round,
            length_s,
            counters_running: None,
            controllers: counts.controllers.clone(),
            links: counts.links.clone(),
            traffic: counts.traffic(traffic, &uses),
            slices,
            latency_mean_ns,
            latency_error_ns,
            memory: self.observer.memory(self.round),
            processes,
            threads: self.managed.threads(),
            tells,
            samples_missed: missed,
            ranges,
            pages,
            // What is left of it when orders are carried out.
            budget_bytes: None,
            own_s: self.own.as_secs_f64(),
        })
    }

    pub(super) fn act(&mut self, decision: &Decision) -> Result<Outcome, AgentError> {
        let mut outcome = Outcome { round: decision.round, ..Outcome::default() };
        let all_done = if self.options.dry_run {
            Vec::new()
        } else {
            self.actor.carry_out(&decision.steps, &mut self.managed, &mut outcome, self.advisers.as_mut())?
        };
        self.budget.spend(all_done.iter().map(|done| done.all_moved().bytes + done.pages_copied * SMALL_PAGE).sum());
        for (index, step) in decision.steps.iter().enumerate() {
            let done = all_done.get(index);
            self.ledger.add_step(decision.round, step, done);
            if let (Some(huge_pages), Some(done), Some(pid)) = (&mut self.huge_pages, done, step.action.pid()) {
                done.split_at.iter().for_each(|address| huge_pages.was_split(pid, *address));
            }
            if done.is_some_and(|done| done.all_moved().pages > 0 || done.pages_copied > 0) {
                self.observer.memory_changed(decision.round, &step.action.fills());
            }
        }
        Ok(outcome)
    }
}
