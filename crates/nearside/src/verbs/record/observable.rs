//! Running processes that can be observed.

use crate::options::policy::note;
use crate::options::process_name::Named;
use crate::options::system::{System, UnseenError};
use linux::{Pid, Process, ProcessError};
use observe::Processes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Opens running processes and their current descendants; the kernel reports later ones. Needs permission to see the
/// mappings of those that are named. Descendants that cannot be observed are left out, with a note.
pub fn open(given: &[Named], interrupted: Arc<AtomicBool>, quiet: bool) -> Result<Processes, UnseenError> {
    let mut held = named(given)?;
    for pid in descendants(&held.iter().map(|process| process.pid().0).collect()) {
        match observable(Pid(pid)) {
            Ok(process) => held.push(process),
            Err(error) if error.is_gone || quiet => {}
            Err(error) => note(&format!("left out: {error}")),
        }
    }
    Ok(Processes::new(held, interrupted))
}

/// Opens running processes, each once. Of those of a name, the ones that have ended meanwhile are left out, unless all have.
pub fn named(given: &[Named]) -> Result<Vec<Process>, UnseenError> {
    let mut held = BTreeMap::new();
    for named in given {
        match named {
            Named::Number(pid) => drop(held.insert(*pid, observable(Pid(*pid))?)),
            Named::Name(pids) => {
                let (mut is_any, mut gone) = (false, None);
                for pid in pids {
                    match observable(Pid(*pid)) {
                        Err(error) if error.is_gone => gone = Some(error),
                        process => {
                            is_any = true;
                            held.insert(*pid, process?);
                        }
                    }
                }
                gone.filter(|_| !is_any).map_or(Ok(()), Err)?;
            }
        }
    }
    Ok(held.into_values().collect())
}

/// The descendants of these processes, without this process: it would wait for its own end.
fn descendants(of: &BTreeSet<u32>) -> BTreeSet<u32> {
    let (mut seen, mut left) = (of.clone(), Vec::from_iter(of.clone()));
    seen.insert(std::process::id());
    while let Some(pid) = left.pop() {
        let children = Process::open(Pid(pid)).and_then(|process| process.children()).unwrap_or_default();
        left.extend(children.iter().map(|pid| pid.0).filter(|pid| seen.insert(*pid)));
    }
    seen.remove(&std::process::id());
    seen.retain(|pid| !of.contains(pid));
    seen
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn children_are_found_and_what_has_ended_is_left_out() {
        let mut parent = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let of = BTreeSet::from([parent.id()]);
        let child = (0..500).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            descendants(&of).into_iter().next()
        });
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let of_name = named(&[Named::Name(vec![ended.id(), parent.id()])]).unwrap();
        let held: Vec<u32> = of_name.iter().map(|process| process.pid().0).collect();
        let own = descendants(&BTreeSet::from([rustix::process::getppid().unwrap().as_raw_pid().cast_unsigned()]));
        let child = rustix::process::Pid::from_raw(child.unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        parent.wait().unwrap();
        assert_eq!(held, [parent.id()]);
        assert!(!own.contains(&std::process::id()), "it would wait for its own end");
        for gone in [Named::Name(vec![ended.id()]), Named::Number(ended.id())] {
            assert!(named(&[gone]).unwrap_err().is_gone);
        }
    }
}
