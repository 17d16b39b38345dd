//! Merges what several CPUs report, each in time order, into time order.

use crate::timestamped::Timestamped;
use std::mem;

/// Digit size of the radix sort, in bits.
const DIGIT_BITS: u32 = 11;
/// Shorter lists are sorted by comparison.
const FEW: usize = 256;

/// Times, and indices into a list.
pub(crate) type Order = Vec<(u64, u32)>;

/// Merges lists of one round each. perf empties the rings of all CPUs in turn: records after a round are no earlier
/// than everything before that round, but may be earlier than records of the round itself.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    /// The rest of the round before the last.
    before: Sorted<T>,
    last: Sorted<T>,
    /// Later records are no earlier than this, in ns.
    until: u64,
}

/// A list and its order. Elements are large, so they are moved only once, when they are taken.
#[derive(Debug)]
pub(crate) struct Sorted<T> {
    list: Vec<T>,
    order: Order,
    taken: usize,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { before: Sorted::default(), last: Sorted::default(), until: 0 }
    }
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { list: Vec::new(), order: Vec::new(), taken: 0 }
    }
}

impl<T: Timestamped> InOrder<T> {
    /// Adds a round, once everything that was ready has been taken. Returns an older one, whose memory may be reused.
    pub fn add(&mut self, round: Sorted<T>, until: u64) -> Sorted<T> {
        self.until = until;
        mem::replace(&mut self.before, mem::replace(&mut self.last, round))
    }

    /// The time of the next element, if one is ready.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        let last = self.last.peek().filter(|time| *time <= self.until);
        self.before.peek().into_iter().chain(last).min()
    }

    /// The next element that is ready.
    #[inline]
    pub fn next(&mut self) -> Option<&T> {
        let time = self.peek()?;
        // At equal times, the earlier round comes first.
        if self.before.peek() == Some(time) { self.before.next() } else { self.last.next() }
    }
}

impl<T: Timestamped> Sorted<T> {
    /// Sorts a list by time. Reuses the memory of `used`.
    pub fn new(list: Vec<T>, used: Order) -> Self {
        let mut order = used;
        order.clear();
        order.extend(list.iter().map(Timestamped::time_ns).zip(0..));
        sort(&mut order);
        Self { list, order, taken: 0 }
    }

    /// The memory of both, emptied.
    pub fn into_used(self) -> (Vec<T>, Order) {
        let Self { mut list, order, .. } = self;
        list.clear();
        (list, order)
    }

    #[inline]
    fn peek(&self) -> Option<u64> {
        self.order.get(self.taken).map(|(time, _)| *time)
    }

    #[inline]
    fn next(&mut self) -> Option<&T> {
        let (_, position) = self.order.get(self.taken)?;
        self.taken += 1;
        self.list.get(*position as usize)
    }
}

/// A stable sort by time. The times of a round differ in few bits, so that a radix sort needs few passes and takes a
/// quarter of the time of a comparison sort.
fn sort(order: &mut Order) {
    if order.is_sorted_by_key(|(time, _)| *time) {
        return;
    }
    if order.len() < FEW {
        order.sort_by_key(|(time, _)| *time);
        return;
    }
    let (first, last) =
        order.iter().fold((u64::MAX, 0), |(first, last), (time, _)| (first.min(*time), last.max(*time)));
    let digits = (u64::BITS - (last - first).leading_zeros()).div_ceil(DIGIT_BITS);
    let mut other = vec![(0, 0); order.len()];
    for digit in 0..digits {
        let bucket = |time: u64| ((time - first) >> (digit * DIGIT_BITS)) as usize % (1 << DIGIT_BITS);
        let mut starts = [0; 1 << DIGIT_BITS];
        for (time, _) in &*order {
            starts[bucket(*time)] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += mem::replace(start, sum);
        }
        for element in &*order {
            let place = &mut starts[bucket(element.0)];
            other[*place] = *element;
            *place += 1;
        }
        mem::swap(order, &mut other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Timestamped for (u64, usize) {
        fn time_ns(&self) -> u64 {
            self.0
        }
    }

    proptest! {
        #[test]
        fn times_are_sorted_and_equal_ones_stay(times in prop::collection::vec(
            prop_oneof![0_u64..40, 0_u64..5_000_000, any::<u64>()], 0..1000,
        )) {
            let mut order: Order = times.into_iter().zip(0..).collect();
            let mut expected = order.clone();
            expected.sort_by_key(|(time, _)| *time);
            sort(&mut order);
            prop_assert_eq!(order, expected);
        }

        /// The times of each round are no earlier than everything before the previous round.
        #[test]
        fn rounds_overlap(rounds in prop::collection::vec(prop::collection::vec(0_u64..20, 0..30), 0..6)) {
            let mut in_order = InOrder::default();
            let (mut all, mut found, mut number) = (Vec::new(), Vec::new(), 0);
            // Lower bounds of the times of this round, and of later rounds.
            let (mut from, mut until) = (0, 0);
            let count = rounds.len();
            for (at, round) in rounds.into_iter().enumerate() {
                let list: Vec<(u64, usize)> = round.into_iter().map(|time| {
                    number += 1;
                    (from + time, number)
                }).collect();
                all.extend(list.iter().copied());
                let latest = list.iter().map(|(time, _)| *time).max().unwrap_or(0).max(until);
                in_order.add(Sorted::new(list, Vec::new()), if at + 1 == count { u64::MAX } else { until });
                (from, until) = (until, latest);
                while let Some(element) = in_order.next() {
                    found.push(*element);
                }
            }
            all.sort_by_key(|(time, _)| *time);
            prop_assert_eq!(found, all);
        }
    }
}
