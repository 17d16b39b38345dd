//! The interface to the lab's plugin, which runs the model inside QEMU.

use crate::{Counters, CpuCounters, Mechanisms, MemoryRange};
use machine::{CpuId, Machine};
use serde::{Deserialize, Serialize};

/// What to model. The lab writes it, the plugin reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The machine, with QEMU's numbers of CPUs and nodes, from 0.
    pub machine: Machine,
    /// The guest's number of each of QEMU's CPUs. The guest sees these.
    pub cpu_numbers: Vec<CpuId>,
    /// The physical memory of each node.
    pub memory: Vec<MemoryRange>,
    /// The parts of the model that are switched on.
    pub mechanisms: Mechanisms,
    /// For interactive use: while no CPU runs, time passes as on the host.
    pub idles_with_host: bool,
}

/// The results of a measurement. The plugin publishes them in the virtual PMU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Instructions that the CPUs executed.
    pub instructions: u64,
    /// Number of times that the clock rules were relaxed, as QEMU's threads waited for each other for a reason that the
    /// plugin does not know: CPUs' views of each other may then differ by more than the clock promises. 0 in every run
    /// of the tests.
    #[serde(default)]
    pub clock_releases: u64,
    /// Total running time of the CPUs, s.
    pub cpu_time_s: f64,
    /// Part of that spent waiting for memory and for caches beyond L1, s.
    pub memory_wait_s: f64,
    /// Each CPU, ascending.
    #[serde(default)]
    pub per_cpu: Vec<MeasuredCpu>,
    /// Each thread that ran, in no order.
    #[serde(default)]
    pub tasks: Vec<MeasuredTask>,
    /// Number of threads missing from `tasks`, as there were too many.
    #[serde(default)]
    pub tasks_uncounted: u64,
    /// The model's counters.
    #[serde(flatten)]
    pub counters: Counters,
}

/// Results of one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCpu {
    /// Instructions that it executed.
    pub instructions: u64,
    /// Running time, s.
    pub cpu_time_s: f64,
    /// Part of that spent waiting for memory and for caches beyond L1, s.
    pub memory_wait_s: f64,
    /// Its accesses, by what served them.
    #[serde(flatten)]
    pub counters: CpuCounters,
}

/// Results of one guest thread. The plugin samples the running thread at least every 8 us of a CPU's time: if threads
/// switch faster, some of one's counts may go to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTask {
    /// Its process.
    pub pid: u32,
    /// The thread. If the kernel reused a number, each thread that had it is listed separately.
    pub tid: u32,
    /// Its name when it was first seen.
    pub name: String,
    /// Instructions that it executed, including the kernel's on its behalf.
    pub instructions: u64,
    /// Running time, s.
    pub cpu_time_s: f64,
    /// Part of that spent waiting for memory and for caches beyond L1, s.
    pub memory_wait_s: f64,
    /// Its accesses served by memory, by the memory's node, in the order of [`Counters::nodes`].
    pub dram_accesses_by_node: Vec<u64>,
}
