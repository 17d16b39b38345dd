//! The plugin's state of each virtual CPU. Only the CPU's own thread writes it, so its atomics are plain loads and
//! stores; other threads only read.

use machine::Random;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering::Relaxed};

/// Maximum number of classes of lines by their low address bits, which are the same in virtual and physical addresses. The
/// lines of an L1 set are all of one class, so the line last used in a class is the most recently used of its set.
const CLASSES: usize = 64;

/// A virtual CPU. Aligned so that no two share a cache line of the host.
#[repr(align(128))]
pub(crate) struct Vcpu {
    /// Simulated time without the instructions that are not settled yet, ps.
    time_ps: AtomicU64,
    /// When its next report is due, ps.
    pub(crate) report_at_ps: AtomicU64,
    /// Instructions executed since the last check: QEMU's scoreboard, which translated code increments.
    executed: AtomicPtr<u64>,
    /// How many of them have been converted to time.
    settled: AtomicU64,
    /// Time of theirs that is less than a ps, in [`FRACTIONS`].
    rest: AtomicU64,
    instructions: AtomicU64,
    /// How long it ran, and how much of that it waited for memory, ps.
    ran_ps: AtomicU64,
    waited_ps: AtomicU64,
    /// The virtual line last used in each class: using it again is a hit in L1 that changes nothing there. This is
    /// exact except for the first access after a change of address space, so it is cleared at every report.
    recent: [AtomicU64; CLASSES],
    /// The bits of a line's number that are its class.
    class_bits: u64,
    /// The line whose loaded values the model needs.
    wanted: AtomicU64,
    recent_loads: AtomicU64,
    recent_stores: AtomicU64,
    /// Those of them that were published.
    published: [AtomicU64; 2],
    /// One in this many misses is sampled, on average; 0 for none.
    sample_period: AtomicU64,
    /// Misses up to the next sample, included; 0 before the first miss.
    until_sample: AtomicU64,
    /// State of the random numbers that spread samples.
    random: AtomicU64,
    /// QEMU's condition variable that it waits for while it is halted; null until the first halt.
    pub(crate) halted_at: AtomicPtr<c_void>,
    /// Whether it has stored, for each reader: [`STORED_SINCE_LOOK`] and [`STORED_SINCE_SPINNING`].
    stored: AtomicU8,
    /// How many accesses the model has seen since its last check, without those of `repeated`.
    modelled: AtomicU64,
    /// The line of each class that was forgotten last: one that CPUs write in turns.
    forgotten: [AtomicU64; CLASSES],
    /// Loads of such a line again, and how many of them came one after another.
    repeated: AtomicU64,
    in_row: AtomicU64,
    /// Since when it spins, and when it did so last, ps.
    spins_since_ps: AtomicU64,
    spun_at_ps: AtomicU64,
    /// Repeated loads as of its last check, of `recent` lines and of `forgotten` ones.
    loads_at_look: AtomicU64,
    /// Its program has read the clock, and does not know the time yet.
    clock_read: AtomicBool,
}

const NOTHING: u64 = u64::MAX;
/// Parts of a ps in which the time of instructions is counted. Instructions between two checks are thousands at most.
pub(crate) const FRACTIONS: u64 = 1024;
/// Bits of [`Vcpu::stored`].
const STORED_SINCE_LOOK: u8 = 1;
const STORED_SINCE_SPINNING: u8 = 2;
/// Longest time between two turns of a loop that waits, ps.
const MOST_BETWEEN_SPINS_PS: u64 = 2_000_000;
/// The number of misses between two samples differs from the period by at most this part of it: samples at equal distances
/// would follow the rhythm of loops, and see a load and a store in turns as loads only.
const SPREAD: u64 = 8;
/// Maximum number of accesses that the model sees of a spinning CPU between two of its checks: each of its lines once,
/// since a report clears its last used lines.
const SPINNING_LINES: u64 = 8;

