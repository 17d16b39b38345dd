//! Processes and threads as they come and go: from the kernel's records, or where those may not be read from /proc.

use crate::managed::Managed;
use linux::Process;
use machine::{Pid, Tid};
use std::collections::BTreeSet;
use trace::live::SideBand;
use trace::{Event, Stacks, What};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Began { pid: Pid, parent: Option<Pid> },
    ThreadBegan { pid: Pid, tid: Tid },
    ThreadEnded { pid: Pid, tid: Tid },
    Executed { pid: Pid, name: String },
}

/// Whoever tells of it.
pub(crate) enum Lives {
    /// The kernel's records, from the first moment.
    Told(Box<SideBand>),
    /// /proc, as often as it is looked at.
    Looked,
}

impl Lives {
    /// What happened since the last time. Looking at /proc is dear, and only done where it is due.
    pub fn drain(&mut self, managed: &Managed, is_due: bool, stacks: &mut Stacks, lives: &mut Vec<Life>) {
        match self {
            Self::Told(side_band) => {
                let mut events = Vec::new();
                side_band.drain(stacks, &mut events);
                lives.extend(events.into_iter().filter_map(life));
            }
            Self::Looked if is_due => look(managed, lives),
            Self::Looked => {}
        }
    }
}

fn life(event: Event) -> Option<Life> {
    let Event { pid, tid, .. } = event;
    match event.what {
        What::ProcessStarted { parent } => Some(Life::Began { pid, parent }),
        What::ThreadStarted => Some(Life::ThreadBegan { pid, tid }),
        What::ThreadEnded => Some(Life::ThreadEnded { pid, tid }),
        What::Named { name, exec: true } => Some(Life::Executed { pid, name: name.to_string() }),
        _ => None,
    }
}

/// What is other than known.
fn look(managed: &Managed, lives: &mut Vec<Life>) {
    let mut unseen: Vec<Pid> = Vec::new();
    for (pid, known) in &managed.processes {
        let pid = *pid;
        let now = known.process.threads().unwrap_or_default();
        let ended = known.threads.keys().filter(|tid| !now.contains(**tid));
        lives.extend(ended.map(|tid| Life::ThreadEnded { pid, tid: *tid }));
        let began = now.iter().filter(|tid| !known.threads.contains_key(tid));
        lives.extend(began.map(|tid| Life::ThreadBegan { pid, tid }));
        // Names tell of programs that are executed, mostly.
        if let Some(status) = known.process.status().ok().filter(|status| status.name != known.name) {
            lives.push(Life::Executed { pid, name: status.name });
        }
        unseen.push(pid);
    }
    let mut seen: BTreeSet<Pid> = unseen.iter().copied().collect();
    while let Some(parent) = unseen.pop() {
        let Ok(children) = Process::open(parent).and_then(|process| process.children()) else { continue };
        for pid in children.iter().filter(|pid| seen.insert(*pid)).collect::<Vec<_>>() {
            lives.push(Life::Began { pid, parent: Some(parent) });
            unseen.push(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::Inherited;
    use std::process::Command;

    #[test]
    fn children_and_threads_are_seen_without_the_kernels_records() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let mut managed = Managed::new("0".parse().unwrap(), false);
        let own = Pid(child.id());
        assert!(managed.begin(own, false, Inherited::default()).is_some());
        let mut lives = Vec::new();
        for _ in 0..1000 {
            lives.clear();
            look(&managed, &mut lives);
            if lives.iter().any(|life| matches!(life, Life::Began { parent: Some(parent), .. } if *parent == own)) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let Some(Life::Began { pid, .. }) = lives.iter().find(|life| matches!(life, Life::Began { .. })) else {
            panic!("{lives:?}")
        };
        let grandchild = rustix::process::Pid::from_raw(pid.0.cast_signed()).unwrap();
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        lives.clear();
        look(&managed, &mut lives);
        assert!(lives.contains(&Life::ThreadEnded { pid: own, tid: Tid(own.0) }), "{lives:?}");
    }
}
