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

/// All that it tells of threads that go to the nodes whose memory they use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BindByTraceReport {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// What came of its threads, by the node that they belong to.
    pub nodes: Vec<NodeThreads>,
    /// Threads that too few samples are of: they keep their CPUs.
    pub unsure: u64,
}

/// What came of the threads that belong to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeThreads {
    /// The node.
    pub node: NodeId,
    /// They.
    #[serde(flatten)]
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

impl fmt::Display for BindByTraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "process {} ({}), by the memory that its threads use:", self.pid, self.name)?;
        for NodeThreads { node, threads } in &self.nodes {
            writeln!(f, "node {node}: {threads}")?;
        }
        match self.unsure {
            0 => Ok(()),
            1 => writeln!(f, "1 thread keeps its CPUs: too few samples are of it"),
            unsure => writeln!(f, "{unsure} threads keep their CPUs: too few samples are of them"),
        }
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
