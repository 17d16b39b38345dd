//! The agent: how it starts, the loop, and how it finishes.
//!
//! In each round data flows one way: the [`Observer`] observes, the [`Policy`] decides, the [`Actor`] acts, and the
//! [`Ledger`] accounts for it. [`Managed`] is what they work on.

mod budget;
mod forks;
mod regions;
mod requests;
mod round;
mod round_length;
mod start;

use crate::actor::Actor;
use crate::error::AgentError;
use crate::huge_page_service::{HugePageOptions, HugePageService, VerdictsFor};
use crate::huge_pages::Advisers;
use crate::journal::{Journal, OwnSwitch, PutBack};
use crate::ledger::Ledger;
use crate::managed_processes::Managed;
use crate::observer::Observer;
use crate::options::Options;
use crate::place_report::PlaceReport;
use budget::Budget;
use forks::Forks;
use linux::{Capability, SystemState, monotonic_ns};
use machine::{Machine, NodeId, Pid, chain};
use placement::{Lesson, LogLine, Policy};
pub use round_length::MOST_ROUNDS;
pub use start::ProgramStart;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

/// Longest interval between two drains of the rings of hardware samples.
const EMPTIED: Duration = Duration::from_millis(50);
/// Why nothing moves under a policy that does not look again.
const DECIDES_ONCE: &str = "what runs already is left where it is";
/// The part of a program's CPU time from which on its first thread works alone.
const WORKS_ALONE: f64 = 0.95;
/// Reported on a machine where there is nothing to place.
pub const ONE_NODE: &str = "this machine has one node with memory: there is nothing to place";
/// Longest delay before new processes and threads are placed, where the kernel's records do not end the wait.
const PROMPT: Duration = Duration::from_millis(20);
/// How often they end the wait within [`PROMPT`]: a program that forks all the time must not keep a CPU busy here.
const MOST_PROMPT: u32 = 8;

/// Observes, decides and acts, round by round. The caller calls [`poll`](Self::poll) whenever
/// [`until_next`](Self::until_next) has passed, and [`finish`](Self::finish) at the end.
pub struct Agent {
    options: Options,
    machine: Machine,
    policy: Policy,
    observer: Observer,
    managed: Managed,
    actor: Actor,
    ledger: Ledger,
    /// Rounds so far, by their usual length.
    round: u64,
    /// How many of them the current one is.
    rounds_in_next: u64,
    /// How long observing and deciding took at the end of the last one.
    own: Duration,
    budget: Budget,
    /// Processes that requests placed on nodes, whose memory has not followed completely.
    placing: BTreeMap<Pid, NodeId>,
    /// Whether the program spreads what it touches before it makes threads.
    spreads_start: bool,
    /// What earlier runs taught, as far as the program began with it.
    began_with: Option<Lesson>,
    /// Whether a process had a second thread.
    has_threads: bool,
    forks: Forks,
    /// When new processes and threads are placed next, at the latest.
    prompt_due_ns: u64,
    /// Calls of [`poll`](Self::poll) before that.
    prompt_calls: u32,
    /// Finds and cures huge pages, if it is to.
    huge_pages: Option<HugePageService>,
    /// Programs that keep their memory on small pages on request.
    advisers: Option<Advisers>,
}

impl Agent {
    /// Opens all sources. A program to be managed must be started afterwards, by the same thread. Every change is
    /// recorded in the journal before it is made.
    pub fn open(machine: &Machine, journal: Journal, options: Options) -> Result<Self, AgentError> {
        let mut policy = Policy::new(options.policy.clone(), machine, options.settings.clone())?;
        if let Some(lesson) = options.lesson {
            policy.begin_with(lesson);
        }
        if options.settings.shared && !policy.moves_shared() {
            return Err(AgentError::Shared("of the policies, only predict decides once for all of them"));
        }
        if policy.moves_shared() && !options.dry_run && !Capability::SysNice.is_of(&SystemState::read(None).caller) {
            return Err(AgentError::Shared("that needs CAP_SYS_NICE; run nearside as root"));
        }
        let mut notes: Vec<String> = policy.has_nothing_to_place().then(|| ONE_NODE.to_owned()).into_iter().collect();
        let observer = Observer::open(machine, &policy, &options, &mut notes)?;
        let mut agent = Self {
            machine: machine.clone(),
            observer,
            managed: Managed::new(machine.cpus(), policy.watches_threads()),
            actor: Actor::new(journal, &options, policy.moves_shared()),
            ledger: Ledger::open(&options, notes)?,
            round: 0,
            rounds_in_next: 1,
            own: Duration::ZERO,
            budget: Budget::new(options.budget_bytes_per_s),
            placing: BTreeMap::new(),
            spreads_start: false,
            began_with: None,
            has_threads: false,
            forks: Forks::default(),
            prompt_due_ns: 0,
            prompt_calls: 0,
            huge_pages: None,
            advisers: None,
            policy,
            options,
        };
        agent.begin_huge_pages();
        agent.quiet_the_kernel()?;
        agent.ledger.write(|| first_line(&agent.machine, &agent.policy, &agent.options))?;
        agent.begin_managing()?;
        agent.ledger.begin_status(agent.policy.name().to_string(), agent.observer.source(), agent.options.round);
        agent.begin_round();
        Ok(agent)
    }

