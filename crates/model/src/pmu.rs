//! The virtual PMU: memory shared by the lab's plugin, which writes it, the guest, which sees it as a PCI device's
//! memory, and the host.
//!
//! It holds a control block, the counters as JSON, and a ring of samples. All of it is atomic words, since each side
//! may write at any time; a reader validates what it reads.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use std::time::{Duration, Instant};
use std::{io, thread};

/// Total size in bytes: a power of two, as PCI requires.
pub const BYTES: usize = 32 << 20;
/// Samples in the ring.
pub const SLOTS: u64 = 1 << 17;
/// PCI vendor and device ID of QEMU's shared memory device (`ivshmem-plain`).
pub const PCI_IDS: (u16, u16) = (0x1af4, 0x1110);
/// The device file of this memory. The reader of its samples holds a lock on it (`flock`).
pub const PCI_RESOURCE: &str = "resource2";
/// Machine file of the simulated machine, in the guest.
pub const MACHINE_FILE: &str = "/run/nearside/machine.toml";

const MAGIC: u64 = u64::from_le_bytes(*b"nearside");
const VERSION: u64 = 6;

/// Words of the control block.
mod word {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const COMMAND: usize = 2;
    pub const STATE: usize = 3;
    pub const PERIOD: usize = 4;
    pub const CURRENT_TASK: usize = 5;
    pub const TID: usize = 6;
    pub const PID: usize = 7;
    pub const NAME: usize = 8;
    pub const WITH_NAMES: usize = 9;
    pub const TIME_PS: usize = 10;
    pub const ADDRESS_SPACE: usize = 11;
    pub const PAGE_TABLE: usize = 12;
    pub const INPUT_ASKED: usize = 13;
    pub const INPUT_ANSWERED: usize = 14;
    pub const COUNTERS_ASKED: usize = 15;
    pub const HEAD: usize = 16;
    pub const TAIL: usize = 24;
    pub const DROPPED: usize = 25;
    pub const COUNTERS_BYTES: usize = 26;
    pub const COUNTERS_CLOCK_NS: usize = 27;
    /// Twice the number of changes of the counters: odd while they are being changed.
    pub const COUNTERS_CHANGES: usize = 28;
    pub const PAUSE_TICKS: usize = 32;
    pub const PAUSE_CLOCK_NS: usize = 33;
    pub const COUNTERS: usize = 64;
    pub const RING: usize = COUNTERS + (super::COUNTERS_MAX / 8);
}
/// Longest time for one publication: its thread may wait for a CPU of a busy host.
const MOST_PUBLISHING: Duration = Duration::from_secs(10);
/// Time between two looks whether one has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Room for the counters, bytes.
const COUNTERS_MAX: usize = 4 << 20;
const SLOT_WORDS: usize = 15;
const _: () = assert!((word::RING + SLOTS as usize * SLOT_WORDS) * 8 <= BYTES);

/// Commands to the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the guest at full speed, with the host's clock.
    Rest,
    /// Time every memory access.
    Measure,
}

/// Where the guest's kernel keeps the identity of the running thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOffsets {
    /// Offset of the pointer to the running task, from a CPU's per-CPU base.
    pub current_task: u64,
    /// Offset of `pid` (the thread's ID) in `task_struct`.
    pub tid: u64,
    /// Offset of `tgid` (the process's ID) in `task_struct`.
    pub pid: u64,
    /// Offset of `comm` (the thread's name) in `task_struct`.
    pub name: u64,
    /// Offset of `active_mm` (the address space in use) in `task_struct`.
    pub address_space: u64,
    /// Offset of `pgd` (its page table) in `mm_struct`.
    pub page_table: u64,
}

