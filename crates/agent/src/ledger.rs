//! Accounts for a run: what was decided and done, what it cost, and what users and clients are to know of it.

use crate::decision_log::{DecisionLog, Log, LogError, OptionalLog};
use crate::huge_page_service::HugePageStatus;
use crate::managed_process::ManagedProcess;
use crate::managed_processes::Managed;
use crate::options::Options;
use crate::place_report::PlaceReport;
use crate::run_summary::RunSummary;
use crate::status::Status;
use crate::step_outcome::StepOutcome;
use crate::work_time::WorkTime;
use machine::{Pid, SMALL_PAGE};
use placement::{Action, Costs, Decision, LogLine, Observation, ProcessUse, Rule, Step, Thread};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of distinct failure notes in a period: each thread may have its own.
const MOST_NOTES: usize = 50;
/// After this time all failures are new again: a service reports what fails today, too.
const NOTES_PERIOD: Duration = Duration::from_secs(3600);
const NO_MORE_NOTES: &str = "further notes of this kind are not shown for some time";

/// Accounts for a run.
pub(crate) struct Ledger {
    run_summary: RunSummary,
    /// Samples in all rounds that exceeded the page limit.
    missed: u64,
    status: Arc<Mutex<Status>>,
    notes: Vec<String>,
    /// Notes since they were last taken.
    news: Vec<String>,
    /// Failures already noted in this period; each is noted once.
    noted_failures: BTreeSet<String>,
    /// Those of earlier periods.
    outdated: BTreeSet<String>,
    notes_began: Instant,
    /// Decisions with their reasons, if requested.
    explained: Option<Vec<String>>,
    /// Why nothing was done; explained once.
    idle: Option<Rule>,
    log: Log,
    work_time: WorkTime,
}

impl Ledger {
    /// Opens the decision log, if there is to be one.
    pub fn open(options: &Options, notes: Vec<String>) -> Result<Self, LogError> {
        let log = match (&options.log, options.log_most_bytes) {
            (None, _) => Log::None,
            (Some(path), None) => Log::Needed(DecisionLog::begin(path)?),
            (Some(path), Some(most_bytes)) => Log::Optional(OptionalLog::begin(path, most_bytes)),
        };
        options.status.lock().unwrap_or_else(PoisonError::into_inner).begin(Status::default());
        Ok(Self {
            run_summary: RunSummary::default(),
            missed: 0,
            status: options.status.clone(),
            news: notes.clone(),
            notes,
            noted_failures: BTreeSet::new(),
            outdated: BTreeSet::new(),
            notes_began: Instant::now(),
            explained: options.explain.then(Vec::new),
            idle: None,
            log,
            work_time: WorkTime::begin(),
        })
    }

    /// Adds a line to the log, if there is one.
    pub fn write(&mut self, line: impl FnOnce() -> LogLine) -> Result<(), LogError> {
        self.log.add(line)
    }

    /// Starts a new log with this line when the log has reached its limit, or failed a while ago.
    pub fn rotate_log(&mut self, begin: impl FnOnce() -> LogLine) {
        self.log.rotate(begin);
    }

    /// What happened to a service's log, and what was noted, since the last call. A service runs for months: it no longer
    /// shows what failed in earlier periods.
    pub fn take_news(&mut self) -> Vec<String> {
        let outdated = std::mem::take(&mut self.outdated);
        self.notes.retain(|note| !outdated.contains(note));
        self.log.take_news().into_iter().chain(std::mem::take(&mut self.news)).collect()
    }

