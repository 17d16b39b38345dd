//! What a processor writes into the AUX area of a CPU, in the pieces that the kernel has handed over.

use crate::perf_data::{AuxRecord, Bytes};
use linux::AuxArea;
use std::collections::VecDeque;
use std::ops::Range;

/// Data of a CPU, with where its pieces begin.
pub(super) struct AuxData {
    area: AuxArea,
    /// Up to where records were read that tell of data.
    head: u64,
    /// Where pieces begin that are not read yet, in order.
    starts: VecDeque<u64>,
    /// The processor has stopped for want of room, or may have.
    stopped: bool,
    data: Vec<u8>,
}

impl AuxData {
    pub fn new(area: AuxArea) -> Self {
        Self { area, head: 0, starts: VecDeque::new(), stopped: false, data: Vec::new() }
    }

    /// To be called before the ring's records are read: the kernel writes those before it tells of the data, so that
    /// all of what is there now are read then.
    pub fn look(&mut self) {
        self.head = self.area.head();
    }

    /// Takes an `AUX` record of the ring.
    pub fn note(&mut self, body: &[u8]) {
        let Some(record) = AuxRecord::parse(Bytes(body)) else { return };
        self.stopped |= record.is_truncated();
        // Each begins where the one before ends, or later; what is written since the last look finds room behind that.
        let is_there = record.offset < self.head.saturating_add(self.area.bytes());
        if is_there && self.starts.back().is_none_or(|last| *last < record.offset) {
            self.starts.push_back(record.offset);
        }
    }

    /// Gives the data that were there at the last [`look`](Self::look), piece by piece, with the place of each. Says
    /// how many bytes were written over before that.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u8])) -> u64 {
        self.data.clear();
        let tail = self.area.tail();
        let read = self.area.read(self.head, &mut self.data);
        for piece in pieces(&read, &mut self.starts) {
            let part = (piece.start - read.start) as usize..(piece.end - read.start) as usize;
            each(piece.start, self.data.get(part).unwrap_or_default());
        }
        // The record that says so may itself have found no room.
        self.stopped |= read.end - read.start >= self.area.bytes() / 2;
        read.start.saturating_sub(tail)
    }

    /// Whether the processor may have stopped since the last time that this was asked.
    pub fn has_stopped(&mut self) -> bool {
        std::mem::take(&mut self.stopped)
    }
}

/// Cuts where pieces begin. What begins later is left for the next time.
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

    /// Plain memory in place of an event, and the words before its AUX area: the 132nd is the head.
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
    fn data_come_in_the_pieces_that_records_tell_of() {
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
        // One that is written meanwhile is of the next time; what goes back, or nowhere, is of none.
        assert_eq!(told(&[128, 512, 300, 1 << 60], 256), (vec![(100, 28), (128, 128)], 0));
        assert_eq!(told(&[600], 640), (vec![(256, 256), (512, 88), (600, 40)], 0));
        assert_eq!(told(&[], 640), (vec![], 0));
        // A record that was lost itself leaves a piece that is longer; data that were written over are counted.
        assert_eq!(told(&[], 10_000), (vec![(1808, 8192)], 1168));
        assert_eq!(told(&[10_000], 10_001), (vec![(10_000, 1)], 0));
        // There was no more room, whatever records say.
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
