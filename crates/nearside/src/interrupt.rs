//! Ctrl-C and similar signals, for work that can end early and report how far it got.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set by the first Ctrl-C, SIGTERM or hang-up of the terminal. A second one ends the process, as the first normally
/// would.
pub fn interrupted() -> Result<Arc<AtomicBool>, String> {
    on_ending_signals(|signal, set| flag::register_conditional_default(signal, set).map(drop))
}

/// Set by Ctrl-C, SIGTERM or hang-up of the terminal, which never end the process: it restores what it has changed,
/// then ends. `timeout` sends its signal twice.
pub fn asked_to_end() -> Result<Arc<AtomicBool>, String> {
    on_ending_signals(|_, _| Ok(()))
}

/// Makes exceeding the file size limit (`ulimit -f`) an error for the writer instead of the end of the process, which
/// may have state to restore. Child processes keep the default.
pub fn survive_file_limits() {
    if !linux::is_ignored(SIGXFSZ) {
        // If this fails, exceeding the limit ends the process, as by default.
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
}

fn on_ending_signals(first: impl Fn(i32, Arc<AtomicBool>) -> io::Result<()>) -> Result<Arc<AtomicBool>, String> {
    let asked = Arc::new(AtomicBool::new(false));
    // Under `nohup` the process outlives its terminal.
    let hang_up = Some(SIGHUP).filter(|&signal| !linux::is_ignored(signal));
    for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
        first(signal, asked.clone())
            .and_then(|()| flag::register(signal, asked.clone()))
            .map_err(|why| format!("cannot wait for Ctrl-C (sigaction: {why})"))?;
    }
    Ok(asked)
}
