//! Ctrl-C, for work that can end early and say how far it got.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set by the first Ctrl-C or SIGTERM. A second one ends the process, as the first one does elsewhere.
pub fn interrupted() -> Result<Arc<AtomicBool>, String> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, interrupted.clone())
            .and_then(|_| flag::register(signal, interrupted.clone()))
            .map_err(|why| format!("cannot wait for Ctrl-C (sigaction: {why})"))?;
    }
    Ok(interrupted)
}
