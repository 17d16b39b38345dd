//! What the lab's plugin, which runs the model inside QEMU, is told and tells.

use crate::{Counters, CpuCounters, Mechanisms, MemoryRange};
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
    /// Each CPU, ascending.
    #[serde(default)]
    pub per_cpu: Vec<MeasuredCpu>,
    /// Each thread that ran, in no order.
    #[serde(default)]
    pub tasks: Vec<MeasuredTask>,
    /// Threads that are not in `tasks`, as there were too many.
    #[serde(default)]
    pub tasks_uncounted: u64,
    /// What the model counted.
    #[serde(flatten)]
    pub counters: Counters,
}

/// What was measured of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCpu {
    /// Instructions that it executed.
    pub instructions: u64,
    /// How long it ran, s.
    pub cpu_time_s: f64,
    /// How much of that it waited for memory and for the caches beyond the first, s.
    pub memory_wait_s: f64,
    /// What served its accesses.
    #[serde(flatten)]
    pub counters: CpuCounters,
}

/// What was measured of one thread of the guest. The plugin looks who runs every 8 us of a CPU's time at the latest: of
/// threads that take turns faster, one may have what another did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTask {
    /// Its process.
    pub pid: u32,
    /// The thread. Where the kernel gave a number out again, each thread that had it is one of its own.
    pub tid: u32,
    /// Its name when it was first seen.
    pub name: String,
    /// Instructions that it executed, those of the kernel for it included.
    pub instructions: u64,
    /// How long it ran, s.
    pub cpu_time_s: f64,
    /// How much of that it waited for memory and for the caches beyond the first, s.
    pub memory_wait_s: f64,
    /// Its accesses that memory served, by the memory's node, in the order of [`Counters::nodes`].
    pub dram_accesses_by_node: Vec<u64>,
}
