//! The tables of a trace: how samples, events and call chains become rows. docs/trace.md documents them for users.

use crate::table::{Cells, Column, Row, Rows, table, words};
use crate::{AccessKind, Count, Counter, Event, FileIdentity, ImageState, Sample, Served, Source, StackId, What};
use machine::{CpuId, NodeId, Pid, Tid};
use std::sync::Arc;

words!(AccessKind, Counter, EventKind, ImageState, Served, Source);

table!(Sample in "samples" {
    time_ns: u64 = "time_ns",
    cpu: CpuId = "cpu",
    pid: Pid = "pid",
    tid: Tid = "tid",
    instruction: u64 = "instruction",
    address: u64 = "address",
    physical: Option<u64> = "physical_address",
    kind: AccessKind = "kind",
    served: Option<Served> = "served",
    node: Option<NodeId> = "node",
    latency_ns: Option<f32> = "latency_ns",
    kernel: bool = "kernel",
    stack: Option<StackId> = "stack",
    weight: f32 = "weight",
    source: Source = "source",
});

table!(Count in "counts" {
    time_ns: u64 = "time_ns",
    counter: Counter = "counter",
    from: Option<NodeId> = "from_node",
    to: Option<NodeId> = "to_node",
    cpu: Option<CpuId> = "cpu",
    value: u64 = "value",
});

/// The kind of an event.
#[derive(Clone, Copy, Default, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
enum EventKind {
    #[default]
    ProcessStarted,
    ThreadStarted,
    ThreadEnded,
    Named,
    Mapped,
    Unmapped,
    Allocated,
    Resized,
    Freed,
    PagePlaced,
    Counted,
    Remapped,
    /// Its name in traces is older than its name here.
    #[strum(serialize = "untold")]
    Invalidated,
    Announced,
    Withdrawn,
    FramesAllocated,
}

/// The fields of an event's row, whatever the event. Fields that it does not have are empty.
#[derive(Default)]
struct Fields {
    kind: EventKind,
    parent: Option<Pid>,
    name: Option<Arc<str>>,
    exec: Option<bool>,
    address: Option<u64>,
    bytes: Option<u64>,
    objects: Option<u64>,
    offset: Option<u64>,
    build_id: Option<Arc<[u8]>>,
    inode: Option<u64>,
    executable: Option<bool>,
    stack: Option<StackId>,
    node: Option<NodeId>,
    from: Option<NodeId>,
    from_address: Option<u64>,
    from_bytes: Option<u64>,
}

struct EventRow {
    time_ns: u64,
    pid: Pid,
    tid: Tid,
    cpu: Option<CpuId>,
    fields: Fields,
}

table!(EventRow in "events" {
    time_ns: u64 = "time_ns",
    pid: Pid = "pid",
    tid: Tid = "tid",
    cpu: Option<CpuId> = "cpu",
    ..fields: Fields {
        kind: EventKind = "event",
        parent: Option<Pid> = "parent_pid",
        name: Option<Arc<str>> = "name",
        exec: Option<bool> = "exec",
        address: Option<u64> = "address",
        bytes: Option<u64> = "bytes",
        objects: Option<u64> = "objects",
        offset: Option<u64> = "offset_bytes",
        build_id: Option<Arc<[u8]>> = "build_id",
        inode: Option<u64> = "inode",
        executable: Option<bool> = "executable",
        stack: Option<StackId> = "stack",
        node: Option<NodeId> = "node",
        from: Option<NodeId> = "from_node",
        from_address: Option<u64> = "from_address",
        from_bytes: Option<u64> = "from_bytes",
    }
});

impl Row for Event {
    const TABLE: &'static str = EventRow::TABLE;
    const COLUMNS: &'static [Column] = EventRow::COLUMNS;

    fn put(&self, rows: &mut Rows) {
        let Self { time_ns, pid, tid, cpu, ref what } = *self;
        EventRow { time_ns, pid, tid, cpu, fields: Fields::new(what) }.put(rows);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        let EventRow { time_ns, pid, tid, cpu, fields } = EventRow::take(cells)?;
        Some(Self { time_ns, pid, tid, cpu, what: fields.what()? })
    }
}