    /// Adds a note, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.news.push(note.clone());
            self.notes.push(note);
        }
    }

    /// Notes why less was done than decided, if this is new and the limit is not reached.
    pub fn note_failure(&mut self, failure: Option<String>) {
        if self.notes_began.elapsed() > NOTES_PERIOD {
            self.notes_began = Instant::now();
            self.outdated.append(&mut self.noted_failures);
            self.outdated.insert(NO_MORE_NOTES.to_owned());
        }
        let Some(failure) = failure.filter(|_| self.noted_failures.len() <= MOST_NOTES) else { return };
        if self.noted_failures.insert(failure.clone()) {
            let is_too_much = self.noted_failures.len() > MOST_NOTES;
            self.note(if is_too_much { NO_MORE_NOTES.to_owned() } else { failure });
        }
    }

    /// Explains a decision if requested.
    pub fn explain(&mut self, decision: impl FnOnce() -> String) {
        if let Some(explained) = &mut self.explained {
            explained.push(decision());
        }
    }

    /// The decisions explained since the last call.
    pub fn take_explained(&mut self) -> Vec<String> {
        self.explained.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn is_paused(&self) -> bool {
        self.lock_status().paused
    }

    fn lock_status(&self) -> MutexGuard<'_, Status> {
        // A thread that panicked while holding the lock left the status usable: it has no invariants.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in what is known from the start.
    pub fn begin_status(&self, policy: String, source: Option<String>, round: Duration) {
        let mut status = self.lock_status();
        (status.policy, status.source, status.round_s) = (policy, source, round.as_secs_f64());
        status.notes.clone_from(&self.notes);
    }

    pub fn work_time(&mut self) -> &mut WorkTime {
        &mut self.work_time
    }

    /// Adds a round's samples of managed processes, and those that exceeded the page limit.
    pub fn add_samples(&mut self, count: u64, missed: u64) {
        self.missed += missed;
        self.lock_status().samples += count;
    }

    /// Pages that were moved since the start.
    pub fn pages_moved(&self) -> u64 {
        self.run_summary.all_moved().pages
    }

    /// Adds a round; its observation precedes its own moves.
    pub fn add_round(&mut self, observation: &Observation, decision: &Decision) {
        self.run_summary.add_round(observation, decision);
    }

    /// Adds a step and its outcome; none in a dry run.
    pub fn add_step(&mut self, round: u64, step: &Step, done: Option<&StepOutcome>) {
        self.run_summary.add_gain(round, &step.reason);
        if step.action == Action::Nothing {
            self.run_summary.add_idle(&step.reason);
        }
        if let Some(done) = done {
            self.run_summary.add_step(step.reason.rule, done);
            self.note_failure(done.note.clone());
        }
        if let Some(pid) = step.action.pid() {
            let mut status = self.lock_status();
            let process = status.processes.entry(pid).or_default();
            process.decided(round, with_outcome(step, done));
            let moved = done.map(StepOutcome::all_moved).unwrap_or_default();
            process.pages_moved += moved.pages;
            process.bytes_moved += moved.bytes;
        }
        let idle = (step.action == Action::Nothing).then_some(step.reason.rule);
        if self.explained.is_some() && (idle.is_none() || std::mem::replace(&mut self.idle, idle) != idle) {
            self.explain(|| format!("round {round}: {}", with_outcome(step, done)));
        }
    }

    /// Adds the decision about a new thread, and its outcome; none in a dry run.
    pub fn add_start(&mut self, round: u64, managed: &ManagedProcess, decided: String, done: Option<StepOutcome>) {
        let mut decided = decided;
        if let Some(done) = done {
            self.run_summary.threads_moved += done.threads_moved;
            decided.extend(done.note.iter().map(|note| format!("; {note}")));
            self.note_failure(done.note);
        }
        self.explain(|| format!("start: {decided}"));
        let mut status = self.lock_status();
        let process = status.processes.entry(managed.record.pid).or_default();
        process.name.clone_from(&managed.name);
        process.threads = managed.threads.len() as u64;
        process.limits.clone_from(&managed.limits);
        process.decided(round, decided);
    }

    /// Adds what is done about huge pages of a process.
    pub fn add_huge_pages(&mut self, round: u64, pid: Pid, what: String) {
        self.explain(|| format!("round {round}: process {pid}: {what}"));
        self.lock_status().processes.entry(pid).or_default().decided(round, what);
    }

    /// Updates what is known of huge pages.
    pub fn update_huge_pages(&self, known: &HugePageStatus) {
        self.lock_status().huge_pages = Some(known.clone());
    }

    /// Updates the status at the end of a round.
    pub fn update_status(
        &self,
        observation: &Observation,
        decision: &Decision,
        (managed, costs): (&Managed, &Costs),
        lost_by_source: u64,
    ) {
        let mut threads: BTreeMap<Pid, Vec<&Thread>> = BTreeMap::new();
        for thread in &observation.threads {
            threads.entry(thread.pid).or_default().push(thread);
        }
        let mut status = self.lock_status();
        (status.cpu_time_s, status.time_s) =
            (self.work_time.cpu_time().as_secs_f64(), self.work_time.time().as_secs_f64());
        status.rounds = observation.round;
        (status.metrics, status.samples_lost) = (decision.metrics.clone(), self.missed + lost_by_source);
        if status.notes != self.notes {
            status.notes.clone_from(&self.notes);
        }
        let run_summary = &self.run_summary;
        let moved = run_summary.all_moved();
        (status.pages_moved, status.bytes_moved, status.moves) = (moved.pages, moved.bytes, run_summary.moves());
        status.cpu_time_of = self.work_time.shares();
        status.pages_copied = run_summary.pages_copied;
        status.pages_refused = run_summary.all_refused();
        status.threads_moved = run_summary.threads_moved;
        status.pages_moved_by_rule.clone_from(run_summary.pages_by_rule());
        status.processes.retain(|pid, _| managed.get(*pid).is_some());
        for process in &observation.processes {
            let Some(of) = managed.get(process.pid) else { continue };
            let told = status.processes.entry(process.pid).or_default();
            if told.name != of.name {
                told.name.clone_from(&of.name);
            }
            (told.threads, told.cpu_share) = (of.threads.len() as u64, process.cpu_share);
            if told.limits != of.limits {
                told.limits.clone_from(&of.limits);
            }
            let used = ProcessUse::new(threads.remove(&process.pid).unwrap_or_default(), costs);
            told.misses_per_thousand_instructions = used.misses_per_thousand_instructions;
            told.remote_ratio = used.remote_ratio;
        }
    }

    /// What a run did, without what the ledger does not know: its policy, options, source, rounds and processes.
    pub fn report(&self, costs: &Costs, lost_by_source: u64) -> PlaceReport {
        let (time_s, cpu_time_s) = (self.work_time.time().as_secs_f64(), self.work_time.cpu_time().as_secs_f64());
        let run_summary = &self.run_summary;
        PlaceReport {
            time_s,
            samples: self.lock_status().samples,
            samples_lost: self.missed + lost_by_source,
            pages_moved: run_summary.all_moved().pages,
            bytes_moved: run_summary.all_moved().bytes,
            moves: run_summary.moves(),
            by_rule: run_summary.by_rule(),
            gains: run_summary.gains().to_vec(),
            idle_reason: run_summary.idle_reason(),
            pages_refused: run_summary.refused(),
            pages_copied: run_summary.pages_copied,
            bytes_copied: run_summary.pages_copied * SMALL_PAGE,
            pages_split: run_summary.pages_split,
            pages_kept_small: run_summary.pages_kept_small,
            threads_moved: run_summary.threads_moved,
            before: run_summary.before(costs),
            after: run_summary.after(costs),
            cpu_time_s,
            cpu_share: cpu_time_s / time_s.max(1e-9),
            cpu_time_of: self.work_time.shares(),
            notes: self.notes.clone(),
            ..PlaceReport::default()
        }
    }

    /// Finishes the log.
    pub fn finish(self) -> Result<(), LogError> {
        self.log.finish()
    }
}

