//! Objects, threads, processes and code locations in readable form, for people and programs.

use crate::ids::{ChainId, CodeId, ObjectId, ProcessId, SiteId, ThreadId};
use crate::object::ObjectKind;
use crate::pages::hexadecimal;
use crate::profile::Profile;
use machine::{CpuId, NodeId};
use serde::Serialize;

/// Summary of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectSummary {
    /// Its number in the profile.
    pub object: ObjectId,
    /// Its site.
    pub site: SiteId,
    /// The site's label: see [`Profile::site_label`].
    pub label: String,
    /// Its kind.
    pub kind: ObjectKind,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessSummary,
    /// Its first address, in JSON as hexadecimal text; 0 for all stacks of a process.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Its largest size, bytes; 0 if it has no range.
    pub bytes: u64,
    /// When it began, ns; if it is not allocated, its first access.
    pub from_ns: u64,
    /// When it ended, ns; none if it still lives.
    pub until_ns: Option<u64>,
    /// TID of the thread that allocated it.
    pub allocated_by_tid: Option<u32>,
    /// The CPU that this thread ran on then.
    pub allocated_on_cpu: Option<CpuId>,
    /// The node of that CPU.
    pub allocated_on_node: Option<NodeId>,
    /// The call chain that allocated it, innermost first.
    pub allocated_from: Vec<Frame>,
}

/// Summary of a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadSummary {
    /// Its number in the profile.
    pub thread: ThreadId,
    /// The TID.
    pub tid: u32,
    /// Its last name.
    pub name: Option<String>,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessSummary,
}

/// Summary of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessSummary {
    /// Its number in the profile.
    pub process: ProcessId,
    /// The PID.
    pub pid: u32,
    /// Its name.
    pub application: Option<String>,
}

/// A code location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// `makeMatrix+0x59`, or the file and offset: see [`Profile::code_label`].
    pub label: String,
    /// The function.
    pub function: Option<String>,
    /// The file of code.
    pub file: Option<String>,
    /// Offset in that file, bytes, in JSON as hexadecimal text; without a file the address.
    #[serde(serialize_with = "hexadecimal")]
    pub offset: u64,
    /// The file and line of source: `matrix.c:455`.
    pub source: Option<String>,
}

impl Profile {
    /// Summary of an object; none if the number does not exist.
    pub fn object_summary(&self, id: ObjectId) -> Option<ObjectSummary> {
        let object = self.objects().get(id.index())?;
        let site = self.site_of(id)?;
        Some(ObjectSummary {
            object: id,
            site,
            label: self.site_label(site),
            kind: object.kind,
            process: self.process_summary(object.process)?,
            address: object.start,
            bytes: object.bytes,
            from_ns: object.from_ns,
            until_ns: object.until_ns,
            allocated_by_tid: object.allocated_by.and_then(|thread| Some(self.threads().get(thread.index())?.tid.0)),
            allocated_on_cpu: object.allocated_on,
            allocated_on_node: object.allocated_on.and_then(|cpu| self.node_of_cpu(cpu)),
            allocated_from: self.frames(object.site),
        })
    }

    /// Summary of a thread; none if the number does not exist.
    pub fn thread_summary(&self, id: ThreadId) -> Option<ThreadSummary> {
        let thread = self.threads().get(id.index())?;
        Some(ThreadSummary {
            thread: id,
            tid: thread.tid.0,
            name: thread.name.as_deref().map(str::to_owned),
            process: self.process_summary(thread.process)?,
        })
    }

    /// Summary of a process; none if the number does not exist.
    pub fn process_summary(&self, id: ProcessId) -> Option<ProcessSummary> {
        let process = self.processes().get(id.index())?;
        let application = process.name.as_deref().map(str::to_owned);
        Some(ProcessSummary { process: id, pid: process.pid.0, application })
    }

    /// A call chain, innermost first.
    pub fn frames(&self, chain: ChainId) -> Vec<Frame> {
        self.chain(chain).iter().filter_map(|&code| self.frame(code)).collect()
    }

    /// A code location; none if the number does not exist.
    pub fn frame(&self, id: CodeId) -> Option<Frame> {
        let code = self.code(id)?;
        let function = code.function.as_ref();
        let source = function.and_then(|function| function.line.as_ref());
        Some(Frame {
            label: self.code_label(id),
            function: function.map(|function| function.name.to_string()),
            file: code.file.and_then(|file| Some(self.file(file)?.name.to_string())),
            offset: code.offset,
            source: source.map(|source| format!("{}:{}", source.file, source.line)),
        })
    }
}