    fn begin_huge_pages(&mut self) {
        // Whether or not it listens, it cleans up behind one that did; if it cannot, listening says why.
        let _ = self.options.advice_folder.as_deref().map(Advisers::remove_left);
        let (splits, dry_run) = (self.policy.splits_shared(), self.options.dry_run);
        let for_policy = splits.then(|| HugePageOptions::for_policy(self.options.round));
        let wanted = self.options.huge_pages.or(for_policy).filter(|_| !self.policy.has_nothing_to_place());
        let Some(mut wanted) = wanted else { return };
        if dry_run && wanted.verdicts == VerdictsFor::Cure {
            wanted.verdicts = VerdictsFor::Status;
        }
        let marks = wanted.keep_small && !dry_run && (splits || wanted.verdicts == VerdictsFor::Cure);
        let folder = self.options.advice_folder.as_deref().filter(|_| marks);
        self.advisers = folder.map(Advisers::listen).transpose().unwrap_or_else(|error| {
            self.ledger.note(format!("split huge pages are not kept small, as no program can be asked to: {error}"));
            None
        });
        self.huge_pages = Some(HugePageService::new(wanted, &self.machine));
    }

    /// The environment variable of programs that are to keep their memory on small pages on request, with the library that
    /// does; none if none is to.
    pub fn advice(&self) -> Option<(&'static str, &Path)> {
        self.advisers.as_ref().map(Advisers::variable)
    }

    /// The kernel's NUMA balancing would undo our moves. Another process may switch it on again, for example another
    /// agent when it finishes.
    fn quiet_the_kernel(&mut self) -> Result<(), AgentError> {
        if !self.policy.is_dynamic() || self.policy.has_nothing_to_place() {
            return Ok(());
        }
        let switch = OwnSwitch::NumaBalancing;
        let Ok(value) = switch.switch().value() else { return Ok(()) };
        let is_source = self.observer.uses_hint_faults();
        if value == "0" {
            return Ok(());
        }
        if self.options.dry_run || self.options.keep_kernel_balancing || is_source {
            let why = if is_source { ", because its page faults are the source of samples" } else { "" };
            self.ledger.note(format!("the kernel's NUMA balancing stays on{why}: it moves pages and threads as well"));
            return Ok(());
        }
        self.ledger.note(match self.actor.set(switch, "0")? {
            Ok(()) => "the kernel's NUMA balancing is off while nearside places".to_owned(),
            Err(error) => format!(
                "the kernel's NUMA balancing stays on, and moves pages and threads as well: {}; to switch it off needs \
                 root",
                chain(&error)
            ),
        });
        Ok(())
    }

    /// The decisions made since the last call, with reasons, if requested.
    pub fn explained(&mut self) -> Vec<String> {
        self.ledger.take_explained()
    }

    /// What was noted since the last call, and whether a limited decision log ([`Options::log_most_bytes`]) can no longer be
    /// written, or can be again: the agent goes on without it.
    pub fn take_news(&mut self) -> Vec<String> {
        self.ledger.take_news()
    }

