//! What is already running when a recording begins, as events.

use linux::{Mapping, Pid, Process, ProcessError, Tid, thread_stack};
use std::fs;
use trace::{FileIdentity, What};

/// All running processes.
pub(super) fn all_pids() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid).collect()
}

/// Passes the threads, names and mappings of a process to `take`. Fails if its mappings may not be read, or if it has
/// ended.
pub(super) fn events_of(pid: Pid, mut take: impl FnMut(Tid, What)) -> Result<(), ProcessError> {
    let process = Process::open(pid)?;
    let first = Tid(pid.0);
    take(first, What::ProcessStarted { parent: None });
    let threads = process.threads()?;
    for tid in threads.iter() {
        // Threads that have ended meanwhile are skipped.
        let Some(status) = process.thread_status(tid)? else { continue };
        if tid != first {
            take(tid, What::ThreadStarted);
        }
        take(tid, What::Named { name: status.name.into(), exec: false });
    }
    let mappings = process.mappings()?;
    for mapping in &mappings {
        take(first, mapped(mapping));
    }
    for tid in threads.iter().filter(|tid| *tid != first) {
        if let Some(range) = thread_stack(&process, tid, &mappings) {
            // Events of one thread keep their order: after the mappings, one of which is this memory.
            take(first, stack_of(tid, range.start, range.end - range.start));
        }
    }
    Ok(())
}

/// A mapping that is the stack of a thread.
pub(super) fn stack_of(tid: Tid, start: u64, bytes: u64) -> What {
    What::Mapped { start, bytes, offset: 0, name: format!("[stack:{tid}]").into(), file: None, executable: false }
}

fn mapped(mapping: &Mapping) -> What {
    let Mapping { range, offset, inode, name, execute, .. } = mapping;
    What::Mapped {
        start: range.start,
        bytes: range.end - range.start,
        offset: *offset,
        name: name.as_str().into(),
        file: FileIdentity::of_mapping(name, None, *inode),
        executable: *execute,
    }
}
