//! What the lab's plugin, which runs the model inside QEMU, is told and tells.

use crate::{Counters, Mechanisms, MemoryRange};
use machine::Machine;
use serde::{Deserialize, Serialize};

/// What to model. The lab writes it, the plugin reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The machine as its own Linux sees it: CPUs are QEMU's, numbered from 0.
    pub machine: Machine,
    /// Where each node's memory is.
    pub memory: Vec<MemoryRange>,
    /// The parts of the model that are switched on.
    pub mechanisms: Mechanisms,
    /// A person watches: while no CPU runs, time passes as on the host.
    pub idles_with_host: bool,
}

/// What was measured. The plugin publishes it in the virtual PMU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Instructions that the CPUs executed.
    pub instructions: u64,
    /// How often simulated time was let go, as QEMU's threads waited for each other for a reason that the plugin does not
    /// know: what CPUs saw of each other then may be off by more than the clock promises. 0 in every run of the tests.
    #[serde(default)]
    pub clock_releases: u64,
    /// How long the CPUs ran, all together, s.
    pub cpu_time_s: f64,
    /// How much of that they waited for memory and for the caches beyond the first, s.
    pub memory_wait_s: f64,
    /// What the model counted.
    #[serde(flatten)]
    pub counters: Counters,
}
