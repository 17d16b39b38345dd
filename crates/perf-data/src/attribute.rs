//! `struct perf_event_attr`: what an event observes, and the layout of its records. Constants from the kernel's
//! `include/uapi/linux/perf_event.h`.

use crate::bytes::Bytes;

/// The address of the instruction.
pub const IP: u64 = 1 << 0;
/// The process and the thread.
pub const TID: u64 = 1 << 1;
/// The time.
pub const TIME: u64 = 1 << 2;
/// The address of the data.
pub const ADDR: u64 = 1 << 3;
pub(crate) const READ: u64 = 1 << 4;
/// The call chain.
pub const CALLCHAIN: u64 = 1 << 5;
/// The ID of the counter, after the address.
pub const ID: u64 = 1 << 6;
/// The CPU.
pub const CPU: u64 = 1 << 7;
/// The period.
pub const PERIOD: u64 = 1 << 8;
pub(crate) const STREAM_ID: u64 = 1 << 9;
/// What the event itself reports.
pub const RAW: u64 = 1 << 10;
pub(crate) const BRANCH_STACK: u64 = 1 << 11;
pub(crate) const REGS_USER: u64 = 1 << 12;
pub(crate) const STACK_USER: u64 = 1 << 13;
/// The latency.
pub const WEIGHT: u64 = 1 << 14;
/// What served the access.
pub const DATA_SRC: u64 = 1 << 15;
/// The ID of the counter, at the same position in all records.
pub const IDENTIFIER: u64 = 1 << 16;
pub(crate) const TRANSACTION: u64 = 1 << 17;
pub(crate) const REGS_INTR: u64 = 1 << 18;
/// The physical address of the data.
pub const PHYS_ADDR: u64 = 1 << 19;
pub(crate) const WEIGHT_STRUCT: u64 = 1 << 24;

const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const FREQ: u64 = 1 << 10;
const CLOCK_MONOTONIC: u32 = 1;

/// What an event observes, and the layout of its records.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// The period; 0 if the kernel adapts it.
    pub period: u64,
    /// The fields of its samples.
    pub sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) user_registers: u32,
    pub(crate) interrupt_registers: u32,
    pub(crate) flags: u64,
    pub(crate) clock_id: u32,
    /// The event in perf's notation; empty if unknown.
    pub name: String,
    /// What takes its samples, which follows from its name.
    pub sampler: Sampler,
    /// The IDs of its counters, one per CPU.
    pub ids: Vec<u64>,
}

/// What takes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampler {
    /// AMD's instruction-based sampling.
    Ibs,
    /// Intel's precise event-based sampling.
    Pebs,
    /// Arm's statistical profiling extension.
    Spe,
    /// Another event.
    Other,
}

impl Attribute {
    /// The attribute of an open event, whose records carry times of `CLOCK_MONOTONIC`.
    pub fn live(name: &str, sample_type: u64, period: u64, ids: Vec<u64>) -> Self {
        let mut attribute = Self {
            period,
            sample_type,
            read_format: 0,
            branch_sample_type: 0,
            user_registers: 0,
            interrupt_registers: 0,
            flags: SAMPLE_ID_ALL | USE_CLOCKID,
            clock_id: CLOCK_MONOTONIC,
            name: String::new(),
            sampler: Sampler::Other,
            ids,
        };
        attribute.set_name(name);
        attribute
    }

    /// Parses the structure, and returns its own size as well.
    pub(crate) fn parse(bytes: Bytes<'_>) -> Option<(Self, u64)> {
        let mut from = bytes;
        let _type = from.u32()?;
        let size = from.u32()?;
        let mut rest = bytes;
        let fields = rest.take(size.into())?;
        // Older versions are shorter: missing fields are 0.
        let at = |offset: u64| {
            let mut field = fields;
            field.take(offset).and_then(|_| field.u64()).unwrap_or(0)
        };
        let attribute = Self {
            period: if at(40) & FREQ == 0 { at(16) } else { 0 },
            sample_type: at(24),
            read_format: at(32),
            flags: at(40),
            branch_sample_type: at(72),
            user_registers: at(80).count_ones(),
            clock_id: (at(88) >> 32) as u32,
            interrupt_registers: at(96).count_ones(),
            name: String::new(),
            sampler: Sampler::Other,
            ids: Vec::new(),
        };
        (size >= 64).then_some((attribute, size.into()))
    }

    /// Whether its samples have this field.
    #[inline]
    pub fn has(&self, what: u64) -> bool {
        self.sample_type & what != 0
    }

    /// Whether the kernel counts lost samples of each counter, `PERF_FORMAT_LOST`: perf then writes their number at the end of
    /// the file, besides the losses of each ring on the way.
    pub fn counts_lost(&self) -> bool {
        self.read_format & (1 << 4) != 0
    }

    /// Whether its times are those of `CLOCK_MONOTONIC`, not of perf's default clock.
    pub fn is_monotonic(&self) -> bool {
        self.flags & USE_CLOCKID != 0 && self.clock_id == CLOCK_MONOTONIC
    }

    /// Size of the trailer of records other than samples, which has their thread and time; 0 if there is none.
    pub(crate) fn trailer(&self) -> u64 {
        let fields = self.sample_type & (TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER);
        if self.flags & SAMPLE_ID_ALL == 0 { 0 } else { u64::from(fields.count_ones()) * 8 }
    }

    /// Sets the name, and the sampler that follows from it.
    pub(crate) fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        let is = |part: &str| name.contains(part);
        self.sampler = if is("ibs_op") {
            Sampler::Ibs
        } else if is("arm_spe") {
            Sampler::Spe
        } else if is("mem-loads") || is("mem-stores") || is("ldlat") {
            Sampler::Pebs
        } else {
            Sampler::Other
        };
    }
}
