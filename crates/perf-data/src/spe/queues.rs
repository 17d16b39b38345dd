//! Merges the data of all CPUs into accesses in time order, each with its thread. The data of a CPU form one stream,
//! which is read as time advances: the kernel hands it over long after its other records.

use super::record::{SpeRecord, SpeRecords};
use machine::{CpuId, Pid, Tid};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// CPU of per-thread data, recorded wherever the thread ran.
const ANY_CPU: CpuId = CpuId(u32::MAX);
/// Alignment packets refer to memory, where each buffer starts on a page.
const ALIGNMENT: u64 = 32;
/// Maximum number of context switches kept for a CPU whose data have not arrived.
const MOST_TURNS: usize = 1 << 14;

/// The data of all CPUs.
#[derive(Debug, Default)]
pub struct SpeQueues {
    queues: BTreeMap<CpuId, Queue>,
    process_of: HashMap<Tid, Pid>,
    /// Whether data may still arrive for times that have passed.
    is_live: bool,
    /// Whether thread IDs here differ from those that the kernel passes to the processor.
    other_numbers: bool,
}

/// An access with its time, CPU and thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeAccess {
    /// Time, in ns.
    pub time_ns: u64,
    /// The CPU.
    pub cpu: CpuId,
    /// The process and the thread.
    pub thread: (Pid, Tid),
    /// What the processor recorded.
    pub record: SpeRecord,
}

/// From this time on, a CPU runs this thread; `None` if unknown.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Start, in ns.
    since: u64,
    thread: Option<(Pid, Tid)>,
}

/// The data of a CPU.
#[derive(Debug, Default)]
struct Queue {
    /// Data that are not decoded yet.
    buffers: VecDeque<Buffer>,
    data: Vec<u8>,
    /// How much of the data is decoded, in bytes.
    used: usize,
    /// The next record, decoded but later than requested so far.
    next: Option<(u64, SpeRecord)>,
    /// The threads on the CPU, in time order.
    running: VecDeque<Turn>,
}

/// Data that the kernel handed over at once: whole records.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Their offset in memory.
    pub offset: u64,
    /// Where they are stored.
    pub held: Held,
}

/// Where data are stored.
#[derive(Clone, Debug)]
pub enum Held {
    /// In a file: offset and length, in bytes.
    InFile(Arc<File>, u64, u64),
    /// In memory.
    InMemory(Vec<u8>),
}

impl Buffer {
    /// Reads the data, with padding in front so that they are aligned as in memory.
    fn read(self) -> io::Result<Vec<u8>> {
        let before = (self.offset % ALIGNMENT) as usize;
        match self.held {
            Held::InMemory(mut data) => {
                data.splice(..0, std::iter::repeat_n(0, before));
                Ok(data)
            }
            Held::InFile(file, place, bytes) => {
                let there = file.metadata()?.len().saturating_sub(place).min(bytes);
                let mut data = vec![0; before + there as usize];
                file.read_exact_at(data.get_mut(before..).unwrap_or_default(), place)?;
                Ok(data)
            }
        }
    }

    fn bytes(&self) -> u64 {
        match &self.held {
            Held::InFile(_, _, bytes) => *bytes,
            Held::InMemory(data) => data.len() as u64,
        }
    }
}

impl SpeQueues {
    /// Queues for live data. `other_numbers`: whether thread IDs here differ from those that the kernel passes to the
    /// processor.
    pub fn live(other_numbers: bool) -> Self {
        Self { is_live: true, other_numbers, ..Self::default() }
    }

    /// Adds data of a CPU, which continue the previous ones.
    pub fn add(&mut self, cpu: CpuId, buffer: Buffer) {
        self.queues.entry(cpu).or_default().buffers.push_back(buffer);
    }

    /// Notes that a thread belongs to this process.
    pub fn know(&mut self, pid: Pid, tid: Tid) {
        self.process_of.insert(tid, pid);
    }

    /// Notes that, from a time on, a CPU runs this thread; `None` if unknown.
    pub fn switch(&mut self, time: u64, cpu: CpuId, to: Option<(Pid, Tid)>) {
        if let Some((pid, tid)) = to {
            self.know(pid, tid);
        }
        let running = &mut self.queues.entry(cpu).or_default().running;
        running.push_back(Turn { since: time, thread: to });
        if self.is_live && running.len() > MOST_TURNS {
            running.pop_front();
        }
    }

