//! Selects the source of memory accesses: the best one available, or a given one.

use super::perf_source::most_rate;
use super::{HintFaultOptions, HintFaults, LabPmu, LabPmuError, LiveError, Pace, PerfOptions, PerfSource, Target};
use crate::TickClock;
use trace::{Count, Event, Loss, Sample, SourceNote, Stacks};

/// Default period of the virtual PMU, in first-level misses.
const LAB_PERIOD: u64 = 1000;
/// Default rate of the processor's sampling, in samples per second and CPU.
const PERF_RATE: u64 = 1000;

/// Why the sampling period or rate of hint faults cannot be set.
pub const UNPACED: &str = "the kernel decides how many hint faults there are: --period and --rate have no effect";

/// An open source of memory accesses.
pub enum Accesses {
    /// The lab's virtual PMU.
    Lab(LabPmu),
    /// The processor's own sampling.
    Perf(Box<PerfSource>),
    /// Page faults caused by NUMA balancing.
    HintFaults(Box<HintFaults>),
}

/// Which source of memory accesses to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessSource {
    /// The best one available: the virtual PMU, the processor's sampling, or hint faults if NUMA balancing is on.
    #[default]
    Best,
    /// The lab's virtual PMU.
    Lab,
    /// The processor's own sampling.
    Perf,
    /// Hint faults. NUMA balancing is switched on for them.
    HintFaults,
    /// Counters without samples: the virtual PMU that takes none, and elsewhere no source of accesses at all.
    Counters,
    /// No source.
    None,
}

/// Why accesses cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// This machine has no virtual PMU.
    #[error("there is no virtual PMU: this is not the lab (see `nearside lab run`)")]
    NotTheLab,
    /// The virtual PMU cannot be used.
    #[error(transparent)]
    Lab(#[from] LabPmuError),
    /// The kernel refused.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// What to observe.
#[derive(Clone, Copy, Debug)]
pub struct AccessOptions<'a> {
    /// The processes to observe.
    pub target: &'a Target,
    /// Sampling period, in events.
    pub period: Option<u64>,
    /// Sampling rate, in samples per second and CPU.
    pub rate: Option<u64>,
    /// Whether to record call chains.
    pub stacks: bool,
}

impl AccessOptions<'_> {
    /// Opens the requested source. For [`AccessSource::Best`], `notes` receives why each better source is not used.
    pub fn open(&self, source: AccessSource, notes: &mut Vec<String>) -> Result<Option<Accesses>, AccessError> {
        Ok(match source {
            AccessSource::Best => self.best(notes),
            AccessSource::Lab => Some(self.lab(LabPmu::find()?.ok_or(AccessError::NotTheLab)?)),
            AccessSource::Perf => Some(self.perf()?),
            AccessSource::HintFaults => Some(self.hint_faults(true)?),
            AccessSource::Counters => LabPmu::find()?.map(|mut pmu| {
                pmu.count_only();
                Accesses::Lab(pmu)
            }),
            AccessSource::None => None,
        })
    }

    fn best(&self, notes: &mut Vec<String>) -> Option<Accesses> {
        match LabPmu::find() {
            Ok(Some(pmu)) => return Some(self.lab(pmu)),
            Ok(None) => {}
            Err(error) => notes.push(error.to_string()),
        }
        let mut tell = |error: LiveError| notes.push(error.to_string());
        self.perf().map_err(&mut tell).or_else(|()| self.hint_faults(false).map_err(&mut tell)).ok()
    }

    fn lab(&self, mut pmu: LabPmu) -> Accesses {
        match self.rate {
            Some(hz) => pmu.set_rate(hz),
            None => pmu.set_period(self.period.unwrap_or(LAB_PERIOD)),
        }
        Accesses::Lab(pmu)
    }

    fn perf(&self) -> Result<Accesses, LiveError> {
        // The kernel lowers its limit where samples have taken too long.
        let usual = || Pace::Rate(most_rate().map_or(PERF_RATE, |most| most.min(PERF_RATE)));
        let pace = self.period.map(Pace::Period).or(self.rate.map(Pace::Rate)).unwrap_or_else(usual);
        let options = PerfOptions { target: self.target.clone(), pace, stacks: self.stacks, ..PerfOptions::default() };
        Ok(Accesses::Perf(Box::new(PerfSource::open(&options)?)))
    }

    /// Opens hint faults, after switching NUMA balancing on if `switch_on`.
    fn hint_faults(&self, switch_on: bool) -> Result<Accesses, LiveError> {
        let faults = HintFaults::open(&HintFaultOptions { target: self.target.clone(), switch_on })?;
        Ok(Accesses::HintFaults(Box::new(faults)))
    }
}

impl Accesses {
    /// Returns the clock for events that carry ticks. The guest's own clock stands still for microseconds at a time;
    /// programs and the virtual PMU share a finer one.
    pub fn tick_clock(source: Option<&Self>) -> TickClock {
        if matches!(source, Some(Self::Lab(_))) { TickClock::tsc() } else { TickClock::detect() }
    }

    /// A note on a requested period or rate that the source does not have.
    pub(crate) fn note_of_pace(source: Option<&Self>, requested: bool) -> Option<String> {
        (requested && matches!(source, Some(Self::HintFaults(_)))).then(|| UNPACED.to_owned())
    }

    /// What the source observes, and what it cannot see.
    pub fn notes(&self) -> Vec<SourceNote> {
        match self {
            Self::Lab(pmu) => pmu.notes(),
            Self::Perf(source) => source.notes(),
            Self::HintFaults(faults) => faults.notes(),
        }
    }

    /// Pauses observation until [`go_on`](Self::go_on). For the virtual PMU this sets the period to 0.
    pub fn rest(&mut self) {
        match self {
            Self::Lab(pmu) => pmu.set_period(0),
            Self::Perf(source) => source.rest(),
            Self::HintFaults(faults) => faults.rest(),
        }
    }

    /// Resumes observation. `period` applies to the virtual PMU only.
    pub fn go_on(&mut self, period: u64) {
        match self {
            Self::Lab(pmu) => pmu.set_period(period),
            Self::Perf(source) => source.go_on(),
            Self::HintFaults(faults) => faults.go_on(),
        }
    }

    /// Losses so far.
    pub fn lost(&self) -> Vec<Loss> {
        match self {
            Self::Lab(pmu) => pmu.lost(),
            Self::Perf(source) => source.lost(),
            Self::HintFaults(faults) => faults.lost(),
        }
    }

    /// Drains what was observed since the last call; `last` marks the final one. Call it after looking how far the
    /// programs' tick-stamped events reach, and before draining those events.
    pub fn drain(&mut self, last: bool, clock: &mut TickClock, stacks: &mut Stacks, told: Told<'_>) {
        let Told { samples, events, counts } = told;
        match self {
            Self::Lab(pmu) => {
                if last {
                    pmu.set_period(0);
                }
                pmu.drain(clock, samples);
                pmu.counts(counts);
            }
            Self::Perf(source) if last => source.finish(stacks, samples, events),
            Self::Perf(source) => source.drain(stacks, samples, events),
            Self::HintFaults(faults) if last => faults.finish(stacks, samples, events),
            Self::HintFaults(faults) => faults.drain(stacks, samples, events),
        }
    }
}

/// Where observations are stored.
pub struct Told<'a> {
    /// Memory accesses.
    pub samples: &'a mut Vec<Sample>,
    /// Events around the accesses.
    pub events: &'a mut Vec<Event>,
    /// Counter values.
    pub counts: &'a mut Vec<Count>,
}
