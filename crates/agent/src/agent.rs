//! The agent: its state, how it starts and how it finishes.

use crate::act::Actor;
use crate::counters::Counters;
use crate::decision_log::{DecisionLog, LogError};
use crate::journal::{Journal, JournalError, PutBack};
use crate::lifecycle::{Known, LifecycleSource};
use crate::managed_processes::{Inherited, Managed};
use crate::node_memory::KnownMemory;
use crate::nodes::NodeMap;
use crate::options::Options;
use crate::rate::Rate;
use crate::run_summary::RunSummary;
use crate::samples::SampleTally;
use crate::status::Status;
use crate::summary::PlaceReport;
use crate::thread_counts::{ThreadCounts, of_task};
use linux::{Pid, Switch, monotonic_ns};
use machine::{Machine, Tid, chain};
use observe::{
    AccessError, AccessOptions, AccessSource, Accesses, HostCounters, LiveError, SideBand, Target, ThreadCount,
    ThreadCounters, TickClock, Told,
};
use placement::{LogLine, MemoryPlacement, Policy, PolicyError, Rule, SMALL_PAGE, ThreadPolicy};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trace::{Count, Event, Sample, Stacks};

/// Initial sampling period of the virtual PMU, in misses, until the miss rate is known. Gives a few hundred samples per
/// 50 ms round when all of 24 CPUs wait for memory.
const FIRST_PERIOD: u64 = 200_000;
/// Longest interval between two drains of the rings of hardware samples.
const EMPTIED: Duration = Duration::from_millis(50);
/// Reported on a machine where there is nothing to place.
pub const ONE_NODE: &str = "this machine has one node with memory: there is nothing to place";
/// Longest delay before new processes and threads are placed.
const PROMPT: Duration = Duration::from_millis(20);

/// Why an agent cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The policy is not available on this machine.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The chosen source is not available.
    #[error(transparent)]
    Source(#[from] AccessError),
    /// The policy decides by samples, and no source of samples is available.
    #[error("{policy} needs samples of memory accesses, and no source is available: {}", tried.join("; "))]
    NoSource {
        /// The policy.
        policy: String,
        /// The sources that were tried, and why each is unavailable.
        tried: Vec<String>,
    },
    /// The process belongs to another user.
    #[error("cannot place process {pid}: {why}")]
    NotPermitted {
        /// The process.
        pid: Pid,
        /// Why, and what to do.
        why: String,
    },
    /// The change cannot be recorded in the journal first.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The decision log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Observes, decides and acts, round by round. The caller calls [`poll`](Self::poll) whenever
/// [`until_next`](Self::until_next) has passed, and [`finish`](Self::finish) at the end.
pub struct Agent {
    pub(crate) options: Options,
    pub(crate) machine: Machine,
    pub(crate) policy: Policy,
    pub(crate) nodes: NodeMap,
    pub(crate) accesses: Option<Accesses>,
    /// None with the lab's source, which counts by itself.
    host_counters: Option<HostCounters>,
    clock: TickClock,
    stacks: Stacks,
    lifecycle: LifecycleSource,
    pub(crate) managed: Managed,
    /// Processes that may become managed, with their CPU time: they are new, or not yet known to be busy.
    pub(crate) candidates: BTreeMap<Pid, Candidate>,
    pub(crate) actor: Actor,
    log: Option<DecisionLog>,
    pub(crate) sample_tally: SampleTally,
    samples: Vec<Sample>,
    pub(crate) counts: Vec<Count>,
    thread_counters: Option<ThreadCounters>,
    /// Previous totals of each thread and the counts of this round, where threads are counted.
    thread_counts: ThreadCounts,
    pub(crate) thread_work: FxHashMap<(Pid, Tid), ThreadCount>,
    pub(crate) counters: Counters,
    pub(crate) rate: Rate,
    /// During a pause: the virtual PMU's period before it.
    rests: Option<u64>,
    /// Samples received in this round, of all processes.
    pub(crate) came: u64,
    /// Samples in all rounds that exceeded the page limit.
    pub(crate) missed: u64,
    pub(crate) memory: KnownMemory,
    pub(crate) run_summary: RunSummary,
    /// Processes that were managed at any time.
    pub(crate) seen: BTreeSet<Pid>,
    pub(crate) status: Arc<Mutex<Status>>,
    pub(crate) notes: Vec<String>,
    pub(crate) explained: Vec<String>,
    /// Why nothing was done; reported once.
    pub(crate) idle: Option<Rule>,
    pub(crate) round: u64,
    began_ns: u64,
    pub(crate) round_began_ns: u64,
    cpu_time_before: Duration,
    /// Time spent working since the program began, and the part spent observing and deciding since samples were last
    /// paid for. Includes both CPU time and waits. CPU time alone is unreliable: where the kernel accounts by ticks, as
    /// in the lab, it comes in whole ticks, and rounds are synchronised with ticks.
    busy: Duration,
    pub(crate) observing: Duration,
}

/// A process that may become managed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidate {
    pub inherited: Inherited,
    pub parent: Option<Pid>,
    pub cpu_time: Duration,
}