/// An observed access that missed the L1 cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Simulated time since the measured command began, ps.
    pub time_ps: u64,
    /// The CPU's time stamp counter at that moment; the counter that guest programs read is ahead by a constant.
    pub ticks: u64,
    /// QEMU's guest time at that moment, ns; the guest's clocks are ahead by a constant.
    pub clock_ns: u64,
    /// Address of the instruction.
    pub instruction: u64,
    /// Virtual address of the data.
    pub address: u64,
    /// Physical address of the data, as the guest sees it.
    pub physical_address: u64,
    /// Latency of the access, ps.
    pub latency_ps: u64,
    /// Stall of the core beyond the time of the instruction, ps: shorter than the latency if it had other work.
    pub stall_ps: u64,
    /// The CPU.
    pub cpu: u32,
    /// The process; 0 if unknown.
    pub pid: u32,
    /// The thread; 0 if unknown.
    pub tid: u32,
    /// The serving node.
    pub node: u32,
    /// Whether it was a store.
    pub store: bool,
    /// The serving level: 1 to 3 for a cache of that level, 4 for memory, 5 for a cache of another core or node.
    pub level: u8,
    /// The number of misses that this sample represents.
    pub period: u64,
    /// The thread's name, if names are enabled.
    pub name: [u8; 16],
}

/// A snapshot of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// [`crate::Measured`], as JSON.
    pub json: Vec<u8>,
    /// QEMU's guest time at the snapshot, ns; the guest's clocks are ahead by a constant.
    pub clock_ns: u64,
}

/// A view of the shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Pmu<'a> {
    words: &'a [AtomicU64],
}

/// The shared memory is not a virtual PMU of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no virtual PMU found: {0}")]
pub struct NoPmu(String);

impl<'a> Pmu<'a> {
    /// Creates a virtual PMU in zeroed memory of [`BYTES`] bytes.
    pub fn create(words: &'a [AtomicU64]) -> Result<Self, NoPmu> {
        let pmu = Self::sized(words)?;
        words[word::VERSION].store(VERSION, Relaxed);
        words[word::MAGIC].store(MAGIC, Release);
        Ok(pmu)
    }

    /// Opens a virtual PMU that another side has created.
    pub fn open(words: &'a [AtomicU64]) -> Result<Self, NoPmu> {
        let pmu = Self::sized(words)?;
        if words[word::MAGIC].load(Acquire) != MAGIC {
            return Err(NoPmu("its first word is not the magic number".into()));
        }
        match words[word::VERSION].load(Relaxed) {
            VERSION => Ok(pmu),
            other => Err(NoPmu(format!("it has version {other}, this program supports {VERSION}"))),
        }
    }

    fn sized(words: &'a [AtomicU64]) -> Result<Self, NoPmu> {
        if words.len() * 8 < BYTES {
            return Err(NoPmu(format!("{} bytes are too few, it has {BYTES}", words.len() * 8)));
        }
        Ok(Self { words })
    }

    fn get(&self, index: usize) -> u64 {
        self.words[index].load(Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Relaxed);
    }

    /// The current command to the plugin.
    pub fn command(&self) -> Command {
        if self.words[word::COMMAND].load(Acquire) == 0 { Command::Rest } else { Command::Measure }
    }

    /// Sets the command. The plugin obeys within a millisecond of host time, and reports it in [`Self::state`].
    pub fn set_command(&self, command: Command) {
        self.words[word::COMMAND].store(u64::from(command == Command::Measure), Release);
    }

    /// The plugin's current state.
    pub fn state(&self) -> Command {
        if self.words[word::STATE].load(Acquire) == 0 { Command::Rest } else { Command::Measure }
    }

    /// For the plugin only.
    pub fn set_state(&self, state: Command) {
        self.words[word::STATE].store(u64::from(state == Command::Measure), Release);
    }

    /// For the guest only: counts a request to the host for input. Simulated time stops until the host answers.
    pub fn ask_for_input(&self) {
        self.words[word::INPUT_ASKED].fetch_add(1, Release);
    }

    /// For the host only: answers this many requests, because input was sent or there is none yet.
    pub fn answer_input(&self, questions: u64) {
        self.words[word::INPUT_ANSWERED].fetch_max(questions, Release);
    }

    /// Whether a request for input is unanswered. The host may answer before the guest has counted its request here.
    pub fn waits_for_input(&self) -> bool {
        self.words[word::INPUT_ASKED].load(Acquire) > self.words[word::INPUT_ANSWERED].load(Acquire)
    }

