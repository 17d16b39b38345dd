//! What happened around the accesses: the lives of processes, threads, mappings, objects and pages.

use crate::StackId;
use linux::{Pid, Tid};
use machine::{CpuId, NodeId};
use std::sync::Arc;

/// Something that happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// The process.
    pub pid: Pid,
    /// The thread that did it, or that it is about.
    pub tid: Tid,
    /// Where that thread ran, where known.
    pub cpu: Option<CpuId>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The process began, or was there when the recording began. A fork has its parent's mappings and objects.
    ProcessStarted {
        /// Whose fork it is; none where it was there already.
        parent: Option<Pid>,
    },
    /// The thread began.
    ThreadStarted,
    /// The thread ended; the process too when it was its last.
    ThreadEnded,
    /// The thread has this name now.
    Named {
        /// At most 15 bytes.
        name: Arc<str>,
        /// The process runs another program: mappings and objects are gone.
        exec: bool,
    },
    /// Addresses have a meaning now; whatever was there before is gone.
    Mapped {
        /// The first address.
        start: u64,
        /// How long it is, bytes.
        bytes: u64,
        /// Where in the file it begins, bytes.
        offset: u64,
        /// What is mapped: a path, or the kernel's name such as `[heap]` or `[stack]`; empty for anonymous memory.
        name: Arc<str>,
        /// The file, for those that symbols may be read from.
        file: Option<FileIdentity>,
        /// Whether it can be executed.
        executable: bool,
    },
    /// Addresses have no meaning any more.
    Unmapped {
        /// The first address.
        start: u64,
        /// How long it was, bytes.
        bytes: u64,
    },
    /// What is at some addresses is at others from now on, or has another size there; whatever was there before is gone.
    Remapped {
        /// Where it was.
        old: u64,
        /// How much of that has no meaning any more, bytes; 0 where it stays.
        old_bytes: u64,
        /// The first address.
        start: u64,
        /// How long it is, bytes.
        bytes: u64,
    },
    /// An object began.
    Allocated {
        /// Its first address.
        address: u64,
        /// Its size, bytes.
        bytes: u64,
        /// The code that asked for it.
        stack: StackId,
    },
    /// Objects that are too small to be told one by one, by the code that asked for them: some of those that the process
    /// allocated until then, in whatever thread, while it ran the same program.
    Counted {
        /// How many.
        objects: u64,
        /// Their sizes together, bytes.
        bytes: u64,
        /// The code that asked for them.
        stack: StackId,
    },
    /// An object has another size, at the same place. One that moves is freed and allocated.
    Resized {
        /// Its first address.
        address: u64,
        /// Its size from now on, bytes.
        bytes: u64,
    },
    /// An object ended.
    Freed {
        /// Its first address.
        address: u64,
    },
    /// Something happened to objects that have any of these addresses, and nobody tells what: those that are known may have
    /// ended, and others may be there.
    Untold {
        /// The first address.
        start: u64,
        /// How long it is, bytes.
        bytes: u64,
    },
    /// A page lies on this node from now on.
    PagePlaced {
        /// Its first address.
        address: u64,
        /// How large it is, bytes.
        bytes: u64,
        /// Where it lies.
        node: NodeId,
        /// Where it was until now, where it was moved.
        from: Option<NodeId>,
    },
}

/// What tells a mapped file from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The build id of its linker, where it has one; up to 20 bytes.
    pub build_id: Option<Arc<[u8]>>,
    /// The inode; 0 where unknown.
    pub inode: u64,
}
