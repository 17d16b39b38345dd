//! Objects, threads and processes that accesses belong to.

use crate::ids::{ChainId, FileId, ProcessId, SiteId, ThreadId};
use machine::{CpuId, NodeId, Pid, Tid};
use serde::Serialize;
use std::sync::Arc;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ObjectKind {
    /// Allocated by the program.
    Heap,
    /// A variable of a program or library.
    Static,
    /// A range that the program named.
    Region,
    /// A mapped file that is neither a program nor a library.
    MappedFile,
    /// A part of a program or library that is not a variable: `.plt`.
    BinarySection,
    /// All stacks of a process.
    Stacks,
    /// Not an object: memory without a known object, by its mapping if known.
    Unknown,
}

/// One instance of an object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its process. What several processes map is one object in each.
    pub process: ProcessId,
    /// Its kind.
    pub kind: ObjectKind,
    /// The region, variable, section, file or mapping; none for allocated objects, which their site names.
    pub name: Option<Arc<str>>,
    /// The file that contains it or is mapped.
    pub file: Option<FileId>,
    /// Its first address; 0 for all stacks of a process.
    pub start: u64,
    /// Its largest size, bytes; 0 for all stacks of a process, and for unknown memory without a known mapping.
    pub bytes: u64,
    /// When it began, ns; if it is not allocated, its first access.
    pub from_ns: u64,
    /// When it ended, ns; none if it still lives.
    pub until_ns: Option<u64>,
    /// The code that allocated it; [`ChainId::UNKNOWN`] for others.
    pub site: ChainId,
    /// The thread that allocated it.
    pub allocated_by: Option<ThreadId>,
    /// The CPU that this thread ran on then.
    pub allocated_on: Option<CpuId>,
    /// Whether the program announced it: it may be inside of another object, which has its range again when it ends.
    pub announced: bool,
}

/// A site's allocations that are too small to be recorded one by one: their addresses are not recorded, so no access is
/// attributed to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallObjects {
    /// The code that allocated them.
    pub site: SiteId,
    /// A call chain of that code, for some of them.
    pub chain: ChainId,
    /// Number of objects.
    pub objects: u64,
    /// Their total size, bytes.
    pub bytes: u64,
}

/// A thread, from its start to its end.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// Its TID, which the kernel may use for other threads before and after.
    pub tid: Tid,
    /// Its last name.
    pub name: Option<Arc<str>>,
    /// When it began, ns, if observed.
    pub from_ns: Option<u64>,
    /// When it ended, ns, if observed.
    pub until_ns: Option<u64>,
}

/// A process, from its start to its end. It stays the same when it executes another program.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its PID, which the kernel may use for other processes before and after.
    pub pid: Pid,
    /// The process that forked it.
    pub parent: Option<ProcessId>,
    /// Its last name: that of its program, or what its first thread set.
    pub name: Option<Arc<str>>,
    /// When it began, ns, if observed.
    pub from_ns: Option<u64>,
    /// When it ended, ns, if observed.
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
    /// The node from then on.
    pub node: NodeId,
    /// The node before, if it was moved.
    pub from: Option<NodeId>,
}
