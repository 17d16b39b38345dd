//! Observes a round: samples of accesses, counters, memory, and the lifecycle of processes.

use crate::counters::{Counters, RoundCounts};
use crate::error::AgentError;
use crate::huge_page_service::HugePageService;
use crate::lifecycle::{LifecycleEvent, LifecycleSource};
use crate::managed_processes::Managed;
use crate::node_memory::KnownMemory;
use crate::nodes::NodeMap;
use crate::options::Options;
use crate::rate::Rate;
use crate::samples::{RoundSamples, SampleTally};
use crate::thread_counts::{ThreadCounts, of_task};
use crate::work_time::since;
use linux::{PageBatch, Pid, monotonic_ns};
use machine::{CpuId, HUGE_PAGE, Machine, NodeId, Tid};
use observe::{
    AccessOptions, AccessSource, Accesses, HostCounters, LiveError, SideBand, Target, ThreadCount, ThreadCounters,
    TickClock, Told,
};
use placement::{MemoryPlacement, NodeMemory, PageSample, Policy, Tells, ThreadPolicy};
use rustc_hash::FxHashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;
use trace::{Count, Event, Sample, Stacks};

/// Initial sampling period of the virtual PMU, in misses, until the miss rate is known. Gives a few hundred samples per
/// 50 ms round when all of 24 CPUs wait for memory.
const FIRST_PERIOD: u64 = 200_000;

/// Observes a round.
pub(crate) struct Observer {
    nodes: NodeMap,
    sources: Sources,
    thread_counters: Option<ThreadCounters>,
    lifecycle: LifecycleSource,
    clock: TickClock,
    stacks: Stacks,
    sample_tally: SampleTally,
    samples: Vec<Sample>,
    counts: Vec<Count>,
    counters: Counters,
    /// Previous totals of each thread and the counts of this round, where threads are counted.
    thread_counts: ThreadCounts,
    thread_work: FxHashMap<(Pid, Tid), ThreadCount>,
    memory: KnownMemory,
    rate: Rate,
    /// During a pause: the virtual PMU's period before it.
    period_before_pause: Option<u64>,
    /// Samples received in this round, of all processes.
    came: u64,
    round_began_ns: u64,
}

/// What observes accesses.
#[derive(Default)]
struct Sources {
    accesses: Option<Accesses>,
    /// None with the lab's source, which counts by itself.
    host_counters: Option<HostCounters>,
    /// Counters alone: nothing is sampled.
    counts_alone: bool,
}

/// What was observed in a round.
pub(crate) struct RoundReadings {
    pub samples: RoundSamples,
    /// None without earlier counter readings.
    pub counts: Option<RoundCounts>,
    /// What each thread did, where threads are counted.
    pub thread_work: FxHashMap<(Pid, Tid), ThreadCount>,
}

impl Observer {
    /// Opens all sources; adds notes about those that are not available.
    pub fn open(
        machine: &Machine,
        policy: &Policy,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<Self, AgentError> {
        let sources = Sources::open(machine, policy, options, notes)?;
        let lifecycle = match SideBand::open_lives(&options.target) {
            Ok(side_band) => LifecycleSource::Kernel { side_band: Box::new(side_band), has_skipped: false, lost: 0 },
            Err(error) => {
                notes.push(format!("new processes and threads are found with a delay, by polling /proc: {error}"));
                LifecycleSource::Proc
            }
        };
        let counts_itself = matches!(sources.accesses, None | Some(Accesses::Lab(_)));
        let thread_counters =
            (evens_pressure(policy) && !counts_itself).then(ThreadCounters::probe).and_then(|probed| {
                let failed = |why: LiveError| {
                    notes.push(format!("instructions per thread are estimated from those of all CPUs: {why}"));
                };
                probed.map_err(failed).ok().map(|()| ThreadCounters::default())
            });
        let contended_per_us = options.settings.thresholds.accesses_per_us_min_on(policy.costs());
        Ok(Self {
            nodes: NodeMap::new(machine, Path::new("/sys")),
            clock: Accesses::tick_clock(sources.accesses.as_ref()),
            sources,
            thread_counters,
            lifecycle,
            stacks: Stacks::new(),
            sample_tally: SampleTally::new(policy.sampling().page_cap),
            samples: Vec::new(),
            counts: Vec::new(),
            counters: Counters::default(),
            thread_counts: ThreadCounts::default(),
            thread_work: FxHashMap::default(),
            memory: KnownMemory::default(),
            rate: Rate::new(options.round, policy.samples_max(), options.cpu_limit, contended_per_us * 1e6),
            period_before_pause: None,
            came: 0,
            round_began_ns: monotonic_ns(),
        })
    }

    /// The source of accesses.
    pub fn source(&self) -> Option<String> {
        if self.sources.counts_alone {
            return Some("counters alone".to_owned());
        }
        let notes = self.sources.accesses.as_ref()?.notes();
        Some(notes.into_iter().map(|note| note.event).collect::<Vec<_>>().join(", "))
    }

    /// Whether rings of hardware samples must be drained within a round.
    pub fn fills_rings(&self) -> bool {
        matches!(self.sources.accesses, Some(Accesses::Perf(_) | Accesses::HintFaults(_)))
    }

    /// Whether the page faults of the kernel's NUMA balancing are the source of samples.
    pub fn uses_hint_faults(&self) -> bool {
        matches!(self.sources.accesses, Some(Accesses::HintFaults(_)))
    }

    /// What the sources tell.
    pub fn tells(&self) -> Tells {
        match self.sources.accesses {
            _ if self.sources.counts_alone => Tells::Counts,
            Some(Accesses::HintFaults(_)) => Tells::Uses,
            _ => Tells::Accesses,
        }
    }

    /// Whether each new thread is seen, however short its life.
    pub fn sees_all_threads(&self) -> bool {
        matches!(self.lifecycle, LifecycleSource::Kernel { .. })
    }

    /// Samples lost before they reached the agent.
    pub fn lost(&self) -> u64 {
        let lost = self.sources.accesses.as_ref().map(Accesses::lost).unwrap_or_default();
        lost.iter().map(|loss| loss.count).sum()
    }

    pub fn node_of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.nodes.of_cpu(cpu)
    }

