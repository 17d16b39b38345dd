//! Live sources of samples, events and counts.

mod accesses;
mod aux_data;
mod controller_events;
mod cpu_counters;
mod cpu_events;
mod fault;
mod hint_faults;
mod host_counters;
mod lab_counters;
mod lab_pmu;
mod memory_event;
mod memory_events;
mod page_allocations;
mod perf_rings;
mod perf_source;
mod permission;
mod pmu;
mod running;
mod scheduling_counters;
mod side_band;
mod spe_clock;
mod spe_events;
mod system_features;
mod thread_counters;
mod tracepoint;

pub use accesses::{AccessError, AccessOptions, AccessSource, Accesses, Told, UNPACED};
pub use cpu_counters::{CpuCounters, CpuTotals, lab_totals};
pub use hint_faults::{HintFaultOptions, HintFaults};
pub use host_counters::HostCounters;
pub use lab_counters::{LabCount, LabCounters};
pub use lab_pmu::{LabPmu, LabPmuError};
pub use model::MeasuredTask;
pub use page_allocations::PageAllocations;
pub use perf_source::{Pace, PerfOptions, PerfSource};
pub use permission::LiveError;
pub use scheduling_counters::SchedulingCounters;
pub use side_band::SideBand;
pub use thread_counters::{ThreadCount, ThreadCounters};

use linux::Pid;

/// Which processes to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The programs that the calling thread starts from now on, each from its first instruction, with all their
    /// descendants. Open the source before starting them. Programs started by other threads are not observed.
    Program,
    /// Processes, with all their threads and the processes that they start from now on.
    Pids(Vec<Pid>),
    /// The whole system.
    System,
}
