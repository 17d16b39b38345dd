//! Makes samples and events of perf's records, in their order.

use super::rounds::Round;
use crate::{Event, FileIdentity, Loss, Sample, StackId, Stacks, What};
use machine::{CpuId, NodeId, Pid, Tid};
use perf_data::kind::{
    AUX, AUXTRACE, COMM, EXIT, FINISHED_ROUND, FORK, ITRACE_START, LOST, LOST_SAMPLES, MMAP, MMAP2, SAMPLE, SWITCH,
    SWITCH_CPU_WIDE, THROTTLE,
};
use perf_data::spe::SpeQueues;
use perf_data::{
    Bytes, IbsOp, Mapping, Named, Observed, SampleFields, Sampler, Served, Session, Task, TaskChange, lost_count,
};
use std::mem;
use std::sync::Arc;

const MISC_CPU_MODE: u16 = 7;
const MISC_KERNEL: u16 = 1;
const MISC_USER: u16 = 2;
const MISC_GUEST_KERNEL: u16 = 4;
const MISC_GUEST_USER: u16 = 5;
/// Entries of call chains above this are context markers: kernel, user, guest.
const CONTEXT_MARKERS: u64 = -4095_i64 as u64;

/// The name of the loss [`Decoder::lost`] for records that found their ring full.
pub const LOST_BY_KERNEL: &str = "samples that the kernel dropped";

/// Decodes records.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The events, and what describes the machine.
    pub session: Session,
    /// The call chains of the samples.
    pub stacks: Stacks,
    /// Data that are missing.
    pub lost: Vec<Loss>,
    /// The data of Arm's SPE, if any.
    pub spe: Option<SpeQueues>,
    /// What has been decoded since the last round ended.
    round: Round,
    /// The latest time seen, and its value at the end of the last round.
    latest: u64,
    latest_of_round: u64,
    /// Bytes of names since then.
    name_bytes: usize,
    chain: Vec<u64>,
}

impl Decoder {
    /// Takes a record. Returns whether it ends a round, which is to be taken then.
    pub fn take(&mut self, kind: u32, misc: u16, body: Bytes<'_>) -> bool {
        let understood = match kind {
            SAMPLE => self.sample(misc, body),
            FINISHED_ROUND => return true,
            MMAP | MMAP2 => self.mapping(kind, misc, body),
            COMM => self.named(misc, body),
            FORK | EXIT => self.task(kind, body),
            LOST => {
                lost_count(body, 8).map(|count| self.lose(LOST_BY_KERNEL, if self.counts_lost() { 0 } else { count }))
            }
            LOST_SAMPLES if self.counts_lost() => lost_count(body, 0).map(|count| self.lose(LOST_BY_KERNEL, count)),
            LOST_SAMPLES => lost_count(body, 0).map(|count| self.lose("samples that the processor dropped", count)),
            THROTTLE => {
                self.lose("times that the kernel throttled sampling", 1);
                Some(())
            }
            SWITCH | SWITCH_CPU_WIDE => self.switch(misc, body),
            // A thread that a processor starts to sample is already running.
            ITRACE_START => self.turn(body, true),
            AUX => self.aux(body),
            AUXTRACE => {
                self.skipped(body);
                Some(())
            }
            _ => self.session.describe(kind, misc, body),
        };
        if understood.is_none() {
            self.lose("records that are too short, or of an unknown event", 1);
        }
        false
    }

    /// Ends the last round, and returns its samples and events, in the order of their records.
    pub fn finish(&mut self) -> (Vec<Sample>, Vec<Event>) {
        let round = self.finish_last_round();
        (round.samples, round.events)
    }

    pub(super) fn finish_last_round(&mut self) -> Round {
        self.latest_of_round = u64::MAX;
        self.finish_round(Round::default())
    }

    /// Ends a round: the rings of all CPUs have been read, so later records are no earlier than the previous round.
    /// Reuses the memory of `used` for the next round.
    pub(super) fn finish_round(&mut self, used: Round) -> Round {
        let until = self.latest_of_round;
        self.advance_spe(until);
        self.latest_of_round = until.max(self.latest);
        self.name_bytes = 0;
        Round { until, ..mem::replace(&mut self.round, used) }
    }

