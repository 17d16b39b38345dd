//! `struct perf_event_attr`: what an event observes, and the layout of its records. Constants from the kernel's
//! `include/uapi/linux/perf_event.h`.

use super::bytes::Bytes;
use crate::{Clock, Source};

pub(crate) const IP: u64 = 1 << 0;
pub(crate) const TID: u64 = 1 << 1;
pub(crate) const TIME: u64 = 1 << 2;
pub(crate) const ADDR: u64 = 1 << 3;
pub(crate) const READ: u64 = 1 << 4;
pub(crate) const CALLCHAIN: u64 = 1 << 5;
pub(crate) const ID: u64 = 1 << 6;
pub(crate) const CPU: u64 = 1 << 7;
pub(crate) const PERIOD: u64 = 1 << 8;
pub(crate) const STREAM_ID: u64 = 1 << 9;
pub(crate) const RAW: u64 = 1 << 10;
pub(crate) const BRANCH_STACK: u64 = 1 << 11;
pub(crate) const REGS_USER: u64 = 1 << 12;
pub(crate) const STACK_USER: u64 = 1 << 13;
pub(crate) const WEIGHT: u64 = 1 << 14;
pub(crate) const DATA_SRC: u64 = 1 << 15;
pub(crate) const IDENTIFIER: u64 = 1 << 16;
pub(crate) const TRANSACTION: u64 = 1 << 17;
pub(crate) const REGS_INTR: u64 = 1 << 18;
pub(crate) const PHYS_ADDR: u64 = 1 << 19;
pub(crate) const WEIGHT_STRUCT: u64 = 1 << 24;

const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const FREQ: u64 = 1 << 10;
const CLOCK_MONOTONIC: u32 = 1;

/// What an event observes, and the layout of its records.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub branch_sample_type: u64,
    pub user_registers: u32,
    pub interrupt_registers: u32,
    pub flags: u64,
    pub clock_id: u32,
    /// The event in perf's notation; empty if unknown.
    pub name: String,
    /// The source of its samples, which follows from its name.
    pub source: Source,
    /// The IDs of its counters, one per CPU.
    pub ids: Vec<u64>,
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
            source: Source::Perf,
            ids,
        };
        attribute.set_name(name);
        attribute
    }

    /// Parses the structure, and returns its own size as well.
    pub fn parse(bytes: Bytes<'_>) -> Option<(Self, u64)> {
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
            source: Source::Perf,
            ids: Vec::new(),
        };
        (size >= 64).then_some((attribute, size.into()))
    }

    /// Whether its samples have this field.
    #[inline]
    pub fn has(&self, what: u64) -> bool {
        self.sample_type & what != 0
    }

    pub fn clock(&self) -> Clock {
        let chosen = self.flags & USE_CLOCKID != 0 && self.clock_id == CLOCK_MONOTONIC;
        if chosen { Clock::Monotonic } else { Clock::Perf }
    }

    /// Size of the trailer of records other than samples, which has their thread and time; 0 if there is none.
    pub fn trailer(&self) -> u64 {
        let fields = self.sample_type & (TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER);
        if self.flags & SAMPLE_ID_ALL == 0 { 0 } else { u64::from(fields.count_ones()) * 8 }
    }

    /// Sets the name, and the source that follows from it.
    pub fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
        let is = |part: &str| name.contains(part);
        self.source = if is("ibs_op") {
            Source::Ibs
        } else if is("arm_spe") {
            Source::Spe
        } else if is("mem-loads") || is("mem-stores") || is("ldlat") {
            Source::Pebs
        } else {
            Source::Perf
        };
    }
}
