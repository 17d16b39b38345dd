//! What came of giving the threads of a process their CPUs, and of following them.

use crate::migrate::{Count, Threads};
use crate::number::bytes;
use machine::NodeId;
use serde::Serialize;
use std::fmt;

/// All that `nearside bind` tells at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BindReport {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// What came of its threads.
    pub threads: Threads,
}

/// What it tells later, while it follows the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BindEvent {
    /// Threads that began later have got their CPUs, or not.
    NewThreads(Threads),
    /// Pages have followed a thread.
    PagesFollowed {
        /// The thread.
        tid: u32,
        /// The node that it left.
        from: NodeId,
        /// The node that it went to.
        to: NodeId,
        /// Pages that went after it.
        moved: Count,
        /// Pages that stayed: shared with other processes, or held.
        stayed: Count,
    },
    /// The process has ended.
    Ended,
    /// It was told to stop: the process keeps its CPUs.
    Interrupted,
}

impl fmt::Display for BindReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "process {} ({}): {}", self.pid, self.name, self.threads)
    }
}

impl fmt::Display for BindEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewThreads(threads) => writeln!(f, "new: {threads}"),
            Self::PagesFollowed { tid, from, to, moved, stayed } => {
                write!(f, "thread {tid} went from node {from} to {to}: {} followed", bytes(moved.bytes))?;
                if stayed.pages > 0 {
                    write!(f, ", {} stayed", bytes(stayed.bytes))?;
                }
                writeln!(f)
            }
            Self::Ended => writeln!(f, "the process has ended"),
            Self::Interrupted => {
                writeln!(f, "it was interrupted: the threads keep their CPUs, and nothing follows them any more")
            }
        }
    }
}
