//! Observes programs on a running kernel: samples of their memory accesses, their lifecycles and objects, and the
//! machine's counters, as [`trace`]'s samples, events and counts.
//!
//! A [`Recorder`] drains all sources into a trace; an [`Observer`] collects them interval by interval. [`objects`] is
//! the recorder's side of the library inside of programs.
//!
//! # Live sources
//!
//! Each is detected by trying to open it.
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
//! | [`CpuCounters`] | what served the accesses of each CPU | a processor whose events are known, or the lab |
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
//! use observe::{SideBand, Target};
//! use trace::Stacks;
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

pub mod objects;
mod recording;
mod regions;
mod sources;
mod tick_clock;
mod watching;

pub use recording::open_sources::SourceOptions;
pub use recording::processes::{Processes, wait_until_set};
pub use recording::recorder::{Counts, Followed, RecordError, Recorded, Recorder, Sources};
pub use regions::{RegionRule, RegionRules, RegionWatcher, Regions, RegionsError};
pub use sources::{
    AccessError, AccessOptions, AccessSource, Accesses, CpuCounters, CpuTotals, HintFaultOptions, HintFaults,
    HostCounters, LabCount, LabCounters, LabPmu, LabPmuError, LiveError, MeasuredTask, Pace, PageAllocations,
    PerfOptions, PerfSource, SchedulingCounters, SideBand, Target, ThreadCount, ThreadCounters, Told, UNPACED,
    lab_totals,
};
pub use tick_clock::TickClock;
pub use watching::observer::{Interval, Observed, Observer, ProcessMemory, WatchError};
