//! A setting that is about to be changed, as a line of the journal.

use linux::{Pid, Process, StartTime, Tid};
use machine::CpuSet;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A setting that is about to be changed, with its old and new values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The CPUs that a thread may run on.
    Affinity {
        /// The thread.
        thread: ThreadIdentity,
        /// The value to restore: what it was, or would be without the agent's changes.
        before: CpuSet,
        /// The new value.
        after: CpuSet,
        /// Time of the change, in clock ticks since boot.
        at: u64,
    },
    /// A switch of the kernel.
    Switch {
        /// Its file, below /proc/sys or /sys.
        path: PathBuf,
        /// The old value.
        before: String,
        /// The new value.
        after: String,
    },
    /// A control group that is made for a grant.
    Group {
        /// Its folder.
        path: PathBuf,
        /// The folder of the group that its processes go to.
        back: PathBuf,
    },
    /// A file that a grant changes: the CPUs of an interrupt, or the CPU time of a control group.
    Setting {
        /// The file.
        path: PathBuf,
        /// The old value.
        before: String,
        /// The new value.
        after: String,
    },
}

/// A thread. Start times distinguish it from a later one with the same PID and TID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadIdentity {
    /// Its process.
    pub pid: Pid,
    /// Start time of the process, in clock ticks since boot.
    pub process_started: u64,
    /// The thread's TID.
    pub tid: Tid,
    /// Start time of the thread, in clock ticks since boot.
    pub started: u64,
}

impl ThreadIdentity {
    /// Identifies a thread, and its process's parent; none if it has ended. Needs no privileges.
    pub fn from_proc(pid: Pid, tid: Tid) -> Option<(Self, Pid)> {
        let process = Process::open(pid).ok()?;
        let StartTime { parent, ticks: process_started } = process.start_time().ok()?;
        let started = process.thread_start_time(tid)?.ticks;
        Some((Self { pid, process_started, tid, started }, parent))
    }

    /// Whether it still exists.
    pub fn is_there(&self) -> bool {
        Self::from_proc(self.pid, self.tid).is_some_and(|(thread, _)| thread == *self)
    }
}