    pub fn time_in_round(&self) -> Duration {
        since(self.round_began_ns)
    }

    /// Reads what the sources have recorded. The virtual PMU is read at the end of the round only.
    pub fn drain(&mut self, is_over: bool, managed: &mut Managed, mut huge_pages: Option<&mut HugePageService>) {
        if !is_over && matches!(self.sources.accesses, None | Some(Accesses::Lab(_))) {
            return;
        }
        let Self { sample_tally, nodes, came, .. } = self;
        let mut take = |sample: &Sample| {
            *came += 1;
            if let Some(process) = managed.get_mut(sample.pid) {
                let (sizes, held) = (&mut process.sizes, &process.process);
                if let Some(huge_pages) = &mut huge_pages {
                    let home = sample.physical.and_then(|address| nodes.of_physical(address));
                    huge_pages.add(sample, home, || sizes.at(held, sample.address) == HUGE_PAGE);
                }
                sample_tally.add(sample, nodes, || sizes.at(held, sample.address));
            }
        };
        match &mut self.sources.accesses {
            Some(Accesses::Lab(pmu)) => {
                pmu.each(take);
                pmu.counts(&mut self.counts);
                if let Some(tasks) = pmu.take_tasks() {
                    self.thread_work = self.thread_counts.take(tasks.iter().map(of_task));
                }
            }
            Some(accesses) => {
                let mut events: Vec<Event> = Vec::new();
                let told = Told { samples: &mut self.samples, events: &mut events, counts: &mut self.counts };
                accesses.drain(false, &mut self.clock, &mut self.stacks, told);
                self.samples.drain(..).for_each(|sample| take(&sample));
            }
            None => {}
        }
        if let Some(counters) = self.sources.host_counters.as_mut().filter(|_| is_over) {
            counters.counts(&mut self.counts);
        }
        if let Some(counters) = self.thread_counters.as_mut().filter(|_| is_over) {
            self.thread_work = self.thread_counts.take(counters.counts());
            counters.follow(managed.thread_ids());
        }
    }

    /// The lifecycle events since the last call.
    pub fn lifecycle_events(&mut self, managed: &Managed, target: &Target, is_over: bool) -> Vec<LifecycleEvent> {
        self.lifecycle.drain(managed, *target == Target::System, is_over, &mut self.stacks)
    }

