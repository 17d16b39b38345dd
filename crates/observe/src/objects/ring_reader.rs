//! The reading side of a ring. Its content belongs to the program, and may be anything.

use super::{ObjectLosses, text};
use crate::TickClock;
use linux::{Pid, Tid};
use machine::CpuId;
use rings::{
    Head, Kind, MOST_FRAMES, MOST_NAME, NO_CPU, PAGE, RECORD_WORDS, SLOTS, loss, mapped_flags, payload_records, ring,
    ring_stride,
};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use trace::{Event, FileIdentity, StackId, Stacks, What};

/// Maximum length of a path, in words.
const MOST_PATH: usize = 512;

/// The reading side of a ring.
#[derive(Debug)]
pub struct RingReader {
    /// Index of its first word in the file.
    start: usize,
    /// Capacity for records, in words; a power of two.
    capacity: usize,
    read: u64,
    tid: Option<Tid>,
    /// Time of its thread's last record, in ticks.
    told: u64,
    slots: Vec<StackId>,
}

/// The records available for reading, as words.
struct Records<'a> {
    words: &'a [AtomicU64],
    next: u64,
    end: u64,
}

impl Records<'_> {
    fn next(&mut self) -> Option<[u64; RECORD_WORDS]> {
        if self.next >= self.end {
            return None;
        }
        let place = (self.next as usize) & (self.words.len() - 1);
        let words = self.words.get(place..place + RECORD_WORDS)?;
        self.next += RECORD_WORDS as u64;
        let mut record = [0; RECORD_WORDS];
        record.iter_mut().zip(words).for_each(|(word, shared)| *word = shared.load(Relaxed));
        Some(record)
    }

    /// Reads the words behind a record.
    fn words(&mut self, number: usize) -> Option<Vec<u64>> {
        let mut words = Vec::with_capacity(number.next_multiple_of(RECORD_WORDS));
        for _ in 0..payload_records(number) {
            words.extend(self.next()?);
        }
        words.truncate(number);
        Some(words)
    }
}

impl RingReader {
    pub fn new(number: usize, ring_bytes: usize) -> Self {
        let start = (PAGE + number * ring_stride(ring_bytes)) / 8;
        Self { start, capacity: ring_bytes / 8, read: 0, tid: None, told: 0, slots: vec![Stacks::UNKNOWN; SLOTS] }
    }

