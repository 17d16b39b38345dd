//! Runs one command on a virtual machine: continues a saved boot of it, or boots it, and removes everything.

use crate::LabError;
use crate::out_folder;
use crate::passed_files::memory;
use crate::qemu_files::QemuFiles;
use crate::run::{Event, Outcome, Run, Stage, check_memory};
use crate::running::{Attempt, Origin};
use crate::saved_boot::Slot;
use crate::setup::Assets;
use crate::signals::watched_signals;
use linux::SharedWords;
use model::pmu;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Boots the machine, runs the command with this process's own streams, and ends the machine. `tell` receives the
/// events of the run. Signals that ask this process to end do so by ending the run, and are ignored afterwards: see
/// [`default_signals`](crate::default_signals).
pub fn run(assets: &Assets, run: &Run, tell: &mut dyn FnMut(Event)) -> Result<Outcome, LabError> {
    check_memory(&run.shape)?;
    // The second ones are for a boot after a saved one could not be continued: no signal is missed in between.
    let (signals, spare) = (watched_signals()?, watched_signals()?);
    let shared = memory("nearside-pmu", pmu::BYTES, &[])?;
    let words = SharedWords::map(&shared, pmu::BYTES).map_err(LabError::host("map the virtual PMU"))?;
    let words = Arc::new(words);
    let files = QemuFiles::new(assets, run, shared)?;
    let slot = if run.fresh_boot { None } else { Slot::new(files.key(assets, run)?) };
    let saved = slot.as_ref().and_then(Slot::find);
    let started = Instant::now();
    let attempt = Attempt { assets, run, files: &files, words: &words, started };
    let result = match saved {
        None => attempt.make(Origin::Boot(slot), signals, tell),
        Some(saved) => match attempt.make(Origin::Saved(&saved), signals, tell) {
            Err((_, Stage::Continuing)) => {
                saved.remove();
                attempt.make(Origin::Boot(slot), spare, tell)
            }
            result => result,
        },
    };
    if let Some(out) = &run.task.out {
        out_folder::make_programs_executable(Path::new(out));
    }
    result.map_err(|(failed, _)| failed.or_damage_of(assets))
}