/// Repeated loads of lines that are written in turns from which on a CPU waits: some 50 ns of a loop.
const SPINS_IN_ROW: u64 = 16;

/// A line in [`Vcpu::recent`] that was written: line numbers have 58 bits.
const fn written(line: u64) -> u64 {
    line | 1 << 62
}

fn add(to: &AtomicU64, value: u64) {
    to.store(to.load(Relaxed).wrapping_add(value), Relaxed);
}

impl Vcpu {
    /// The CPU of this index, as each has random numbers of its own, whose L1 cache has a multiple of this number of sets.
    pub(crate) fn new(index: usize, sets: u64) -> Self {
        Self {
            time_ps: AtomicU64::new(0),
            report_at_ps: AtomicU64::new(0),
            executed: AtomicPtr::default(),
            settled: AtomicU64::new(0),
            rest: AtomicU64::new(0),
            instructions: AtomicU64::new(0),
            ran_ps: AtomicU64::new(0),
            waited_ps: AtomicU64::new(0),
            recent: [const { AtomicU64::new(NOTHING) }; CLASSES],
            class_bits: (1_u64 << sets.trailing_zeros()).min(CLASSES as u64) - 1,
            wanted: AtomicU64::new(NOTHING),
            recent_loads: AtomicU64::new(0),
            recent_stores: AtomicU64::new(0),
            published: [const { AtomicU64::new(0) }; 2],
            sample_period: AtomicU64::new(0),
            until_sample: AtomicU64::new(0),
            random: AtomicU64::new(index as u64),
            halted_at: AtomicPtr::default(),
            stored: AtomicU8::new(0),
            modelled: AtomicU64::new(0),
            forgotten: [const { AtomicU64::new(NOTHING) }; CLASSES],
            repeated: AtomicU64::new(0),
            in_row: AtomicU64::new(0),
            spins_since_ps: AtomicU64::new(0),
            spun_at_ps: AtomicU64::new(0),
            loads_at_look: AtomicU64::new(0),
            clock_read: AtomicBool::new(false),
        }
    }

    /// Resets everything but time. `executed` is the CPU's scoreboard entry.
    pub(crate) fn start(&self, executed: *mut u64) {
        self.executed.store(executed, Relaxed);
        self.set_time_ps(0);
        for counter in [
            &self.settled,
            &self.rest,
            &self.instructions,
            &self.ran_ps,
            &self.waited_ps,
            &self.recent_loads,
            &self.recent_stores,
            &self.until_sample,
            &self.spins_since_ps,
            &self.spun_at_ps,
        ]
        .into_iter()
        .chain(&self.published)
        {
            counter.store(0, Relaxed);
        }
        self.forget_recent();
    }

    pub(crate) fn set_time_ps(&self, time_ps: u64) {
        self.time_ps.store(time_ps, Relaxed);
        self.report_at_ps.store(time_ps, Relaxed);
    }

    /// Adds running time other than that of its own instructions.
    pub(crate) fn run_ps(&self, ps: u64) {
        add(&self.time_ps, ps);
        add(&self.ran_ps, ps);
    }

    /// Adds waiting time for memory.
    pub(crate) fn wait_ps(&self, ps: u64) {
        self.run_ps(ps);
        add(&self.waited_ps, ps);
    }

    /// Converts the instructions executed since the last call to time, each as many [`FRACTIONS`] of a ps. Returns the time,
    /// ps. Only by the CPU's own thread.
    pub(crate) fn settle(&self, instruction: u64) -> u64 {
        let executed = self.executed.load(Relaxed);
        // SAFETY: QEMU's scoreboard entry of this CPU, which only this thread and the code it runs write. QEMU moves
        // scoreboards only when CPUs are added, and none is after `start`.
        let executed = if executed.is_null() { 0 } else { unsafe { executed.read() } };
        let instructions = executed - self.settled.load(Relaxed);
        self.settled.store(executed, Relaxed);
        add(&self.instructions, instructions);
        let fractions = self.rest.load(Relaxed) + instructions * instruction;
        self.rest.store(fractions % FRACTIONS, Relaxed);
        self.run_ps(fractions / FRACTIONS);
        self.time_ps()
    }

