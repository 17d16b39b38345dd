//! The running process that a command acts on.

use crate::options::places::Places;
use crate::options::system::{System, UnseenError};
use linux::{Pid, Process, ProcessError, Status, SystemState};

/// An open process with memory, and where it may run and allocate.
pub struct Target {
    pub process: Process,
    pub status: Status,
    pub places: Places,
}

impl Target {
    /// Opens a process.
    pub fn open(pid: u32) -> Result<Self, UnseenError> {
        let pid = Pid(pid);
        let process = System::live().process(pid)?;
        let status = process.status().map_err(|error| unseen(pid, &error))?;
        Ok(Self { process, status, places: Places::new(SystemState::read(Some(pid)), false) })
    }
}

/// Explains why a process cannot be read.
pub fn unseen(pid: Pid, error: &ProcessError) -> UnseenError {
    System::live().unseen(pid, error)
}
