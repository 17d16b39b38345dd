//! A setting that is about to be changed, as a line of a journal.

use linux::{Birth, Pid, Process, Tid};
use machine::CpuSet;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A setting that is about to be changed: what it is to be again, and what it will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The CPUs that a thread may run on.
    Affinity {
        /// Which.
        thread: ThreadIdentity,
        /// What it was, or would be had nobody changed it.
        before: CpuSet,
        /// What it will be.
        after: CpuSet,
        /// When, ticks since the system began.
        at: u64,
    },
    /// A switch of the kernel.
    Switch {
        /// Its file, below /proc/sys or /sys.
        path: PathBuf,
        /// Its value.
        before: String,
        /// What it will be.
        after: String,
    },
}

/// A thread, told from any later one that gets its numbers by when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadIdentity {
    /// Its process.
    pub pid: Pid,
    /// When that began, ticks since the system did.
    pub process_started: u64,
    /// Its number.
    pub tid: Tid,
    /// When it began, ticks since the system did.
    pub started: u64,
}

impl ThreadIdentity {
    /// Of a thread that is there, and the process that started its process; nothing when it has ended. Needs no rights.
    pub fn of(pid: Pid, tid: Tid) -> Option<(Self, Pid)> {
        let process = Process::open(pid).ok()?;
        let Birth { parent, ticks: process_started } = process.birth().ok()?;
        let started = process.thread_birth(tid)?.ticks;
        Some((Self { pid, process_started, tid, started }, parent))
    }

    /// Whether it has not ended.
    pub fn is_there(&self) -> bool {
        Self::of(self.pid, self.tid).is_some_and(|(thread, _)| thread == *self)
    }
}
