//! The lab's virtual PMU, seen from inside the guest. It samples one of every N accesses that miss the first-level
//! cache or are the first write to a line in it, exactly as the model served them.
//!
//! Samples and the object events of programs are stamped with the CPU's time stamp counter (`linux::tsc`), which
//! orders the actions of one thread.

use crate::TickClock;
use linux::{Pid, SharedWords, Tid, monotonic_ns, pci_memory, tsc};
use machine::{CpuId, NodeId};
use model::pmu::{self, NoPmu, Pmu};
use model::{Measured, MeasuredTask};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trace::{AccessKind, Count, Counter, Loss, Sample, Served, Source, SourceNote};

/// Number of comparisons of the two clocks.
const COMPARISONS: usize = 500;
/// Attempts to compare them: a thread that is moved to another CPU in between sees clocks that contradict each other, as
/// those of CPUs differ by some instructions.
const ATTEMPTS: usize = 10;
/// The guest's clock counts in steps of 10 ns (those of the virtual HPET), and rounds.
const GRAIN_NS: u64 = 20;
/// Initial sampling period when a rate is requested, in misses, until the rate of misses is known.
const FIRST_PERIOD: u64 = 1000;
/// Interval between two adjustments of the period to the requested rate.
const RATE_LOOK: Duration = Duration::from_millis(5);

/// What is lost if the ring of samples is full.
const NOT_READ: &str = "samples of the virtual PMU that were not read in time";

/// Why the virtual PMU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LabPmuError {
    /// The system refused access.
    #[error("cannot use the virtual PMU {} ({why}): it belongs to the user who began the lab's run, and to root", path.display())]
    Refused {
        /// The device.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// Another process takes the samples.
    #[error(
        "the samples of the virtual PMU are taken already: by another recording, or by `nearside lab run --samples`"
    )]
    Taken,
    /// The device is not a virtual PMU.
    #[error(transparent)]
    Foreign(#[from] NoPmu),
    /// The lab is not measuring, so there are no samples.
    #[error("the clocks of the virtual PMU and of this machine do not match: the lab is not measuring now")]
    Clocks,
}

/// The virtual PMU, locked for this process, which alone takes its samples. Sampling stops when this is dropped.
#[derive(Debug)]
pub struct LabPmu {
    words: SharedWords,
    /// Holds the lock.
    _file: File,
    clocks: Clocks,
    /// Samples dropped before this was opened.
    dropped: u64,
    taken: Vec<pmu::Sample>,
    rate: Option<Rate>,
    /// Nothing is sampled, whatever the period.
    counts_only: bool,
    /// The publication round of the last counters read.
    counters_round: u64,
    /// What each thread had done by then, until it is taken.
    tasks: Option<Vec<MeasuredTask>>,
}

/// A requested sampling rate, and the samples taken since a moment.
#[derive(Debug)]
struct Rate {
    hz: u64,
    since: Instant,
    samples: usize,
    cpus: HashSet<u32>,
}

/// How far this machine's clocks are ahead of the PMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    ticks: u64,
    pub ns: u64,
}

/// The PCI device of the virtual PMU.
pub(super) struct Device {
    path: PathBuf,
    pub file: File,
    pub words: SharedWords,
}

impl Device {
    /// `None` outside the lab.
    pub fn open() -> Result<Option<Self>, LabPmuError> {
        if !Path::new(pmu::MACHINE_FILE).exists() {
            return Ok(None);
        }
        let memory = pci_memory(Path::new("/sys"), pmu::PCI_IDS, pmu::PCI_RESOURCE, pmu::BYTES as u64);
        let Some(path) = memory else { return Ok(None) };
        let refused = |why| LabPmuError::Refused { path: path.clone(), why };
        let file = File::options().read(true).write(true).open(&path).map_err(refused)?;
        let words = SharedWords::map(&file, pmu::BYTES).map_err(refused)?;
        Ok(Some(Self { path, file, words }))
    }

    fn refused(&self, why: io::Error) -> LabPmuError {
        LabPmuError::Refused { path: self.path.clone(), why }
    }
}