    /// A file that can be read when [`poll`](Self::poll) is due before [`until_next`](Self::until_next): there are processes
    /// or threads to place.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        let is_wanted = self.policy.is_prompt() && !self.ledger.is_paused() && self.prompt_calls < MOST_PROMPT;
        self.observer.news().filter(|_| is_wanted)
    }

    /// Time until the next call of [`poll`](Self::poll) is due.
    pub fn until_next(&self) -> Duration {
        let round = self.round_length();
        let until_prompt = Duration::from_nanos(self.prompt_due_ns.saturating_sub(monotonic_ns()));
        let prompt = if self.policy.is_prompt() { until_prompt } else { round };
        let emptied = if self.observer.fills_rings() { EMPTIED.min(round) } else { round };
        prompt.min(emptied).min(self.until_round_ends())
    }

    fn until_round_ends(&self) -> Duration {
        self.round_length().saturating_sub(self.observer.time_in_round())
    }

    fn round_length(&self) -> Duration {
        self.options.round.saturating_mul(u32::try_from(self.rounds_in_next).unwrap_or(u32::MAX))
    }

    /// Reads new events, places new processes and threads, and decides and acts at the end of a round.
    pub fn poll(&mut self) -> Result<(), AgentError> {
        let is_over = self.until_round_ends().is_zero();
        let began_ns = monotonic_ns();
        self.ledger.work_time().begin_call();
        self.count_prompt_call(began_ns);
        let is_paused = self.ledger.is_paused();
        self.observer.drain(is_over, &mut self.managed, self.huge_pages.as_mut().filter(|_| !is_paused));
        if is_paused {
            self.huge_pages.iter_mut().for_each(HugePageService::restart);
            self.observer.drain_paused(self.policy.sampling().page_cap);
        } else {
            self.observer.resume();
            self.follow_lifecycle(is_over)?;
            if is_over {
                self.end_round(began_ns)?;
            } else {
                self.ledger.work_time().add_observing(began_ns);
            }
        }
        self.ledger.work_time().end_call();
        Ok(())
    }

    /// Counts the calls of [`poll`](Self::poll) that came before they were due.
    fn count_prompt_call(&mut self, now_ns: u64) {
        self.prompt_calls += 1;
        if now_ns >= self.prompt_due_ns {
            let prompt = PROMPT.min(self.options.round / 4).as_nanos();
            self.prompt_due_ns = now_ns.saturating_add(u64::try_from(prompt).unwrap_or(u64::MAX));
            self.prompt_calls = 0;
        }
    }

    /// The first round begins with the program.
    fn begin_round(&mut self) {
        self.observer.begin(self.policy.sampling().page_cap, &mut self.managed, &self.machine);
        self.ledger.work_time().restart();
    }

    /// Restores all settings and reports the run's results. `first_thread_share` is the part of the program's CPU time, 0 to
    /// 1, that its first thread had; none if that is not known, or the program has failed.
    pub fn finish(mut self, first_thread_share: Option<f64>) -> Result<(PlaceReport, PutBack), AgentError> {
        self.observer.rest();
        // Processes started last have CPUs set by the agent too, and may outlive their parents.
        let followed = self.follow_lifecycle(true);
        if let Some(unseen) = self.options.regions.unseen() {
            self.ledger.note(unseen);
        }
        let report = self.report(first_thread_share);
        let Self { actor, ledger, .. } = self;
        let put_back = actor.restore();
        followed?;
        ledger.finish()?;
        Ok((report, put_back))
    }

    /// What the run teaches. A spread start is for what several threads use, or several processes that have it from the one
    /// that forked them.
    fn lesson(&self, first_thread_share: Option<f64>) -> Option<Lesson> {
        let began_alone = self.options.lesson.is_some_and(Lesson::is_of_one_thread);
        if self.has_threads || self.forks.have_worked() {
            let works_alone = first_thread_share.is_some_and(|share| share >= WORKS_ALONE) && !self.forks.have_worked();
            let of_start = ((self.spreads_start || began_alone) && works_alone).then_some(Lesson::WorksAlone);
            self.policy.lesson().filter(|lesson| !lesson.is_of_one_thread()).or(of_start)
        } else if (self.spreads_start || began_alone) && self.observer.sees_all_threads() {
            Some(Lesson::NoThreads)
        } else {
            self.policy.lesson()
        }
    }

    fn report(&self, first_thread_share: Option<f64>) -> PlaceReport {
        let reported = self.ledger.report(self.policy.costs(), self.observer.lost());
        let why_idle = if self.policy.has_nothing_to_place() {
            Some(ONE_NODE)
        } else {
            (!self.policy.is_dynamic()).then_some(DECIDES_ONCE)
        };
        PlaceReport {
            policy: self.policy.name().to_string(),
            dry_run: self.options.dry_run,
            round_s: self.options.round.as_secs_f64(),
            rounds: self.round,
            source: self.observer.source(),
            processes: self.managed.seen(),
            spreads_start: self.spreads_start,
            began_with: self.began_with,
            lesson: self.lesson(first_thread_share),
            idle_reason: reported.idle_reason.or_else(|| why_idle.map(str::to_owned)),
            ..reported
        }
    }
}

/// The first line of a decision log, from which a replay continues.
fn first_line(machine: &Machine, policy: &Policy, options: &Options) -> LogLine {
    LogLine::Begin {
        machine: Box::new(machine.clone()),
        policy: policy.name().clone(),
        settings: policy.settings().clone(),
        state: Box::new(policy.state().clone()),
        dry_run: options.dry_run,
    }
}