    /// A file that can be read when there are lifecycle events.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        self.lifecycle.news()
    }

    /// Discards what arrived during a pause: nothing is observed, and new processes are not placed.
    pub fn drain_paused(&mut self, page_cap: u64) {
        if self.period_before_pause.is_none() {
            self.period_before_pause =
                Some(if let Some(Accesses::Lab(pmu)) = &self.sources.accesses { pmu.period() } else { 0 });
            self.rest();
        }
        self.lifecycle.skip(&mut self.stacks);
        self.discard(page_cap);
        self.counts.clear();
        self.counters = Counters::default();
    }

    /// Ends a pause, if there is one.
    pub fn resume(&mut self) {
        if let Some(period) = self.period_before_pause.take() {
            self.sources.accesses.iter_mut().for_each(|accesses| accesses.go_on(period));
        }
    }

    /// Stops sampling.
    pub fn rest(&mut self) {
        self.sources.accesses.iter_mut().for_each(Accesses::rest);
    }

    /// The first round begins with the program.
    pub fn begin(&mut self, page_cap: u64, managed: &mut Managed, machine: &Machine) {
        self.drain(true, managed, None);
        // Counters continue from here.
        self.counters.take(&mut self.counts, 1.0, machine);
        self.discard(page_cap);
    }

    /// A round begins now: discards samples from before it.
    fn discard(&mut self, page_cap: u64) {
        drop(self.sample_tally.take(page_cap, |_| ()));
        (self.came, self.round_began_ns) = (0, monotonic_ns());
    }

    /// Begins the next round; returns the length of the one before, s.
    pub fn next_round(&mut self) -> f64 {
        let now = monotonic_ns();
        let before = std::mem::replace(&mut self.round_began_ns, now);
        Duration::from_nanos(now.saturating_sub(before)).as_secs_f64().max(1e-6)
    }

    /// What was observed in a round of this length. The next round keeps at most `page_cap` pages.
    pub fn take(&mut self, length_s: f64, page_cap: u64, machine: &Machine) -> RoundReadings {
        RoundReadings {
            samples: self.sample_tally.take(page_cap, locate),
            counts: self.counters.take(&mut self.counts, length_s, machine),
            thread_work: std::mem::take(&mut self.thread_work),
        }
    }

    /// How full each node's memory is; empty if accesses are not observed.
    pub fn memory(&mut self, round: u64) -> Vec<NodeMemory> {
        if self.observes() { self.memory.at(round) } else { Vec::new() }
    }

    fn observes(&self) -> bool {
        self.sources.accesses.is_some() || self.sources.counts_alone
    }

    /// Pages were moved, which filled these bytes per node at most.
    pub fn memory_changed(&mut self, round: u64, filled: &[(NodeId, u64)]) {
        self.memory.changed(round, filled);
    }

    /// Sets the sampling rate after a round of this length, for which observing and deciding took `cost`.
    pub fn adjust_rate(&mut self, cost: Duration, divisor: u64, length_s: f64, machine: &Machine) {
        self.rate.learn(cost, length_s);
        self.rate.set_divisor(divisor);
        let came = std::mem::take(&mut self.came);
        match &mut self.sources.accesses {
            _ if self.sources.counts_alone => {}
            Some(Accesses::Lab(pmu)) => pmu.set_period(self.rate.next_period(pmu.period(), came, length_s)),
            Some(Accesses::Perf(source)) => {
                if let Some(hz) = self.rate.next_hz(machine.cpus().len()) {
                    source.set_rate(hz);
                }
            }
            // The kernel alone decides how many pages it marks.
            Some(Accesses::HintFaults(_)) | None => {}
        }
    }
}

/// Whether a policy uses samples: those that keep deciding do, and so do those that place running processes where they
/// would have been placed at the start.
fn wants_samples(policy: &Policy, target: &Target) -> bool {
    let settles = !matches!(policy.name().memory, MemoryPlacement::Default | MemoryPlacement::FirstTouch);
    !policy.has_nothing_to_place() && (policy.is_dynamic() || settles && *target != Target::Program)
}

fn evens_pressure(policy: &Policy) -> bool {
    matches!(policy.name().threads, ThreadPolicy::Auto | ThreadPolicy::AutoThreads)
}

impl Sources {
    fn open(
        machine: &Machine,
        policy: &Policy,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<Self, AgentError> {
        let wants_samples = wants_samples(policy, &options.target) || options.huge_pages.is_some();
        if !wants_samples || policy.has_nothing_to_place() || options.source == AccessSource::None {
            return Ok(Self::default());
        }
        let wanted = AccessOptions { target: &options.target, period: None, rate: None, stacks: false };
        let accesses = wanted.open(options.source, notes)?;
        let counters_are_enough = policy.decides_by_counters() && options.huge_pages.is_none();
        let counts_alone = options.source == AccessSource::Counters || accesses.is_none();
        let refused = |tried| {
            let what = if counters_are_enough { "samples or counters" } else { "samples" };
            AgentError::NoSource { policy: policy.name().to_string(), what, tried }
        };
        if counts_alone && !counters_are_enough {
            if options.source == AccessSource::Counters {
                notes.push("counters do not tell which pages are used".to_owned());
            }
            return Err(refused(std::mem::take(notes)));
        }
        let is_lab = matches!(accesses, Some(Accesses::Lab(_)));
        let host_counters = if is_lab { None } else { HostCounters::open(machine, evens_pressure(policy), notes) };
        match &accesses {
            Some(Accesses::Lab(pmu)) if !counts_alone => pmu.set_period(FIRST_PERIOD),
            None if host_counters.is_none() => return Err(refused(std::mem::take(notes))),
            _ => {}
        }
        Ok(Self { accesses, host_counters, counts_alone })
    }
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
