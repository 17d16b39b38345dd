//! A record: the packets of one sampled operation, up to the one that ends it.

use super::packet::{Packet, parse};

/// A sampled operation. Fields without a packet are `None`. Which packets are written is set when recording starts,
/// and some need the kernel's permission: physical addresses and threads need `CAP_PERFMON`, or
/// `kernel.perf_event_paranoid` at 0 or less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeRecord {
    /// The generic timer's count at completion (`ts_enable=1`).
    pub timer: Option<u64>,
    /// Thread ID, if the kernel passes it to the processor (`CONFIG_PID_IN_CONTEXTIDR`).
    pub thread: Option<u32>,
    /// The operation; `None` for branches and computations.
    pub operation: Option<Operation>,
    /// Address of the instruction.
    pub instruction: u64,
    /// Whether it was executed above exception level 0, outside user space.
    pub privileged: bool,
    /// Virtual address of the data.
    pub address: Option<u64>,
    /// Physical address of the data (`pa_enable=1`).
    pub physical: Option<u64>,
    /// A bit for each event of the operation.
    pub events: u64,
    /// Data source, in the encoding of the processor; only for loads, on some processors.
    pub source: Option<u64>,
    /// Latency from dispatch to completion, in core cycles. Processors saturate at some value, such as 4095.
    pub total_cycles: Option<u64>,
    /// The part of it before issue.
    pub issue_cycles: Option<u64>,
}

/// What an operation does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A load.
    Load,
    /// A store, or an atomic read and write.
    Store,
}

// Operation packets.
const LOAD_STORE: u8 = 1;
const STORE: u64 = 1;
/// Bits 7 to 5 and 1 distinguish ordinary loads and stores from special ones; bit 2 marks an atomic read and write.
const SPECIAL: u64 = 0b1110_0010;
const SPECIAL_IS_ATOMIC: u64 = 0b10;
const ATOMIC: u64 = 0b100;

// Address packets.
const INSTRUCTION: u8 = 0;
const DATA: u8 = 2;
const DATA_PHYSICAL: u8 = 3;
const EXCEPTION_LEVEL: u64 = 0b11 << 61;

// Counter packets.
const TOTAL: u8 = 0;
const ISSUE: u8 = 1;

impl SpeRecord {
    /// Latency of the access itself, in core cycles. It excludes the wait for other operations before issue.
    pub fn access_cycles(&self) -> Option<u64> {
        Some(self.total_cycles?.saturating_sub(self.issue_cycles.unwrap_or(0)))
    }

    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Timestamp(timer) => self.timer = Some(timer),
            Packet::Events(events) => self.events = events,
            Packet::DataSource(source) => self.source = Some(source),
            Packet::Context(thread) => self.thread = u32::try_from(thread).ok(),
            Packet::Operation { class: LOAD_STORE, details } => {
                let atomic = details & SPECIAL == SPECIAL_IS_ATOMIC && details & ATOMIC != 0;
                let writes = atomic || details & STORE != 0;
                self.operation = Some(if writes { Operation::Store } else { Operation::Load });
            }
            Packet::Address { what: INSTRUCTION, value } => {
                self.privileged = value & EXCEPTION_LEVEL != 0;
                self.instruction = virtual_address(value);
            }
            Packet::Address { what: DATA, value } => self.address = Some(virtual_address(value)),
            Packet::Address { what: DATA_PHYSICAL, value } => self.physical = Some(value & (u64::MAX >> 8)),
            Packet::Counter { what: TOTAL, cycles } => self.total_cycles = Some(cycles),
            Packet::Counter { what: ISSUE, cycles } => self.issue_cycles = Some(cycles),
            // Branches, computations, and translation latencies.
            Packet::Operation { .. }
            | Packet::Address { .. }
            | Packet::Counter { .. }
            | Packet::Padding
            | Packet::End => {}
        }
    }
}

/// The top byte holds a tag or describes the access; bit 55 decides whether the address is the kernel's.
fn virtual_address(value: u64) -> u64 {
    ((value << 8).cast_signed() >> 8).cast_unsigned()
}

