//! What the lab's virtual PMU has counted, for those who take no samples: any number may look at once.

use super::lab_pmu::{Clocks, Device, LabPmuError};
use linux::SharedWords;
use model::Measured;
use model::pmu::Pmu;

/// The counters of the virtual PMU.
#[derive(Debug)]
pub struct LabCounters {
    words: SharedWords,
    clocks: Clocks,
    /// They are known as they were published this time.
    round: u64,
}

/// What was counted by a moment, not read yet: that can wait until it costs nobody's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabCount {
    /// The moment, ns of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    json: Vec<u8>,
}

impl LabCount {
    /// What was counted since the lab began to measure; nothing where it is no text of the plugin's.
    pub fn measured(&self) -> Option<Measured> {
        serde_json::from_slice(&self.json).ok()
    }
}

impl LabCounters {
    /// The counters, where this is the lab; none elsewhere. Needs to be the user of the lab's run, or root.
    pub fn find() -> Result<Option<Self>, LabPmuError> {
        let Some(Device { words, .. }) = Device::open()? else { return Ok(None) };
        let clocks = Clocks::compare(Pmu::open(&words)?).ok_or(LabPmuError::Clocks)?;
        Ok(Some(Self { words, clocks, round: 0 }))
    }

    /// What was counted, where that is news: the PMU tells many times a second of host time. Costs next to nothing where
    /// it is none.
    pub fn news(&mut self) -> Option<LabCount> {
        let pmu = Pmu::open(&self.words).ok()?;
        pmu.ask_for_counters();
        let round = pmu.counters_round();
        if round == self.round {
            return None;
        }
        // While it is being changed there is nothing to read; soon there is.
        let published = pmu.counters_json()?;
        self.round = round;
        Some(LabCount { time_ns: published.clock_ns.wrapping_add(self.clocks.ns), json: published.json })
    }
}
