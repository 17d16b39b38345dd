//! The tables of a trace: how samples, events and call chains become rows. docs/trace.md documents them for users.

use crate::table::{Cells, Column, Kind, Row, Rows, column, optional};
use crate::{AccessKind, Count, Counter, Event, FileIdentity, Sample, Served, Source, StackId, What};
use machine::{CpuId, NodeId, Pid, Tid};
use std::fmt::Write;
use std::sync::Arc;

/// Enumerations as words. The order of the variants is that of the words.
macro_rules! words {
    ($words:ident: $type:ty { $($word:literal = $value:path,)* }) => {
        const $words: &[&str] = &[$($word),*];

        impl $type {
            const ALL: &[Self] = &[$($value),*];

            fn word(self) -> u8 {
                Self::ALL.iter().position(|other| *other == self).unwrap_or_default() as u8
            }

            fn of_word(word: u8) -> Option<Self> {
                Self::ALL.get(usize::from(word)).copied()
            }

            /// Its name in tables and options.
            pub fn name(self) -> &'static str {
                $words.get(usize::from(self.word())).copied().unwrap_or_default()
            }
        }
    };
}

words!(KINDS: AccessKind {
    "load" = AccessKind::Load,
    "store" = AccessKind::Store,
    "unknown" = AccessKind::Unknown,
});

words!(SERVED: Served {
    "l1" = Served::L1,
    "l2" = Served::L2,
    "l3" = Served::L3,
    "peer" = Served::Peer,
    "dram" = Served::Dram,
});

words!(SOURCES: Source {
    "ibs" = Source::Ibs,
    "pebs" = Source::Pebs,
    "spe" = Source::Spe,
    "perf" = Source::Perf,
    "lab" = Source::Lab,
    "hint_fault" = Source::HintFault,
});

words!(COUNTERS: Counter {
    "instructions" = Counter::Instructions,
    "cpu_time_ns" = Counter::CpuTime,
    "memory_wait_ns" = Counter::MemoryWait,
    "memory_accesses" = Counter::MemoryAccesses,
    "controller_bytes" = Counter::ControllerBytes,
    "link_bytes" = Counter::LinkBytes,
});

impl Row for Sample {
    const TABLE: &'static str = "samples";
    const COLUMNS: &'static [Column] = &[
        column("time_ns", Kind::U64),
        column("cpu", Kind::U32),
        column("pid", Kind::U32),
        column("tid", Kind::U32),
        column("instruction", Kind::U64),
        column("address", Kind::U64),
        optional("physical_address", Kind::U64),
        column("kind", Kind::Word(KINDS)),
        optional("served", Kind::Word(SERVED)),
        optional("node", Kind::U32),
        optional("latency_ns", Kind::F32),
        column("kernel", Kind::Bool),
        optional("stack", Kind::U32),
        column("weight", Kind::F32),
        column("source", Kind::Word(SOURCES)),
    ];

    fn put(&self, rows: &mut Rows) {
        rows.put_u64(self.time_ns);
        rows.put_u32(self.cpu.0);
        rows.put_u32(self.pid.0);
        rows.put_u32(self.tid.0);
        rows.put_u64(self.instruction);
        rows.put_u64(self.address);
        rows.put_u64(self.physical);
        rows.put_word(self.kind.word());
        rows.put_word(self.served.map(Served::word));
        rows.put_u32(self.node.map(u32::from));
        rows.put_f32(self.latency_ns);
        rows.put_bool(self.kernel);
        rows.put_u32(self.stack.map(|stack| stack.0));
        rows.put_f32(self.weight);
        rows.put_word(self.source.word());
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        Some(Self {
            time_ns: cells.u64()?,
            cpu: CpuId(cells.u32()?),
            pid: Pid(cells.u32()?),
            tid: Tid(cells.u32()?),
            instruction: cells.u64()?,
            address: cells.u64()?,
            physical: cells.optional_u64()?,
            kind: AccessKind::of_word(cells.word()?)?,
            served: match cells.optional_word()? {
                Some(word) => Some(Served::of_word(word)?),
                None => None,
            },
            node: cells.optional_u32()?.map(NodeId),
            latency_ns: cells.optional_f32()?,
            kernel: cells.bool()?,
            stack: cells.optional_u32()?.map(StackId),
            weight: cells.f32()?,
            source: Source::of_word(cells.word()?)?,
        })
    }
}

impl Row for Count {
    const TABLE: &'static str = "counts";
    const COLUMNS: &'static [Column] = &[
        column("time_ns", Kind::U64),
        column("counter", Kind::Word(COUNTERS)),
        optional("from_node", Kind::U32),
        optional("to_node", Kind::U32),
        column("value", Kind::U64),
    ];

    fn put(&self, rows: &mut Rows) {
        rows.put_u64(self.time_ns);
        rows.put_word(self.counter.word());
        rows.put_u32(self.from.map(u32::from));
        rows.put_u32(self.to.map(u32::from));
        rows.put_u64(self.value);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        Some(Self {
            time_ns: cells.u64()?,
            counter: Counter::of_word(cells.word()?)?,
            from: cells.optional_u32()?.map(NodeId),
            to: cells.optional_u32()?.map(NodeId),
            value: cells.u64()?,
        })
    }
}

