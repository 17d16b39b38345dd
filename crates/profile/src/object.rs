//! Objects, threads and processes: what accesses belong to.

use crate::ids::{ChainId, FileId, ProcessId, SiteId, ThreadId};
use linux::{Pid, Tid};
use machine::{CpuId, NodeId};
use serde::Serialize;
use std::sync::Arc;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// Allocated by the program.
    Heap,
    /// A variable of a program or library.
    Static,
    /// A mapped file that is no program or library.
    MappedFile,
    /// A part of a program or library that is no variable: `.plt`.
    BinarySection,
    /// All stacks of a process.
    Stacks,
    /// No object: memory that nothing known lay at, by the mapping around it, where that is known.
    Unknown,
}

/// One instance of an object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Whose it is. What several processes map is one object in each.
    pub process: ProcessId,
    /// What it is.
    pub kind: ObjectKind,
    /// The variable, section, file or mapping; none of what was allocated: its site names it.
    pub name: Option<Arc<str>>,
    /// The file that it is in or that is mapped.
    pub file: Option<FileId>,
    /// Its first address; 0 of all stacks of a process.
    pub start: u64,
    /// The most bytes that it had; 0 of all stacks of a process, and of what is unknown where no mapping is known.
    pub bytes: u64,
    /// When it began, ns; of what is not allocated the first access.
    pub from_ns: u64,
    /// When it ended, ns; none while it lives.
    pub until_ns: Option<u64>,
    /// The code that allocated it; [`ChainId::UNKNOWN`] for others.
    pub site: ChainId,
    /// The thread that allocated it.
    pub allocated_by: Option<ThreadId>,
    /// Where that thread ran then.
    pub allocated_on: Option<CpuId>,
}

/// What a site allocated that is too small to be told one by one: nothing tells where these are, so no access is to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallObjects {
    /// The code that allocated them.
    pub site: SiteId,
    /// How that code was called, for some of them.
    pub chain: ChainId,
    /// How many.
    pub objects: u64,
    /// Their sizes together.
    pub bytes: u64,
}

/// A thread, from its start to its end.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// Its number, which the kernel may have given to others before and after.
    pub tid: Tid,
    /// The last name that it had.
    pub name: Option<Arc<str>>,
    /// When it began, ns, where that was seen.
    pub from_ns: Option<u64>,
    /// When it ended, ns, where that was seen.
    pub until_ns: Option<u64>,
}

/// A process, from its start to its end. One that runs another program stays the same.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number, which the kernel may have given to others before and after.
    pub pid: Pid,
    /// Whose fork it is.
    pub parent: Option<ProcessId>,
    /// The last name that it had: that of its program, or what its first thread called itself.
    pub name: Option<Arc<str>>,
    /// When it began, ns, where that was seen.
    pub from_ns: Option<u64>,
    /// When it ended, ns, where that was seen.
    pub until_ns: Option<u64>,
}

/// A page that was placed or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlacement {
    /// When, ns.
    pub time_ns: u64,
    /// The process.
    pub process: ProcessId,
    /// Its first address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Where it lies from then on.
    pub node: NodeId,
    /// Where it was, if it was moved.
    pub from: Option<NodeId>,
}