/// Decodes records, in order, from data that start with a whole one. Ends at the end of the data or at an invalid
/// packet, after which record boundaries are unknown.
#[derive(Clone, Debug)]
pub struct SpeRecords<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> SpeRecords<'a> {
    /// Decodes from an offset at which a record starts.
    pub fn new(data: &'a [u8], at: usize) -> Self {
        Self { data, at }
    }

    /// Offset of the next record. When there is none, the remaining data are invalid.
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl Iterator for SpeRecords<'_> {
    type Item = SpeRecord;

    fn next(&mut self) -> Option<SpeRecord> {
        let mut record = SpeRecord::default();
        let (mut at, mut begun) = (self.at, false);
        loop {
            let (packet, length) = parse(self.data, at)?;
            at += length;
            record.take(packet);
            match packet {
                Packet::Timestamp(_) | Packet::End if begun => {
                    self.at = at;
                    return Some(record);
                }
                // Padding between records belongs to none.
                Packet::Padding | Packet::Timestamp(_) | Packet::End => {
                    if !begun {
                        (self.at, record) = (at, SpeRecord::default());
                    }
                }
                _ => begun = true,
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a record as a processor does.
    pub fn written(record: &SpeRecord) -> Vec<u8> {
        let mut data = Vec::new();
        let mut put = |header: u8, number: u64, length: usize| {
            data.push(header);
            data.extend(&number.to_le_bytes()[..length]);
        };
        let level = if record.privileged { 1 << 61 } else { 0 };
        put(0xb0, record.instruction & (u64::MAX >> 8) | level | 1 << 63, 8);
        if let Some(thread) = record.thread {
            put(0x64, thread.into(), 4);
        }
        match record.operation {
            Some(operation) => put(0x49, (operation == Operation::Store).into(), 1),
            None => put(0x4a, 1, 1),
        }
        if let Some(address) = record.address {
            put(0xb2, address & (u64::MAX >> 8) | 0xa5 << 56, 8);
        }
        if let Some(physical) = record.physical {
            put(0xb3, physical | 1 << 63, 8);
        }
        put(0x62, record.events, 4);
        if let Some(source) = record.source {
            put(0x43, source, 1);
        }
        for (header, cycles) in [(0x98, record.total_cycles), (0x99, record.issue_cycles)] {
            if let Some(cycles) = cycles {
                put(header, cycles, 2);
            }
        }
        match record.timer {
            Some(timer) => put(0x71, timer, 8),
            None => put(0x01, 0, 0),
        }
        data
    }

    prop_compose! {
        fn any_record()(
            timer: Option<u64>,
            thread: Option<u32>,
            operation in prop::option::of(prop_oneof![Just(Operation::Load), Just(Operation::Store)]),
            instruction: u64,
            privileged: bool,
            address: Option<u64>,
            physical in prop::option::of(0..1_u64 << 56),
            events: u32,
            source: Option<u8>,
            total: Option<u16>,
            issue: Option<u16>,
        ) -> SpeRecord {
            SpeRecord {
                timer,
                thread,
                operation,
                instruction: virtual_address(instruction),
                privileged,
                address: address.map(virtual_address),
                physical,
                events: events.into(),
                source: source.map(u64::from),
                total_cycles: total.map(u64::from),
                issue_cycles: issue.map(u64::from),
            }
        }
    }

    #[test]
    fn operations_are_decoded() {
        let operation = |details: u64| {
            let mut record = SpeRecord::default();
            record.take(Packet::Operation { class: LOAD_STORE, details });
            record.operation
        };
        // General registers; SIMD; load exclusive; atomic add; a gather or scatter vector access.
        let all =
            [(0x00, false), (0x01, true), (0x04, false), (0x05, true), (0x0a, false), (0x06, true), (0x88, false)];
        for (details, writes) in all {
            let expected = if writes { Operation::Store } else { Operation::Load };
            assert_eq!(operation(details), Some(expected), "{details:#x}");
        }
    }

    #[test]
    fn addresses_are_those_of_programs_and_of_the_kernel() {
        assert_eq!(virtual_address(0xa500_ffff_1234_5678), 0x0000_ffff_1234_5678);
        assert_eq!(virtual_address(0xe0ff_8000_1234_5678), 0xffff_8000_1234_5678);
    }

    #[test]
    fn an_access_took_what_it_did_not_wait_to_be_issued() {
        let record = |total_cycles, issue_cycles| SpeRecord { total_cycles, issue_cycles, ..SpeRecord::default() };
        assert_eq!(record(Some(300), Some(20)).access_cycles(), Some(280));
        assert_eq!(record(Some(300), None).access_cycles(), Some(300));
        assert_eq!(record(Some(3), Some(20)).access_cycles(), Some(0));
        assert_eq!(record(None, Some(20)).access_cycles(), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(records in prop::collection::vec((any_record(), 0_usize..20), 0..20)) {
            let data: Vec<u8> =
                records.iter().flat_map(|(record, padding)| [written(record), vec![0; *padding]].concat()).collect();
            let mut read = SpeRecords::new(&data, 0);
            for (record, _) in &records {
                prop_assert_eq!(read.next(), Some(*record));
            }
            prop_assert_eq!((read.next(), read.offset()), (None, data.len()));
        }

        #[test]
        fn what_is_cut_is_left(record in any_record(), cut in 1_usize..100) {
            let data = written(&record);
            let data = [&data[..], &data[..data.len().saturating_sub(cut)]].concat();
            let mut read = SpeRecords::new(&data, 0);
            prop_assert_eq!(read.next(), Some(record));
            prop_assert_eq!((read.next(), read.offset()), (None, written(&record).len()));
        }

        #[test]
        fn any_data_come_to_an_end(data: Vec<u8>) {
            let mut read = SpeRecords::new(&data, 0);
            let mut last = 0;
            while read.next().is_some() {
                prop_assert!(read.offset() > last);
                last = read.offset();
            }
            prop_assert!(read.offset() <= data.len());
        }
    }
}