impl LabPmu {
    /// Opens the virtual PMU in the lab; `None` elsewhere. Needs to run as the user of the lab's run, or as root.
    pub fn find() -> Result<Option<Self>, LabPmuError> {
        let Some(device) = Device::open()? else { return Ok(None) };
        match flock(&device.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => return Err(LabPmuError::Taken),
            locked => locked.map_err(|why| device.refused(why.into()))?,
        }
        let Device { file, words, .. } = device;
        let pmu = Pmu::open(&words)?;
        pmu.set_period(0);
        pmu.set_with_names(false);
        let clocks = Clocks::compare(pmu).ok_or(LabPmuError::Clocks)?;
        let dropped = pmu.dropped();
        let found = Self {
            words,
            _file: file,
            clocks,
            dropped,
            taken: Vec::new(),
            rate: None,
            counts_only: false,
            counters_round: 0,
            tasks: None,
        };
        // Discard the samples left by a recorder that was killed.
        found.pop(&mut Vec::new());
        Ok(Some(found))
    }

    /// Samples one of every `misses` misses, on each CPU; 0 stops sampling.
    pub fn set_period(&self, misses: u64) {
        if let Ok(pmu) = Pmu::open(&self.words) {
            pmu.set_period(misses);
        }
    }

    /// Current sampling period, in misses.
    pub fn period(&self) -> u64 {
        Pmu::open(&self.words).map_or(0, |pmu| pmu.period())
    }

    /// From now on, samples about `hz` misses per second on each CPU that has any.
    pub fn set_rate(&mut self, hz: u64) {
        self.rate = Some(Rate { hz, since: Instant::now(), samples: 0, cpus: HashSet::new() });
        self.set_period(FIRST_PERIOD);
    }

    /// Adjusts the period to the rate of the latest samples.
    fn follow_rate(&mut self, taken: &[pmu::Sample]) {
        let period = self.period();
        let Some(rate) = &mut self.rate else { return };
        rate.samples += taken.len();
        rate.cpus.extend(taken.iter().map(|sample| sample.cpu));
        let meanwhile = rate.since.elapsed();
        if meanwhile < RATE_LOOK {
            return;
        }
        let wanted = rate.hz as f64 * meanwhile.as_secs_f64() * rate.cpus.len() as f64;
        let next = next_period(period, rate.samples as f64, wanted);
        (rate.since, rate.samples) = (Instant::now(), 0);
        rate.cpus.clear();
        self.set_period(next);
    }

    /// Takes no samples: counters alone.
    pub fn count_only(&mut self) {
        self.set_period(0);
        self.counts_only = true;
    }

    /// What the PMU observes, and what it cannot see.
    pub fn notes(&self) -> Vec<SourceNote> {
        if self.counts_only {
            let (event, cannot_see) = ("counters of the virtual PMU".to_owned(), vec!["single accesses".to_owned()]);
            return vec![SourceNote { source: Source::Lab, event, cannot_see }];
        }
        let cannot_see =
            ["other accesses that hit the first-level cache", "what the lab's model leaves out: see its documentation"];
        let event = "first-level misses and first writes of the virtual PMU".to_owned();
        vec![SourceNote { source: Source::Lab, event, cannot_see: cannot_see.map(str::to_owned).to_vec() }]
    }

    /// Returns the samples since the last call, of all processes; at most as many as the PMU holds. If events carry
    /// the PMU's ticks, [look](crate::objects::ObjectRings::look) for them before this call and drain them after it.
    pub fn drain(&mut self, clock: &mut TickClock, samples: &mut Vec<Sample>) {
        let mut taken = std::mem::take(&mut self.taken);
        self.pop(&mut taken);
        // Samples taken so far have times before this moment.
        clock.look();
        self.follow_rate(&taken);
        let ns = |taken: &pmu::Sample| clock.ns(taken.ticks.wrapping_add(self.clocks.ticks));
        samples.extend(taken.drain(..).map(|taken| sample(&taken, ns(&taken))));
        self.taken = taken;
    }

    /// Passes each sample to `take` at once, unordered. For callers that need no order, and whose caches a list would
    /// not fit.
    pub fn each(&self, mut take: impl FnMut(&Sample)) {
        let Ok(pmu) = Pmu::open(&self.words) else { return };
        for taken in std::iter::from_fn(|| pmu.pop()).take(pmu::SLOTS as usize) {
            take(&sample(&taken, taken.clock_ns.wrapping_add(self.clocks.ns)));
        }
    }

