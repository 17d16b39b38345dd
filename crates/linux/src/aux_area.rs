//! The AUX area of an event of perf: memory that the processor writes data of its own format into, beside the ring of
//! records, since Linux 4.1.

use crate::SharedWords;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// Words of `struct perf_event_mmap_page` of the kernel's include/uapi/linux/perf_event.h.
const AUX_HEAD: usize = 1056 / WORD;
const AUX_TAIL: usize = 1064 / WORD;
const AUX_OFFSET: usize = 1072 / WORD;
const AUX_SIZE: usize = 1080 / WORD;
const WORD: usize = size_of::<u64>();
/// The least that drivers take.
const LEAST_PAGES: usize = 2;

/// An AUX area. Places in it count all bytes that were ever written, and its memory holds the last ones.
#[derive(Debug)]
pub struct AuxArea {
    data: SharedWords,
    ring: SharedWords,
    /// Up to where it was read, which the kernel is told and does not change.
    tail: u64,
}

impl AuxArea {
    /// Gives an event an AUX area of so many bytes, behind its ring, which is mapped already and of `ring_bytes`. Both
    /// are powers of two; what is smaller than the pages that it takes at least becomes larger, as perf-event2 has it
    /// for rings.
    ///
    /// Errors are the kernel's: EOPNOTSUPP if the event writes no such data, EPERM if the user may not lock so much
    /// memory (`kernel.perf_event_mlock_kb`, `ulimit -l`, or else `CAP_IPC_LOCK`), EINVAL if the ring is of another
    /// size, ENOMEM.
    pub fn map(event: &impl AsRawFd, ring_bytes: usize, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let ring_bytes = page + ring_bytes.next_power_of_two().max(page);
        let bytes = bytes.next_power_of_two().max(LEAST_PAGES * page);
        // SAFETY: the event is borrowed for the whole call, so that its file stays open as long as this is used.
        let event = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
        // The same memory as in the ring's first mapping, of which the kernel counts the pages once.
        let ring = SharedWords::map(event, ring_bytes)?;
        word(&ring, AUX_OFFSET)?.store(ring_bytes as u64, Relaxed);
        word(&ring, AUX_SIZE)?.store(bytes as u64, Relaxed);
        // It may be written, although only the kernel does: what is not read yet is then not written over.
        let data = SharedWords::map_at(event, ring_bytes as u64, bytes)?;
        let tail = word(&ring, AUX_TAIL)?.load(Relaxed);
        Ok(Self { data, ring, tail })
    }

    /// How much it holds.
    pub fn bytes(&self) -> u64 {
        (self.data.len() * WORD) as u64
    }

    /// Up to where it was read.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Up to where the kernel has written.
    pub fn head(&self) -> u64 {
        // What was written before is seen after this: the kernel writes the data first.
        word(&self.ring, AUX_HEAD).map_or(self.tail, |head| head.load(Acquire))
    }

    /// Adds what was written since the last time, up to a [`head`](Self::head), to `into`, and gives its room back.
    /// Says which places these are: those before them, from the [`tail`](Self::tail) of before on, were lost. A head
    /// that is before that tail takes its place, and nothing is read.
    pub fn read(&mut self, head: u64, into: &mut Vec<u8>) -> Range<u64> {
        let bytes = self.bytes();
        let start = self.tail.max(head.saturating_sub(bytes)).min(head);
        let mut at = start;
        while at < head {
            let index = (at % bytes) as usize / WORD;
            let Some(word) = self.data.get(index) else { break };
            let word = word.load(Relaxed).to_ne_bytes();
            let from = at as usize % WORD;
            let to = WORD.min(from + usize::try_from(head - at).unwrap_or(WORD));
            into.extend_from_slice(word.get(from..to).unwrap_or_default());
            at += (to - from) as u64;
        }
        self.tail = head;
        if let Ok(tail) = word(&self.ring, AUX_TAIL) {
            // What was read above was read before the kernel may write there again.
            tail.store(head, Release);
        }
        start..head
    }
}

fn word(ring: &SharedWords, at: usize) -> io::Result<&AtomicU64> {
    ring.get(at).ok_or_else(|| io::Error::other("the ring is shorter than its first page"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::OwnedFd;

    const RING: usize = 16 << 10;

    /// Plain memory in place of an event, and its other side, where the kernel would write.
    struct Kernel {
        ring: SharedWords,
        data: SharedWords,
    }

    fn area(bytes: usize) -> (AuxArea, Kernel, OwnedFd) {
        let file = memfd_create("event", MemfdFlags::CLOEXEC).unwrap();
        let start = rustix::param::page_size() + RING;
        ftruncate(&file, (start + bytes) as u64).unwrap();
        let area = AuxArea::map(&file, RING, bytes).unwrap();
        let ring = SharedWords::map(&file, start).unwrap();
        assert_eq!(ring[AUX_OFFSET].load(Relaxed), start as u64);
        assert_eq!(ring[AUX_SIZE].load(Relaxed), bytes as u64);
        let data = SharedWords::map_at(&file, start as u64, bytes).unwrap();
        (area, Kernel { ring, data }, file)
    }

    /// The byte at each place.
    fn byte(place: u64) -> u8 {
        (place % 251) as u8
    }

    impl Kernel {
        fn write(&self, head: u64) {
            let bytes = (self.data.len() * WORD) as u64;
            for place in head.saturating_sub(bytes)..head {
                let word = &self.data[(place % bytes) as usize / WORD];
                let mut eight = word.load(Relaxed).to_ne_bytes();
                eight[place as usize % WORD] = byte(place);
                word.store(u64::from_ne_bytes(eight), Relaxed);
            }
            self.ring[AUX_HEAD].store(head, Release);
        }
    }

    #[test]
    fn what_was_written_is_read_once_also_around_the_end() {
        let (mut area, kernel, _file) = area(8192);
        let mut data = Vec::new();
        assert_eq!((area.head(), area.read(0, &mut data)), (0, 0..0));
        let mut end = 0;
        for head in [3, 10, 8000, 8190, 8203, 16_384, 24_570] {
            kernel.write(head);
            data.clear();
            assert_eq!(area.read(area.head(), &mut data), end..head);
            assert!(data.iter().copied().eq((end..head).map(byte)), "{end}..{head}");
            assert_eq!(kernel.ring[AUX_TAIL].load(Acquire), head);
            end = head;
        }
    }

    #[test]
    fn heads_that_cannot_be_read_nothing_that_is_not_there() {
        let (mut area, kernel, _file) = area(8192);
        let mut data = Vec::new();
        kernel.write(100);
        assert_eq!(area.read(area.head(), &mut data), 0..100);
        // Further than there is room for, back, and as far as numbers go.
        for (head, read) in [(20_000, 11_808..20_000), (50, 50..50), (u64::MAX, u64::MAX - 8192..u64::MAX)] {
            data.clear();
            assert_eq!(area.read(head, &mut data), read);
            assert_eq!(data.len() as u64, read.end - read.start);
        }
    }

    #[test]
    fn what_is_no_event_has_none() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(AuxArea::map(&file, RING, 8192).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn any_heads_read_what_is_there(
            heads in prop::collection::vec(prop_oneof![0..40_000_u64, any::<u64>()], 1..8),
        ) {
            let (mut area, _kernel, _file) = area(8192);
            let (mut data, mut end) = (Vec::new(), 0);
            for head in heads {
                data.clear();
                let read = area.read(head, &mut data);
                prop_assert_eq!(data.len() as u64, read.end - read.start);
                prop_assert!(read.end == head && data.len() <= 8192 && (read.start >= end || head < end));
                end = head;
            }
        }
    }
}
