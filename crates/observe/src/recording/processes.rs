//! Running processes that are recorded.

use super::recorder::Followed;
use linux::{Pid, Process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest delay before Ctrl-C takes effect.
const PATIENCE: Duration = Duration::from_millis(20);

/// Running processes, held open.
pub struct Processes {
    held: Vec<Process>,
    interrupted: Arc<AtomicBool>,
}

impl Processes {
    /// Follows these until they end, or `interrupted` is set.
    pub fn new(held: Vec<Process>, interrupted: Arc<AtomicBool>) -> Self {
        Self { held, interrupted }
    }

    /// Their ids.
    pub fn pids(&self) -> Vec<Pid> {
        self.held.iter().map(Process::pid).collect()
    }
}

impl Followed for Processes {
    fn is_over(&mut self) -> bool {
        // When a process's first thread has ended, others may still run.
        let goes_on = |process: &Process| process.status().is_ok_and(|status| status.has_memory || status.threads > 1);
        self.held.retain(goes_on);
        self.held.is_empty() || self.interrupted.load(Relaxed)
    }

    fn wait(&mut self, patience: Duration) {
        let end = Instant::now() + patience;
        while !self.interrupted.load(Relaxed) && Instant::now() < end {
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(PATIENCE));
        }
    }
}