/// The fields of an event's row, whatever the event. Fields that it does not have are empty.
#[derive(Default)]
struct Fields {
    what: u8,
    parent: Option<u32>,
    name: Option<Arc<str>>,
    exec: Option<bool>,
    address: Option<u64>,
    bytes: Option<u64>,
    objects: Option<u64>,
    offset: Option<u64>,
    build_id: Option<Arc<str>>,
    inode: Option<u64>,
    executable: Option<bool>,
    stack: Option<u32>,
    node: Option<u32>,
    from: Option<u32>,
    from_address: Option<u64>,
    from_bytes: Option<u64>,
}

const PROCESS_STARTED: u8 = 0;
const THREAD_STARTED: u8 = 1;
const THREAD_ENDED: u8 = 2;
const NAMED: u8 = 3;
const MAPPED: u8 = 4;
const UNMAPPED: u8 = 5;
const ALLOCATED: u8 = 6;
const RESIZED: u8 = 7;
const FREED: u8 = 8;
const PAGE_PLACED: u8 = 9;
const COUNTED: u8 = 10;
const REMAPPED: u8 = 11;
const UNTOLD: u8 = 12;
const EVENTS: &[&str] = &[
    "process_started",
    "thread_started",
    "thread_ended",
    "named",
    "mapped",
    "unmapped",
    "allocated",
    "resized",
    "freed",
    "page_placed",
    "counted",
    "remapped",
    "untold",
];

impl Row for Event {
    const TABLE: &'static str = "events";
    const COLUMNS: &'static [Column] = &[
        column("time_ns", Kind::U64),
        column("pid", Kind::U32),
        column("tid", Kind::U32),
        optional("cpu", Kind::U32),
        column("event", Kind::Word(EVENTS)),
        optional("parent_pid", Kind::U32),
        optional("name", Kind::Text),
        optional("exec", Kind::Bool),
        optional("address", Kind::U64),
        optional("bytes", Kind::U64),
        optional("objects", Kind::U64),
        optional("offset_bytes", Kind::U64),
        optional("build_id", Kind::Text),
        optional("inode", Kind::U64),
        optional("executable", Kind::Bool),
        optional("stack", Kind::U32),
        optional("node", Kind::U32),
        optional("from_node", Kind::U32),
        optional("from_address", Kind::U64),
        optional("from_bytes", Kind::U64),
    ];

    fn put(&self, rows: &mut Rows) {
        let fields = Fields::new(&self.what);
        rows.put_u64(self.time_ns);
        rows.put_u32(self.pid.0);
        rows.put_u32(self.tid.0);
        rows.put_u32(self.cpu.map(u32::from));
        rows.put_word(fields.what);
        rows.put_u32(fields.parent);
        rows.put_text(fields.name);
        rows.put_bool(fields.exec);
        rows.put_u64(fields.address);
        rows.put_u64(fields.bytes);
        rows.put_u64(fields.objects);
        rows.put_u64(fields.offset);
        rows.put_text(fields.build_id);
        rows.put_u64(fields.inode);
        rows.put_bool(fields.executable);
        rows.put_u32(fields.stack);
        rows.put_u32(fields.node);
        rows.put_u32(fields.from);
        rows.put_u64(fields.from_address);
        rows.put_u64(fields.from_bytes);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        let (time_ns, pid, tid) = (cells.u64()?, Pid(cells.u32()?), Tid(cells.u32()?));
        let cpu = cells.optional_u32()?.map(CpuId);
        let fields = Fields {
            what: cells.word()?,
            parent: cells.optional_u32()?,
            name: cells.optional_text()?,
            exec: cells.optional_bool()?,
            address: cells.optional_u64()?,
            bytes: cells.optional_u64()?,
            objects: cells.optional_u64()?,
            offset: cells.optional_u64()?,
            build_id: cells.optional_text()?,
            inode: cells.optional_u64()?,
            executable: cells.optional_bool()?,
            stack: cells.optional_u32()?,
            node: cells.optional_u32()?,
            from: cells.optional_u32()?,
            from_address: cells.optional_u64()?,
            from_bytes: cells.optional_u64()?,
        };
        Some(Self { time_ns, pid, tid, cpu, what: fields.what()? })
    }
}

