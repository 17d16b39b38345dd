//! The state of the system that determines what the kernel refuses.

use crate::nodes::node_state::NodeState;
use crate::processes::cgroup::{Cgroups, EffectiveCpuset};
use crate::processes::process::{Pid, Process, Status};
use rustix::io::Errno;
use std::path::Path;

/// The process that was acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The caller itself.
    Caller,
    /// Another process.
    Other(Pid, Status),
    /// A process that exists but that /proc hides.
    Hidden(Pid),
    /// A process that has exited.
    Gone(Pid),
}

/// The state of the system that matters for a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemState {
    /// Its nodes.
    pub nodes: NodeState,
    /// The calling process.
    pub caller: Status,
    /// The process acted on.
    pub subject: Subject,
    /// The cpusets of the subject, from its own upwards.
    pub cpusets: Vec<EffectiveCpuset>,
}

impl SystemState {
    /// Gathers the state; nodes that cannot be read are as [`NodeState::of_hidden`] says, anything else unreadable stays
    /// empty. Needs no privileges.
    pub fn read(pid: Option<Pid>) -> Self {
        let process = Process::open(pid.unwrap_or(Pid(std::process::id())));
        let own = Process::open(Pid(std::process::id())).and_then(|own| own.status()).unwrap_or_default();
        let subject = match (pid, &process) {
            (None, _) => Subject::Caller,
            (Some(pid), Ok(process)) => {
                process.status().map_or(Subject::Gone(pid), |status| Subject::Other(pid, status))
            }
            (Some(pid), Err(_)) if exists(pid) => Subject::Hidden(pid),
            (Some(pid), Err(_)) => Subject::Gone(pid),
        };
        let cpusets = process.as_ref().map(cpusets).unwrap_or_default();
        let sys = Path::new("/sys");
        let nodes = NodeState::read(sys).unwrap_or_else(|_| NodeState::of_hidden(sys, &own.cpus, &own.nodes));
        Self { nodes, caller: own, subject, cpusets }
    }

    /// The status of the subject.
    pub fn status(&self) -> &Status {
        match &self.subject {
            Subject::Other(_, status) => status,
            Subject::Caller | Subject::Hidden(_) | Subject::Gone(_) => &self.caller,
        }
    }

    /// The outermost restricting cpuset, which is the one to change.
    pub(crate) fn outermost(&self, keeps: impl Fn(&EffectiveCpuset) -> bool) -> Option<String> {
        self.cpusets.iter().rfind(|cpuset| keeps(cpuset)).map(|cpuset| cpuset.cgroup.clone())
    }
}

/// Whether the process exists, regardless of its user and of what /proc shows. Needs no privileges.
pub fn exists(pid: Pid) -> bool {
    let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw);
    let answer = number.map(rustix::process::test_kill_process);
    matches!(answer, Some(Ok(()) | Err(Errno::PERM)))
}

fn cpusets(process: &Process) -> Vec<EffectiveCpuset> {
    let Ok(cgroups) = Cgroups::find() else { return Vec::new() };
    let Ok(own) = cgroups.of(process) else { return Vec::new() };
    let mut found: Vec<EffectiveCpuset> = Vec::new();
    for group in Path::new(&own).ancestors().filter_map(Path::to_str) {
        let cpuset = cgroups.effective_cpuset(group).ok().flatten();
        found.extend(cpuset.filter(|cpuset| found.last().is_none_or(|last| last.cgroup != cpuset.cgroup)));
    }
    found
}