    /// Number of samples of the current round.
    pub(super) fn samples(&self) -> usize {
        self.round.samples.len()
    }

    /// Number of events of the current round. Names count as one more for each 64 bytes, about the size of an event.
    pub(super) fn events(&self) -> usize {
        self.round.events.len() + self.name_bytes / 64
    }

    /// Takes the samples of the current round so far. Reuses the memory of `used`, which is empty.
    pub(super) fn take_samples(&mut self, used: Vec<Sample>) -> Vec<Sample> {
        mem::replace(&mut self.round.samples, used)
    }

    /// Adds a sample. Processors report addresses outside memory for instructions that read the clock, and for
    /// devices.
    pub(super) fn push(&mut self, sample: Sample) {
        if sample.physical.is_some_and(|address| self.session.features.is_outside_of_memory(address)) {
            return self.lose("samples whose physical address is no memory", 1);
        }
        self.latest = self.latest.max(sample.time_ns);
        self.round.samples.push(sample);
    }

    /// Adds an event.
    pub fn event(&mut self, time: u64, pid: Pid, tid: Tid, what: What) {
        if let What::Mapped { name, .. } | What::Named { name, .. } = &what {
            self.name_bytes += name.len();
        }
        let event = Event { time_ns: time, pid, tid, cpu: None, what };
        if let Some(spe) = &mut self.spe {
            spe.know(event.pid, event.tid);
        }
        self.latest = self.latest.max(time);
        self.round.events.push(event);
    }

    /// Whether all samples that the kernel has dropped are in records at the end.
    fn counts_lost(&self) -> bool {
        self.session.attributes().iter().any(perf_data::Attribute::counts_lost)
    }

    /// Counts a loss.
    pub fn lose(&mut self, what: &str, count: u64) {
        Loss::add(&mut self.lost, what, count);
    }

    /// Time of a record other than a sample; 0 for those of what existed already.
    fn time(&self, body: Bytes<'_>) -> u64 {
        self.session.time(body).unwrap_or(self.latest)
    }

    /// Counts data in a format that is not read.
    fn skipped(&mut self, body: Bytes<'_>) {
        let mut from = body;
        if self.spe.is_none() {
            let bytes = from.u64().unwrap_or(0);
            self.lose("bytes of processors' own trace formats, which are not read", bytes);
        }
    }

    fn sample(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        let attribute = self.session.attribute_of(true, body)?;
        let fields = SampleFields::parse(body, attribute)?;
        let (sampler, period) = (attribute.sampler, attribute.period);
        let mut observed = fields.data_source.and_then(Observed::of_data_source);
        let mut cycles = fields.weight.unwrap_or(0);
        let (mut address, mut physical) = (fields.address.unwrap_or(0), fields.physical.filter(|address| *address > 0));
        // Newer kernels decode the registers themselves.
        let registers = fields.raw.filter(|_| sampler == Sampler::Ibs && observed.is_none());
        if let Some(op) = registers.and_then(IbsOp::parse) {
            (observed, address, physical) = (Some(op.observed), op.address, op.physical);
            cycles = op.miss_cycles.into();
        }
        if address == 0 {
            // AMD's processors sample all operations, most of which access no memory.
            self.lose("samples without a data address", u64::from(sampler != Sampler::Ibs));
            return Some(());
        }
        if matches!(misc & MISC_CPU_MODE, MISC_GUEST_KERNEL | MISC_GUEST_USER) {
            // Guest addresses do not belong to the hypervisor's process.
            self.lose("samples of virtual machine guests", 1);
            return Some(());
        }
        let observed = observed.unwrap_or(Observed::NOTHING);
        let Some(cpu) = fields.cpu.or_else(|| self.session.features.cpu_of_counter(attribute, fields.id?)).map(CpuId)
        else {
            self.lose("samples without a CPU (`perf record --sample-cpu` adds it)", 1);
            return Some(());
        };
        let (node, latency_ns) =
            (self.node(cpu, physical, observed), self.session.features.all_cores().nanoseconds(cycles));
        let sample = Sample {
            time_ns: fields.time,
            cpu,
            pid: Pid(fields.pid),
            tid: Tid(fields.tid),
            instruction: fields.instruction,
            address,
            physical,
            kind: observed.kind.into(),
            served: observed.served.map(Into::into),
            node,
            latency_ns,
            kernel: misc & MISC_CPU_MODE == MISC_KERNEL,
            stack: self.chain(fields.instruction, misc & MISC_CPU_MODE == MISC_USER, fields.chain),
            weight: fields.period.unwrap_or(period).max(1) as f32,
            source: sampler.into(),
        };
        self.push(sample);
        Some(())
    }

