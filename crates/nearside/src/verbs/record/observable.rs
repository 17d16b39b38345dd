//! Running processes that can be observed.

use crate::options::system::{System, UnseenError};
use linux::{Pid, Process, ProcessError};
use observe::Processes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Opens running processes. Needs permission to see their mappings.
pub fn open(pids: &[u32], interrupted: Arc<AtomicBool>) -> Result<Processes, UnseenError> {
    // Of a process that is named twice, each sample would be taken twice.
    let pids: BTreeSet<u32> = pids.iter().copied().collect();
    let held = pids.iter().map(|&pid| observable(Pid(pid))).collect::<Result<_, _>>()?;
    Ok(Processes::new(held, interrupted))
}

/// Whether a process has ended; one that waits for its parent has, too.
pub fn has_ended(pid: Pid) -> bool {
    match Process::open(pid).and_then(|process| process.mappings()) {
        Ok(mappings) => mappings.is_empty(),
        Err(error) => matches!(error, ProcessError::Gone(_)),
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
