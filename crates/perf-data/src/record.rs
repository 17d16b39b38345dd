//! Records of mappings, names, threads and losses.

use crate::bytes::Bytes;
use crate::kind::{EXIT, MMAP2};
use machine::{Pid, Tid};

const MISC_MMAP_DATA: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const PROTECTION_EXECUTE: u32 = 4;
/// The pid in records of the kernel's own mappings.
const KERNEL_PID: u32 = u32::MAX;

/// A range of addresses was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// First address.
    pub start: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// Offset of its start in the file, in bytes.
    pub offset: u64,
    /// The file's build ID, if recorded.
    pub build_id: Option<&'a [u8]>,
    /// The file's inode; 0 if unknown.
    pub inode: u64,
    /// Whether it can be executed.
    pub executable: bool,
    /// The file's path, or the kernel's name of the memory; empty for anonymous memory.
    pub name: String,
}

/// A thread changed its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The name.
    pub name: String,
    /// Whether the process executed another program.
    pub exec: bool,
}

/// A thread started or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Time, in ns; 0 if perf made the record for a process that was running already.
    pub time: u64,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// What happened.
    pub change: TaskChange,
}

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It started in its process.
    ThreadStarted,
    /// It started as the first thread of a process that this one forked.
    ProcessStarted {
        /// The process that forked it.
        parent: Pid,
    },
    /// It ended.
    Ended,
}

impl<'a> Mapping<'a> {
    /// Parses the body of an `MMAP` or `MMAP2` record. `None` if it is too short.
    pub fn parse(kind: u32, misc: u16, body: Bytes<'a>) -> Option<Self> {
        let mut from = body;
        let (pid, tid, start, bytes) = (from.u32()?, from.u32()?, from.u64()?, from.u64()?);
        let offset = from.u64()?;
        let (mut build_id, mut inode, mut executable) = (None, 0, misc & MISC_MMAP_DATA == 0);
        if kind == MMAP2 {
            let mut file = from.take(24)?;
            if misc & MISC_BUILD_ID == 0 {
                file.u64()?;
                inode = file.u64()?;
            } else {
                let length = usize::from(*file.take(4)?.0.first()?);
                build_id = Some(file.0.get(..length)?);
            }
            executable = from.u32()? & PROTECTION_EXECUTE != 0;
            from.u32()?;
        }
        let name = from.text();
        let name = if name == "//anon" { String::new() } else { name };
        Some(Self { pid: Pid(pid), tid: Tid(tid), start, bytes, offset, build_id, inode, executable, name })
    }

    /// Whether it is the kernel's own.
    pub fn is_kernels(&self) -> bool {
        self.pid == Pid(KERNEL_PID)
    }
}

impl Named {
    /// Parses the body of a `COMM` record. `None` if it is too short.
    pub fn parse(misc: u16, body: Bytes<'_>) -> Option<Self> {
        let mut from = body;
        let (pid, tid) = (Pid(from.u32()?), Tid(from.u32()?));
        Some(Self { pid, tid, name: from.text(), exec: misc & MISC_COMM_EXEC != 0 })
    }
}

impl Task {
    /// Parses the body of a `FORK` or `EXIT` record. `None` if it is too short.
    pub fn parse(kind: u32, body: Bytes<'_>) -> Option<Self> {
        let mut from = body;
        let (pid, parent, tid, _parent_tid) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
        let time = from.u64()?;
        let change = match () {
            () if kind == EXIT => TaskChange::Ended,
            () if pid != tid => TaskChange::ThreadStarted,
            () => TaskChange::ProcessStarted { parent: Pid(parent) },
        };
        Some(Self { time, pid: Pid(pid), tid: Tid(tid), change })
    }
}

/// The number of lost records, after `after` bytes.
pub fn lost_count(body: Bytes<'_>, after: u64) -> Option<u64> {
    let mut from = body;
    from.take(after)?;
    from.u64()
}