impl Fields {
    fn new(what: &What) -> Self {
        match what {
            What::ProcessStarted { parent } => {
                Self { what: PROCESS_STARTED, parent: parent.map(u32::from), ..Self::default() }
            }
            What::ThreadStarted => Self { what: THREAD_STARTED, ..Self::default() },
            What::ThreadEnded => Self { what: THREAD_ENDED, ..Self::default() },
            What::Named { name, exec } => {
                Self { what: NAMED, name: Some(name.clone()), exec: Some(*exec), ..Self::default() }
            }
            What::Mapped { start, bytes, offset, name, file, executable } => Self {
                what: MAPPED,
                name: Some(name.clone()),
                address: Some(*start),
                bytes: Some(*bytes),
                offset: Some(*offset),
                build_id: file.as_ref().and_then(|file| file.build_id.as_deref()).map(hexadecimal),
                inode: file.as_ref().map(|file| file.inode),
                executable: Some(*executable),
                ..Self::default()
            },
            What::Unmapped { start, bytes } => Self { what: UNMAPPED, ..Self::range(*start, *bytes) },
            What::Remapped { old, old_bytes, start, bytes } => Self {
                what: REMAPPED,
                from_address: Some(*old),
                from_bytes: Some(*old_bytes),
                ..Self::range(*start, *bytes)
            },
            What::Untold { start, bytes } => Self { what: UNTOLD, ..Self::range(*start, *bytes) },
            What::Allocated { address, bytes, stack } => {
                Self { what: ALLOCATED, stack: Some(stack.0), ..Self::range(*address, *bytes) }
            }
            What::Counted { objects, bytes, stack } => Self {
                what: COUNTED,
                bytes: Some(*bytes),
                objects: Some(*objects),
                stack: Some(stack.0),
                ..Self::default()
            },
            What::Resized { address, bytes } => Self { what: RESIZED, ..Self::range(*address, *bytes) },
            What::Freed { address } => Self { what: FREED, address: Some(*address), ..Self::default() },
            What::PagePlaced { address, bytes, node, from } => Self {
                what: PAGE_PLACED,
                node: Some(node.0),
                from: from.map(u32::from),
                ..Self::range(*address, *bytes)
            },
        }
    }

    fn range(address: u64, bytes: u64) -> Self {
        Self { address: Some(address), bytes: Some(bytes), ..Self::default() }
    }

    fn what(self) -> Option<What> {
        Some(match self.what {
            PROCESS_STARTED => What::ProcessStarted { parent: self.parent.map(Pid) },
            THREAD_STARTED => What::ThreadStarted,
            THREAD_ENDED => What::ThreadEnded,
            NAMED => What::Named { name: self.name?, exec: self.exec? },
            MAPPED => What::Mapped {
                start: self.address?,
                bytes: self.bytes?,
                offset: self.offset?,
                name: self.name?,
                file: match (self.inode, self.build_id) {
                    (Some(inode), None) => Some(FileIdentity { build_id: None, inode }),
                    (Some(inode), Some(text)) => Some(FileIdentity { build_id: Some(of_hexadecimal(&text)?), inode }),
                    (None, None) => None,
                    (None, Some(_)) => return None,
                },
                executable: self.executable?,
            },
            UNMAPPED => What::Unmapped { start: self.address?, bytes: self.bytes? },
            REMAPPED => What::Remapped {
                old: self.from_address?,
                old_bytes: self.from_bytes?,
                start: self.address?,
                bytes: self.bytes?,
            },
            UNTOLD => What::Untold { start: self.address?, bytes: self.bytes? },
            ALLOCATED => What::Allocated { address: self.address?, bytes: self.bytes?, stack: StackId(self.stack?) },
            COUNTED => What::Counted { objects: self.objects?, bytes: self.bytes?, stack: StackId(self.stack?) },
            RESIZED => What::Resized { address: self.address?, bytes: self.bytes? },
            FREED => What::Freed { address: self.address? },
            PAGE_PLACED => What::PagePlaced {
                address: self.address?,
                bytes: self.bytes?,
                node: NodeId(self.node?),
                from: self.from.map(NodeId),
            },
            _ => return None,
        })
    }
}

/// A build ID in hexadecimal, as other tools print it.
pub(crate) fn hexadecimal(bytes: &[u8]) -> Arc<str> {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

/// Parses a hexadecimal build ID.
pub(crate) fn of_hexadecimal(text: &str) -> Option<Arc<[u8]>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// A frame of a call chain. The frames of a chain are consecutive rows, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub stack: StackId,
    /// 0 for the innermost frame.
    pub depth: u32,
    pub address: u64,
}

impl Row for Frame {
    const TABLE: &'static str = "stacks";
    const COLUMNS: &'static [Column] =
        &[column("stack", Kind::U32), column("depth", Kind::U32), column("address", Kind::U64)];

    fn put(&self, rows: &mut Rows) {
        rows.put_u32(self.stack.0);
        rows.put_u32(self.depth);
        rows.put_u64(self.address);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        Some(Self { stack: StackId(cells.u32()?), depth: cells.u32()?, address: cells.u64()? })
    }
}
