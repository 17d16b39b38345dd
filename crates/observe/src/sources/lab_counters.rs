//! Counters of the lab's virtual PMU, for readers that take no samples. Any number of readers may use them at once.

use super::lab_pmu::{Clocks, Device, LabPmuError};
use linux::SharedWords;
use model::Measured;
use model::pmu::Pmu;

/// Counters of the virtual PMU.
#[derive(Debug)]
pub struct LabCounters {
    words: SharedWords,
    clocks: Clocks,
    /// The publication round of the last counters read.
    round: u64,
}

/// A published count, not parsed yet. Parsing can wait until it delays no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabCount {
    /// When it was published, in ns of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    json: Vec<u8>,
}

impl LabCount {
    /// Parses the counters, which start when the lab begins to measure. `None` if the text is malformed.
    pub fn measured(&self) -> Option<Measured> {
        serde_json::from_slice(&self.json).ok()
    }
}

impl LabCounters {
    /// Returns the counters in the lab, `None` elsewhere. Needs to run as the user of the lab's run, or as root.
    pub fn find() -> Result<Option<Self>, LabPmuError> {
        let Some(Device { words, .. }) = Device::open()? else { return Ok(None) };
        let clocks = Clocks::compare(Pmu::open(&words)?).ok_or(LabPmuError::Clocks)?;
        Ok(Some(Self { words, clocks, round: 0 }))
    }

    /// Returns the counters if they were published anew since the last call. The PMU publishes many times per second
    /// of host time. A call without news is cheap.
    pub fn news(&mut self) -> Option<LabCount> {
        let pmu = Pmu::open(&self.words).ok()?;
        pmu.ask_for_counters();
        let round = pmu.counters_round();
        if round == self.round {
            return None;
        }
        // A publication in progress cannot be read; the next call gets it.
        let published = pmu.counters_json()?;
        self.round = round;
        Some(LabCount { time_ns: published.clock_ns.wrapping_add(self.clocks.ns), json: published.json })
    }
}
