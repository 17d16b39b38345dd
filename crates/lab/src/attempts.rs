//! Runs one command on a virtual machine: continues a saved boot of it, or boots it, and removes everything.

use crate::LabError;
use crate::out_folder;
use crate::qemu_files::QemuFiles;
use crate::run::{Event, Outcome, Run, check_memory, has_memory_to_save};
use crate::running::{Attempt, Failed, Origin};
use crate::saved_boot::Slot;
use crate::setup::Assets;
use crate::signals::SignalWatch;
use std::path::Path;
use std::time::Instant;

/// Boots the machine, runs the command with this process's own streams, and ends the machine. `tell` receives the
/// events of the run. Signals that ask this process to end do so by ending the run, and are ignored afterwards: see
/// [`default_signals`](crate::default_signals).
pub fn run(assets: &Assets, run: &Run, tell: &mut dyn FnMut(Event)) -> Result<Outcome, LabError> {
    check_memory(&run.shape)?;
    let attempt = Attempt { assets, run, signals: SignalWatch::start()?, started: Instant::now() };
    let result = make_attempts(&attempt, tell);
    if let Some(out) = &run.task.out {
        out_folder::make_programs_executable(Path::new(out));
    }
    result.map_err(|failed| failed.or_damage_of(assets))
}

fn make_attempts(attempt: &Attempt<'_>, tell: &mut dyn FnMut(Event)) -> Result<Outcome, LabError> {
    let Attempt { assets, run, .. } = *attempt;
    let files = QemuFiles::new(assets, run)?;
    let slot = if run.fresh_boot { None } else { Slot::new(files.key(assets, run)?) };
    let saved = slot.as_ref().and_then(|slot| Some((slot, slot.find()?)));
    let failed = match saved {
        None => None,
        Some((slot, saved)) => {
            let identity = saved.identity;
            match attempt.make(&files, Origin::Saved(saved), tell) {
                Err(Failed { may_boot: true, .. }) => {
                    slot.remove(identity);
                    // QEMU has loaded a part of the saved state into those that it shares with this process.
                    Some(QemuFiles::new(assets, run)?)
                }
                result => return result.map_err(|failed| failed.why),
            }
        }
    };
    let slot = slot.filter(|_| has_memory_to_save(&run.shape));
    attempt.make(failed.as_ref().unwrap_or(&files), Origin::Boot(slot), tell).map_err(|failed| failed.why)
}
