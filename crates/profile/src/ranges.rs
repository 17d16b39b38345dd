//! A map from address ranges to their current values.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Addresses that are looked up together: 1 KiB. Typically that is a few objects, in one cache line.
const PAGE_BITS: u32 = 10;
/// Number of ranges per page stored inline, so that finding one costs one cache miss.
const FEW: usize = 4;
/// Largest range, in bytes, that is stored by KiB; such a KiB is called a page here.
const MOST_SMALL: u64 = 16 << 10;

/// Non-overlapping address ranges, each with a value.
///
/// Most objects are small and there may be a million of them: they are stored in a list per KiB that they overlap, so
/// that a lookup takes a hash and a scan of adjacent memory. Large ones are few, and stored in a tree.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<T> {
    /// Ascending in each page.
    small: FxHashMap<u64, SmallVec<[Small<T>; FEW]>>,
    /// By first address.
    large: BTreeMap<u64, Piece<T>>,
}

/// A range, both ends included, so that it can contain the highest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<T> {
    pub first: u64,
    pub last: u64,
    pub value: T,
}

/// A small range of a page, stored compactly: all ranges of a page should fit into one cache line.
#[derive(Clone, Copy, Debug)]
struct Small<T> {
    /// Offset of its first address from the page; negative if it begins before the page.
    first: i16,
    /// Offset of its last address from the first.
    length: u16,
    value: T,
}

impl<T: Copy> Small<T> {
    fn new(piece: &Piece<T>, page: u64) -> Self {
        let first = piece.first.wrapping_sub(page << PAGE_BITS) as i16;
        Self { first, length: (piece.last - piece.first) as u16, value: piece.value }
    }

    fn piece(&self, page: u64) -> Piece<T> {
        let first = (page << PAGE_BITS).wrapping_add_signed(self.first.into());
        Piece { first, last: first + u64::from(self.length), value: self.value }
    }
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { small: FxHashMap::default(), large: BTreeMap::new() }
    }
}

/// The last address of a range; none if it is empty. Ranges are truncated at the highest address.
pub(crate) fn last(start: u64, bytes: u64) -> Option<u64> {
    Some(start.saturating_add(bytes.checked_sub(1)?))
}

impl<T> Piece<T> {
    /// Whether it is stored by page.
    pub fn is_small(&self) -> bool {
        self.last - self.first < MOST_SMALL
    }

    fn pages(&self) -> std::ops::RangeInclusive<u64> {
        self.first >> PAGE_BITS..=self.last >> PAGE_BITS
    }
}

impl<T: Copy> Ranges<T> {
    /// The range that contains an address.
    pub fn get(&self, address: u64) -> Option<Piece<T>> {
        let page = address >> PAGE_BITS;
        if let Some(pieces) = self.small.get(&page) {
            let offset = (address - (page << PAGE_BITS)) as i16;
            let after = pieces.partition_point(|piece| piece.first <= offset);
            let piece = after.checked_sub(1).map(|at| pieces[at].piece(page)).filter(|piece| piece.last >= address);
            if piece.is_some() {
                return piece;
            }
        }
        let (_, &piece) = self.large.range(..=address).next_back()?;
        (piece.last >= address).then_some(piece)
    }

    /// Addresses around one that no range contains, its own included, of which no range contains any: at most the KiB
    /// that it is in.
    pub fn gap(&self, address: u64) -> (u64, u64) {
        let page = address >> PAGE_BITS;
        let (mut first, mut last) = (page << PAGE_BITS, page << PAGE_BITS | ((1 << PAGE_BITS) - 1));
        let before = self.large.range(..=address).next_back().map(|(_, piece)| *piece);
        let after = self.large.range(address..).next().map(|(_, piece)| *piece);
        let small = self.small.get(&page).into_iter().flatten().map(|piece| piece.piece(page));
        for piece in small.chain(before).chain(after) {
            if piece.last < address {
                first = first.max(piece.last + 1);
            } else {
                last = last.min(piece.first.saturating_sub(1));
            }
        }
        (first, last)
    }

    /// The ranges that overlap these addresses, ascending.
    pub fn overlapping(&self, first: u64, last: u64) -> Vec<Piece<T>> {
        let before = self.large.range(..first).next_back().filter(|(_, piece)| piece.last >= first);
        let mut found: Vec<Piece<T>> =
            before.into_iter().chain(self.large.range(first..=last)).map(|(_, &piece)| piece).collect();
        let (first_page, last_page) = (first >> PAGE_BITS, last >> PAGE_BITS);
        let mut add = |page: u64, pieces: &[Small<T>]| {
            // A range that spans several pages counts in the first of them only.
            let counts = |piece: &Piece<T>| page == first_page || piece.first >> PAGE_BITS == page;
            let overlaps = |piece: &Piece<T>| piece.first <= last && piece.last >= first;
            found.extend(pieces.iter().map(|piece| piece.piece(page)).filter(overlaps).filter(counts));
        };
        if last_page - first_page < self.small.len() as u64 {
            for page in first_page..=last_page {
                self.small.get(&page).into_iter().for_each(|pieces| add(page, pieces));
            }
        } else {
            let within = |page: &u64| (first_page..=last_page).contains(page);
            self.small.iter().filter(|(page, _)| within(page)).for_each(|(page, pieces)| add(*page, pieces));
        }
        found.sort_by_key(|piece| piece.first);
        found
    }

