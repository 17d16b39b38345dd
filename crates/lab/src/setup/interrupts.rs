//! Ctrl-C during setup: it ends the program being run, and setup then removes its scratch folder and exits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::SetupError;

/// While this exists, SIGINT is only noted; afterwards it ends the process again.
pub struct Interrupts {
    seen: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Interrupts {
    pub fn noted() -> Result<Interrupts, SetupError> {
        let (seen, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let register = || -> io::Result<()> {
            flag::register(SIGINT, seen.clone())?;
            flag::register_conditional_default(SIGINT, ended.clone())?;
            Ok(())
        };
        register().map_err(SetupError::Signal)?;
        Ok(Interrupts { seen, ended })
    }

    pub fn check(&self) -> Result<(), SetupError> {
        if self.seen.load(Ordering::SeqCst) { Err(SetupError::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}
