//! Running processes that can be observed.

use crate::options::system::{System, UnseenError};
use linux::{Pid, Process, ProcessError};
use observe::Processes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Opens running processes. Needs permission to see their mappings.
pub fn open(pids: &[u32], interrupted: Arc<AtomicBool>) -> Result<Processes, UnseenError> {
    open_with(pids, &[], interrupted)
}

/// Opens running processes, and of the others, which the user has not named, those that have not ended.
pub fn open_with(pids: &[u32], others: &[u32], interrupted: Arc<AtomicBool>) -> Result<Processes, UnseenError> {
    // Of a process that is named twice, each sample would be taken twice.
    let named: BTreeSet<u32> = pids.iter().copied().collect();
    let all: BTreeSet<u32> = named.iter().chain(others).copied().collect();
    let mut held = Vec::new();
    for pid in all {
        match observable(Pid(pid)) {
            Err(error) if error.is_gone && !named.contains(&pid) => {}
            process => held.push(process?),
        }
    }
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