    /// Ends a check, after the time was settled. By the CPU's own thread only.
    pub(crate) fn looked(&self) {
        let executed = self.executed.load(Relaxed);
        if !executed.is_null() {
            // SAFETY: as in `settle`.
            unsafe { executed.write(0) };
        }
        self.settled.store(0, Relaxed);
    }

    pub(crate) fn time_ps(&self) -> u64 {
        self.time_ps.load(Relaxed)
    }

    pub(crate) fn instructions(&self) -> u64 {
        self.instructions.load(Relaxed)
    }

    pub(crate) fn ran_ps(&self) -> u64 {
        self.ran_ps.load(Relaxed)
    }

    pub(crate) fn waited_ps(&self) -> u64 {
        self.waited_ps.load(Relaxed)
    }

    #[inline]
    fn class(&self, line: u64) -> usize {
        // Less than the number of classes, which spares a check of the index.
        (line & self.class_bits) as usize % CLASSES
    }

    /// Whether a line is the most recently used one of its set and, for a store, was written; counts the hit if so.
    #[inline]
    pub(crate) fn hits_recent(&self, line: u64, store: bool) -> bool {
        let recent = self.recent[self.class(line)].load(Relaxed);
        let hit = recent == written(line) || !store && recent == line;
        if hit {
            add(if store { &self.recent_stores } else { &self.recent_loads }, 1);
        }
        if store {
            self.stored.store(STORED_SINCE_LOOK | STORED_SINCE_SPINNING, Relaxed);
            self.in_row.store(0, Relaxed);
        }
        hit
    }

    /// Whether it has stored since this reader's last call.
    fn take_stored(&self, reader: u8) -> bool {
        let stored = self.stored.load(Relaxed);
        self.stored.store(stored & !reader, Relaxed);
        stored & reader != 0
    }

    /// It spins at this time. Returns for how long it has done nothing else, ps: a store ends a wait, and so does other
    /// work.
    pub(crate) fn spin(&self, time_ps: u64) -> u64 {
        let is_new = time_ps.saturating_sub(self.spun_at_ps.load(Relaxed)) > MOST_BETWEEN_SPINS_PS;
        self.spun_at_ps.store(time_ps, Relaxed);
        if self.take_stored(STORED_SINCE_SPINNING) || is_new {
            self.spins_since_ps.store(time_ps, Relaxed);
        }
        time_ps.saturating_sub(self.spins_since_ps.load(Relaxed))
    }

    /// Whether it has done nothing since its last check but load a few lines repeatedly, without changes to them: it
    /// waits for another CPU.
    pub(crate) fn spins(&self) -> bool {
        let loads = self.recent_loads.load(Relaxed).wrapping_add(self.repeated.load(Relaxed));
        let loaded = self.loads_at_look.swap(loads, Relaxed) != loads;
        let few = self.modelled.swap(0, Relaxed) <= SPINNING_LINES;
        loaded & few & !self.take_stored(STORED_SINCE_LOOK)
    }

    /// Its program reads the clock, at the CPU's own time. The program's next access must not be skipped.
    pub(crate) fn read_clock(&self) {
        self.clock_read.store(true, Relaxed);
        self.forget_recent();
    }

    /// Whether the clock was read since the last call.
    #[inline]
    pub(crate) fn take_clock_read(&self) -> bool {
        let read = self.clock_read.load(Relaxed);
        if read {
            self.clock_read.store(false, Relaxed);
        }
        read
    }

    pub(crate) fn set_recent(&self, line: u64, store: bool) {
        add(&self.modelled, 1);
        self.in_row.store(0, Relaxed);
        self.recent[self.class(line)].store(if store { written(line) } else { line }, Relaxed);
    }

    /// Whether the model needs the values loaded from a line.
    #[inline]
    pub(crate) fn wants(&self, line: u64) -> bool {
        self.wanted.load(Relaxed) == line
    }