    fn header<'a>(&self, file: &'a [AtomicU64], word: usize) -> Option<&'a AtomicU64> {
        file.get(self.start + word)
    }

    /// How far the ring is written, in words.
    pub fn written(&self, file: &[AtomicU64]) -> u64 {
        self.header(file, ring::WRITTEN).map_or(0, |written| written.load(Acquire))
    }

    /// Whether everything up to `written` is read.
    pub fn has_read(&self, written: u64) -> bool {
        self.read == written
    }

    /// The losses of its thread.
    pub fn losses<'a>(&self, file: &'a [AtomicU64]) -> Option<Losses<'a>> {
        Losses::at(file.get(self.start..)?, ring::LOST, ring::LOST_SEEN)
    }

    /// At the end, reports the small objects that its thread has counted but not reported.
    pub fn finish(&self, file: &[AtomicU64], context: &mut Context<'_>) {
        for (slot, &stack) in self.slots.iter().enumerate() {
            let count = |word| self.header(file, ring::SMALL + 2 * slot + word).map_or(0, |word| word.load(Relaxed));
            if count(0) != 0 {
                context.push_small(self.told, count(0), count(1), stack);
            }
        }
        if let Some(losses) = self.losses(file) {
            losses.report(context);
        }
    }

    /// Reads up to `written`, and frees that space for the thread.
    pub fn drain(&mut self, file: &[AtomicU64], written: u64, context: &mut Context<'_>) {
        let first = self.start + PAGE / 8;
        let Some(words) = file.get(first..first + self.capacity) else { return };
        let is_sound = written >= self.read
            && written - self.read <= self.capacity as u64
            && written.is_multiple_of(RECORD_WORDS as u64);
        // A thread with no room left waits for it, or soon will.
        let is_full = is_sound && written - self.read > (self.capacity - self.capacity / 8) as u64;
        context.losses.full = context.losses.full.saturating_add(u64::from(is_full));
        let mut records = Records { words, next: self.read, end: if is_sound { written } else { self.read } };
        let mut malformed = u64::from(!is_sound);
        while let Some(record) = records.next() {
            let told = Head::from_words(record).and_then(|head| self.read_record(head, &mut records, context));
            malformed += u64::from(told.is_none());
        }
        context.losses.malformed = context.losses.malformed.saturating_add(malformed);
        // After a malformed record nothing can be decoded: continue where the writer is.
        self.read = if is_sound { written } else { written & !(RECORD_WORDS as u64 - 1) };
        if let Some(read) = self.header(file, ring::READ) {
            read.store(self.read, Release);
        }
        if let Some(losses) = self.losses(file) {
            losses.report(context);
        }
    }

    fn read_record(&mut self, head: Head, records: &mut Records<'_>, context: &mut Context<'_>) -> Option<()> {
        let Head { time, address, bytes, .. } = head;
        let chain = self.slots.get(usize::from(head.slot)).copied();
        self.told = time;
        match head.kind {
            Kind::Chain => {
                let frames = usize::try_from(bytes).ok().filter(|&frames| frames <= MOST_FRAMES)?;
                let chain = records.words(frames)?;
                *self.slots.get_mut(usize::from(head.slot))? = context.stacks.id(&chain);
            }
            Kind::Small => context.push_small(time, address, bytes, chain?),
            Kind::Thread => {
                self.tid = Some(Tid(u32::try_from(bytes).ok()?));
                let is_first = address == 0 && self.tid? != Tid(context.pid.0);
                if is_first {
                    context.push(self.tid?, &head, What::ThreadStarted);
                }
            }
            Kind::ThreadEnded => context.push(self.tid?, &head, What::ThreadEnded),
            Kind::Allocated => context.push(self.tid?, &head, What::Allocated { address, bytes, stack: chain? }),
            Kind::Resized => context.push(self.tid?, &head, What::Resized { address, bytes }),
            Kind::Freed => context.push(self.tid?, &head, What::Freed { address }),
            Kind::Announced => {
                context.push(self.tid?, &head, What::Announced { address, bytes, stack: chain?, name: None });
            }
            Kind::Withdrawn => context.push(self.tid?, &head, What::Withdrawn { address }),
            Kind::Region => {
                let [words, ..] = records.next()?;
                let words = usize::try_from(words).ok().filter(|&words| words <= MOST_NAME.div_ceil(8))?;
                let name = Some(text(records.words(words)?));
                context.push(self.tid?, &head, What::Announced { address, bytes, stack: chain?, name });
            }
            Kind::Unmapped => context.push(self.tid?, &head, What::Unmapped { start: address, bytes }),
            Kind::Remapped => {
                let [old, old_bytes, before, _] = records.next()?;
                let moves = Head { time: before.min(time), ..head };
                context.push(self.tid?, &moves, What::Remapped { old, old_bytes, start: address, bytes });
                // What shrinks in place may be a part of a larger object, which is cut there.
                if old == address && old_bytes != 0 {
                    if bytes > old_bytes {
                        context.push(self.tid?, &head, What::Resized { address, bytes });
                    }
                } else {
                    context.push(self.tid?, &head, What::Allocated { address, bytes, stack: chain? });
                }
            }
            Kind::Mapped => {
                let [offset, flags, path, _] = records.next()?;
                let path = usize::try_from(path).ok().filter(|&words| words <= MOST_PATH)?;
                let name = text(records.words(path)?);
                let has = |flag| flags & flag != 0;
                let file = has(mapped_flags::BINARY).then_some(FileIdentity { build_id: None, inode: 0 });
                let executable = has(mapped_flags::EXECUTABLE);
                context.push(self.tid?, &head, What::Mapped { start: address, bytes, offset, name, file, executable });
                if has(mapped_flags::OBJECT) {
                    context.push(self.tid?, &head, What::Allocated { address, bytes, stack: chain? });
                }
            }
        }
        Some(())
    }
}

/// Lost events, in the layout of [`rings::loss`].
pub struct Losses<'a> {
    words: &'a [AtomicU64],
    seen: &'a AtomicU64,
}

impl<'a> Losses<'a> {
    /// The losses at these word indices. `None` if they are outside the file.
    pub fn at(file: &'a [AtomicU64], words: usize, seen: usize) -> Option<Self> {
        Some(Self { words: file.get(words..=words + loss::END)?, seen: file.get(seen)? })
    }

    fn word(&self, word: usize) -> u64 {
        self.words.get(word).map_or(0, |word| word.load(Acquire))
    }

    /// Number of lost events.
    pub fn count(&self) -> u64 {
        self.word(loss::COUNT)
    }

    /// Marks the objects that lost events may have concerned as unknown: both at the time of the first loss and at
    /// that of the last.
    pub fn report(&self, context: &mut Context<'_>) {
        let count = self.count();
        if self.seen.load(Relaxed) == count {
            return;
        }
        let (start, end) = (self.word(loss::LOW), self.word(loss::END));
        if start < end {
            for time in [loss::FIRST, loss::LAST] {
                let (time_ns, pid, tid) = (context.clock.ns(self.word(time)), context.pid, Tid(context.pid.0));
                let what = What::Invalidated { start, bytes: end - start };
                context.events.push(Event { time_ns, pid, tid, cpu: None, what });
            }
        }
        self.seen.store(count, Release);
    }
}

