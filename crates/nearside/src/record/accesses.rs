//! Who observes accesses to memory.

use trace::live::{HintFaults, LabPmu, PerfSource};
use trace::{Event, Loss, Sample, SourceNote, Stacks, TickClock};

/// Who observes accesses to memory.
pub enum Accesses {
    /// The virtual PMU of the lab.
    Lab(LabPmu),
    /// What the processor samples itself.
    Perf(Box<PerfSource>),
    /// Page faults that NUMA balancing provokes.
    HintFaults(Box<HintFaults>),
}

impl Accesses {
    /// What is observed, and what not.
    pub fn notes(&self) -> Vec<SourceNote> {
        match self {
            Self::Lab(pmu) => pmu.notes(),
            Self::Perf(source) => source.notes(),
            Self::HintFaults(faults) => faults.notes(),
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

    /// What was observed since the last time. To be called before programs' own ticks are drained.
    pub fn drain(&mut self, last: bool, clock: &mut TickClock, stacks: &mut Stacks, told: Told<'_>) {
        let Told { samples, events } = told;
        match self {
            Self::Lab(pmu) => {
                if last {
                    pmu.set_period(0);
                }
                pmu.drain(clock, samples);
            }
            Self::Perf(source) => source.drain(stacks, samples, events),
            Self::HintFaults(faults) if last => faults.finish(stacks, samples, events),
            Self::HintFaults(faults) => faults.drain(stacks, samples, events),
        }
    }
}

/// Where what was observed is put.
pub struct Told<'a> {
    pub samples: &'a mut Vec<Sample>,
    pub events: &'a mut Vec<Event>,
}