impl Agent {
    /// Opens all sources. A program to be managed must be started afterwards, by the same thread. Every change is
    /// recorded in the journal before it is made.
    pub fn open(machine: &Machine, journal: Journal, options: Options) -> Result<Self, AgentError> {
        let policy = Policy::new(options.policy.clone(), machine, options.settings.clone())?;
        let mut notes: Vec<String> = policy.has_nothing_to_place().then(|| ONE_NODE.to_owned()).into_iter().collect();
        let accesses = open_source(&policy, &options, &mut notes)?;
        let lifecycle = match SideBand::open_lives(&options.target) {
            Ok(side_band) => LifecycleSource::Kernel { side_band: Box::new(side_band), has_skipped: false },
            Err(error) => {
                notes.push(format!("new processes and threads are found with a delay, by polling /proc: {error}"));
                LifecycleSource::Proc
            }
        };
        let counts_itself = matches!(accesses, None | Some(Accesses::Lab(_)));
        let evens_pressure = matches!(options.policy.threads, ThreadPolicy::Auto | ThreadPolicy::AutoThreads);
        let host_counters = if counts_itself { None } else { HostCounters::open(machine, evens_pressure, &mut notes) };
        let thread_counters = (evens_pressure && !counts_itself).then(ThreadCounters::probe).and_then(|probed| {
            let failed = |why: LiveError| {
                notes.push(format!("instructions per thread are estimated from those of all CPUs: {why}"));
            };
            probed.map_err(failed).ok().map(|()| ThreadCounters::default())
        });
        let begin_log = if options.log_most_bytes.is_some() { DecisionLog::begin_after } else { DecisionLog::begin };
        let log = options.log.as_deref().map(begin_log).transpose()?;
        let now = monotonic_ns();
        let (page_cap, round) = (policy.sampling().page_cap, options.round);
        let contended_per_us = options.settings.thresholds.accesses_per_us_min_on(policy.costs());
        let watches_threads = matches!(
            options.policy.threads,
            ThreadPolicy::Auto | ThreadPolicy::AutoThreads | ThreadPolicy::ThreadClustering
        );
        let mut agent = Self {
            machine: machine.clone(),
            nodes: NodeMap::new(machine, Path::new("/sys")),
            clock: Accesses::tick_clock(accesses.as_ref()),
            accesses,
            host_counters,
            stacks: Stacks::new(),
            lifecycle,
            managed: Managed::new(machine.cpus(), watches_threads),
            candidates: BTreeMap::new(),
            actor: Actor::new(journal, options.stop.clone(), options.settings.respect_owner),
            log,
            sample_tally: SampleTally::new(page_cap),
            samples: Vec::new(),
            counts: Vec::new(),
            thread_counters,
            thread_counts: ThreadCounts::default(),
            thread_work: FxHashMap::default(),
            counters: Counters::default(),
            rate: Rate::new(round, options.cpu_limit, contended_per_us * 1e6),
            rests: None,
            came: 0,
            missed: 0,
            memory: KnownMemory::default(),
            run_summary: RunSummary::default(),
            seen: BTreeSet::new(),
            status: Arc::default(),
            notes,
            explained: Vec::new(),
            idle: None,
            round: 0,
            began_ns: now,
            round_began_ns: now,
            cpu_time_before: own_cpu_time(),
            busy: Duration::ZERO,
            observing: Duration::ZERO,
            policy,
            options,
        };
        agent.quiet_the_kernel()?;
        agent.begin_log()?;
        agent.begin_managing()?;
        agent.begin_status();
        agent.begin_round();
        Ok(agent)
    }