    /// The sampling period: misses of the L1 cache per sample, on each CPU; 0 for none.
    pub fn period(&self) -> u64 {
        self.get(word::PERIOD)
    }

    /// Sets the sampling period.
    pub fn set_period(&self, misses: u64) {
        self.set(word::PERIOD, misses);
    }

    /// Whether samples carry the thread's name, which costs host time.
    pub fn with_names(&self) -> bool {
        self.get(word::WITH_NAMES) != 0
    }

    /// Enables or disables names.
    pub fn set_with_names(&self, on: bool) {
        self.set(word::WITH_NAMES, u64::from(on));
    }

    /// Where the guest's kernel keeps the running thread; all 0 until the guest has set them.
    pub fn task_offsets(&self) -> TaskOffsets {
        TaskOffsets {
            current_task: self.get(word::CURRENT_TASK),
            tid: self.get(word::TID),
            pid: self.get(word::PID),
            name: self.get(word::NAME),
            address_space: self.get(word::ADDRESS_SPACE),
            page_table: self.get(word::PAGE_TABLE),
        }
    }

    /// Sets where the guest's kernel keeps the running thread.
    pub fn set_task_offsets(&self, offsets: TaskOffsets) {
        self.set(word::TID, offsets.tid);
        self.set(word::PID, offsets.pid);
        self.set(word::NAME, offsets.name);
        self.set(word::ADDRESS_SPACE, offsets.address_space);
        self.set(word::PAGE_TABLE, offsets.page_table);
        self.set(word::CURRENT_TASK, offsets.current_task);
    }

    /// Simulated time since the measured command began, ps.
    pub fn time_ps(&self) -> u64 {
        self.get(word::TIME_PS)
    }

    /// For the plugin only.
    pub fn set_time_ps(&self, time_ps: u64) {
        self.set(word::TIME_PS, time_ps);
    }

    /// For the plugin only: the clocks when a CPU was about to execute `pause`. See [`Sample::ticks`] and
    /// [`Sample::clock_ns`].
    pub fn note_pause(&self, ticks: u64, clock_ns: u64) {
        // The latest CPU wins, so that a reader's view never goes back in time.
        self.words[word::PAUSE_TICKS].fetch_max(ticks, Relaxed);
        self.words[word::PAUSE_CLOCK_NS].fetch_max(clock_ns, Relaxed);
    }

    /// The host's time stamp counter at the last `pause` of any CPU.
    pub fn pause_ticks(&self) -> u64 {
        self.get(word::PAUSE_TICKS)
    }

    /// QEMU's guest time at the last `pause` of any CPU, ns.
    pub fn pause_clock_ns(&self) -> u64 {
        self.get(word::PAUSE_CLOCK_NS)
    }

    /// For the guest only: requests the current counters. The plugin publishes them before this returns.
    pub fn ask_for_counters(&self) {
        self.words[word::COUNTERS_ASKED].fetch_add(1, Release);
    }

    /// Number of times that the guest has requested the counters.
    pub fn counters_asked(&self) -> u64 {
        self.words[word::COUNTERS_ASKED].load(Acquire)
    }

    /// Number of times that the counters have been published: it grows when they are new.
    pub fn counters_round(&self) -> u64 {
        self.words[word::COUNTERS_CHANGES].load(Acquire) / 2
    }

    /// The counters as last published, which the plugin does on request and at the end; `None` while it is publishing.
    pub fn counters_json(&self) -> Option<Published> {
        let before = self.words[word::COUNTERS_CHANGES].load(Acquire);
        let bytes = (self.get(word::COUNTERS_BYTES) as usize).min(COUNTERS_MAX);
        let words = &self.words[word::COUNTERS..word::RING];
        let mut json: Vec<u8> =
            words.iter().take(bytes.div_ceil(8)).flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        json.truncate(bytes);
        let clock_ns = self.get(word::COUNTERS_CLOCK_NS);
        fence(Acquire);
        let whole = before.is_multiple_of(2) && self.get(word::COUNTERS_CHANGES) == before;
        whole.then_some(Published { json, clock_ns })
    }