    /// The node that the line came from. Of memory, by its physical address, or else by the processor's report; of
    /// another cache, by the report, as the line's memory may be elsewhere.
    pub(super) fn node(&self, cpu: CpuId, physical: Option<u64>, observed: Observed) -> Option<NodeId> {
        let features = &self.session.features;
        let home = physical.and_then(|address| features.node_of_memory(address));
        let own = features.node_of_cpu(cpu);
        let other = || own.and_then(|node| features.other_node(node));
        match (observed.served, observed.local) {
            (Some(Served::Peer), Some(true)) => own,
            // With more than two nodes, it is most often the home's.
            (Some(Served::Peer), Some(false)) => home.filter(|home| Some(*home) != own).or_else(other),
            (Some(Served::Dram), Some(true)) => home.or(own),
            (Some(Served::Dram), Some(false)) => home.or_else(other),
            _ => home,
        }
    }

    /// The ID of a call chain, without context markers and without the instruction itself. A program's chain begins where
    /// the sample was taken, which is some instructions after one that the processor names precisely.
    fn chain(&mut self, instruction: u64, is_programs: bool, chain: Bytes<'_>) -> Option<StackId> {
        if chain.0.is_empty() {
            return None;
        }
        self.chain.clear();
        self.chain.extend(chain.u64s().filter(|address| *address < CONTEXT_MARKERS));
        let callers = match self.chain.split_first() {
            Some((first, callers)) if is_programs || *first == instruction => callers,
            _ => &self.chain,
        };
        Some(self.stacks.id(callers))
    }

    fn mapping(&mut self, kind: u32, misc: u16, body: Bytes<'_>) -> Option<()> {
        let mapping = Mapping::parse(kind, misc, body)?;
        if mapping.is_kernels() {
            return Some(());
        }
        let Mapping { pid, tid, start, bytes, offset, build_id, inode, executable, name } = mapping;
        let build_id = build_id.map(Arc::from).or_else(|| self.session.features.build_ids.get(&name).cloned());
        let file = FileIdentity::of_mapping(&name, build_id, inode);
        let what = What::Mapped { start, bytes, offset, name: name.into(), file, executable };
        self.event(self.time(body), pid, tid, what);
        Some(())
    }

    fn named(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        let time = self.time(body);
        let Named { pid, tid, name, exec } = Named::parse(misc, body)?;
        // Sampling may start here, before any other record of the running thread. Records synthesized by perf have
        // time 0.
        if exec && time > 0 {
            self.turn(body, true)?;
        }
        self.event(time, pid, tid, What::Named { name: name.into(), exec });
        Some(())
    }

    fn task(&mut self, kind: u32, body: Bytes<'_>) -> Option<()> {
        let Task { time, pid, tid, change } = Task::parse(kind, body)?;
        let what = match change {
            TaskChange::Ended => What::ThreadEnded,
            TaskChange::ThreadStarted => What::ThreadStarted,
            // perf synthesizes this record, with time 0, for running processes: their own mappings follow.
            TaskChange::ProcessStarted { parent } => What::ProcessStarted { parent: (time > 0).then_some(parent) },
        };
        self.event(time, pid, tid, what);
        Some(())
    }
}
