//! The AUX area of a perf event: a buffer beside the ring of records, into which the processor writes data in its own
//! format. Since Linux 4.1.

use crate::SharedWords;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// Word indices in `struct perf_event_mmap_page` of the kernel's include/uapi/linux/perf_event.h.
const AUX_HEAD: usize = 1056 / WORD;
const AUX_TAIL: usize = 1064 / WORD;
const AUX_OFFSET: usize = 1072 / WORD;
const AUX_SIZE: usize = 1080 / WORD;
const WORD: usize = size_of::<u64>();
/// Smallest area that drivers accept.
const LEAST_PAGES: usize = 2;

/// An AUX area. Positions in it count all bytes ever written; the buffer holds the most recent ones.
#[derive(Debug)]
pub struct AuxArea {
    data: SharedWords,
    ring: SharedWords,
    /// Position read up to. The kernel sees it but never changes it.
    tail: u64,
}

impl AuxArea {
    /// Maps an AUX area of `bytes` for an event whose ring of `ring_bytes` is already mapped. Both sizes are powers of
    /// two. A size below the minimum is raised to it, as perf-event2 does for rings.
    ///
    /// Errors are the kernel's: EOPNOTSUPP if the event writes no such data, EPERM if the user may not lock this much
    /// memory (`kernel.perf_event_mlock_kb`, `ulimit -l`, or else `CAP_IPC_LOCK`), EINVAL if the ring has another size,
    /// ENOMEM.
    pub fn map(event: &impl AsRawFd, ring_bytes: usize, bytes: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let ring_bytes = page + ring_bytes.next_power_of_two().max(page);
        let bytes = bytes.next_power_of_two().max(LEAST_PAGES * page);
        // SAFETY: the event is borrowed for the whole call, so its file stays open while this is used.
        let event = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
        // The same memory as the first mapping of the ring, so the kernel accounts its pages once.
        let ring = SharedWords::map(event, ring_bytes)?;
        word(&ring, AUX_OFFSET)?.store(ring_bytes as u64, Relaxed);
        word(&ring, AUX_SIZE)?.store(bytes as u64, Relaxed);
        // Mapped writable although only the kernel writes: this keeps the kernel from overwriting unread data.
        let data = SharedWords::map_at(event, ring_bytes as u64, bytes)?;
        let tail = word(&ring, AUX_TAIL)?.load(Relaxed);
        Ok(Self { data, ring, tail })
    }

    /// Its capacity in bytes.
    pub fn bytes(&self) -> u64 {
        (self.data.len() * WORD) as u64
    }

    /// Position read up to.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Position that the kernel has written up to.
    pub fn head(&self) -> u64 {
        // Acquire: the kernel writes the data before the head.
        word(&self.ring, AUX_HEAD).map_or(self.tail, |head| head.load(Acquire))
    }

    /// Appends the data written since the last call, up to a [`head`](Self::head), to `into`, and frees its space.
    /// Returns the range of positions that were read. Positions between the previous [`tail`](Self::tail) and the start
    /// of that range were lost. A head before the tail replaces the tail, and nothing is read.
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
            // Release: the reads above finish before the kernel may overwrite the data.
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

    /// Plain memory in place of an event, with the kernel's side of it.
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

    /// The byte at each position.
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
        // Beyond the capacity, backwards, and up to the largest number.
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
