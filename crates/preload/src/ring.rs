//! The writing side of a ring.

use crate::loss::{self, NOTHING};
use crate::{clock, process};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use core::time::Duration;
use rings::{Head, Kind, PAGE, RECORD_WORDS, SLOTS, ring};
use rustix::mm::{Advice, madvise};

/// A ring gets its memory in steps of this size.
const CHUNK: usize = 16 * PAGE;
/// The recorder's polling interval: polling more often would not make it faster.
const PAUSE: Duration = Duration::from_micros(100);

/// The writing side of a ring. It has one thread at a time.
pub struct Ring {
    words: *const AtomicU64,
    /// Words of records, a power of two.
    capacity: u64,
    /// Words written; the recorder sees those of completed events.
    written: u64,
    /// Bound of `written` up to which no check is needed.
    limit: u64,
    /// Words that have memory; at least `capacity` once all have.
    present: u64,
    patience: Duration,
    /// The recorder's position when a wait for it timed out.
    given_up: Option<u64>,
}

impl Ring {
    /// # Safety
    ///
    /// `start` must point to a page and `bytes` of a ring, which is never unmapped and has no other writer.
    pub unsafe fn new(start: *const AtomicU64, bytes: usize, patience: Duration) -> Self {
        let capacity = (bytes / 8) as u64;
        Self { words: start, capacity, written: 0, limit: 0, present: 0, patience, given_up: None }
    }

    #[inline]
    fn header(&self, word: usize) -> &AtomicU64 {
        // SAFETY: all words named by `rings::ring` are in the first page of a ring, which is mapped.
        unsafe { &*self.words.add(word) }
    }

    /// Whether there is room for this many records. Waits for it, but not for long.
    #[inline]
    pub fn has_room(&mut self, records: usize) -> bool {
        self.written + (records * RECORD_WORDS) as u64 <= self.limit || self.make_room(records)
    }

    /// Counts an event for which there was no room, which concerns `about`: an address and a number of bytes.
    #[cold]
    pub fn lose(&self, about: (usize, usize)) {
        loss::lose(|word| self.header(ring::LOST + word), self.header(ring::LOST_SEEN), about);
    }

    /// Writes the words of a record. There must be room for it.
    #[inline]
    pub fn put(&mut self, words: [u64; RECORD_WORDS]) {
        let place = (self.written & (self.capacity - 1)) as usize;
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: `capacity` words follow the first page, a multiple of a record's, and the index is one of them.
            unsafe { (*self.words.add(PAGE / 8 + place + index)).store(word, Relaxed) };
        }
        self.written += RECORD_WORDS as u64;
    }

    /// Writes the words that follow a record. There must be room for them.
    pub fn put_words(&mut self, words: &[u64]) {
        for chunk in words.chunks(RECORD_WORDS) {
            let mut record = [0; RECORD_WORDS];
            for (place, &word) in record.iter_mut().zip(chunk) {
                *place = word;
            }
            self.put(record);
        }
    }

    /// Makes the written records visible to the recorder.
    #[inline]
    pub fn publish(&self) {
        self.header(ring::WRITTEN).store(self.written, Release);
    }

    /// Writes and publishes one record, or counts it as lost. Returns whether it was written.
    #[inline]
    pub fn tell(&mut self, head: Head) -> bool {
        let has_room = self.has_room(1);
        if has_room {
            self.put(head.to_words());
            self.publish();
        } else {
            let is_of_thread = matches!(head.kind, Kind::Thread | Kind::ThreadEnded);
            self.lose(if is_of_thread { NOTHING } else { (head.address as usize, head.bytes as usize) });
        }
        has_room
    }

    /// Counts a small object of the chain in a slot.
    #[inline]
    pub fn count(&self, slot: u16, bytes: usize) {
        let [objects, total] = self.small(slot);
        objects.store(objects.load(Relaxed).wrapping_add(1), Relaxed);
        total.store(total.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
    }

    /// The number of small objects of a slot, and their bytes.
    #[inline]
    pub fn small(&self, slot: u16) -> [&AtomicU64; 2] {
        let first = ring::SMALL + 2 * (slot as usize % SLOTS);
        [self.header(first), self.header(first + 1)]
    }

    #[cold]
    fn make_room(&mut self, records: usize) -> bool {
        let end = self.written + (records * RECORD_WORDS) as u64;
        let wait = Wait::begin(self.patience);
        loop {
            let read = self.header(ring::READ).load(Acquire).min(self.written);
            while self.present < self.capacity && self.present < end {
                if !self.populate() {
                    return false;
                }
            }
            let present = if self.present < self.capacity { self.present } else { u64::MAX };
            self.limit = (read + self.capacity).min(present);
            if end <= self.limit {
                self.given_up = None;
                return true;
            }
            if wait.is_over() || self.given_up == Some(read) || process::is_over() {
                self.given_up = Some(read);
                return false;
            }
            pause();
        }
    }

    /// Populates the next part of the ring. A full file system makes this fail (Linux 5.14); without it, the first
    /// write would end the program with SIGBUS.
    fn populate(&mut self) -> bool {
        let start = self.words.wrapping_add(PAGE / 8 + self.present as usize).cast_mut().cast();
        // SAFETY: the range is in the mapping of this ring; its contents stay.
        let populated = unsafe { madvise(start, CHUNK, Advice::LinuxPopulateWrite) };
        self.present += if populated.is_ok() { (CHUNK / 8) as u64 } else { 0 };
        populated.is_ok()
    }
}

/// A wait with a timeout.
pub struct Wait {
    begun: u64,
    patience: Duration,
}

impl Wait {
    /// Starts now.
    pub fn begin(patience: Duration) -> Self {
        Self { begun: clock::monotonic(), patience }
    }

    /// Whether it has timed out.
    pub fn is_over(&self) -> bool {
        Duration::from_nanos(clock::monotonic().saturating_sub(self.begun)) >= self.patience
    }
}

/// Sleeps for a moment. Not woken explicitly; a signal may end it early.
pub fn pause() {
    let time = rustix::thread::Timespec { tv_sec: 0, tv_nsec: i64::from(PAUSE.subsec_nanos()) };
    let _ = rustix::thread::nanosleep(&time);
}

/// The fields that every event has.
#[inline]
pub fn event(kind: Kind, time: u64, address: usize, bytes: usize) -> Head {
    Head { time, kind, address: address as u64, bytes: bytes as u64, slot: 0, cpu: clock::cpu() }
}