    /// Passes all accesses up to a time to `tell`, and losses to `lose`: what was lost, and how often. `clock`
    /// converts counts of the timer to ns, if it can.
    pub fn advance(
        &mut self,
        limit: u64,
        clock: impl Fn(u64) -> Option<u64>,
        mut lose: impl FnMut(&'static str, u64),
        mut tell: impl FnMut(SpeAccess),
    ) {
        let Self { queues, process_of, is_live, other_numbers } = self;
        let timeless = if *is_live {
            "samples of Arm's SPE from outside the time of the recording"
        } else {
            "samples of Arm's SPE without a time (`ts_enable=1` adds it)"
        };
        let time_of = |ticks: Option<u64>| ticks.and_then(&clock).ok_or(timeless);
        for (&cpu, queue) in queues {
            while let Some((time, record)) = queue.next.take().or_else(|| queue.read(time_of, &mut lose)) {
                if time > limit {
                    queue.next = Some((time, record));
                    break;
                }
                let running = &mut queue.running;
                forget_before(time, running);
                // The processor knows the thread only if the kernel passes its ID.
                let told = record.thread.filter(|_| !*other_numbers).map(Tid);
                let told = told.map(|tid| process_of.get(&tid).map(|pid| (*pid, tid)));
                let thread = told.unwrap_or_else(|| running.front().filter(|turn| turn.since <= time)?.thread);
                match thread {
                    _ if cpu == ANY_CPU => lose("samples of Arm's SPE without a CPU", 1),
                    Some(thread) => tell(SpeAccess { time_ns: time, cpu, thread, record }),
                    None => lose("samples of Arm's SPE from unknown threads", 1),
                }
            }
            // In a live recording, data from before these switches may still arrive.
            if !*is_live {
                forget_before(limit, &mut queue.running);
            }
        }
    }
}

/// Drops the switches before a time, except the last.
fn forget_before(time: u64, running: &mut VecDeque<Turn>) {
    while running.get(1).is_some_and(|turn| turn.since <= time) {
        running.pop_front();
    }
}

impl Queue {
    /// Decodes the next memory access and its time.
    fn read(
        &mut self,
        time_of: impl Fn(Option<u64>) -> Result<u64, &'static str>,
        lose: &mut impl FnMut(&'static str, u64),
    ) -> Option<(u64, SpeRecord)> {
        loop {
            let mut records = SpeRecords::new(&self.data, self.used);
            let record = records.next();
            self.used = records.offset();
            let Some(record) = record else {
                let left = self.data.len() - self.used;
                lose("bytes of Arm's SPE data that are not a valid record", left as u64);
                (self.data, self.used) = (Vec::new(), 0);
                let buffer = self.buffers.pop_front()?;
                let bytes = buffer.bytes();
                match buffer.read() {
                    Ok(data) => self.data = data,
                    Err(_) => lose("bytes of Arm's SPE data that cannot be read", bytes),
                }
                continue;
            };
            if record.address.is_none() || record.operation.is_none() {
                continue;
            }
            match time_of(record.timer) {
                Ok(time) => return Some((time, record)),
                Err(why) => lose(why, 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Operation;
    use super::super::record::tests::written;
    use super::*;
    use proptest::prelude::*;

    const CPU: CpuId = CpuId(3);
    const LOAD: SpeRecord = SpeRecord {
        timer: None,
        thread: None,
        operation: Some(Operation::Load),
        instruction: 0x40_1000,
        privileged: false,
        address: Some(0x7f00_0000_1000),
        physical: None,
        events: 0,
        source: None,
        total_cycles: Some(100),
        issue_cycles: None,
    };

    fn at(ticks: u64, thread: Option<u32>) -> SpeRecord {
        SpeRecord { timer: Some(ticks), thread, ..LOAD }
    }

    /// Time of the accesses, ns, and the timer's count at that time.
    const TIME: u64 = 1_000_000;
    const TICKS: u64 = 500;

    /// The clock of the recording.
    fn clock(ticks: u64) -> Option<u64> {
        (100..=1000).contains(&ticks).then(|| ticks * (TIME / TICKS))
    }

    fn add(queues: &mut SpeQueues, offset: u64, data: Vec<u8>) {
        queues.add(CPU, Buffer { offset, held: Held::InMemory(data) });
    }

    fn told(queues: &mut SpeQueues) -> (Vec<SpeAccess>, Vec<(u64, &'static str)>) {
        let (mut accesses, mut lost) = (Vec::new(), Vec::new());
        let count_loss = |what, count| match lost.iter_mut().find(|(_, of)| *of == what) {
            _ if count == 0 => {}
            Some((sum, _)) => *sum += count,
            None => lost.push((count, what)),
        };
        queues.advance(u64::MAX, clock, count_loss, |access| accesses.push(access));
        (accesses, lost)
    }

    fn thread(number: u32) -> (Pid, Tid) {
        (Pid(7), Tid(number))
    }

    #[test]
    fn data_that_come_late_are_of_whom_ran_then() {
        let mut queues = SpeQueues::live(false);
        queues.switch(TIME - 100, CPU, Some(thread(8)));
        assert_eq!(told(&mut queues), (vec![], vec![]));
        // Two more threads run before the data of the first one arrive.
        queues.switch(TIME + 1_000_000_000, CPU, None);
        queues.switch(TIME + 2_000_000_000, CPU, Some(thread(9)));
        assert_eq!(told(&mut queues), (vec![], vec![]));
        add(&mut queues, 77, written(&at(TICKS, None)));
        let access = SpeAccess { time_ns: TIME, cpu: CPU, thread: (Pid(7), Tid(8)), record: at(TICKS, None) };
        assert_eq!(told(&mut queues), (vec![access], vec![]));
        // An access before the first known switch belongs to no thread.
        queues.switch(TIME + 3_000_000_000, CpuId(4), Some(thread(9)));
        queues.add(CpuId(4), Buffer { offset: 0, held: Held::InMemory(written(&at(TICKS, None))) });
        let unknown = (1, "samples of Arm's SPE from unknown threads");
        assert_eq!(told(&mut queues), (vec![], vec![unknown]));
    }

    #[test]
    fn the_processor_names_threads_by_the_numbers_of_the_first_namespace() {
        for (other_numbers, tid) in [(false, 9), (true, 8)] {
            let mut queues = SpeQueues::live(other_numbers);
            queues.switch(0, CPU, Some(thread(9)));
            queues.switch(1, CPU, Some(thread(8)));
            add(&mut queues, 0, written(&at(TICKS, Some(9))));
            assert_eq!(told(&mut queues).0.first().map(|access| access.thread), Some(thread(tid)));
        }
    }

    #[test]
    fn each_piece_is_read_whatever_was_before() {
        let mut queues = SpeQueues::live(false);
        queues.switch(0, CPU, Some(thread(8)));
        // One buffer is truncated, and one has a time outside the recording.
        let whole = written(&at(TICKS, None));
        add(&mut queues, 5, whole[..whole.len() - 1].to_vec());
        add(
            &mut queues,
            64,
            [whole.clone(), written(&at(u64::MAX, None)), written(&at(1, None)), whole.clone()].concat(),
        );
        let (accesses, lost) = told(&mut queues);
        assert_eq!(accesses.len(), 2);
        let made_none = (whole.len() - 1) as u64;
        let expected = [
            (made_none, "bytes of Arm's SPE data that are not a valid record"),
            (2, "samples of Arm's SPE from outside the time of the recording"),
        ];
        assert_eq!(lost, expected);
    }

    #[test]
    fn a_cpu_without_data_does_not_fill_memory() {
        let mut queues = SpeQueues::live(false);
        for turn in 0..3 * MOST_TURNS as u64 {
            queues.switch(turn, CPU, Some(thread(turn as u32)));
        }
        assert_eq!(queues.queues[&CPU].running.len(), MOST_TURNS);
        add(&mut queues, 0, written(&at(TICKS, None)));
        assert_eq!(told(&mut queues).0.first().map(|access| access.thread), Some(thread(3 * MOST_TURNS as u32 - 1)));
    }

    proptest! {
        #[test]
        fn any_data_and_turns_are_read_or_counted(
            told_of in prop::collection::vec(any::<(u64, Option<u32>, Vec<u8>, bool)>(), 0..20),
        ) {
            let mut queues = SpeQueues::live(false);
            for (place, tid, data, is_record) in told_of {
                queues.switch(place, CPU, tid.map(thread));
                add(&mut queues, place, if is_record { written(&at(TICKS, tid)) } else { data });
                let (accesses, _) = told(&mut queues);
                prop_assert!(accesses.iter().all(|access| access.record.address.is_some()));
            }
        }
    }
}
