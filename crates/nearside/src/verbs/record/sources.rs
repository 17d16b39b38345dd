//! Opens the requested sources, as far as they are available.

use super::options::{RecordOptions, note_of_pace};
use super::program;
use super::recorder::Sources;
use machine::{Machine, chain};
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trace::TickClock;
use trace::live::{AccessOptions, Accesses, HostCounters, SideBand, Target};
use trace::objects::{ObjectOptions, ObjectRings, ObjectsError, library, obstacle};

/// A program that fills its ring waits rather than lose events: on a busy machine the recorder itself may have to wait
/// for a CPU.
const PATIENCE: Duration = Duration::from_secs(1);

/// The requested sources.
pub struct Wanted<'a> {
    pub options: &'a RecordOptions,
    pub command: &'a [OsString],
    pub target: &'a Target,
    pub machine: &'a Machine,
}

impl Wanted<'_> {
    /// Opens all available sources, including the library that reports objects.
    pub fn open(&self) -> Result<(Sources, Option<PathBuf>), Box<dyn Error>> {
        let mut notes = Vec::new();
        let RecordOptions { source, period, rate, .. } = *self.options;
        let options = AccessOptions { target: self.target, period, rate, stacks: true };
        let accesses = options.open(source.into(), &mut notes)?;
        notes.extend(note_of_pace(accesses.as_ref(), self.options.has_pace()));
        if accesses.is_none() {
            notes.push("no accesses to memory were sampled".to_owned());
        }
        // Without this PMU the counters are usually missing, too; the lab's source has its own counters.
        let is_perf = matches!(accesses, Some(Accesses::Perf(_)));
        let counters = if is_perf { HostCounters::open(self.machine, false, &mut notes) } else { None };
        let clock = Accesses::tick_clock(accesses.as_ref());
        let (objects, library) = self.objects(&clock, &mut notes).unzip();
        let side_band = SideBand::open(self.target)
            .map_err(|error| notes.push(format!("processes are known by their objects only: {error}")))
            .ok();
        Ok((Sources { clock, objects, side_band, accesses, counters, notes }, library))
    }

    fn objects(&self, clock: &TickClock, notes: &mut Vec<String>) -> Option<(ObjectRings, PathBuf)> {
        if self.options.no_objects {
            return None;
        }
        if *self.target != Target::Program {
            notes.push(
                "no objects were recorded: only a program that is started for the recording reports them".to_owned(),
            );
            return None;
        }
        let path = std::env::var_os("PATH");
        let program = self.command.first().and_then(|program| program::find(program, path.as_deref()));
        if let Some(Ok(Some(obstacle))) = program.map(|program| obstacle(&program)) {
            // Its child processes may still report their objects.
            notes.push(format!("no objects were recorded: {obstacle}"));
        }
        match library().and_then(|library| Ok((self.rings(clock)?, library))) {
            Ok(objects) => Some(objects),
            Err(error) => {
                notes.push(format!("no objects were recorded: {}", chain(&error)));
                None
            }
        }
    }

    fn rings(&self, clock: &TickClock) -> Result<ObjectRings, ObjectsError> {
        let small_bytes = usize::try_from(self.options.small_objects).unwrap_or(usize::MAX);
        ObjectRings::create(&ObjectOptions { small_bytes, patience: PATIENCE, ..ObjectOptions::default() }, clock)
    }
}
