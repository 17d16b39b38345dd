//! Opens the requested sources, as far as they are available.

use super::recorder::Sources;
use crate::objects::{ObjectOptions, ObjectRings, ObjectsError, library, obstacle};
use crate::{
    AccessError, AccessOptions, AccessSource, Accesses, CpuCounters, HostCounters, LiveError, PageAllocations,
    RegionRules, RegionWatcher, Regions, SchedulingCounters, SideBand, Target, TickClock,
};
use machine::{Machine, chain};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A program that fills its ring waits rather than lose events: on a busy machine the recorder itself may have to wait
/// for a CPU.
const FULL_RING_TIMEOUT: Duration = Duration::from_secs(1);

/// The requested sources.
#[derive(Clone, Debug)]
pub struct SourceOptions<'a> {
    /// The processes to observe.
    pub target: &'a Target,
    /// The program that is started for it, with its arguments; empty for running processes.
    pub command: &'a [OsString],
    /// The machine.
    pub machine: &'a Machine,
    /// The source of accesses.
    pub accesses: AccessSource,
    /// Sampling period, in events.
    pub period: Option<u64>,
    /// Sampling rate, in samples per second and CPU.
    pub rate: Option<u64>,
    /// Observe the program's objects: those up to this size, in bytes, are only counted.
    pub objects: Option<usize>,
    /// Names of ranges, besides those that programs give.
    pub regions: RegionRules,
    /// Record page allocations, and count moves of threads.
    pub kernel_events: bool,
    /// Count what serves the accesses of each CPU.
    pub cpu_counters: bool,
}

impl SourceOptions<'_> {
    /// Opens all available sources, including the library that reports objects.
    pub fn open(&self) -> Result<(Sources, Option<PathBuf>), AccessError> {
        let mut notes = Vec::new();
        let &Self { target, period, rate, .. } = self;
        let options = AccessOptions { target, period, rate, stacks: true };
        let accesses = options.open(self.accesses, &mut notes)?;
        notes.extend(Accesses::note_of_pace(accesses.as_ref(), period.is_some() || rate.is_some()));
        if accesses.is_none() || self.accesses == AccessSource::Counters {
            notes.push("no accesses to memory were sampled".to_owned());
        }
        // Without this PMU the counters are usually missing, too; the lab's source has its own counters.
        let counts = self.accesses == AccessSource::Counters && accesses.is_none();
        let counts = counts || matches!(accesses, Some(Accesses::Perf(_)));
        let counters = if counts { HostCounters::open(self.machine, false, &mut notes) } else { None };
        let clock = Accesses::tick_clock(accesses.as_ref());
        let (objects, library) = self.objects(&clock, &mut notes).unzip();
        let side_band = SideBand::open(target)
            .map_err(|error| notes.push(format!("processes are known by their objects only: {error}")))
            .ok();
        // A program with the library reports the names that it gives.
        let regions = Regions::new(self.regions.clone());
        let regions =
            (objects.is_none() || regions.has_rules()).then(|| RegionWatcher::new(regions, objects.is_some()));
        let (allocations, scheduling) = self.kernel_events(&mut notes);
        let cpus = self.cpu_counters.then(|| CpuCounters::open(self.machine)).transpose();
        let cpus = cpus.map_err(|error| notes.push(chain(&error))).ok().flatten();
        let sources =
            Sources { clock, objects, side_band, accesses, counters, regions, allocations, scheduling, cpus, notes };
        Ok((sources, library))
    }

    fn kernel_events(&self, notes: &mut Vec<String>) -> (Option<PageAllocations>, Option<SchedulingCounters>) {
        if !self.kernel_events {
            return (None, None);
        }
        let mut note = |error: LiveError| notes.push(chain(&error));
        (PageAllocations::open(self.target).map_err(&mut note).ok(), SchedulingCounters::open().map_err(&mut note).ok())
    }

    fn objects(&self, clock: &TickClock, notes: &mut Vec<String>) -> Option<(ObjectRings, PathBuf)> {
        let small_bytes = self.objects?;
        if *self.target != Target::Program {
            notes.push(
                "no objects were recorded: only a program that is started for the recording reports them".to_owned(),
            );
            return None;
        }
        let path = std::env::var_os("PATH");
        let program = self.command.first().and_then(|program| linux::program_file(program, path.as_deref()));
        if let Some(Ok(Some(obstacle))) = program.map(|program| obstacle(&program)) {
            // Its child processes may still report their objects.
            notes.push(format!("no objects were recorded: {obstacle}"));
        }
        let open = || {
            let library = library()?;
            let rings = rings(small_bytes, clock)?;
            let library = rings.loadable(library)?;
            Ok((rings, library))
        };
        match open() {
            Ok(objects) => Some(objects),
            Err(error) => {
                let error: ObjectsError = error;
                notes.push(format!("no objects were recorded: {}", chain(&error)));
                None
            }
        }
    }
}

fn rings(small_bytes: usize, clock: &TickClock) -> Result<ObjectRings, ObjectsError> {
    ObjectRings::create(&ObjectOptions { small_bytes, patience: FULL_RING_TIMEOUT, ..ObjectOptions::default() }, clock)
}