    /// Sets the value of these addresses; older ranges lose them, and one that contains them is split. Returns the
    /// values of the ranges that lost addresses.
    pub fn insert(&mut self, first: u64, last: u64, value: T) -> Vec<T> {
        let cut = self.cut(first, last, |_| true);
        self.put(Piece { first, last, value });
        cut
    }

    /// Removes these addresses from ranges that `which` selects. Returns the values of the ranges that lost
    /// addresses.
    pub fn cut(&mut self, first: u64, last: u64, which: impl Fn(&Piece<T>) -> bool) -> Vec<T> {
        let mut values = Vec::new();
        for piece in self.overlapping(first, last) {
            if !which(&piece) {
                continue;
            }
            self.take(&piece);
            if piece.first < first {
                self.put(Piece { last: first - 1, ..piece });
            }
            if piece.last > last {
                self.put(Piece { first: last + 1, ..piece });
            }
            values.push(piece.value);
        }
        values
    }

    fn put(&mut self, piece: Piece<T>) {
        if !piece.is_small() {
            self.large.insert(piece.first, piece);
            return;
        }
        for page in piece.pages() {
            let pieces = self.small.entry(page).or_default();
            let small = Small::new(&piece, page);
            pieces.insert(pieces.partition_point(|other| other.first < small.first), small);
        }
    }

    fn take(&mut self, piece: &Piece<T>) {
        if !piece.is_small() {
            self.large.remove(&piece.first);
            return;
        }
        for page in piece.pages() {
            let Some(pieces) = self.small.get_mut(&page) else { continue };
            let Small { first, .. } = Small::new(piece, page);
            pieces.retain(|other| other.first != first);
            if pieces.is_empty() {
                self.small.remove(&page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_later_range_splits_an_older_one() {
        let mut ranges = Ranges::default();
        assert!(ranges.insert(10, 99, 'a').is_empty());
        assert_eq!(ranges.insert(40, 49, 'b'), ['a']);
        let all = |ranges: &Ranges<char>| {
            ranges
                .overlapping(0, u64::MAX)
                .iter()
                .map(|piece| (piece.first, piece.last, piece.value))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(&ranges), [(10, 39, 'a'), (40, 49, 'b'), (50, 99, 'a')]);
        assert_eq!(ranges.cut(30, 60, |_| true), ['a', 'b', 'a']);
        assert_eq!(all(&ranges), [(10, 29, 'a'), (61, 99, 'a')]);
    }

    #[test]
    fn the_last_address_is_one_too() {
        let mut ranges = Ranges::default();
        ranges.insert(u64::MAX - 9, last(u64::MAX - 9, 4096).unwrap(), 1);
        assert_eq!(ranges.get(u64::MAX).map(|piece| piece.value), Some(1));
        assert_eq!(ranges.cut(u64::MAX, u64::MAX, |_| true), [1]);
        assert_eq!(ranges.get(u64::MAX), None);
        assert_eq!(last(7, 0), None);
    }

    proptest! {
        /// Compares with a plain map from addresses to values, with ranges that share pages and span several.
        #[test]
        fn agrees_with_a_table(
            changes in prop::collection::vec((0_u64..200, 1_u64..60, prop::option::of(0_u32..9)), 0..60),
            step in prop_oneof![Just(1_u64), Just(900), Just(3000)],
        ) {
            let mut table = vec![None; 300];
            let mut ranges = Ranges::default();
            for (first, count, value) in changes {
                let (at, end) = (first as usize, (first + count) as usize);
                let (first, last) = (first * step, (first + count) * step - 1);
                let met: std::collections::BTreeSet<u32> = table[at..end].iter().flatten().copied().collect();
                table[at..end].fill(value);
                let cut = match value {
                    Some(value) => ranges.insert(first, last, value),
                    None => ranges.cut(first, last, |_| true),
                };
                prop_assert_eq!(cut.into_iter().collect::<std::collections::BTreeSet<u32>>(), met);
            }
            for (index, value) in table.iter().enumerate() {
                let (first, last) = (index as u64 * step, (index as u64 + 1) * step - 1);
                prop_assert_eq!(ranges.get(first).map(|piece| piece.value), *value);
                prop_assert_eq!(ranges.get(last).map(|piece| piece.value), *value);
                if value.is_none() {
                    let (low, high) = ranges.gap(last);
                    prop_assert!(low <= last && last <= high && ranges.overlapping(low, high).is_empty());
                    // It is not smaller than it must be.
                    let page = last >> PAGE_BITS << PAGE_BITS;
                    prop_assert!(low == page || ranges.get(low - 1).is_some());
                    prop_assert!(high == page + (1 << PAGE_BITS) - 1 || ranges.get(high + 1).is_some());
                }
                let found: Vec<u32> = ranges.overlapping(first, last).iter().map(|piece| piece.value).collect();
                prop_assert_eq!(found, value.iter().copied().collect::<Vec<u32>>());
            }
            let all = ranges.overlapping(0, u64::MAX);
            prop_assert!(all.windows(2).all(|pair| pair[0].last < pair[1].first));
        }
    }
}
