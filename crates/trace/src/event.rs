//! Events around the accesses: the lifecycles of processes, threads, mappings, objects and pages.

use crate::StackId;
use machine::{CpuId, NodeId, Pid, Tid};
use std::sync::Arc;

/// An event of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time, `CLOCK_MONOTONIC`, in ns.
    pub time_ns: u64,
    /// The process.
    pub pid: Pid,
    /// The thread that caused the event, or that it concerns.
    pub tid: Tid,
    /// The CPU of that thread, if known.
    pub cpu: Option<CpuId>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The process started, or existed when the recording began. A forked process inherits its parent's mappings and
    /// objects.
    ProcessStarted {
        /// The parent of a fork; `None` if the process existed already.
        parent: Option<Pid>,
    },
    /// The thread started.
    ThreadStarted,
    /// The thread ended, and the process with its last thread.
    ThreadEnded,
    /// The thread changed its name.
    Named {
        /// At most 15 bytes.
        name: Arc<str>,
        /// Whether the process executed another program, which removes its mappings and objects.
        exec: bool,
    },
    /// A range was mapped. It replaces earlier mappings.
    Mapped {
        /// First address.
        start: u64,
        /// Length, in bytes.
        bytes: u64,
        /// Offset of its start in the file, in bytes.
        offset: u64,
        /// The mapped file's path, or the kernel's name such as `[heap]` or `[stack]`; empty for anonymous memory.
        name: Arc<str>,
        /// Identity of the file, for files that may have symbols.
        file: Option<FileIdentity>,
        /// Whether it can be executed.
        executable: bool,
    },
    /// A range was unmapped.
    Unmapped {
        /// First address.
        start: u64,
        /// Length, in bytes.
        bytes: u64,
    },
    /// A range was moved or resized. It replaces earlier mappings.
    Remapped {
        /// Its old address.
        old: u64,
        /// Length of the old range that is no longer mapped, in bytes; 0 if it stays mapped.
        old_bytes: u64,
        /// First address of the new range.
        start: u64,
        /// Length of the new range, in bytes.
        bytes: u64,
    },
    /// An object was allocated.
    Allocated {
        /// First address.
        address: u64,
        /// Size, in bytes.
        bytes: u64,
        /// Call chain of the allocation.
        stack: StackId,
    },
    /// Objects too small to be reported one by one, by call chain: some of those that the process allocated up to
    /// now, in any thread, while it ran the same program.
    Counted {
        /// Number of objects.
        objects: u64,
        /// Their total size, in bytes.
        bytes: u64,
        /// Call chain of the allocations.
        stack: StackId,
    },
    /// An object was resized in place. One that moves is freed and allocated.
    Resized {
        /// First address.
        address: u64,
        /// New size, in bytes.
        bytes: u64,
    },
    /// An object was freed, with all announced objects inside of it.
    Freed {
        /// First address.
        address: u64,
    },
    /// The program announced an object of an allocator of its own, or named a range. It may be inside of another object,
    /// whose range is the other's again when it has ended.
    Announced {
        /// First address.
        address: u64,
        /// Size, in bytes.
        bytes: u64,
        /// Call chain of the announcement.
        stack: StackId,
        /// The name of a range that the program named.
        name: Option<Arc<str>>,
    },
    /// The program announced the end of an object that it had announced.
    Withdrawn {
        /// First address.
        address: u64,
    },
    /// Unknown changes to the objects in this range: known objects may have been freed, and others allocated.
    Invalidated {
        /// First address.
        start: u64,
        /// Length, in bytes.
        bytes: u64,
    },
    /// A page is on this node from now on.
    PagePlaced {
        /// First address.
        address: u64,
        /// Size of the page, in bytes.
        bytes: u64,
        /// The node of the page.
        node: NodeId,
        /// The node that it was moved from, if it was moved.
        from: Option<NodeId>,
    },
    /// The kernel allocated physical memory on behalf of the thread: pages of the program, or memory of its own.
    FramesAllocated {
        /// Its first physical address.
        physical: u64,
        /// Its size, in bytes: 4 KiB times a power of two.
        bytes: u64,
    },
}

/// Distinguishes a mapped file from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The build ID set by the linker, if any; up to 20 bytes.
    pub build_id: Option<Arc<[u8]>>,
    /// The inode; 0 if unknown.
    pub inode: u64,
}

impl FileIdentity {
    /// The identity of a mapping's file, by the mapping's name: `None` for those of the kernel's own, which have no
    /// symbols.
    pub fn of_mapping(name: &str, build_id: Option<Arc<[u8]>>, inode: u64) -> Option<Self> {
        let is_file = name.starts_with('/')
            && !["/anon_hugepage", "/dev/zero", "/SYSV", "/memfd:"].iter().any(|kind| name.starts_with(kind));
        is_file.then_some(Self { build_id, inode })
    }
}
