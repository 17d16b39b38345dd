//! Ctrl-C and its like, for work that can end early and say how far it got.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set by the first Ctrl-C, SIGTERM, or the end of the terminal. A second one ends the process, as the first one does elsewhere.
pub fn interrupted() -> Result<Arc<AtomicBool>, String> {
    on_ending_signals(|signal, set| flag::register_conditional_default(signal, set).map(drop))
}

/// Set by Ctrl-C, SIGTERM, or the end of the terminal, which never end the process: it has something to put back, and ends then. `timeout` sends
/// its signal twice.
pub fn asked_to_end() -> Result<Arc<AtomicBool>, String> {
    on_ending_signals(|_, _| Ok(()))
}

/// Has a file that may not grow any more (`ulimit -f`) be an error to who writes it, and not the end of the process: it may
/// have something to put back. What it starts is ended by that as ever.
pub fn survive_file_limits() {
    if !linux::is_ignored(SIGXFSZ) {
        // Without it, such a file is the end of the process, as before.
        let _ = flag::register(SIGXFSZ, Arc::default());
    }
}

fn on_ending_signals(first: impl Fn(i32, Arc<AtomicBool>) -> io::Result<()>) -> Result<Arc<AtomicBool>, String> {
    let asked = Arc::new(AtomicBool::new(false));
    // What was started with `nohup` goes on without its terminal.
    let hang_up = Some(SIGHUP).filter(|&signal| !linux::is_ignored(signal));
    for signal in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
        first(signal, asked.clone())
            .and_then(|()| flag::register(signal, asked.clone()))
            .map_err(|why| format!("cannot wait for Ctrl-C (sigaction: {why})"))?;
    }
    Ok(asked)
}