/// A step and its outcome, which a dry run does not have.
fn with_outcome(step: &Step, done: Option<&StepOutcome>) -> String {
    let mut parts = vec![step.to_string()];
    let Some(done) = done else { return parts.concat() };
    let wanted = match &step.action {
        Action::MovePages { pages, .. } | Action::Replicate { pages, is_possible: true, .. } => pages.len() as u64,
        Action::InterleavePages { pages, .. } => pages.len() as u64,
        _ => done.all_moved().pages + done.pages_copied,
    };
    let did = done.all_moved().pages + done.pages_copied;
    if did != wanted {
        parts.push(format!("; {did} did"));
        let refused = done.pages_refused.iter();
        parts.extend(refused.map(|(why, pages)| format!(", {pages} {}", why.word())));
    }
    if done.out_of_time {
        parts.push("; its time is over: what is left needs another step".to_owned());
    }
    parts.extend(done.note.iter().map(|note| format!("; {note}")));
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paused_before_another_agent_begins_stays_so() {
        let options = Options::new("carrefour".parse().unwrap());
        let first = Ledger::open(&options, Vec::new()).unwrap();
        *options.status.lock().unwrap() = Status { paused: true, rounds: 7, ..Status::default() };
        drop(first);
        let second = Ledger::open(&options, Vec::new()).unwrap();
        assert!(second.is_paused());
        assert_eq!(*second.lock_status(), Status { paused: true, ..Status::default() });
        // A client that has the status of before pauses this one.
        options.status.lock().unwrap().paused = false;
        assert!(!second.is_paused());
    }
}