    fn begin_log(&mut self) -> Result<(), AgentError> {
        let line = LogLine::Begin {
            machine: Box::new(self.machine.clone()),
            policy: self.policy.name().clone(),
            settings: self.policy.settings().clone(),
            state: Box::new(self.policy.state().clone()),
            dry_run: self.options.dry_run,
        };
        self.write(|| line)
    }

    /// Starts a new log when this one has reached its limit, beginning with the policy's current state.
    pub(crate) fn rotate_log(&mut self) -> Result<(), AgentError> {
        let most = self.options.log_most_bytes.unwrap_or(u64::MAX);
        if self.log.as_ref().is_none_or(|log| log.bytes() <= most) {
            return Ok(());
        }
        self.log = self.log.take().map(DecisionLog::into_next).transpose()?;
        self.begin_log()
    }

    /// The kernel's NUMA balancing would undo our moves. Another process may switch it on again, for example another
    /// agent when it finishes.
    pub(crate) fn quiet_the_kernel(&mut self) -> Result<(), AgentError> {
        if !self.policy.is_dynamic() || self.policy.has_nothing_to_place() {
            return Ok(());
        }
        let switch = Switch::numa_balancing();
        let Ok(value) = switch.value() else { return Ok(()) };
        let is_source = matches!(self.accesses, Some(Accesses::HintFaults(_)));
        if value == "0" {
            return Ok(());
        }
        if self.options.dry_run || self.options.keep_kernel_balancing || is_source {
            let why = if is_source { ", because its page faults are the source of samples" } else { "" };
            self.note(format!("the kernel's NUMA balancing stays on{why}: it moves pages and threads as well"));
            return Ok(());
        }
        self.actor.journal.will_set(&switch, "0")?;
        self.note(match switch.set("0") {
            Ok(()) => "the kernel's NUMA balancing is switched off until the end".to_owned(),
            Err(error) => format!(
                "the kernel's NUMA balancing stays on, and moves pages and threads as well: {}; to switch it off needs \
                 root",
                chain(&error)
            ),
        });
        Ok(())
    }

    /// Adds a note, once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The live status, for readers and to pause the agent.
    pub fn status(&self) -> Arc<Mutex<Status>> {
        self.status.clone()
    }

    pub(crate) fn status_now(&self) -> MutexGuard<'_, Status> {
        // A thread that panicked while holding the lock left the status usable: it has no invariants.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The decisions made since the last call, with reasons, if requested.
    pub fn explained(&mut self) -> Vec<String> {
        std::mem::take(&mut self.explained)
    }

    /// Time until the next call of [`poll`](Self::poll) is due.
    pub fn until_next(&self) -> Duration {
        let round = self.options.round;
        let is_prompt = self.options.policy.threads != ThreadPolicy::Kernel;
        let fills_rings = matches!(self.accesses, Some(Accesses::Perf(_) | Accesses::HintFaults(_)));
        let prompt = if is_prompt { PROMPT.min(round / 4) } else { round };
        let emptied = if fills_rings { EMPTIED.min(round) } else { round };
        prompt.min(emptied).min(self.until_round_ends())
    }

    fn until_round_ends(&self) -> Duration {
        self.options.round.saturating_sub(since(self.round_began_ns))
    }