    pub(crate) fn set_wanted(&self, line: u64) {
        self.wanted.store(line, Relaxed);
    }

    /// The line's next use may miss. Returns whether loads of such lines have been repeated often enough, without a store or
    /// another line's miss between, to be those of a loop that waits; a program that looks at a shared word now and then, and
    /// works in its L1 cache, only keeps nearer to the others. It does not matter what served the loads: where a CPU has run
    /// ahead, others have probably used the line in between, by the model.
    pub(crate) fn forget_line(&self, line: u64, store: bool) -> bool {
        let class = self.class(line);
        let is_repeated = !store && self.forgotten[class].load(Relaxed) == line;
        add(if is_repeated { &self.repeated } else { &self.modelled }, 1);
        let in_row = if is_repeated { self.in_row.load(Relaxed) + 1 } else { 0 };
        self.in_row.store(in_row % SPINS_IN_ROW, Relaxed);
        self.forgotten[class].store(line, Relaxed);
        self.recent[class].store(NOTHING, Relaxed);
        in_row == SPINS_IN_ROW
    }

    pub(crate) fn forget_recent(&self) {
        for line in &self.recent {
            line.store(NOTHING, Relaxed);
        }
    }

    /// Loads and stores that hit the most recently used line since the last call. The counters stay as they are: only the
    /// CPU's own thread writes them, and any thread may call this.
    pub(crate) fn take_recent_hits(&self) -> (u64, u64) {
        let [loads, stores] = &self.published;
        let take = |counter: &AtomicU64, published: &AtomicU64| {
            let now = counter.load(Relaxed);
            // Another thread may have looked later and published more.
            now.saturating_sub(published.fetch_max(now, Relaxed))
        };
        (take(&self.recent_loads, loads), take(&self.recent_stores, stores))
    }

    pub(crate) fn set_sample_period(&self, misses: u64) {
        self.sample_period.store(misses, Relaxed);
    }

    /// One in this many misses is sampled, on average; 0 for none.
    pub(crate) fn sample_period(&self) -> u64 {
        self.sample_period.load(Relaxed)
    }

