//! Who is asked: what is wanted, as far as it is there.

use super::accesses::Accesses;
use super::options::RecordOptions;
use super::program;
use super::recorder::Sources;
use clap::ValueEnum;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trace::TickClock;
use trace::live::{HintFaultOptions, HintFaults, LabPmu, LiveError, Pace, PerfOptions, PerfSource, SideBand, Target};
use trace::objects::{ObjectOptions, ObjectRings, ObjectsError, library, obstacle};

/// Of the virtual PMU: one miss in so many.
const LAB_PERIOD: u64 = 1000;
/// Of the processor's own sampling: so many a second on each CPU.
const PERF_RATE: u64 = 1000;
/// A program that is ahead of the recorder waits rather than lose events: on a busy machine it may be the recorder that has
/// to wait for a CPU.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who observes accesses to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// The best that is there
    Auto,
    /// The virtual PMU of the lab
    Lab,
    /// What the processor samples itself: AMD's IBS, Intel's loads by latency and stores
    Perf,
    /// Page faults that the kernel's NUMA balancing provokes, which is switched on for it: who uses which page. Needs root
    HintFaults,
    /// Nobody: objects, processes and mappings only
    None,
}

/// What is wanted.
pub struct Wanted<'a> {
    pub source: Source,
    pub options: &'a RecordOptions,
    pub command: &'a [OsString],
    pub target: &'a Target,
}

impl Wanted<'_> {
    /// Opens all that is there, with the library that tells of objects.
    pub fn open(&self) -> Result<(Sources, Option<PathBuf>), Box<dyn Error>> {
        let mut notes = Vec::new();
        let accesses = match self.source {
            Source::Auto => self.best(&mut notes),
            Source::Lab => match LabPmu::find()? {
                None => return Err("there is no virtual PMU: this is not the lab (see `nearside lab run`)".into()),
                Some(pmu) => Some(self.lab(pmu)),
            },
            Source::Perf => Some(self.perf()?),
            Source::HintFaults => Some(self.hint_faults(true)?),
            Source::None => None,
        };
        if accesses.is_none() {
            notes.push("no accesses to memory were sampled".to_owned());
        }
        // The guest's clock stands still for microseconds; programs and the virtual PMU have a finer one in common.
        let clock = if matches!(accesses, Some(Accesses::Lab(_))) { TickClock::tsc() } else { TickClock::detect() };
        let (objects, library) = self.objects(&clock, &mut notes).unzip();
        let side_band = SideBand::open(self.target)
            .map_err(|error| notes.push(format!("processes are known by their objects only: {error}")))
            .ok();
        Ok((Sources { clock, objects, side_band, accesses, notes }, library))
    }

    /// The best that is there, and why what is better is not.
    fn best(&self, notes: &mut Vec<String>) -> Option<Accesses> {
        match LabPmu::find() {
            Ok(Some(pmu)) => return Some(self.lab(pmu)),
            Ok(None) => {}
            Err(error) => notes.push(error.to_string()),
        }
        let mut tell = |error: LiveError| notes.push(error.to_string());
        self.perf().map_err(&mut tell).or_else(|()| self.hint_faults(false).map_err(&mut tell)).ok()
    }

    fn lab(&self, mut pmu: LabPmu) -> Accesses {
        match self.options.rate {
            Some(hz) => pmu.set_rate(hz),
            None => pmu.set_period(self.options.period.unwrap_or(LAB_PERIOD)),
        }
        Accesses::Lab(pmu)
    }

    fn perf(&self) -> Result<Accesses, LiveError> {
        let RecordOptions { period, rate, .. } = *self.options;
        let pace = period.map(Pace::Period).or(rate.map(Pace::Rate)).unwrap_or(Pace::Rate(PERF_RATE));
        let options = PerfOptions { target: self.target.clone(), pace, stacks: true, ..PerfOptions::default() };
        Ok(Accesses::Perf(Box::new(PerfSource::open(&options)?)))
    }

    fn hint_faults(&self, switch_on: bool) -> Result<Accesses, LiveError> {
        let faults = HintFaults::open(&HintFaultOptions { target: self.target.clone(), switch_on })?;
        Ok(Accesses::HintFaults(Box::new(faults)))
    }

    fn objects(&self, clock: &TickClock, notes: &mut Vec<String>) -> Option<(ObjectRings, PathBuf)> {
        if self.options.no_objects {
            return None;
        }
        if *self.target != Target::Program {
            notes.push(
                "no objects were recorded: they are told from inside of a program that is started for it".to_owned(),
            );
            return None;
        }
        let path = std::env::var_os("PATH");
        let program = self.command.first().and_then(|program| program::find(program, path.as_deref()));
        if let Some(Ok(Some(obstacle))) = program.map(|program| obstacle(&program)) {
            // What it starts may still tell of its own.
            notes.push(format!("no objects were recorded: {obstacle}"));
        }
        match library().and_then(|library| Ok((self.rings(clock)?, library))) {
            Ok(objects) => Some(objects),
            Err(error) => {
                notes.push(format!("no objects were recorded: {error}"));
                None
            }
        }
    }

    fn rings(&self, clock: &TickClock) -> Result<ObjectRings, ObjectsError> {
        let small_bytes = usize::try_from(self.options.small_objects).unwrap_or(usize::MAX);
        ObjectRings::create(&ObjectOptions { small_bytes, patience: PATIENCE, ..ObjectOptions::default() }, clock)
    }
}
