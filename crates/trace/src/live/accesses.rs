//! Whoever observes accesses to memory: the best source that is there, or one that is chosen.

use super::{HintFaultOptions, HintFaults, LabPmu, LabPmuError, LiveError, Pace, PerfOptions, PerfSource, Target};
use crate::{Count, Event, Loss, Sample, SourceNote, Stacks, TickClock};

/// Of the virtual PMU: one miss in so many.
const LAB_PERIOD: u64 = 1000;
/// Of the processor's own sampling: so many a second on each CPU.
const PERF_RATE: u64 = 1000;

/// Who observes accesses to memory.
pub enum Accesses {
    /// The virtual PMU of the lab.
    Lab(LabPmu),
    /// What the processor samples itself.
    Perf(Box<PerfSource>),
    /// Page faults that NUMA balancing provokes.
    HintFaults(Box<HintFaults>),
}

/// Who is to observe accesses to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessSource {
    /// The best that is there: the virtual PMU, the processor, hint faults where NUMA balancing is on.
    #[default]
    Best,
    /// The virtual PMU of the lab.
    Lab,
    /// What the processor samples itself.
    Perf,
    /// Hint faults; NUMA balancing is switched on for them.
    HintFaults,
    /// Nobody.
    None,
}

/// Why accesses cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is no virtual PMU.
    #[error("there is no virtual PMU: this is not the lab (see `nearside lab run`)")]
    NotTheLab,
    /// The virtual PMU cannot be used.
    #[error(transparent)]
    Lab(#[from] LabPmuError),
    /// The kernel refuses.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// What is to be observed.
#[derive(Clone, Copy, Debug)]
pub struct AccessOptions<'a> {
    /// Whose accesses.
    pub target: &'a Target,
    /// One event in so many.
    pub period: Option<u64>,
    /// So many samples a second on each CPU.
    pub rate: Option<u64>,
    /// With call chains.
    pub stacks: bool,
}

impl AccessOptions<'_> {
    /// Opens what is wanted. Of the best that is there, notes say why what is better is not.
    pub fn open(&self, source: AccessSource, notes: &mut Vec<String>) -> Result<Option<Accesses>, AccessError> {
        Ok(match source {
            AccessSource::Best => self.best(notes),
            AccessSource::Lab => Some(self.lab(LabPmu::find()?.ok_or(AccessError::NotTheLab)?)),
            AccessSource::Perf => Some(self.perf()?),
            AccessSource::HintFaults => Some(self.hint_faults(true)?),
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
        let pace = self.period.map(Pace::Period).or(self.rate.map(Pace::Rate)).unwrap_or(Pace::Rate(PERF_RATE));
        let options = PerfOptions { target: self.target.clone(), pace, stacks: self.stacks, ..PerfOptions::default() };
        Ok(Accesses::Perf(Box::new(PerfSource::open(&options)?)))
    }

    /// Switches NUMA balancing on, if it is to.
    fn hint_faults(&self, switch_on: bool) -> Result<Accesses, LiveError> {
        let faults = HintFaults::open(&HintFaultOptions { target: self.target.clone(), switch_on })?;
        Ok(Accesses::HintFaults(Box::new(faults)))
    }
}

impl Accesses {
    /// The clock of what is told in ticks. The guest's own stands still for microseconds; programs and the virtual PMU
    /// have a finer one in common.
    pub fn tick_clock(source: Option<&Self>) -> TickClock {
        if matches!(source, Some(Self::Lab(_))) { TickClock::tsc() } else { TickClock::detect() }
    }

    /// What is observed, and what not.
    pub fn notes(&self) -> Vec<SourceNote> {
        match self {
            Self::Lab(pmu) => pmu.notes(),
            Self::Perf(source) => source.notes(),
            Self::HintFaults(faults) => faults.notes(),
        }
    }

    /// Observes nothing until it is to go on. The virtual PMU rests with a period of 0.
    pub fn rest(&mut self) {
        match self {
            Self::Lab(pmu) => pmu.set_period(0),
            Self::Perf(source) => source.rest(),
            Self::HintFaults(faults) => faults.rest(),
        }
    }

    /// Observes again, the virtual PMU with this period.
    pub fn go_on(&mut self, period: u64) {
        match self {
            Self::Lab(pmu) => pmu.set_period(period),
            Self::Perf(source) => source.go_on(),
            Self::HintFaults(faults) => faults.go_on(),
        }
    }

    /// What was lost so far.
    pub fn lost(&self) -> Vec<Loss> {
        match self {
            Self::Lab(pmu) => pmu.lost(),
            Self::Perf(source) => source.lost(),
            Self::HintFaults(faults) => faults.lost(),
        }
    }

    /// What was observed since the last time, for the last time or not. To be called after it was looked how far programs
    /// have told in ticks of their own, and before those are drained.
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

/// Where what was observed is put.
pub struct Told<'a> {
    /// Accesses.
    pub samples: &'a mut Vec<Sample>,
    /// What happened around them.
    pub events: &'a mut Vec<Event>,
    /// What was counted.
    pub counts: &'a mut Vec<Count>,
}
