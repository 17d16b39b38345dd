//! Data that a processor writes into the AUX area of a CPU, in the pieces in which the kernel handed it over.

use linux::AuxArea;
use perf_data::{AuxRecord, Bytes};
use std::collections::VecDeque;
use std::ops::Range;

/// The AUX data of a CPU and the starts of its pieces.
pub(super) struct AuxData {
    area: AuxArea,
    /// End of the data whose records have been read.
    head: u64,
    /// Starts of the pieces not read yet, in order.
    starts: VecDeque<u64>,
    /// Whether the processor has stopped, or may have, because the area was full.
    stopped: bool,
    data: Vec<u8>,
}

impl AuxData {
    pub fn new(area: AuxArea) -> Self {
        Self { area, head: 0, starts: VecDeque::new(), stopped: false, data: Vec::new() }
    }

    /// Call this before reading the ring's records. The kernel writes a record before it publishes the data, so the
    /// records of all data visible now are then read.
    pub fn look(&mut self) {
        self.head = self.area.head();
    }

    /// Takes an `AUX` record from the ring.
    pub fn note(&mut self, body: &[u8]) {
        let Some(record) = AuxRecord::parse(Bytes(body)) else { return };
        self.stopped |= record.is_truncated();
        // Each piece starts at or after the end of the one before. Data written since the last look starts at most
        // one area further.
        let is_there = record.offset < self.head.saturating_add(self.area.bytes());
        if is_there && self.starts.back().is_none_or(|last| *last < record.offset) {
            self.starts.push_back(record.offset);
        }
    }

    /// Passes the data present at the last [`look`](Self::look) to `each`, piece by piece, with the offset of each
    /// piece. Returns the number of bytes that were overwritten before they were read.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u8])) -> u64 {
        self.data.clear();
        let tail = self.area.tail();
        let read = self.area.read(self.head, &mut self.data);
        for piece in pieces(&read, &mut self.starts) {
            let part = (piece.start - read.start) as usize..(piece.end - read.start) as usize;
            each(piece.start, self.data.get(part).unwrap_or_default());
        }
        // The record that reports a full area may itself have been dropped.
        self.stopped |= read.end - read.start >= self.area.bytes() / 2;
        read.start.saturating_sub(tail)
    }

    /// Returns whether the processor may have stopped since the last call.
    pub fn has_stopped(&mut self) -> bool {
        std::mem::take(&mut self.stopped)
    }
}

/// Splits the range at the starts of pieces. Later starts are kept for the next call.
fn pieces(read: &Range<u64>, starts: &mut VecDeque<u64>) -> Vec<Range<u64>> {
    let mut pieces = Vec::new();
    let mut from = read.start;
    while let Some(start) = starts.front().copied().filter(|start| *start < read.end) {
        starts.pop_front();
        if start > from {
            pieces.push(from..start);
            from = start;
        }
    }
    if from < read.end {
        pieces.push(from..read.end);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::SharedWords;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::sync::atomic::Ordering::Relaxed;

    const RING: usize = 16 << 10;
    const BYTES: usize = 8192;
    const TRUNCATED: u64 = 1;

    /// Plain memory in place of an event, and the words in front of its AUX area; word 132 is the head.
    fn data() -> (AuxData, SharedWords) {
        let file = memfd_create("event", MemfdFlags::CLOEXEC).unwrap();
        let start = rustix::param::page_size() + RING;
        ftruncate(&file, (start + BYTES) as u64).unwrap();
        let area = AuxArea::map(&file, RING, BYTES).unwrap();
        (AuxData::new(area), SharedWords::map(&file, start).unwrap())
    }

    fn record(offset: u64, flags: u64) -> Vec<u8> {
        [offset, 0, flags].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn data_come_in_the_pieces_of_their_records() {
        let (mut data, ring) = data();
        let mut told = |offsets: &[u64], head: u64| {
            ring[132].store(head, Relaxed);
            data.look();
            for offset in offsets {
                data.note(&record(*offset, 0));
            }
            let mut pieces = Vec::new();
            let lost = data.take(|place, piece| pieces.push((place, piece.len())));
            (pieces, lost)
        };
        assert_eq!(told(&[0, 64], 100), (vec![(0, 64), (64, 36)], 0));
        // A piece beyond the head belongs to the next call. Offsets that go back or lie outside the area are
        // ignored.
        assert_eq!(told(&[128, 512, 300, 1 << 60], 256), (vec![(100, 28), (128, 128)], 0));
        assert_eq!(told(&[600], 640), (vec![(256, 256), (512, 88), (600, 40)], 0));
        assert_eq!(told(&[], 640), (vec![], 0));
        // A lost record makes a piece longer. Overwritten data are counted.
        assert_eq!(told(&[], 10_000), (vec![(1808, 8192)], 1168));
        assert_eq!(told(&[10_000], 10_001), (vec![(10_000, 1)], 0));
        // The area was full, whatever the records say.
        assert!(data.has_stopped());
    }

    #[test]
    fn a_processor_that_has_stopped_is_noticed_once() {
        let (mut data, _ring) = data();
        data.note(&record(0, 0));
        data.note(&[1, 2, 3]);
        assert!(!data.has_stopped());
        data.note(&record(0, TRUNCATED));
        assert!(data.has_stopped() && !data.has_stopped());
    }

    proptest! {
        #[test]
        fn pieces_are_all_that_was_read(
            start in 0..99_u64,
            bytes in 0..99_u64,
            starts in prop::collection::btree_set(0..300_u64, 0..9),
        ) {
            let (read, mut left) = (start..start + bytes, starts.iter().copied().collect());
            let cut = pieces(&read, &mut left);
            prop_assert!(left.iter().all(|start| *start >= read.end));
            prop_assert!(cut.windows(2).all(|two| two[0].end == two[1].start && starts.contains(&two[1].start)));
            prop_assert!(cut.iter().all(|piece| !piece.is_empty()));
            let ends = cut.first().zip(cut.last()).map(|(first, last)| first.start..last.end);
            prop_assert_eq!(ends, (!read.is_empty()).then_some(read));
        }

        #[test]
        fn any_heads_and_records_are_taken(
            told in prop::collection::vec((any::<u64>(), any::<u64>(), any::<[u8; 24]>()), 0..6),
        ) {
            let (mut data, ring) = data();
            for (head, offset, body) in told {
                ring[132].store(head, Relaxed);
                data.look();
                data.note(&record(offset, 0));
                data.note(&body);
                let mut taken = 0;
                data.take(|_, piece| taken += piece.len());
                prop_assert!(taken <= BYTES);
            }
        }
    }
}
