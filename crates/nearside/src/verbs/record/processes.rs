//! Running processes that are recorded.

use super::recorder::Followed;
use crate::options::system::{System, UnseenError};
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
    /// Opens them. Needs permission to see their mappings.
    pub fn open(pids: &[u32], interrupted: Arc<AtomicBool>) -> Result<Self, UnseenError> {
        let held = pids.iter().map(|&pid| observable(Pid(pid))).collect::<Result<_, _>>()?;
        Ok(Self { held, interrupted })
    }

    pub fn pids(&self) -> Vec<Pid> {
        self.held.iter().map(Process::pid).collect()
    }
}

/// A process that can be observed: it has memory, its mappings may be read, and the id is not that of one of its other
/// threads, whose accesses the kernel reports under the process's id.
pub fn observable(pid: Pid) -> Result<Process, UnseenError> {
    let system = System::live();
    let process = system.process(pid)?;
    let status = process.status().map_err(|error| system.unseen(pid, &error))?;
    if let Some(of) = status.process.filter(|of| *of != pid) {
        let why = format!("{pid} is a thread of process {of}, and only whole processes are observed: give {of}");
        return Err(UnseenError { pid, why, is_gone: false });
    }
    process.mappings().map_err(|error| system.unseen(pid, &error))?;
    Ok(process)
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
