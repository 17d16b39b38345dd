//! The control words of guests whose machine has control hardware.

use linux::SharedWords;
use machine::CpuId;
use model::Model;
use model::control_block::{self, ControlBlock};
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Memory that the guest's root writes.
pub(crate) struct ControlWords {
    words: SharedWords,
    /// One CPU at a time lets the model obey, or an older change could overtake a newer one.
    obeying: Mutex<()>,
}

impl ControlWords {
    /// Creates them in a file for the hardware of the model.
    pub(crate) fn create(path: &Path, model: &Model) -> Result<Self, String> {
        let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let hardware = model.control().ok_or_else(|| failed(&"the machine has no control hardware"))?;
        let file = File::options().read(true).write(true).open(path).map_err(|why| failed(&why))?;
        let words = SharedWords::map(&file, control_block::BYTES).map_err(|why| failed(&why))?;
        ControlBlock::create(&words, hardware).map_err(|why| failed(&why))?;
        Ok(Self { words, obeying: Mutex::new(()) })
    }

    /// Lets the model obey a change, if there is one that the hardware accepts.
    /// The guest's words are in the order of its own numbers of the CPUs.
    pub(crate) fn follow(&self, model: &Model, numbers: &[CpuId]) {
        let _one = self.obeying.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(hardware) = model.control() else { return };
        // A guest that has overwritten the first words keeps the controls that it has.
        let Ok(block) = ControlBlock::open(&self.words, hardware) else { return };
        if let Some(mut controls) = block.unanswered().and_then(|change| block.answer(change, hardware)) {
            controls.classes = numbers.iter().map(|cpu| controls.classes[cpu.0 as usize]).collect();
            model.obey(&controls);
        }
    }
}