/// What is needed to read the records of a process, and where the results go.
pub struct Context<'a> {
    pub pid: Pid,
    pub clock: &'a TickClock,
    pub stacks: &'a mut Stacks,
    pub losses: &'a mut ObjectLosses,
    pub events: &'a mut Vec<Event>,
}

impl Context<'_> {
    #[inline]
    fn push(&mut self, tid: Tid, head: &Head, what: What) {
        let cpu = (head.cpu != NO_CPU).then_some(CpuId(head.cpu));
        self.events.push(Event { time_ns: self.clock.ns(head.time), pid: self.pid, tid, cpu, what });
    }

    /// Reports small objects, counted by any of the threads that used the ring.
    fn push_small(&mut self, ticks: u64, objects: u64, bytes: u64, stack: StackId) {
        let (time_ns, tid) = (self.clock.ns(ticks), Tid(self.pid.0));
        let what = What::Counted { objects, bytes, stack };
        self.events.push(Event { time_ns, pid: self.pid, tid, cpu: None, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const RING_BYTES: usize = 64 << 10;

    /// A file with one ring that has these records, and claims to be written up to `written`, in words.
    fn file(records: &[[u64; RECORD_WORDS]], written: u64) -> Vec<AtomicU64> {
        let words = (PAGE + ring_stride(RING_BYTES)) / 8;
        let file: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        for (place, &word) in file.iter().skip((PAGE + PAGE) / 8).zip(records.as_flattened()) {
            place.store(word, Relaxed);
        }
        file[PAGE / 8 + ring::WRITTEN].store(written, Relaxed);
        file
    }

    fn read(records: &[[u64; RECORD_WORDS]], written: u64) -> (Vec<Event>, Stacks, ObjectLosses) {
        read_file(&file(records, written))
    }

    fn read_file(file: &[AtomicU64]) -> (Vec<Event>, Stacks, ObjectLosses) {
        let (mut stacks, mut losses, mut events) = (Stacks::new(), ObjectLosses::default(), Vec::new());
        let clock = TickClock::new(false);
        let (stacks_, losses_, events_) = (&mut stacks, &mut losses, &mut events);
        let mut context = Context { pid: Pid(7), clock: &clock, stacks: stacks_, losses: losses_, events: events_ };
        let mut reader = RingReader::new(0, RING_BYTES);
        let written = reader.written(file);
        reader.drain(file, written, &mut context);
        assert!(
            !written.is_multiple_of(4)
                || (reader.has_read(written) && file[PAGE / 8 + ring::READ].load(Relaxed) == written)
        );
        reader.finish(file, &mut context);
        (events, stacks, losses)
    }

    fn record(kind: Kind, time: u64, address: u64, bytes: u64) -> [u64; RECORD_WORDS] {
        Head { time, kind, address, bytes, slot: 3, cpu: 1 }.to_words()
    }

    #[test]
    fn records_become_events() {
        let path = u64::from_le_bytes(*b"/bin/x\0\0");
        let records = [
            record(Kind::Thread, 1, 0, 8),
            record(Kind::Chain, 0, 0, 5),
            [10, 11, 12, 13],
            [14, 0, 0, 0],
            record(Kind::Allocated, 2, 0x1000, 99),
            record(Kind::Freed, 3, 0x1000, 0),
            record(Kind::Small, 4, 9, 400),
            record(Kind::Mapped, 5, 0x2000, 4096),
            [512, mapped_flags::EXECUTABLE | mapped_flags::BINARY, 1, 0],
            [path, 0, 0, 0],
            record(Kind::ThreadEnded, 6, 0, 8),
        ];
        let (mut events, stacks, losses) = read(&records, 4 * records.len() as u64);
        let small = events.remove(3);
        let told: Vec<What> = events.iter().map(|event| event.what.clone()).collect();
        let [What::ThreadStarted, What::Allocated { address: 0x1000, bytes: 99, stack }, freed, mapped, ended] =
            &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!(stacks.chain(*stack), [10, 11, 12, 13, 14]);
        assert_eq!((freed, ended), (&What::Freed { address: 0x1000 }, &What::ThreadEnded));
        assert!(matches!(mapped, What::Mapped { offset: 512, name, executable: true, .. } if &**name == "/bin/x"));
        assert!(events.iter().all(|event| event.tid == Tid(8) && event.cpu == Some(CpuId(1))));
        assert_eq!(small.what, What::Counted { objects: 9, bytes: 400, stack: *stack });
        assert_eq!((small.time_ns, small.tid), (4, Tid(7)));
        assert_eq!(losses.malformed, 0);
    }

    #[test]
    fn a_mapping_that_moves_is_one_event_and_a_new_object() {
        let remapped = |address| [record(Kind::Remapped, 9, address, 8192), [0x1000, 4096, 5, 0]];
        let smaller = [record(Kind::Remapped, 9, 0x1000, 4096), [0x1000, 8192, 6, 0]];
        let records = [&[record(Kind::Thread, 1, 0, 7)][..], &remapped(0x9000), &remapped(0x1000), &smaller].concat();
        let (events, _, losses) = read(&records, 4 * records.len() as u64);
        let remapped = |start| What::Remapped { old: 0x1000, old_bytes: 4096, start, bytes: 8192 };
        let told: Vec<(u64, What)> = events.into_iter().map(|event| (event.time_ns, event.what)).collect();
        let new = What::Allocated { address: 0x9000, bytes: 8192, stack: Stacks::UNKNOWN };
        let larger = What::Resized { address: 0x1000, bytes: 8192 };
        let smaller = What::Remapped { old: 0x1000, old_bytes: 8192, start: 0x1000, bytes: 4096 };
        assert_eq!(told, [(5, remapped(0x9000)), (9, new), (5, remapped(0x1000)), (9, larger), (6, smaller)]);
        assert_eq!(losses.malformed, 0);
    }

    #[test]
    fn of_what_was_lost_nothing_is_known_at_its_beginning_and_its_end() {
        let file = file(&[], 0);
        let words = [(loss::COUNT, 3), (loss::FIRST, 10), (loss::LAST, 20), (loss::LOW, 0x1000), (loss::END, 0x3000)];
        for (word, value) in words {
            file[PAGE / 8 + ring::LOST + word].store(value, Relaxed);
        }
        let (events, ..) = read_file(&file);
        let untold = What::Invalidated { start: 0x1000, bytes: 0x2000 };
        let told: Vec<(u64, &What)> = events.iter().map(|event| (event.time_ns, &event.what)).collect();
        assert_eq!(told, [(10, &untold), (20, &untold)]);
        // Each loss is reported once.
        assert_eq!(file[PAGE / 8 + ring::LOST_SEEN].load(Relaxed), 3);
        assert!(read_file(&file).0.is_empty());
    }

    #[test]
    fn what_was_counted_last_is_as_late_as_the_last_chain() {
        let records = [record(Kind::Thread, 1, 0, 7), record(Kind::Chain, 30, 0, 1), [10, 0, 0, 0]];
        let file = file(&records, 12);
        let slot = PAGE / 8 + ring::SMALL + 2 * 3;
        file[slot].store(5, Relaxed);
        file[slot + 1].store(80, Relaxed);
        let (events, stacks, _) = read_file(&file);
        let [Event { time_ns: 30, what: What::Counted { objects: 5, bytes: 80, stack }, .. }] = events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(stacks.chain(stack), [10]);
    }

    #[test]
    fn what_cannot_be_is_counted() {
        let malformed = |records: &[_], written| read(records, written).2.malformed;
        // Without a thread; of an unknown kind; with a chain that is too long or incomplete; and beyond the capacity.
        assert_eq!(malformed(&[record(Kind::Freed, 1, 2, 3)], 4), 1);
        assert_eq!(malformed(&[[0; 4]], 4), 1);
        assert_eq!(malformed(&[record(Kind::Chain, 0, 0, 1000)], 4), 1);
        assert_eq!(malformed(&[record(Kind::Chain, 0, 0, 9), [0; 4]], 8), 1);
        assert_eq!(malformed(&[], RING_BYTES as u64), 1);
        assert_eq!(malformed(&[], 3), 1);
    }

    #[test]
    fn a_ring_without_room_is_counted() {
        let full = |written| read(&[], written).2.full;
        assert_eq!([full(4), full(RING_BYTES as u64 / 16), full(RING_BYTES as u64 / 8)], [0, 0, 1]);
        // More than a ring can hold is no ring.
        assert_eq!(full(RING_BYTES as u64), 0);
    }

    proptest! {
        #[test]
        fn nothing_that_a_program_writes_breaks_it(
            records in vec((0_u64..15, any::<[u64; 4]>(), 0_u64..64), 0..60),
            written in prop_oneof![any::<u64>(), (0_u64..70).prop_map(|records| 4 * records)],
        ) {
            let records: Vec<_> = records
                .into_iter()
                .map(|(kind, [time, place, bytes, slot], less)| [time, kind << 56 | place >> 8, bytes % (1 << less), slot])
                .collect();
            read(&records, written);
        }
    }
}
