//! Process and thread lifecycle events: from the kernel's records, or from /proc where those cannot be read.

use crate::managed_processes::Managed;
use linux::Process;
use machine::{Pid, Tid};
use observe::SideBand;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
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
    Kernel { side_band: Box<SideBand>, has_skipped: bool, lost: u64 },
    /// /proc, polled.
    Proc,
}

impl LifecycleSource {
    /// Returns the events since the last call, of a whole system or of the managed processes and their children.
    /// Scanning /proc is expensive and happens only when due.
    pub fn drain(
        &mut self,
        managed: &Managed,
        whole_system: bool,
        is_due: bool,
        stacks: &mut Stacks,
    ) -> Vec<LifecycleEvent> {
        let mut events = Vec::new();
        match self {
            Self::Kernel { side_band, has_skipped, lost } => {
                let mut recorded = Vec::new();
                side_band.drain(stacks, &mut recorded);
                events.extend(recorded.into_iter().filter_map(lifecycle_event));
                // While pages are moved, a program may start more processes than a ring has room for.
                let has_lost = std::mem::replace(lost, side_band.records_lost()) != *lost;
                if std::mem::take(has_skipped) {
                    scan_proc(managed, whole_system, &mut events);
                } else if has_lost {
                    let mut found = Vec::new();
                    scan_proc(managed, whole_system, &mut found);
                    // A process may also give itself another name, which the kernel's records do not show here.
                    events.extend(found.into_iter().filter(|event| !matches!(event, LifecycleEvent::Executed { .. })));
                }
            }
            Self::Proc if is_due => scan_proc(managed, whole_system, &mut events),
            Self::Proc => {}
        }
        events
    }

    /// A file that can be read when there are events; none where /proc is polled.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Kernel { side_band, .. } => side_band.news(),
            Self::Proc => None,
        }
    }

    /// Discards the events since the last call; the next drain finds their effects in /proc.
    pub fn skip(&mut self, stacks: &mut Stacks) {
        if let Self::Kernel { side_band, has_skipped, .. } = self {
            side_band.drain(stacks, &mut Vec::new());
            *has_skipped = true;
        }
    }
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
fn scan_proc(managed: &Managed, whole_system: bool, events: &mut Vec<LifecycleEvent>) {
    let mut unseen: Vec<Pid> = Vec::new();
    for (pid, known) in managed.iter() {
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
    if whole_system {
        let new = all_processes().into_iter().filter(|pid| !seen.contains(pid) && !managed.is_candidate(*pid));
        events.extend(new.map(|pid| LifecycleEvent::Began { pid, parent: None }));
    }
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
    use crate::managed_process::Inherited;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn children_and_threads_are_seen_without_the_kernels_records() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut managed = Managed::new("0".parse().unwrap(), false);
        let own = Pid(child.id());
        assert!(managed.begin(own, false, Inherited::default()).is_some());
        let mut events = Vec::new();
        for _ in 0..1000 {
            events.clear();
            scan_proc(&managed, false, &mut events);
            if events
                .iter()
                .any(|event| matches!(event, LifecycleEvent::Began { parent: Some(parent), .. } if *parent == own))
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
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
        scan_proc(&managed, false, &mut events);
        assert!(events.contains(&LifecycleEvent::ThreadEnded { pid: own, tid: Tid(own.0) }), "{events:?}");
    }

    #[test]
    fn all_unknown_processes_of_a_system_are_found() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut managed = Managed::new("0".parse().unwrap(), false);
        let began = LifecycleEvent::Began { pid: Pid(child.id()), parent: None };
        let is_new = |managed: &Managed| {
            let mut events = Vec::new();
            scan_proc(managed, true, &mut events);
            events.contains(&began)
        };
        assert!(is_new(&managed));
        managed.add_candidate(Pid(child.id()), Duration::ZERO);
        assert!(!is_new(&managed));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