impl Fields {
    fn new(what: &What) -> Self {
        match what {
            What::ProcessStarted { parent } => {
                Self { kind: EventKind::ProcessStarted, parent: *parent, ..Self::default() }
            }
            What::ThreadStarted => Self { kind: EventKind::ThreadStarted, ..Self::default() },
            What::ThreadEnded => Self { kind: EventKind::ThreadEnded, ..Self::default() },
            What::Named { name, exec } => {
                Self { kind: EventKind::Named, name: Some(name.clone()), exec: Some(*exec), ..Self::default() }
            }
            What::Mapped { start, bytes, offset, name, file, executable } => Self {
                kind: EventKind::Mapped,
                name: Some(name.clone()),
                address: Some(*start),
                bytes: Some(*bytes),
                offset: Some(*offset),
                build_id: file.as_ref().and_then(|file| file.build_id.clone()),
                inode: file.as_ref().map(|file| file.inode),
                executable: Some(*executable),
                ..Self::default()
            },
            What::Unmapped { start, bytes } => Self { kind: EventKind::Unmapped, ..Self::range(*start, *bytes) },
            What::Remapped { old, old_bytes, start, bytes } => Self {
                kind: EventKind::Remapped,
                from_address: Some(*old),
                from_bytes: Some(*old_bytes),
                ..Self::range(*start, *bytes)
            },
            What::Invalidated { start, bytes } => Self { kind: EventKind::Invalidated, ..Self::range(*start, *bytes) },
            What::Allocated { address, bytes, stack } => {
                Self { kind: EventKind::Allocated, stack: Some(*stack), ..Self::range(*address, *bytes) }
            }
            What::Counted { objects, bytes, stack } => Self {
                kind: EventKind::Counted,
                bytes: Some(*bytes),
                objects: Some(*objects),
                stack: Some(*stack),
                ..Self::default()
            },
            What::Resized { address, bytes } => Self { kind: EventKind::Resized, ..Self::range(*address, *bytes) },
            What::Freed { address } => Self { kind: EventKind::Freed, address: Some(*address), ..Self::default() },
            What::Announced { address, bytes, stack, name } => Self {
                kind: EventKind::Announced,
                stack: Some(*stack),
                name: name.clone(),
                ..Self::range(*address, *bytes)
            },
            What::Withdrawn { address } => {
                Self { kind: EventKind::Withdrawn, address: Some(*address), ..Self::default() }
            }
            What::PagePlaced { address, bytes, node, from } => {
                Self { kind: EventKind::PagePlaced, node: Some(*node), from: *from, ..Self::range(*address, *bytes) }
            }
            What::FramesAllocated { physical, bytes } => {
                Self { kind: EventKind::FramesAllocated, ..Self::range(*physical, *bytes) }
            }
        }
    }

    fn range(address: u64, bytes: u64) -> Self {
        Self { address: Some(address), bytes: Some(bytes), ..Self::default() }
    }

    fn what(self) -> Option<What> {
        Some(match self.kind {
            EventKind::ProcessStarted => What::ProcessStarted { parent: self.parent },
            EventKind::ThreadStarted => What::ThreadStarted,
            EventKind::ThreadEnded => What::ThreadEnded,
            EventKind::Named => What::Named { name: self.name?, exec: self.exec? },
            EventKind::Mapped => What::Mapped {
                start: self.address?,
                bytes: self.bytes?,
                offset: self.offset?,
                name: self.name?,
                file: match (self.inode, self.build_id) {
                    (Some(inode), build_id) => Some(FileIdentity { build_id, inode }),
                    (None, None) => None,
                    (None, Some(_)) => return None,
                },
                executable: self.executable?,
            },
            EventKind::Unmapped => What::Unmapped { start: self.address?, bytes: self.bytes? },
            EventKind::Remapped => What::Remapped {
                old: self.from_address?,
                old_bytes: self.from_bytes?,
                start: self.address?,
                bytes: self.bytes?,
            },
            EventKind::Invalidated => What::Invalidated { start: self.address?, bytes: self.bytes? },
            EventKind::Allocated => What::Allocated { address: self.address?, bytes: self.bytes?, stack: self.stack? },
            EventKind::Counted => What::Counted { objects: self.objects?, bytes: self.bytes?, stack: self.stack? },
            EventKind::Resized => What::Resized { address: self.address?, bytes: self.bytes? },
            EventKind::Freed => What::Freed { address: self.address? },
            EventKind::Announced => {
                What::Announced { address: self.address?, bytes: self.bytes?, stack: self.stack?, name: self.name }
            }
            EventKind::Withdrawn => What::Withdrawn { address: self.address? },
            EventKind::PagePlaced => {
                What::PagePlaced { address: self.address?, bytes: self.bytes?, node: self.node?, from: self.from }
            }
            EventKind::FramesAllocated => What::FramesAllocated { physical: self.address?, bytes: self.bytes? },
        })
    }
}

/// A frame of a call chain. The frames of a chain are consecutive rows, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub stack: StackId,
    /// 0 for the innermost frame.
    pub depth: u32,
    pub address: u64,
}

table!(Frame in "stacks" {
    stack: StackId = "stack",
    depth: u32 = "depth",
    address: u64 = "address",
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Kind, Value};

    fn words<T: Value>() -> String {
        let Kind::Word(words) = T::KIND else { return String::new() };
        words.join(" ")
    }

    #[test]
    fn enumerations_are_stored_as_the_words_of_the_format() {
        assert_eq!(words::<AccessKind>(), "load store unknown");
        assert_eq!(words::<Served>(), "l1 l2 l3 peer dram");
        assert_eq!(words::<Source>(), "ibs pebs spe perf lab hint_fault");
        assert_eq!(words::<ImageState>(), "read missing changed unreadable too_compressed");
        assert_eq!(
            words::<Counter>(),
            "instructions cpu_time_ns memory_wait_ns memory_accesses controller_bytes link_bytes thread_migrations \
             numa_moves numa_stays numa_swaps local_dram remote_dram peer_modified peer_clean peer"
        );
        assert_eq!(
            words::<EventKind>(),
            "process_started thread_started thread_ended named mapped unmapped allocated resized freed page_placed \
             counted remapped untold announced withdrawn frames_allocated"
        );
    }
}
