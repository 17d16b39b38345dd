//! What Linux tells of programs while they run: sources of samples and events, each detected by trying.
//!
//! | source | tells | needs |
//! |---|---|---|
//! | [`SideBand`] | processes, threads, names, mappings | nothing for one's own programs |
//! | [`PerfSource`] | accesses that the processor samples: what served them, how long | AMD's IBS, Intel's PEBS or Arm's SPE |
//! | [`HintFaults`] | which thread used a page that NUMA balancing marked | root, tracefs, the kernel's balancing |
//! | [`LabPmu`] | accesses to memory, in the lab | to be the user of the lab's run, or root |
//! | [`HostCounters`] | load of memory controllers, local and remote traffic of caches | a processor that counts them |
//!
//! The first two need `kernel.perf_event_paranoid` of 2 or less for one's own programs (Linux's default; Debian's own
//! kernels have 3), and of 0 or less, or `CAP_PERFMON`, for the system. [`LiveError`] says what is missing, and what to do.
//!
//! All have the same three calls: `notes` says what it cannot see, `drain` gives what came since the last time, and
//! `lost` how much was lost so far. What `drain` gives is in the order of time, but for a few records that CPUs wrote
//! meanwhile. It never waits, and does not take more than the rings hold. All times are of `CLOCK_MONOTONIC`. What
//! comes of a page fault, or of Arm's SPE, is known later: [`HintFaults`] and [`PerfSource`] tell it by a `drain` that
//! follows, or at the end by `finish`.
//!
//! ```no_run
//! use std::{process::Command, thread::sleep, time::Duration};
//! use trace::{Stacks, live::{SideBand, Target}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // First the sources, then the program, by the same thread: it is observed from its first instruction.
//! let mut side_band = SideBand::open(&Target::Program)?;
//! let mut program = Command::new("./program").spawn()?;
//! let (mut stacks, mut events) = (Stacks::new(), Vec::new());
//! while program.try_wait()?.is_none() {
//!     sleep(Duration::from_millis(20));
//!     side_band.drain(&mut stacks, &mut events);
//! }
//! // What it did last.
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
mod spe_events;
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

/// Whom to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The programs that the calling thread starts from now on, each from its first instruction, with all that they
    /// start themselves. Has to be chosen before; what other threads start is not observed.
    Program,
    /// Processes, with all their threads and what they start from now on.
    Pids(Vec<Pid>),
    /// Everything.
    System,
}
