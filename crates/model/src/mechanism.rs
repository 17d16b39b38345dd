//! The parts of the model that can be switched off, to see their effect or to run faster.

use machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use strum::VariantArray;

/// A part of the model.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown)]
pub enum Mechanism {
    /// TLBs and page walks. Without it every translation is free.
    Translation,
    /// Independent load misses overlap. Without it each waits for the previous one.
    Overlap,
    /// Lines held by other caches, and requests to them. Without it memory supplies every line.
    Coherence,
    /// Dirty lines are written back to memory. Without it they vanish.
    WriteBacks,
    /// Latency grows with load. Without it queues form only at full bandwidth.
    LoadCurves,
    /// CPUs of one core share its path to memory. Without it each has its own.
    Siblings,
    /// Prefetchers. Without it each line of a scan waits for the previous one.
    Streams,
    /// Store misses wait in a buffer. Without it each waits for the previous one.
    StoreBuffer,
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = Mechanism::VARIANTS.iter().map(Into::into).collect();
    format!("the model has no part `{name}`; it has {}", names.join(", "))
}

/// The parts of the model that are switched on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mechanisms(BTreeSet<Mechanism>);

impl Mechanisms {
    /// All parts: as close to the machine as the model gets.
    pub fn full() -> Self {
        Self(Mechanism::VARIANTS.iter().copied().collect())
    }

    /// Without the parts that take the host longest. Bandwidths, queues and memory latencies stay, and a program that
    /// uses few pages at a time, waits for each line and writes no shared lines sees no difference.
    pub fn fast() -> Self {
        let mut mechanisms = Self::full();
        for slow in [Mechanism::Translation, Mechanism::Overlap, Mechanism::Coherence] {
            mechanisms.remove(slow);
        }
        mechanisms
    }

    /// Switches a part off.
    pub fn remove(&mut self, mechanism: Mechanism) {
        self.0.remove(&mechanism);
    }

    /// The parts that are switched off.
    pub fn missing(&self) -> Vec<Mechanism> {
        Mechanism::VARIANTS.iter().copied().filter(|&mechanism| !self.has(mechanism)).collect()
    }

    /// Whether a part is switched on.
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.0.contains(&mechanism)
    }

    /// The machine without the numbers that only disabled parts need: a part without its numbers does nothing.
    pub(crate) fn applied_to(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        let lacks = |mechanism| !self.has(mechanism);
        if lacks(Mechanism::Translation) {
            machine.tlbs.clear();
        }
        if lacks(Mechanism::Coherence) {
            machine.coherence = None;
        }
        if let Some(core) = &mut machine.core {
            if lacks(Mechanism::Overlap) {
                core.load_lines = None;
            }
            if lacks(Mechanism::Streams) {
                core.stream_lines = 1;
            }
            if lacks(Mechanism::StoreBuffer) {
                core.store_lines = 1;
            }
        }
        if let Some(latency) = machine.latency.as_mut().filter(|_| lacks(Mechanism::LoadCurves)) {
            (latency.loaded_rise, latency.loaded_slope) = (None, None);
        }
        machine
    }
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self::full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() -> Result<(), serde_json::Error> {
        for mechanism in Mechanism::VARIANTS {
            assert_eq!(Ok(*mechanism), mechanism.to_string().parse());
            assert_eq!(serde_json::to_string(mechanism)?, format!("\"{mechanism}\""));
        }
        let all = "translation, overlap, coherence, write-backs, load-curves, siblings, streams, store-buffer";
        assert_eq!("tlb".parse::<Mechanism>(), Err(format!("the model has no part `tlb`; it has {all}")));
        Ok(())
    }
}
