//! Decodes the records of perf.data into samples and events, in the order of the file.

use super::attribute as has;
use super::attribute::{ADDR, Attribute, ID, IDENTIFIER, TIME};
use super::aux_record::AUX;
use super::bytes::Bytes;
use super::data_source::{IbsOp, Observed};
use super::features::{Features, Timer};
use super::rounds::Round;
use super::sample::SampleFields;
use crate::spe::SpeQueues;
use crate::{AccessKind, Event, FileIdentity, Loss, Sample, Served, Source, Stacks, What};
use linux::{Pid, Tid};
use machine::{CpuId, NodeId};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

// From the kernel's include/uapi/linux/perf_event.h.
const MMAP: u32 = 1;
pub(crate) const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
pub(crate) const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const ITRACE_START: u32 = 12;
const LOST_SAMPLES: u32 = 13;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;
// From the kernel's tools/lib/perf/include/perf/event.h.
const HEADER_ATTR: u32 = 64;
const HEADER_BUILD_ID: u32 = 67;
const FINISHED_ROUND: u32 = 68;
const TIME_CONV: u32 = 79;
const HEADER_FEATURE: u32 = 80;

const MISC_CPU_MODE: u16 = 7;
const MISC_KERNEL: u16 = 1;
const MISC_GUEST_KERNEL: u16 = 4;
const MISC_GUEST_USER: u16 = 5;
const MISC_MMAP_DATA: u16 = 1 << 13;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_BUILD_ID: u16 = 1 << 14;
const PROTECTION_EXECUTE: u32 = 4;
/// Entries of call chains above this are context markers: kernel, user, guest.
const CONTEXT_MARKERS: u64 = -4095_i64 as u64;
/// The pid in records of the kernel's own mappings.
const KERNEL_PID: u32 = u32::MAX;

/// The name of the loss [`Decoder::lost`] for records that found their ring full.
pub(crate) const LOST_BY_KERNEL: &str = "samples that the kernel dropped";

/// Decodes records.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub attributes: Vec<Attribute>,
    pub features: Features,
    pub stacks: Stacks,
    pub lost: Vec<Loss>,
    /// The data of Arm's SPE, if any.
    pub spe: Option<SpeQueues>,
    attribute_of_id: HashMap<u64, usize>,
    /// What has been decoded since the last round ended.
    round: Round,
    /// The latest time seen, and its value at the end of the last round.
    latest: u64,
    latest_of_round: u64,
    chain: Vec<u64>,
}

impl Decoder {
    /// Adds the attribute of an event.
    pub fn add_attribute(&mut self, attribute: Attribute) {
        let number = self.attributes.len();
        self.attribute_of_id.extend(attribute.ids.iter().map(|id| (*id, number)));
        self.attributes.push(attribute);
    }

    /// Names events whose names were stored separately.
    pub fn name_events(&mut self) {
        for (number, attribute) in self.attributes.iter_mut().enumerate() {
            if let Some(name) = self.features.name_of(&attribute.ids, number) {
                attribute.set_name(name);
            }
        }
    }

    /// Takes a record. Returns whether it ends a round, which is to be taken then.
    pub fn take(&mut self, kind: u32, misc: u16, body: Bytes<'_>) -> bool {
        let understood = match kind {
            SAMPLE => self.sample(misc, body),
            FINISHED_ROUND => return true,
            MMAP | MMAP2 => self.mapping(kind, misc, body),
            COMM => self.named(misc, body),
            FORK | EXIT => self.task(kind, body),
            LOST => lost_count(body, 8).map(|count| self.lose(LOST_BY_KERNEL, count)),
            LOST_SAMPLES => lost_count(body, 0).map(|count| self.lose("samples that the processor dropped", count)),
            THROTTLE => {
                self.lose("times that the kernel throttled sampling", 1);
                Some(())
            }
            SWITCH | SWITCH_CPU_WIDE => self.switch(misc, body),
            // A thread that a processor starts to sample is already running.
            ITRACE_START => self.turn(body, true),
            AUX => self.aux(body),
            HEADER_ATTR => self.attribute(body),
            HEADER_FEATURE => self.feature(body),
            HEADER_BUILD_ID => self.features.add_build_id(misc, body),
            TIME_CONV => self.time_conversion(body),
            _ => Some(()),
        };
        if understood.is_none() {
            self.lose("records that are too short, or of an unknown event", 1);
        }
        false
    }

    /// Ends the last round and returns it.
    pub fn finish(&mut self) -> Round {
        self.latest_of_round = u64::MAX;
        self.finish_round(Round::default())
    }

    /// Ends a round: the rings of all CPUs have been read, so later records are no earlier than the previous round.
    /// Reuses the memory of `used` for the next round.
    pub fn finish_round(&mut self, used: Round) -> Round {
        let until = self.latest_of_round;
        self.advance_spe(until);
        self.latest_of_round = until.max(self.latest);
        Round { until, ..mem::replace(&mut self.round, used) }
    }

