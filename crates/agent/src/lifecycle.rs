//! Process and thread lifecycle events: from the kernel's records, or from /proc where those cannot be read.

use crate::agent::Candidate;
use crate::managed_processes::Managed;
use linux::Process;
use machine::{Pid, Tid};
use observe::SideBand;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use trace::{Event, Stacks, What};

/// A lifecycle event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LifecycleEvent {
    Began { pid: Pid, parent: Option<Pid> },
    ThreadBegan { pid: Pid, tid: Tid },
    ThreadEnded { pid: Pid, tid: Tid },
    Executed { pid: Pid, name: String },
}

/// The source of lifecycle events.
pub(crate) enum LifecycleSource {
    /// The kernel's records, complete from the first moment.
    Kernel { side_band: Box<SideBand>, has_skipped: bool },
    /// /proc, polled.
    Proc,
}

impl LifecycleSource {
    /// Returns the events since the last call. Scanning /proc is expensive and happens only when due.
    pub fn drain(&mut self, known: Known, is_due: bool, stacks: &mut Stacks, events: &mut Vec<LifecycleEvent>) {
        match self {
            Self::Kernel { side_band, has_skipped } => {
                let mut recorded = Vec::new();
                side_band.drain(stacks, &mut recorded);
                events.extend(recorded.into_iter().filter_map(lifecycle_event));
                if std::mem::take(has_skipped) {
                    scan_proc(known, events);
                }
            }
            Self::Proc if is_due => scan_proc(known, events),
            Self::Proc => {}
        }
    }

    /// Discards the events since the last call; the next drain finds their effects in /proc.
    pub fn skip(&mut self, stacks: &mut Stacks) {
        if let Self::Kernel { side_band, has_skipped } = self {
            side_band.drain(stacks, &mut Vec::new());
            *has_skipped = true;
        }
    }
}

/// What is known already.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub managed: &'a Managed,
    /// Processes that may become managed, when the whole system is in scope.
    pub others: Option<&'a BTreeMap<Pid, Candidate>>,
}

fn lifecycle_event(event: Event) -> Option<LifecycleEvent> {
    let Event { pid, tid, .. } = event;
    match event.what {
        What::ProcessStarted { parent } => Some(LifecycleEvent::Began { pid, parent }),
        What::ThreadStarted => Some(LifecycleEvent::ThreadBegan { pid, tid }),
        What::ThreadEnded => Some(LifecycleEvent::ThreadEnded { pid, tid }),
        What::Named { name, exec: true } => Some(LifecycleEvent::Executed { pid, name: name.to_string() }),
        _ => None,
    }
}

/// Adds events for differences between /proc and what is known.
fn scan_proc(known: Known, events: &mut Vec<LifecycleEvent>) {
    let mut unseen: Vec<Pid> = Vec::new();
    for (pid, known) in &known.managed.processes {
        let pid = *pid;
        let now = known.process.threads().unwrap_or_default();
        let ended = known.threads.keys().filter(|tid| !now.contains(**tid));
        events.extend(ended.map(|tid| LifecycleEvent::ThreadEnded { pid, tid: *tid }));
        let began = now.iter().filter(|tid| !known.threads.contains_key(tid));
        events.extend(began.map(|tid| LifecycleEvent::ThreadBegan { pid, tid }));
        // A changed name usually means an exec.
        if let Some(status) = known.process.status().ok().filter(|status| status.name != known.name) {
            events.push(LifecycleEvent::Executed { pid, name: status.name });
        }
        unseen.push(pid);
    }
    let mut seen: BTreeSet<Pid> = unseen.iter().copied().collect();
    while let Some(parent) = unseen.pop() {
        let Ok(children) = Process::open(parent).and_then(|process| process.children()) else { continue };
        for pid in children.iter().filter(|pid| seen.insert(*pid)).collect::<Vec<_>>() {
            events.push(LifecycleEvent::Began { pid, parent: Some(parent) });
            unseen.push(pid);
        }
    }
    let Some(others) = known.others else { return };
    let new = all_processes().into_iter().filter(|pid| !seen.contains(pid) && !others.contains_key(pid));
    events.extend(new.map(|pid| LifecycleEvent::Began { pid, parent: None }));
}

/// All processes of the system except this one.
pub(crate) fn all_processes() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid);
    pids.filter(|pid| pid.0 != std::process::id()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed_processes::Inherited;
    use std::process::Command;

    #[test]
    fn children_and_threads_are_seen_without_the_kernels_records() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut managed = Managed::new("0".parse().unwrap(), false);
        let own = Pid(child.id());
        assert!(managed.begin(own, false, Inherited::default()).is_some());
        let mut events = Vec::new();
        for _ in 0..1000 {
            events.clear();
            scan_proc(Known { managed: &managed, others: None }, &mut events);
            if events
                .iter()
                .any(|event| matches!(event, LifecycleEvent::Began { parent: Some(parent), .. } if *parent == own))
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let Some(LifecycleEvent::Began { pid, .. }) =
            events.iter().find(|event| matches!(event, LifecycleEvent::Began { .. }))
        else {
            panic!("{events:?}")
        };
        let grandchild = rustix::process::Pid::from_raw(pid.0.cast_signed()).unwrap();
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        events.clear();
        scan_proc(Known { managed: &managed, others: None }, &mut events);
        assert!(events.contains(&LifecycleEvent::ThreadEnded { pid: own, tid: Tid(own.0) }), "{events:?}");
    }

    #[test]
    fn all_unknown_processes_of_a_system_are_found() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let managed = Managed::new("0".parse().unwrap(), false);
        let began = LifecycleEvent::Began { pid: Pid(child.id()), parent: None };
        let seen = |others: &BTreeMap<Pid, Candidate>| {
            let mut events = Vec::new();
            scan_proc(Known { managed: &managed, others: Some(others) }, &mut events);
            events.contains(&began)
        };
        assert!(seen(&BTreeMap::new()));
        assert!(!seen(&[(Pid(child.id()), Candidate::default())].into()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