    /// The same at the end of a run: waits while the plugin is publishing, which may have to wait for a CPU itself.
    pub fn last_counters_json(&self) -> io::Result<Published> {
        let until = Instant::now() + MOST_PUBLISHING;
        loop {
            if let Some(published) = self.counters_json() {
                return Ok(published);
            }
            if Instant::now() >= until {
                let why = format!("the plugin has been changing them for {} s", MOST_PUBLISHING.as_secs());
                return Err(io::Error::other(why));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// For the plugin only: publishes the counters and QEMU's guest time. Fails with the needed size if there is too
    /// little room.
    pub fn set_counters_json(&self, json: &[u8], clock_ns: u64) -> Result<(), NoPmu> {
        if json.len() > COUNTERS_MAX {
            return Err(NoPmu(format!("the counters need {} bytes and have {COUNTERS_MAX}", json.len())));
        }
        let changes = self.get(word::COUNTERS_CHANGES);
        self.set(word::COUNTERS_CHANGES, changes.wrapping_add(1));
        fence(Release);
        for (word, bytes) in self.words[word::COUNTERS..].iter().zip(json.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        self.set(word::COUNTERS_CLOCK_NS, clock_ns);
        self.set(word::COUNTERS_BYTES, json.len() as u64);
        self.words[word::COUNTERS_CHANGES].store(changes.wrapping_add(2), Release);
        Ok(())
    }

    /// Appends a sample to the ring; with a full ring it is counted as dropped.
    pub fn push(&self, sample: &Sample) {
        let head = &self.words[word::HEAD];
        let mut at = head.load(Relaxed);
        loop {
            // The reader owns the tail: an invalid value only makes the ring look full or empty.
            if at.wrapping_sub(self.words[word::TAIL].load(Acquire)) >= SLOTS {
                self.words[word::DROPPED].fetch_add(1, Relaxed);
                return;
            }
            match head.compare_exchange_weak(at, at.wrapping_add(1), Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => at = now,
            }
        }
        let slot = self.slot(at);
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let name = |half: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&sample.name[half * 8..half * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let values = [
            sample.time_ps,
            sample.instruction,
            sample.address,
            sample.physical_address,
            sample.latency_ps,
            pair(sample.cpu, sample.node),
            pair(sample.pid, sample.tid),
            pair(u32::from(sample.store), u32::from(sample.level)),
            name(0),
            name(1),
            sample.ticks,
            sample.clock_ns,
            sample.period,
            sample.stall_ps,
        ];
        for (word, value) in slot[1..].iter().zip(values) {
            word.store(value, Relaxed);
        }
        slot[0].store(at.wrapping_add(1), Release);
    }

    /// Removes the oldest sample from the ring. One reader at a time.
    pub fn pop(&self) -> Option<Sample> {
        let at = self.words[word::TAIL].load(Relaxed);
        let slot = self.slot(at);
        if slot[0].load(Acquire) != at.wrapping_add(1) {
            return None;
        }
        let value = |index: usize| slot[index + 1].load(Relaxed);
        let (high, low) = (|index| (value(index) >> 32) as u32, |index| value(index) as u32);
        let mut name = [0; 16];
        name[..8].copy_from_slice(&value(8).to_le_bytes());
        name[8..].copy_from_slice(&value(9).to_le_bytes());
        let sample = Sample {
            time_ps: value(0),
            instruction: value(1),
            address: value(2),
            physical_address: value(3),
            latency_ps: value(4),
            cpu: high(5),
            node: low(5),
            pid: high(6),
            tid: low(6),
            store: high(7) != 0,
            level: low(7) as u8,
            name,
            ticks: value(10),
            clock_ns: value(11),
            period: value(12),
            stall_ps: value(13),
        };
        self.words[word::TAIL].store(at.wrapping_add(1), Release);
        Some(sample)
    }

    /// Samples dropped because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.get(word::DROPPED)
    }

    fn slot(&self, at: u64) -> &'a [AtomicU64] {
        let start = word::RING + (at % SLOTS) as usize * SLOT_WORDS;
        &self.words[start..start + SLOT_WORDS]
    }
}

#[cfg(test)]
mod tests;
