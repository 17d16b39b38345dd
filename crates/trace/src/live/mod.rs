//! Live sources of samples and events on Linux. Each is detected by trying to open it.
//!
//! | source | reports | needs |
//! |---|---|---|
//! | [`SideBand`] | processes, threads, names, mappings | nothing for one's own programs |
//! | [`PerfSource`] | accesses sampled by the processor: level that served them, latency | AMD's IBS, Intel's PEBS or
//! Arm's SPE |
//! | [`HintFaults`] | which thread used a page that NUMA balancing marked | root, tracefs, the kernel's balancing |
//! | [`LabPmu`] | memory accesses in the lab | to run as the user of the lab's run, or root |
//! | [`HostCounters`] | load of memory controllers, local and remote traffic of caches | a processor that counts them
//! |
//!
//! The first two need `kernel.perf_event_paranoid` at 2 or less for one's own programs (Linux's default; Debian's
//! kernels have 3), and at 0 or less, or `CAP_PERFMON`, for the whole system. [`LiveError`] says what is missing and
//! what to do.
//!
//! All have the same three calls: `notes` says what the source cannot see, `drain` returns what came since the last
//! call, and `lost` counts the losses so far. `drain` returns records in time order, except for a few that CPUs wrote
//! meanwhile. It never blocks, and takes no more than the rings hold. All times are of `CLOCK_MONOTONIC`. Page faults
//! and the data of Arm's SPE are decoded later: [`HintFaults`] and [`PerfSource`] return them from a later `drain`,
//! or from `finish` at the end.
//!
//! ```no_run
//! use std::{process::Command, thread::sleep, time::Duration};
//! use trace::{Stacks, live::{SideBand, Target}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // First the sources, then the program, on the same thread: it is observed from its first instruction.
//! let mut side_band = SideBand::open(&Target::Program)?;
//! let mut program = Command::new("./program").spawn()?;
//! let (mut stacks, mut events) = (Stacks::new(), Vec::new());
//! while program.try_wait()?.is_none() {
//!     sleep(Duration::from_millis(20));
//!     side_band.drain(&mut stacks, &mut events);
//! }
//! // The last events of the program.
//! side_band.drain(&mut stacks, &mut events);
//! # Ok(())
//! # }
//! ```

mod accesses;
mod aux_data;
mod controller_events;
mod fault;
mod file_identities;
mod hint_faults;
mod host_counters;
mod lab_counters;
mod lab_pmu;
mod memory_events;
mod perf_rings;
mod perf_source;
mod permission;
mod pmu;
mod running;
mod side_band;
mod spe_clock;
mod spe_events;
mod system_features;
mod thread_counters;
mod tracepoint;

pub use accesses::{AccessError, AccessOptions, AccessSource, Accesses, Told};
pub use file_identities::FileIdentities;
pub use hint_faults::{HintFaultOptions, HintFaults};
pub use host_counters::HostCounters;
pub use lab_counters::{LabCount, LabCounters};
pub use lab_pmu::{LabPmu, LabPmuError};
pub use model::MeasuredTask;
pub use perf_source::{Pace, PerfOptions, PerfSource};
pub use permission::LiveError;
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
