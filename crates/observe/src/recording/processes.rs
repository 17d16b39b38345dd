//! Running processes that are recorded.

use super::recorder::Followed;
use linux::{Pid, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest delay before Ctrl-C takes effect.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits up to this long, less if the file can be read or the flag is set.
pub fn wait_until_set(flag: &AtomicBool, news: Option<BorrowedFd<'_>>, patience: Duration) {
    let end = Instant::now() + patience;
    let mut polled: Vec<PollFd<'_>> = news.iter().map(|news| PollFd::new(news, PollFlags::IN)).collect();
    while !flag.load(Relaxed) && Instant::now() < end {
        let slice = end.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
        let slice = Timespec::try_from(slice).unwrap_or_default();
        if poll(&mut polled, Some(&slice)).is_ok_and(|ready| ready > 0) {
            break;
        }
    }
}

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

    fn wait_for(&mut self, news: Option<BorrowedFd<'_>>, patience: Duration) {
        wait_until_set(&self.interrupted, news, patience);
    }
}