    /// Reads new events, places new processes and threads, and decides and acts at the end of a round.
    pub fn poll(&mut self) -> Result<(), AgentError> {
        let is_over = self.until_round_ends().is_zero();
        let began_ns = monotonic_ns();
        let is_paused = self.status_now().paused;
        self.drain(is_over);
        if is_paused {
            self.drain_paused();
        } else {
            self.resume();
            self.follow_lifecycle(is_over)?;
            if is_over {
                self.end_round(began_ns)?;
            } else {
                self.observing += since(began_ns);
            }
        }
        self.busy += since(began_ns) + std::mem::take(&mut self.actor.helped);
        Ok(())
    }

    /// The virtual PMU's rings hold a whole round and are drained at its end.
    fn drain(&mut self, is_over: bool) {
        let Some(accesses) = &mut self.accesses else { return };
        if !is_over && matches!(accesses, Accesses::Lab(_)) {
            return;
        }
        let Self { managed, sample_tally, nodes, came, .. } = self;
        let mut take = |sample: &Sample| {
            *came += 1;
            if let Some(process) = managed.processes.get_mut(&sample.pid) {
                let (sizes, held) = (&mut process.sizes, &process.process);
                sample_tally.add(sample, nodes, || sizes.at(held, sample.address));
            }
        };
        if let Accesses::Lab(pmu) = accesses {
            pmu.each(take);
            pmu.counts(&mut self.counts);
            if let Some(tasks) = pmu.take_tasks() {
                self.thread_work = self.thread_counts.take(tasks.iter().map(of_task));
            }
        } else {
            let mut events: Vec<Event> = Vec::new();
            let told = Told { samples: &mut self.samples, events: &mut events, counts: &mut self.counts };
            accesses.drain(false, &mut self.clock, &mut self.stacks, told);
            self.samples.drain(..).for_each(|sample| take(&sample));
        }
        if let Some(counters) = self.host_counters.as_mut().filter(|_| is_over) {
            counters.counts(&mut self.counts);
        }
        if let Some(counters) = self.thread_counters.as_mut().filter(|_| is_over) {
            self.thread_work = self.thread_counts.take(counters.counts());
            let threads =
                managed.processes.iter().flat_map(|(pid, process)| process.threads.keys().map(|tid| (*pid, *tid)));
            counters.follow(threads);
        }
    }

    /// Updates what is managed with the lifecycle events since the last call.
    fn follow_lifecycle(&mut self, is_over: bool) -> Result<(), AgentError> {
        let mut events = Vec::new();
        let others = (self.options.target == Target::System).then_some(&self.candidates);
        self.lifecycle.drain(Known { managed: &self.managed, others }, is_over, &mut self.stacks, &mut events);
        events.into_iter().try_for_each(|event| self.apply(event))
    }

    /// Discards what arrived during a pause: nothing is observed, and new processes are not placed.
    fn drain_paused(&mut self) {
        if self.rests.is_none() {
            self.rests = Some(if let Some(Accesses::Lab(pmu)) = &self.accesses { pmu.period() } else { 0 });
            self.accesses.iter_mut().for_each(Accesses::rest);
        }
        self.lifecycle.skip(&mut self.stacks);
        drop(self.sample_tally.take(self.policy.sampling().page_cap, |_| ()));
        self.counts.clear();
        self.counters = Counters::default();
        (self.came, self.round_began_ns) = (0, monotonic_ns());
    }

    /// Ends a pause, if there is one.
    fn resume(&mut self) {
        if let Some(period) = self.rests.take() {
            self.accesses.iter_mut().for_each(|accesses| accesses.go_on(period));
        }
    }

    /// Adds a line to the log, if there is one.
    pub(crate) fn write(&mut self, line: impl FnOnce() -> LogLine) -> Result<(), AgentError> {
        self.log.as_mut().map_or(Ok(()), |log| log.add(&line()).map_err(AgentError::from))
    }

    /// The first round begins with the program.
    pub(crate) fn begin_round(&mut self) {
        self.drain(true);
        // Discards samples from before the round; counters continue from here.
        drop(self.sample_tally.take(self.policy.sampling().page_cap, |_| ()));
        self.counters.take(&mut self.counts, 1.0, &self.machine);
        (self.came, self.round_began_ns) = (0, monotonic_ns());
        (self.cpu_time_before, self.busy, self.observing) = (own_cpu_time(), Duration::ZERO, Duration::ZERO);
    }