    /// Counter values so far.
    pub fn counts(&mut self, counts: &mut Vec<Count>) {
        let Ok(pmu) = Pmu::open(&self.words) else { return };
        pmu.ask_for_counters();
        let round = pmu.counters_round();
        if round == self.counters_round {
            return;
        }
        // A publication in progress cannot be read; the next call gets it.
        let Some(published) = pmu.counters_json() else { return };
        self.counters_round = round;
        if let Ok(measured) = serde_json::from_slice::<Measured>(&published.json) {
            counts.extend(counted(published.clock_ns.wrapping_add(self.clocks.ns), &measured));
            self.tasks = Some(measured.tasks);
        }
    }

    /// What each thread of the machine had done at the last [`counts`](Self::counts); `None` if that call found
    /// nothing new.
    pub fn take_tasks(&mut self) -> Option<Vec<MeasuredTask>> {
        self.tasks.take()
    }

    /// Losses so far.
    pub fn lost(&self) -> Vec<Loss> {
        let dropped = Pmu::open(&self.words).map_or(0, |pmu| pmu.dropped());
        let mut lost = Vec::new();
        Loss::add(&mut lost, NOT_READ, dropped.saturating_sub(self.dropped));
        lost
    }

    fn pop(&self, samples: &mut Vec<pmu::Sample>) {
        if let Ok(pmu) = Pmu::open(&self.words) {
            samples.extend(std::iter::from_fn(|| pmu.pop()).take(pmu::SLOTS as usize));
        }
    }
}

/// The period that would have given the wanted number of samples. It changes by a factor of at most two at a time,
/// because programs change their behaviour.
fn next_period(period: u64, taken: f64, wanted: f64) -> u64 {
    if wanted <= 0.0 {
        return period;
    }
    ((period as f64 * (taken / wanted).clamp(0.5, 2.0)).round() as u64).max(1)
}

impl Drop for LabPmu {
    fn drop(&mut self) {
        self.set_period(0);
    }
}

fn sample(taken: &pmu::Sample, time_ns: u64) -> Sample {
    let served = match taken.level {
        1 => Some(Served::L1),
        2 => Some(Served::L2),
        3 => Some(Served::L3),
        4 => Some(Served::Dram),
        5 => Some(Served::Peer),
        _ => None,
    };
    Sample {
        time_ns,
        cpu: CpuId(taken.cpu),
        pid: Pid(taken.pid),
        tid: Tid(taken.tid),
        instruction: taken.instruction,
        address: taken.address,
        physical: Some(taken.physical_address),
        kind: if taken.store { AccessKind::Store } else { AccessKind::Load },
        served,
        node: Some(NodeId(taken.node)),
        latency_ns: Some(taken.latency_ps as f32 / 1000.0),
        kernel: machine::is_kernel_address(taken.instruction),
        stack: None,
        weight: taken.period.max(1) as f32,
        source: Source::Lab,
    }
}

/// Converts the PMU's counters, published at `time_ns`.
fn counted(time_ns: u64, measured: &Measured) -> Vec<Count> {
    let count = |counter, from, to, value| Count { time_ns, counter, from, to, cpu: None, value };
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let counters = &measured.counters;
    let mut counts = vec![
        count(Counter::Instructions, None, None, measured.instructions),
        count(Counter::CpuTime, None, None, ns(measured.cpu_time_s)),
        count(Counter::MemoryWait, None, None, ns(measured.memory_wait_s)),
    ];
    for (&from, row) in counters.nodes.iter().zip(&counters.dram_accesses_by_node) {
        let of_row = counters.nodes.iter().zip(row);
        counts.extend(of_row.map(|(&to, &lines)| count(Counter::MemoryAccesses, Some(from), Some(to), lines)));
    }
    let controllers = counters.controllers.iter();
    counts.extend(controllers.map(|of| count(Counter::ControllerBytes, None, Some(of.node), of.load.bytes)));
    let links = counters.links.iter();
    counts.extend(links.map(|link| count(Counter::LinkBytes, Some(link.from), Some(link.to), link.load.bytes)));
    counts
}

impl Clocks {
    /// Compares the clocks around instructions at which the plugin notes its own: `pause`.
    pub fn compare(pmu: Pmu<'_>) -> Option<Self> {
        (0..ATTEMPTS).find_map(|_| Self::compared_once(pmu))
    }

