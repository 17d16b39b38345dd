//! The result of binding the threads of a process, and of following them.

use crate::migrate::{Count, Threads};
use machine::{NodeId, size};
use serde::Serialize;
use std::fmt;

/// The initial output of `nearside bind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BindReport {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// The result for its threads.
    pub threads: Threads,
}

/// The output when threads are sent to the nodes whose memory they use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BindByTraceReport {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// The result for its threads, by the node that they belong to.
    pub nodes: Vec<NodeThreads>,
    /// Threads with too few samples, which keep their CPUs.
    pub unsure: u64,
}

/// The result for the threads that belong to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeThreads {
    /// The node.
    pub node: NodeId,
    /// These threads.
    #[serde(flatten)]
    pub threads: Threads,
}

/// Later output, while the process is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum BindEvent {
    /// New threads have been bound, or could not be.
    NewThreads(Threads),
    /// Pages have followed a thread.
    PagesFollowed {
        /// The thread.
        tid: u32,
        /// The node that it left.
        from: NodeId,
        /// The node that it went to.
        to: NodeId,
        /// Pages that were moved after it.
        moved: Count,
        /// Pages that were not moved: shared with other processes, or pinned.
        stayed: Count,
    },
    /// Pages could not follow a thread.
    PagesRefused {
        /// The thread.
        tid: u32,
        /// The node that it left.
        from: NodeId,
        /// The node that it went to.
        to: NodeId,
        /// The reason.
        why: String,
    },
    /// The process has ended.
    Ended,
    /// The command was interrupted: the process keeps its CPUs.
    Interrupted,
}

impl fmt::Display for BindReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "process {} ({}): {}", self.pid, self.name, self.threads)
    }
}

impl fmt::Display for BindByTraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "process {} ({}), by the memory that its threads use:", self.pid, self.name)?;
        for NodeThreads { node, threads } in &self.nodes {
            writeln!(f, "node {node}: {threads}")?;
        }
        match self.unsure {
            0 => Ok(()),
            1 => writeln!(f, "1 thread keeps its CPUs: too few samples of it"),
            unsure => writeln!(f, "{unsure} threads keep their CPUs: too few samples of them"),
        }
    }
}

impl fmt::Display for BindEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewThreads(threads) => writeln!(f, "new: {threads}"),
            Self::PagesFollowed { tid, from, to, moved, stayed } => {
                write!(f, "thread {tid} went from node {from} to {to}: {} followed", size::rounded(moved.bytes))?;
                if stayed.pages > 0 {
                    write!(f, ", {} stayed", size::rounded(stayed.bytes))?;
                }
                writeln!(f)
            }
            Self::PagesRefused { tid, from, to, why } => {
                writeln!(f, "thread {tid} went from node {from} to {to}, and its pages stayed: {why}")
            }
            Self::Ended => writeln!(f, "the process has ended"),
            Self::Interrupted => {
                writeln!(f, "it was interrupted: the threads keep their CPUs and are no longer followed")
            }
        }
    }
}