    /// CPU time of the agent since the program began; never more than its working time.
    pub fn cpu_time(&self) -> Duration {
        own_cpu_time().saturating_sub(self.cpu_time_before).min(self.busy)
    }

    /// Time since the program began.
    pub fn time(&self) -> Duration {
        since(self.began_ns)
    }

    /// Restores all settings and reports the run's results.
    pub fn finish(mut self) -> Result<(PlaceReport, PutBack), AgentError> {
        self.accesses.iter_mut().for_each(Accesses::rest);
        // Processes started last have CPUs set by the agent too, and may outlive their parents.
        let followed = self.follow_lifecycle(true);
        let report = self.report();
        let Self { actor, log, .. } = self;
        let put_back = actor.journal.restore();
        followed?;
        log.map_or(Ok(()), DecisionLog::finish)?;
        Ok((report, put_back))
    }

    fn report(&self) -> PlaceReport {
        let (time_s, cpu_time_s) = (self.time().as_secs_f64(), self.cpu_time().as_secs_f64());
        let lost_by_source = self.lost_by_source();
        let status = self.status_now();
        PlaceReport {
            policy: self.policy.name().to_string(),
            dry_run: self.options.dry_run,
            time_s,
            round_s: self.options.round.as_secs_f64(),
            rounds: self.round,
            source: self.source(),
            samples: status.samples,
            samples_lost: self.missed + lost_by_source,
            processes: self.seen.len() as u64,
            pages_moved: self.run_summary.pages_moved,
            bytes_moved: self.run_summary.bytes_moved,
            by_rule: self.run_summary.by_rule(),
            pages_refused: self.run_summary.refused(),
            pages_copied: self.run_summary.pages_copied,
            bytes_copied: self.run_summary.pages_copied * SMALL_PAGE,
            pages_split: self.run_summary.pages_split,
            threads_moved: self.run_summary.threads_moved,
            before: self.run_summary.before(self.policy.costs()),
            after: self.run_summary.after(self.policy.costs()),
            cpu_time_s,
            cpu_share: cpu_time_s / time_s.max(1e-9),
            notes: self.notes.clone(),
            ..PlaceReport::default()
        }
    }

    /// Samples lost before they reached the agent.
    pub(crate) fn lost_by_source(&self) -> u64 {
        let lost = self.accesses.as_ref().map(Accesses::lost).unwrap_or_default();
        lost.iter().map(|loss| loss.count).sum()
    }

    /// The source of accesses.
    pub(crate) fn source(&self) -> Option<String> {
        let notes = self.accesses.as_ref()?.notes();
        Some(notes.into_iter().map(|note| note.event).collect::<Vec<_>>().join(", "))
    }
}

/// Whether a policy uses samples: those that keep deciding do, and so do those that place running processes where they
/// would have been placed at the start.
fn wants_samples(policy: &Policy, target: &Target) -> bool {
    let settles = !matches!(policy.name().memory, MemoryPlacement::Default | MemoryPlacement::FirstTouch);
    !policy.has_nothing_to_place() && (policy.is_dynamic() || settles && *target != Target::Program)
}

fn open_source(policy: &Policy, options: &Options, notes: &mut Vec<String>) -> Result<Option<Accesses>, AgentError> {
    if !wants_samples(policy, &options.target) || options.source == AccessSource::None {
        return Ok(None);
    }
    let wanted = AccessOptions { target: &options.target, period: None, rate: None, stacks: false };
    let accesses = wanted.open(options.source, notes)?;
    if let Some(Accesses::Lab(pmu)) = &accesses {
        pmu.set_period(FIRST_PERIOD);
    }
    if accesses.is_none() {
        return Err(AgentError::NoSource { policy: policy.name().to_string(), tried: std::mem::take(notes) });
    }
    Ok(accesses)
}

pub(crate) fn since(time_ns: u64) -> Duration {
    Duration::from_nanos(monotonic_ns().saturating_sub(time_ns))
}

/// CPU time of all threads of this process.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