    /// Adds a sample. Processors report addresses outside memory for instructions that read the clock, and for
    /// devices.
    pub(super) fn push(&mut self, sample: Sample) {
        if sample.physical.is_some_and(|address| self.features.is_outside_of_memory(address)) {
            return self.lose("samples whose physical address is no memory", 1);
        }
        self.latest = self.latest.max(sample.time_ns);
        self.round.samples.push(sample);
    }

    /// Adds an event.
    pub fn event(&mut self, time: u64, pid: u32, tid: u32, what: What) {
        let event = Event { time_ns: time, pid: Pid(pid), tid: Tid(tid), cpu: None, what };
        if let Some(spe) = &mut self.spe {
            spe.know(event.pid, event.tid);
        }
        self.latest = self.latest.max(time);
        self.round.events.push(event);
    }

    pub fn lose(&mut self, what: &str, count: u64) {
        Loss::add(&mut self.lost, what, count);
    }

    /// Finds the event of a record, by the ID at its start or end.
    pub(super) fn attribute_of(&self, sample: bool, body: Bytes<'_>) -> Option<&Attribute> {
        let first = self.attributes.first()?;
        if self.attributes.len() == 1 {
            return Some(first);
        }
        // perf places the IDs of all events of a file at the same position.
        let offset = match (first.has(IDENTIFIER), sample) {
            (true, true) => 0,
            (true, false) => body.0.len().checked_sub(8)?,
            (false, true) if first.has(ID) => {
                8 * (first.sample_type & (has::IP | has::TID | TIME | ADDR)).count_ones() as usize
            }
            (false, false) if first.has(ID) => {
                let after = (first.sample_type & (has::STREAM_ID | has::CPU)).count_ones() as usize;
                body.0.len().checked_sub(8 * (after + 1))?
            }
            (false, _) => return Some(first),
        };
        let id = Bytes(body.0.get(offset..)?).u64()?;
        // Records synthesized by perf have no ID.
        self.attributes.get(self.attribute_of_id.get(&id).copied().unwrap_or(0))
    }

    /// Time of a record other than a sample; 0 for those of what existed already.
    fn time(&self, body: Bytes<'_>) -> u64 {
        let at_end = || {
            let attribute = self.attribute_of(false, body)?;
            let skipped = if attribute.has(has::TID) { 8 } else { 0 };
            let start = (body.0.len() as u64).checked_sub(attribute.trailer())?;
            let mut trailer = body;
            trailer.take(start + skipped)?;
            (attribute.trailer() > 0 && attribute.has(TIME)).then(|| trailer.u64()).flatten()
        };
        at_end().unwrap_or(self.latest)
    }

    fn sample(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        let attribute = self.attribute_of(true, body)?;
        let fields = SampleFields::parse(body, attribute)?;
        let (source, period) = (attribute.source, attribute.period);
        let mut observed = fields.data_source.and_then(Observed::of_data_source);
        let mut cycles = fields.weight.unwrap_or(0);
        let (mut address, mut physical) = (fields.address.unwrap_or(0), fields.physical.filter(|address| *address > 0));
        // Newer kernels decode the registers themselves.
        let registers = fields.raw.filter(|_| source == Source::Ibs && observed.is_none());
        if let Some(op) = registers.and_then(IbsOp::parse) {
            (observed, address, physical) = (Some(op.observed), op.address, op.physical);
            cycles = op.miss_cycles.into();
        }
        if address == 0 {
            // AMD's processors sample all operations, most of which access no memory.
            self.lose("samples without a data address", u64::from(source != Source::Ibs));
            return Some(());
        }
        if matches!(misc & MISC_CPU_MODE, MISC_GUEST_KERNEL | MISC_GUEST_USER) {
            // Guest addresses do not belong to the hypervisor's process.
            self.lose("samples of virtual machine guests", 1);
            return Some(());
        }
        let observed = observed.unwrap_or(Observed { kind: AccessKind::Unknown, served: None, local: None });
        let Some(cpu) = fields.cpu.or_else(|| self.features.cpu_of_counter(attribute, fields.id?)).map(CpuId) else {
            self.lose("samples without a CPU (`perf record --sample-cpu` adds it)", 1);
            return Some(());
        };
        let (node, latency_ns) = (self.node(cpu, physical, observed), self.nanoseconds(cycles));
        let sample = Sample {
            time_ns: fields.time,
            cpu,
            pid: Pid(fields.pid),
            tid: Tid(fields.tid),
            instruction: fields.instruction,
            address,
            physical,
            kind: observed.kind,
            served: observed.served,
            node,
            latency_ns,
            kernel: misc & MISC_CPU_MODE == MISC_KERNEL,
            stack: self.chain(fields.instruction, fields.chain),
            weight: fields.period.unwrap_or(period).max(1) as f32,
            source,
        };
        self.push(sample);
        Some(())
    }

