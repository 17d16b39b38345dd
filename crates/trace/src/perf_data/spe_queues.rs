//! The data of Arm's SPE in a perf.data file, which lie between its records. All of a CPU are one stream, read as
//! time goes on: the kernel hands them over long after what it tells otherwise.

use super::attribute::{self as has, ID, TIME};
use super::bytes::Bytes;
use super::decoder::Decoder;
use super::input::Input;
use super::stream::{AUXTRACE, TRACING_DATA};
use crate::spe::{SpeRecord, SpeRecords};
use crate::{Sample, Source};
use linux::{Pid, Tid};
use machine::CpuId;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

// Of the kernel's tools/lib/perf/include/perf/event.h, and tools/perf/util/auxtrace.h.
const AUXTRACE_INFO: u32 = 70;
const ARM_SPE: u32 = 4;
const MISC_SWITCH_OUT: u16 = 1 << 13;
/// Data of a thread, wherever it ran.
const ANY_CPU: u32 = u32::MAX;
/// What aligns data does so in memory, where each buffer begins at a page.
const ALIGNMENT: u64 = 32;

/// The data of all CPUs.
#[derive(Debug)]
pub(crate) struct SpeQueues {
    file: File,
    queues: Vec<Queue>,
    process_of: HashMap<Tid, Pid>,
    /// Who runs on each CPU, in the order of time.
    running: HashMap<CpuId, VecDeque<Turn>>,
}

/// A CPU runs a thread, or none that is known.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// From when on, ns.
    since: u64,
    thread: Option<(Pid, Tid)>,
}

/// The data of a CPU.
#[derive(Debug)]
struct Queue {
    cpu: CpuId,
    /// What is not read yet.
    buffers: VecDeque<Buffer>,
    data: Vec<u8>,
    /// How much of the data is used.
    used: usize,
    /// What was read, and is later than it was asked for.
    next: Option<(u64, SpeRecord)>,
}

/// Data that the kernel has handed over at once: whole records.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// Where they are in the file.
    place: u64,
    bytes: u64,
    /// Where they were in memory, from an aligned address.
    offset: u64,
}

impl Buffer {
    /// Of the body of an `AUXTRACE` record, with the CPU that the data are of.
    fn parse(body: Bytes<'_>, place: u64) -> Option<(CpuId, Self)> {
        let mut from = body;
        let (bytes, offset, _reference) = (from.u64()?, from.u64()?, from.u64()?);
        let (_index, _tid, cpu) = (from.u32()?, from.u32()?, from.u32()?);
        Some((CpuId(cpu), Self { place, bytes, offset: offset % ALIGNMENT }))
    }

    fn read(self, file: &File) -> io::Result<Vec<u8>> {
        let there = file.metadata()?.len().saturating_sub(self.place).min(self.bytes);
        let mut data = vec![0; (self.offset + there) as usize];
        file.read_exact_at(data.get_mut(self.offset as usize..).unwrap_or_default(), self.place)?;
        Ok(data)
    }
}

impl SpeQueues {
    /// Looks where the data are, among the records of a file from `start` on. None if there are none of SPE.
    pub fn find(path: &Path, start: u64, bytes: u64) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        let mut input = Input::new(file.try_clone()?, bytes);
        let mut buffers: BTreeMap<CpuId, VecDeque<Buffer>> = BTreeMap::new();
        let mut is_spe = false;
        while let Some((header, record)) = input.next()? {
            let body = header.body(record).unwrap_or(Bytes(&[]));
            let after = match header.kind {
                AUXTRACE_INFO => {
                    is_spe |= { body }.u32() == Some(ARM_SPE);
                    0
                }
                AUXTRACE => {
                    let buffer = Buffer::parse(body, 0);
                    let place = start + (bytes - input.left());
                    if let Some((cpu, buffer)) = buffer {
                        buffers.entry(cpu).or_default().push_back(Buffer { place, ..buffer });
                    }
                    buffer.map_or(0, |(_, buffer)| buffer.bytes)
                }
                TRACING_DATA => { body }.u32().map_or(0, |bytes| u64::from(bytes).next_multiple_of(8)),
                _ => 0,
            };
            input.skip(after)?;
        }
        let queue = |(cpu, buffers)| Queue { cpu, buffers, data: Vec::new(), used: 0, next: None };
        let queues = buffers.into_iter().map(queue).collect();
        Ok(is_spe.then(|| Self { file, queues, process_of: HashMap::new(), running: HashMap::new() }))
    }

    /// A thread is of this process.
    pub fn know(&mut self, pid: Pid, tid: Tid) {
        self.process_of.insert(tid, pid);
    }

    /// From a time on, a CPU runs this thread, or none that is known.
    pub fn switch(&mut self, time: u64, cpu: CpuId, to: Option<(Pid, Tid)>) {
        self.running.entry(cpu).or_default().push_back(Turn { since: time, thread: to });
    }

    /// Tells of all accesses up to a time.
    pub fn advance(&mut self, limit: u64, decoder: &mut Decoder) {
        for queue in &mut self.queues {
            let running = self.running.entry(queue.cpu).or_default();
            while let Some((time, record)) = queue.next.take().or_else(|| queue.read(&self.file, decoder)) {
                if time > limit {
                    queue.next = Some((time, record));
                    break;
                }
                forget_before(time, running);
                // The processor knows whom it runs only if the kernel tells it.
                let told = record.thread.map(|tid| self.process_of.get(&Tid(tid)).map(|pid| (*pid, Tid(tid))));
                let thread = told.unwrap_or_else(|| running.front().filter(|turn| turn.since <= time)?.thread);
                match thread {
                    _ if queue.cpu.0 == ANY_CPU => decoder.lose("samples of Arm's SPE that do not say on which CPU", 1),
                    Some(thread) => decoder.spe_sample(time, queue.cpu, thread, &record),
                    None => decoder.lose("samples of Arm's SPE of threads that nothing tells of", 1),
                }
            }
            forget_before(limit, running);
        }
    }
}