    /// Whether to sample this miss.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        let period = self.sample_period();
        if period == 0 {
            return false;
        }
        let spread = period / SPREAD;
        let until = match self.until_sample.load(Relaxed) {
            0 => 1 + self.random_below(period),
            until => until.min(period + spread),
        };
        let sampled = until == 1;
        let next = if sampled { period - spread + self.random_below(2 * spread + 1) } else { until - 1 };
        self.until_sample.store(next, Relaxed);
        sampled
    }

    fn random_below(&self, end: u64) -> u64 {
        let mut random = Random(self.random.load(Relaxed));
        let number = random.below(end as usize) as u64;
        self.random.store(random.0, Relaxed);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_become_time_once() {
        let mut executed = 10;
        let vcpu = Vcpu::new(0, 64);
        vcpu.start(&raw mut executed);
        // 300 ps and a tenth.
        let instruction = 300 * FRACTIONS + FRACTIONS / 10;
        assert_eq!(vcpu.settle(instruction), 3000);
        assert_eq!((vcpu.settle(instruction), vcpu.instructions()), (3000, 10));
        executed += 5;
        assert_eq!((vcpu.settle(instruction), vcpu.instructions()), (4501, 15));
        vcpu.looked();
        assert_eq!((executed, vcpu.settle(instruction), vcpu.instructions()), (0, 4501, 15));
        vcpu.wait_ps(100);
        vcpu.run_ps(20);
        assert_eq!((vcpu.time_ps(), vcpu.ran_ps(), vcpu.waited_ps()), (4621, 4621, 100));
    }

    #[test]
    fn one_miss_in_a_period_is_sampled() {
        let vcpu = Vcpu::new(0, 64);
        let sampled = |period, misses| {
            vcpu.set_sample_period(period);
            (0..misses).filter(|_| vcpu.is_sampled()).count()
        };
        assert_eq!(sampled(0, 10), 0);
        assert_eq!(sampled(1, 10), 10);
        assert_eq!(sampled(5, 1000), 200);
        assert_eq!(sampled(3, 300), 100);
    }

    #[test]
    fn samples_do_not_follow_the_rhythm_of_a_loop() {
        let vcpu = Vcpu::new(1, 64);
        vcpu.set_sample_period(1000);
        let samples: Vec<u64> = (0..10_000_000).filter(|_| vcpu.is_sampled()).collect();
        assert!(samples.len().abs_diff(10_000) <= 50, "{}", samples.len());
        for rhythm in [2, 3, 8, 10] {
            let first = samples.iter().filter(|miss| **miss % rhythm == 0).count() as u64 * rhythm;
            assert!(first.abs_diff(10_000) < 1_000, "{first} of 10,000 with {rhythm}");
        }
    }

    #[test]
    fn a_store_or_other_work_ends_a_wait() {
        let vcpu = Vcpu::new(0, 64);
        assert_eq!([10, 11, 30].map(|us| vcpu.spin(us * 1_000_000)), [0, 1_000_000, 0], "19 us are other work");
        vcpu.hits_recent(5, true);
        vcpu.hits_recent(5, false);
        assert_eq!([31, 32].map(|us| vcpu.spin(us * 1_000_000)), [0, 1_000_000]);
        assert!(vcpu.take_stored(STORED_SINCE_LOOK) && !vcpu.take_stored(STORED_SINCE_LOOK));
    }

    /// A CPU that waits for a line that others write in turns asks the model for it again and again.
    #[test]
    fn repeated_loads_of_a_line_that_is_written_in_turns_are_a_wait() {
        let vcpu = Vcpu::new(0, 64);
        let accesses = |lines: &mut dyn Iterator<Item = u64>, store: bool| {
            let mut waits = 0;
            for line in lines {
                vcpu.hits_recent(line, store);
                waits += u64::from(vcpu.forget_line(line, store));
            }
            (vcpu.spins(), waits)
        };
        assert_eq!(accesses(&mut (0..300).map(|load| load % 2), false), (true, 298 / SPINS_IN_ROW));
        assert_eq!(accesses(&mut (0..300).map(|load| load % 2), true), (false, 0), "stores are no wait");
        assert_eq!(accesses(&mut (0..300), false), (false, 0), "these are other lines each time");
        vcpu.forget_line(5, false);
        for _ in 1..SPINS_IN_ROW {
            vcpu.forget_line(5, false);
        }
        vcpu.hits_recent(6, true);
        assert_eq!(accesses(&mut (0..300).map(|_| 5), false), (false, 300 / SPINS_IN_ROW), "it has stored");
    }

    #[test]
    fn a_line_is_recent_until_its_class_is_used() {
        let vcpu = Vcpu::new(0, 64);
        assert!(!vcpu.hits_recent(5, false));
        vcpu.set_recent(5, false);
        assert!(!vcpu.hits_recent(5, true) && vcpu.hits_recent(5, false), "not written yet");
        vcpu.set_recent(5, true);
        assert!(vcpu.hits_recent(5, true) && vcpu.hits_recent(5, false));
        vcpu.set_recent(5 + CLASSES as u64, false);
        assert!(!vcpu.hits_recent(5, false));
        assert_eq!(vcpu.take_recent_hits(), (2, 1));
        assert_eq!(vcpu.take_recent_hits(), (0, 0));
        // A cache of 48 sets has lines of one set in each of 16 classes only.
        for (sets, others) in [(48, 16), (1, 1), (128, 64)] {
            let vcpu = Vcpu::new(0, sets);
            let holds_beside = |other: u64| {
                vcpu.set_recent(0, false);
                vcpu.set_recent(other, false);
                vcpu.hits_recent(0, false)
            };
            assert!(!holds_beside(others) && (others == 1 || holds_beside(others / 2)), "{sets}");
        }
    }
}