    /// The node of the memory: from its physical address, or else from the processor's report.
    pub(super) fn node(&self, cpu: CpuId, physical: Option<u64>, observed: Observed) -> Option<NodeId> {
        let by_address = physical.and_then(|address| self.features.node_of_memory(address));
        by_address.or_else(|| match (observed.served, observed.local) {
            (Some(Served::Dram), Some(true)) => self.features.node_of_cpu(cpu),
            (Some(Served::Dram), Some(false)) => {
                self.features.node_of_cpu(cpu).and_then(|node| self.features.other_node(node))
            }
            _ => None,
        })
    }

    /// Converts core cycles to ns. `None` for 0 cycles, or if the frequency is unknown.
    pub(super) fn nanoseconds(&self, cycles: u64) -> Option<f32> {
        self.features.all_cores().nanoseconds(cycles)
    }

    /// The ID of a call chain, without context markers and without the instruction itself.
    fn chain(&mut self, instruction: u64, chain: Bytes<'_>) -> Option<crate::StackId> {
        if chain.0.is_empty() {
            return None;
        }
        self.chain.clear();
        self.chain.extend(chain.u64s().filter(|address| *address < CONTEXT_MARKERS));
        let callers = match self.chain.split_first() {
            Some((first, callers)) if *first == instruction => callers,
            _ => &self.chain,
        };
        Some(self.stacks.id(callers))
    }

    fn mapping(&mut self, kind: u32, misc: u16, body: Bytes<'_>) -> Option<()> {
        let time = self.time(body);
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
                build_id = Some(Arc::from(file.0.get(..length)?));
            }
            executable = from.u32()? & PROTECTION_EXECUTE != 0;
            from.u32()?;
        }
        if pid == KERNEL_PID {
            return Some(());
        }
        let name = from.text();
        let name = if name == "//anon" { String::new() } else { name };
        let build_id = build_id.or_else(|| self.features.build_ids.get(&name).cloned());
        let file = has_symbols(&name).then_some(FileIdentity { build_id, inode });
        let what = What::Mapped { start, bytes, offset, name: name.into(), file, executable };
        self.event(time, pid, tid, what);
        Some(())
    }

    fn named(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        let time = self.time(body);
        let mut from = body;
        let (pid, tid) = (from.u32()?, from.u32()?);
        let exec = misc & MISC_COMM_EXEC != 0;
        // Sampling may start here, before any other record of the running thread. Records synthesized by perf have
        // time 0.
        if exec && time > 0 {
            self.turn(body, true)?;
        }
        let what = What::Named { name: from.text().into(), exec };
        self.event(time, pid, tid, what);
        Some(())
    }

    fn task(&mut self, kind: u32, body: Bytes<'_>) -> Option<()> {
        let mut from = body;
        let (pid, parent, tid, _parent_tid) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
        let time = from.u64()?;
        let what = if kind == EXIT {
            What::ThreadEnded
        } else if pid != tid {
            What::ThreadStarted
        } else {
            // perf synthesizes this record, with time 0, for running processes: their own mappings follow.
            What::ProcessStarted { parent: (time > 0).then_some(Pid(parent)) }
        };
        self.event(time, pid, tid, what);
        Some(())
    }

    fn attribute(&mut self, body: Bytes<'_>) -> Option<()> {
        let (attribute, size) = Attribute::parse(body)?;
        let mut ids = body;
        ids.take(size)?;
        self.add_attribute(Attribute { ids: ids.u64s().collect(), ..attribute });
        Some(())
    }

    fn feature(&mut self, body: Bytes<'_>) -> Option<()> {
        let mut from = body;
        let feature = u32::try_from(from.u64()?).ok()?;
        self.features.read(feature, from);
        self.name_events();
        Some(())
    }

    /// Takes the conversion of the time counter to ns. Except on Arm, the counter runs at the processor's base
    /// frequency.
    fn time_conversion(&mut self, body: Bytes<'_>) -> Option<()> {
        self.features.timer = Some(Timer::parse(body)?);
        if self.features.architecture != "aarch64" {
            let mut from = body;
            let (shift, multiplier) = (from.u64()?, from.u64()?);
            let per_ns = 2_f64.powi(i32::try_from(shift).ok()?) / multiplier as f64;
            self.features.cycles_per_ns = Some(per_ns).filter(|per_ns| per_ns.is_finite() && *per_ns > 0.0);
        }
        Some(())
    }
}

/// Whether a mapping's name is that of a file that may have symbols, not one of the kernel's own.
pub(crate) fn has_symbols(name: &str) -> bool {
    name.starts_with('/')
        && !["/anon_hugepage", "/dev/zero", "/SYSV", "/memfd:"].iter().any(|kind| name.starts_with(kind))
}

/// The number of lost records, after `after` bytes.
pub(crate) fn lost_count(body: Bytes<'_>, after: u64) -> Option<u64> {
    let mut from = body;
    from.take(after)?;
    from.u64()
}