/// Leaves those who run at a time, and later.
fn forget_before(time: u64, running: &mut VecDeque<Turn>) {
    while running.get(1).is_some_and(|turn| turn.since <= time) {
        running.pop_front();
    }
}

impl Queue {
    /// The next access to memory, and when it was.
    fn read(&mut self, file: &File, decoder: &mut Decoder) -> Option<(u64, SpeRecord)> {
        loop {
            let mut records = SpeRecords::new(&self.data, self.used);
            let record = records.next();
            self.used = records.place();
            let Some(record) = record else {
                let left = self.data.len() - self.used;
                decoder.lose("bytes of Arm's SPE that make no record", left as u64);
                let buffer = self.buffers.pop_front()?;
                let read = buffer.read(file);
                if read.is_err() {
                    decoder.lose("bytes of Arm's SPE that cannot be read", buffer.bytes);
                }
                (self.data, self.used) = (read.unwrap_or_default(), 0);
                continue;
            };
            if record.address.is_none() || record.operation.is_none() {
                continue;
            }
            match record.timer.and_then(|timer| decoder.features.timer?.ns(timer)) {
                Some(time) => return Some((time, record)),
                None => decoder.lose("samples of Arm's SPE without a time (`ts_enable=1` makes them)", 1),
            }
        }
    }
}

impl Decoder {
    /// Takes an access that Arm's SPE has sampled.
    fn spe_sample(&mut self, time: u64, cpu: CpuId, (pid, tid): (Pid, Tid), record: &SpeRecord) {
        let (Some(observed), Some(address)) = (record.observed(self.features.processor), record.address) else {
            return;
        };
        let period =
            self.attributes.iter().find(|attribute| attribute.source == Source::Spe).map_or(1, |spe| spe.period);
        let sample = Sample {
            time_ns: time,
            cpu,
            pid,
            tid,
            instruction: record.instruction,
            address,
            physical: record.physical,
            kind: observed.kind,
            served: observed.served,
            node: self.node(cpu, record.physical, observed),
            latency_ns: self.nanoseconds(record.access_cycles().unwrap_or(0)),
            kernel: record.privileged,
            stack: None,
            weight: period.max(1) as f32,
            source: Source::Spe,
        };
        self.push(sample);
    }

    /// Who runs on a CPU from now on: the record is of who comes or goes.
    pub fn switch(&mut self, misc: u16, body: Bytes<'_>) -> Option<()> {
        let attribute = self.attribute_of(false, body)?;
        let (needed, sample_type) = (has::TID | TIME | has::CPU, attribute.sample_type);
        if self.spe.is_none() || attribute.trailer() == 0 || sample_type & needed != needed {
            return Some(());
        }
        let mut trailer = body;
        trailer.take((body.0.len() as u64).checked_sub(attribute.trailer())?)?;
        let (pid, tid, time) = (Pid(trailer.u32()?), Tid(trailer.u32()?), trailer.u64()?);
        trailer.take_u64s((sample_type & (ID | has::STREAM_ID)).count_ones().into())?;
        let cpu = CpuId(trailer.u32()?);
        let to = (misc & MISC_SWITCH_OUT == 0).then_some((pid, tid));
        if let Some(spe) = &mut self.spe {
            spe.switch(time, cpu, to);
        }
        Some(())
    }
}