    fn compared_once(pmu: Pmu<'_>) -> Option<Self> {
        let (mut ticks, mut ns) = (Ahead::default(), Ahead::default());
        for _ in 0..COMPARISONS {
            let before = tsc();
            std::hint::spin_loop();
            let noted = pmu.pause_ticks();
            ticks.is_between(before, tsc(), noted, noted);
            let noted_before = pmu.pause_clock_ns();
            let now = monotonic_ns();
            std::hint::spin_loop();
            ns.is_between(now, now + GRAIN_NS, noted_before, pmu.pause_clock_ns());
        }
        Some(Self { ticks: ticks.least()?, ns: ns.least()? })
    }
}

/// How far one clock is ahead of another, as bounds from comparisons.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    least: i128,
    most: i128,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { least: i128::MIN, most: i128::MAX }
    }
}

impl Ahead {
    /// Adds a comparison: this clock was between two of its times while the other was between two of its own.
    fn is_between(&mut self, first: u64, last: u64, other_first: u64, other_last: u64) {
        self.least = self.least.max(i128::from(first) - i128::from(other_last));
        self.most = self.most.min(i128::from(last) - i128::from(other_first));
    }

    /// The least value that all comparisons allow: the plugin notes its time right after the first reading, because
    /// it is called before the instruction is executed. To be added to the other clock's value, wrapping. `None` if
    /// the comparisons contradict each other.
    fn least(self) -> Option<u64> {
        (self.least <= self.most && self.least != i128::MIN).then_some(self.least as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn clocks_are_compared_from_both_sides() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.least(), None);
        ahead.is_between(1000, 1100, 40, 40);
        ahead.is_between(2000, 2030, 1020, 1030);
        assert_eq!((ahead.least, ahead.most), (970, 1010));
        assert_eq!(ahead.least(), Some(970));
        ahead.is_between(3000, 3001, 4000, 4000);
        assert_eq!(ahead.least(), None, "one of them jumped");
        let mut behind = Ahead::default();
        behind.is_between(5, 6, 10, 10);
        assert_eq!(behind.least().map(|ahead| 10_u64.wrapping_add(ahead)), Some(5));
    }

    #[test]
    fn clocks_of_a_plugin_that_rests_are_not_believed() {
        let memory: Vec<AtomicU64> = (0..pmu::BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let pmu = Pmu::create(&memory).unwrap();
        assert_eq!(Clocks::compare(pmu), None);
    }

    #[test]
    fn only_samples_that_were_not_read_are_lost() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(pmu::BYTES as u64).unwrap();
        let words = SharedWords::map(&file, pmu::BYTES).unwrap();
        Pmu::create(&words).unwrap();
        let clocks = Clocks { ticks: 0, ns: 0 };
        let lab = LabPmu {
            words,
            _file: file,
            clocks,
            dropped: 0,
            taken: Vec::new(),
            rate: None,
            counts_only: false,
            counters_round: 0,
            tasks: None,
        };
        assert_eq!(lab.lost(), []);
        let pmu = Pmu::open(&lab.words).unwrap();
        (0..pmu::SLOTS + 3).for_each(|_| pmu.push(&pmu::Sample::default()));
        assert_eq!(lab.lost(), [Loss { what: NOT_READ.to_owned(), count: 3 }]);
    }

    #[test]
    fn the_period_follows_the_rate() {
        assert_eq!(next_period(1000, 150.0, 100.0), 1500);
        assert_eq!(next_period(1000, 1e9, 100.0), 2000);
        assert_eq!(next_period(1000, 0.0, 100.0), 500);
        assert_eq!(next_period(1, 0.0, 100.0), 1);
        assert_eq!(next_period(1000, 0.0, 0.0), 1000, "no CPU ran");
    }

    #[test]
    fn a_sample_says_what_the_model_knows() {
        let taken = pmu::Sample {
            instruction: 0xffff_ffff_8100_0000,
            latency_ps: 103_500,
            cpu: 3,
            pid: 7,
            tid: 8,
            node: 2,
            store: true,
            level: 5,
            period: 100,
            ..pmu::Sample::default()
        };
        let sample = sample(&taken, 77);
        assert_eq!((sample.time_ns, sample.served, sample.kind), (77, Some(Served::Peer), AccessKind::Store));
        assert_eq!((sample.latency_ns, sample.weight, sample.kernel), (Some(103.5), 100.0, true));
    }
}
