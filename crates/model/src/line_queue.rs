//! Transfers of one line, one after another.
//!
//! While a core takes a line for itself, others that want it wait. CPUs do not make their accesses in the order of
//! their times: one that is ahead has already taken its turns where a slower one takes its own, so the times at which
//! the line is on its way are kept, and a transfer begins at the first gap that it fits into.

use std::collections::VecDeque;

/// Kept times: for CPUs that are 60 us apart, a transfer every 100 ns. With more, the latest is forgotten.
const KEPT: usize = 640;

/// The times at which a line is on its way, ps: disjoint, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct LineQueue {
    busy: VecDeque<(u64, u64)>,
}

impl LineQueue {
    /// A core takes the line for itself, which takes `transfer_ps`. Returns how long it waits before, ps. No transfer takes
    /// less than `shortest_ps`. Times before `slowest_ps`, that of the slowest CPU, are forgotten.
    pub(crate) fn take(&mut self, time_ps: u64, transfer_ps: u64, shortest_ps: u64, slowest_ps: u64) -> u64 {
        while self.busy.front().is_some_and(|&(_, end)| end <= slowest_ps.min(time_ps)) {
            self.busy.pop_front();
        }
        let mut begin = time_ps;
        let mut index: usize = 0;
        for &(busy_from, busy_until) in &self.busy {
            if begin + transfer_ps <= busy_from {
                break;
            }
            begin = begin.max(busy_until);
            index += 1;
        }
        let end = begin + transfer_ps;
        match index.checked_sub(1).and_then(|before| self.busy.get_mut(before)) {
            // Nothing fits into the gap between the two.
            Some(before) if begin < before.1 + shortest_ps => before.1 = end,
            _ => self.busy.insert(index, (begin, end)),
        }
        self.busy.truncate(KEPT);
        begin - time_ps
    }

    /// How long a core that only reads the line waits until no transfer of it is under way, ps.
    pub(crate) fn read(&self, time_ps: u64) -> u64 {
        let under_way = self.busy.iter().find(|&&(begin, end)| (begin..end).contains(&time_ps));
        under_way.map_or(0, |&(_, end)| end - time_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_at_the_same_time_wait_for_each_other() {
        let mut queue = LineQueue::default();
        let waits: Vec<u64> = (0..4).map(|_| queue.take(1000, 100, 100, 0)).collect();
        assert_eq!(waits, [0, 100, 200, 300]);
        assert_eq!([1050, 1399, 1400].map(|time| queue.read(time)), [350, 1, 0]);
        assert_eq!(queue.take(1500, 100, 100, 0), 0);
    }

    #[test]
    fn a_core_that_is_behind_finds_the_gaps_that_others_left() {
        let mut queue = LineQueue::default();
        // One core runs ahead, and needs the line for 100 of 300 ps.
        assert!((0..10).all(|turn| queue.take(1000 + 300 * turn, 100, 100, 0) == 0));
        // Another one fits in between, and a third.
        assert_eq!(queue.take(1000, 100, 100, 0), 100);
        assert_eq!(queue.take(1000, 100, 100, 0), 200);
        // With three, the line is busy from here to there: a fourth waits for all.
        assert!((1..10).all(|turn| queue.take(1000 + 300 * turn, 200, 100, 0) == 100));
        assert_eq!(queue.take(1000, 100, 100, 0), 3000);
        // Before them all, it is free.
        assert_eq!(queue.take(900, 100, 100, 0), 0);
    }

    #[test]
    fn only_the_time_that_cpus_are_apart_is_kept() {
        let mut queue = LineQueue::default();
        for turn in 0..1000 {
            queue.take(300 * turn, 100, 100, 0);
        }
        assert_eq!(queue.busy.len(), KEPT);
        queue.take(400_000, 100, 100, 400_000);
        assert_eq!(queue.busy.len(), 1);
    }
}
