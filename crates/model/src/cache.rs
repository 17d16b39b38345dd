//! A cache of any level and the lines that it holds.

use crate::LINE_BYTES;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use zerocopy::{AllocError, FromZeros};

/// Associativity of a cache for which the description gives none (0): enough to make conflicts rare, as in most L2 and
/// L3 caches.
const WAYS_IF_UNKNOWN: u64 = 16;

/// Maximum number of ways of a set: one bit each in the word with the set's recency. A cache with more, or a fully
/// associative one, gets sets of this size, which hold nearly the same lines.
const MAX_WAYS: u64 = 64;

/// No mask: a line may replace any other.
pub(crate) const ALL_WAYS: u64 = u64::MAX;

/// A way without a line.
const EMPTY: u32 = 0;
/// The bit of a way whose line is dirty.
const DIRTY: u32 = 1 << 31;

/// Hints per word.
const HINTS: u64 = 8;
/// The lowest bit of every hint.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;

/// A set-associative cache with bit-PLRU replacement (exact LRU for two ways).
///
/// CPUs that share it may use it concurrently: a race can only lose a fill or a recency update.
pub(crate) struct Cache {
    /// For each set, a word with a recency bit for each way, and then the low 8 bits of each way's tag, [`HINTS`] per
    /// word, which exclude most ways eight at a time.
    sets: Box<[AtomicU64]>,
    /// For each set, its ways: the line's tag + 1, with or without [`DIRTY`], or [`EMPTY`].
    tags: Box<[AtomicU32]>,
    ways: usize,
    /// Words of a set in [`Cache::sets`].
    set_words: usize,
    /// The recency bits of a set's first word.
    all_ways: u64,
    division: Division,
    /// Latency of a hit, ps.
    pub(crate) latency_ps: u32,
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A hit.
    Hit,
    /// A hit that makes the line dirty.
    Dirtied,
    /// A miss. Holds the evicted line, if it was dirty.
    Missed(Option<u64>),
}

impl Cache {
    /// A cache of `size_bytes` in lines of [`LINE_BYTES`]. A number of sets that `ways` does not divide evenly is
    /// rounded down. Fails if the host has no room for it.
    pub(crate) fn new(size_bytes: u64, ways: u32, latency_ps: u32) -> Result<Self, AllocError> {
        let lines = (size_bytes / LINE_BYTES).max(1);
        let ways = if ways == 0 { WAYS_IF_UNKNOWN } else { u64::from(ways).min(MAX_WAYS) }.min(lines);
        let sets = lines / ways;
        let set_words = 1 + ways.div_ceil(HINTS);
        Ok(Self {
            sets: <[AtomicU64]>::new_box_zeroed_with_elems((sets * set_words) as usize)?,
            // Zeros are [`EMPTY`].
            tags: <[AtomicU32]>::new_box_zeroed_with_elems((sets * ways) as usize)?,
            ways: ways as usize,
            set_words: set_words as usize,
            all_ways: u64::MAX >> (MAX_WAYS - ways),
            division: Division::by(sets),
            latency_ps,
        })
    }

    pub(crate) fn sets(&self) -> u64 {
        (self.tags.len() / self.ways) as u64
    }

    /// The first line number that is too large for the tags.
    pub(crate) fn line_limit(&self) -> u64 {
        u64::from(DIRTY - 1) * self.sets()
    }

    /// Looks up a line and makes it the most recent of its set; on a miss it replaces an old one.
    #[inline]
    pub(crate) fn access(&self, line: u64, write: bool) -> Found {
        self.access_ways::<false>(line, write, self.all_ways)
    }

    /// The same, but on a miss it replaces an old line of these ways; [`ALL_WAYS`] is faster than a mask of all. A hit counts
    /// in any way.
    #[inline]
    pub(crate) fn access_in(&self, line: u64, write: bool, ways: u64) -> Found {
        if ways == ALL_WAYS {
            return self.access(line, write);
        }
        self.access_ways::<true>(line, write, ways & self.all_ways)
    }

    #[inline]
    fn access_ways<const MASKED: bool>(&self, line: u64, write: bool, ways: u64) -> Found {
        let (tag, set) = self.division.of(line);
        let tag = (tag as u32).wrapping_add(1);
        let tags = &self.tags[set * self.ways..][..self.ways];
        let Some((recency, hints)) = self.sets[set * self.set_words..][..self.set_words].split_first() else {
            return Found::Missed(None);
        };
        let mut recent = recency.load(Relaxed);
        let (way, found) = if let Some((way, held)) = find(tags, hints, tag) {
            if write && held & DIRTY == 0 {
                tags[way].store(held | DIRTY, Relaxed);
                (way, Found::Dirtied)
            } else {
                (way, Found::Hit)
            }
        } else {
            // Normally not all bits are set: marking the last way clears the others. But a race may set every bit, and so
            // may hits of others that fill other ways.
            if !recent & ways == 0 {
                recent &= !ways;
            }
            let victim = (!recent & ways).trailing_zeros() as usize % self.ways;
            let old = tags[victim].load(Relaxed);
            tags[victim].store(if write { tag | DIRTY } else { tag }, Relaxed);
            let (word, shift) = (&hints[victim / HINTS as usize], victim % HINTS as usize * 8);
            word.store(word.load(Relaxed) & !(0xFF << shift) | u64::from(tag as u8) << shift, Relaxed);
            let written = (old & DIRTY != 0).then(|| self.division.back(u64::from(old & !DIRTY) - 1, set));
            (victim, Found::Missed(written))
        };
        let bit = 1 << way;
        if recent & bit == 0 {
            let marked = recent | bit;
            // The last of its own ways clears the others of its own; those that others fill keep their age.
            let cleared = if MASKED { marked & !ways | bit } else { bit };
            let is_last = if MASKED { marked & ways == ways } else { marked == ways };
            recency.store(if is_last { cleared } else { marked }, Relaxed);
        }
        found
    }

    /// Marks a line as dirty. Returns whether it is present.
    pub(crate) fn dirty(&self, line: u64) -> bool {
        self.change(line, |held| held | DIRTY)
    }

    /// Whether a line is present.
    pub(crate) fn holds(&self, line: u64) -> bool {
        self.written(line).is_some()
    }

    /// Whether a line is dirty; `None` if it is not present.
    pub(crate) fn written(&self, line: u64) -> Option<bool> {
        let (_, _, held) = self.look(line)?;
        Some(held & DIRTY != 0)
    }

    /// Marks a line as clean. Returns whether it is present.
    pub(crate) fn clean(&self, line: u64) -> bool {
        self.change(line, |held| held & !DIRTY)
    }

    /// Removes a line. Returns whether it was present. Its way is among the next to be filled.
    pub(crate) fn remove(&self, line: u64) -> bool {
        let Some((tags, way, _)) = self.look(line) else { return false };
        tags[way].store(EMPTY, Relaxed);
        let (_, set) = self.division.of(line);
        if let Some(recency) = self.sets.get(set * self.set_words) {
            recency.store(recency.load(Relaxed) & !(1 << way), Relaxed);
        }
        true
    }

    /// Removes every line.
    pub(crate) fn clear(&self) {
        for tag in &self.tags {
            tag.store(EMPTY, Relaxed);
        }
    }

    /// Changes the way of a line. Returns whether it is present.
    fn change(&self, line: u64, change: impl FnOnce(u32) -> u32) -> bool {
        let found = self.look(line);
        if let Some((tags, way, held)) = found {
            tags[way].store(change(held), Relaxed);
        }
        found.is_some()
    }

    /// The ways of a line's set and, if the line is present, the index and contents of its way.
    fn look(&self, line: u64) -> Option<(&[AtomicU32], usize, u32)> {
        let (tag, set) = self.division.of(line);
        let tags = &self.tags[set * self.ways..][..self.ways];
        let hints = &self.sets[set * self.set_words + 1..][..self.set_words - 1];
        find(tags, hints, (tag as u32).wrapping_add(1)).map(|(way, held)| (tags, way, held))
    }
}

/// The way of a set with a tag, and its contents.
#[inline]
fn find(tags: &[AtomicU32], hints: &[AtomicU64], tag: u32) -> Option<(usize, u32)> {
    let wanted = u64::from(tag as u8) * LOW_BITS;
    for (word, hints) in hints.iter().enumerate() {
        let difference = hints.load(Relaxed) ^ wanted;
        // The high bit of every equal hint, and of some unequal ones above it.
        let mut equal = difference.wrapping_sub(LOW_BITS) & !difference & (LOW_BITS << 7);
        while equal != 0 {
            let way = word * HINTS as usize + equal.trailing_zeros() as usize / 8;
            if let Some(held) = tags.get(way).map(|held| held.load(Relaxed))
                && held & !DIRTY == tag
            {
                return Some((way, held));
            }
            equal &= equal - 1;
        }
    }
    None
}

/// Division of line numbers by a constant, without the host's slow division.
enum Division {
    /// By 2 to this power.
    Shift(u32),
    /// By 2 to the power `shift`, then by an odd number.
    Multiply { shift: u32, odd: u64, reciprocal: u64 },
}

impl Division {
    fn by(divisor: u64) -> Self {
        let shift = divisor.trailing_zeros();
        let odd = divisor >> shift;
        // ceil(2^64 / odd): the quotient is exact below 2^64 / odd, far above any line number (52 - 6 bits).
        if odd == 1 { Self::Shift(shift) } else { Self::Multiply { shift, odd, reciprocal: u64::MAX / odd + 1 } }
    }

    /// The line for a quotient and a remainder.
    fn back(&self, quotient: u64, remainder: usize) -> u64 {
        let divisor = match *self {
            Self::Shift(shift) => 1 << shift,
            Self::Multiply { shift, odd, .. } => odd << shift,
        };
        quotient * divisor + remainder as u64
    }

    /// Quotient and remainder.
    #[inline]
    fn of(&self, line: u64) -> (u64, usize) {
        match *self {
            Self::Shift(shift) => (line >> shift, (line & ((1 << shift) - 1)) as usize),
            Self::Multiply { shift, odd, reciprocal } => {
                let quotient = ((u128::from(line >> shift) * u128::from(reciprocal)) >> 64) as u64;
                (quotient, (line - quotient * (odd << shift)) as usize)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn hit(cache: &Cache, line: u64) -> bool {
        hit_in(cache, line, ALL_WAYS)
    }

    fn hit_in(cache: &Cache, line: u64, ways: u64) -> bool {
        !matches!(cache.access_in(line, false, ways), Found::Missed(_))
    }

    /// A run of ways, of a cache of 40.
    fn run(first: u32, count: u32) -> u64 {
        ((1 << count) - 1) << first
    }

    /// Share of hits of accesses at random to this many bytes, beside streams that each miss twice as often.
    fn share_beside(streams: u64, bytes: u64, own: u64, others: u64) -> f64 {
        let cache = Cache::new(5 << 20, 40, 0).unwrap();
        let mut random = machine::Random(7);
        let (mut hits, mut position, counted) = (0_u64, 0, 200_000_u32);
        for access in 0..2 * counted {
            let is_hit = hit_in(&cache, random.below((bytes / LINE_BYTES) as usize) as u64, own);
            hits += u64::from(is_hit && access >= counted);
            for stream in 1..=streams {
                (0..2).for_each(|next| _ = hit_in(&cache, (stream << 24) + position + next, others));
            }
            position += 2;
        }
        hits as f64 / f64::from(counted)
    }

    #[test]
    fn ways_of_its_own_keep_what_fits_and_no_more() {
        let two_mib = |streams, own, others| share_beside(streams, 2 << 20, own, others);
        assert!((0.1..0.4).contains(&two_mib(5, ALL_WAYS, ALL_WAYS)), "shared");
        // 2.5 MiB hold all of it, whatever the others do; 1 MiB holds half.
        let exact = two_mib(5, run(0, 20), run(20, 20));
        assert!(exact > 0.999, "{exact}");
        let half = two_mib(5, run(32, 8), run(0, 32));
        assert!((half - 0.5).abs() < 0.01, "{half}");
        assert!((half - two_mib(0, run(32, 8), run(0, 32))).abs() < 1e-9, "streams change nothing");
    }

    #[test]
    fn a_line_that_was_written_leaves_by_name() {
        for sets in [1, 4, 12, 60] {
            let cache = Cache::new(2 * sets * LINE_BYTES, 2, 0).unwrap();
            let [first, second, third, fourth] = [0, 1, 2, 3].map(|i| 7 * sets + i * sets + sets / 2);
            assert_eq!(cache.access(first, true), Found::Missed(None));
            assert_eq!(cache.access(second, false), Found::Missed(None));
            assert_eq!(cache.access(second, true), Found::Dirtied);
            assert_eq!(cache.access(second, true), Found::Hit);
            assert_eq!(cache.access(third, false), Found::Missed(Some(first)));
            assert_eq!(cache.access(fourth, false), Found::Missed(Some(second)));
            assert_eq!(cache.access(first, false), Found::Missed(None), "the third was only read");
            assert!(cache.dirty(first) && !cache.dirty(second));
            cache.access(fourth, false);
            assert_eq!(cache.access(third, false), Found::Missed(Some(first)));
        }
    }

    proptest! {
        #[test]
        fn division_is_exact(line in 0..1_u64 << 46, divisor in 1..1_u64 << 18) {
            let expected = (line / divisor, (line % divisor) as usize);
            prop_assert_eq!(Division::by(divisor).of(line), expected);
        }

        #[test]
        fn a_line_that_came_in_last_is_there(
            lines in 1_u64..5000, ways in 0_u32..100, accesses in prop::collection::vec(0_u64..1 << 40, 1..500),
        ) {
            let cache = Cache::new(lines * LINE_BYTES, ways, 0).unwrap();
            for line in accesses.into_iter().map(|line| line % cache.line_limit()) {
                hit(&cache, line);
                prop_assert!(hit(&cache, line));
            }
        }

        #[test]
        fn what_fits_stays(sets in 1_u64..300, ways in 1_u64..=64, start in 0_u64..1 << 30) {
            let cache = Cache::new(sets * ways * LINE_BYTES, ways as u32, 0).unwrap();
            let lines = start..start + sets * ways;
            prop_assert_eq!(lines.clone().filter(|&line| hit(&cache, line)).count(), 0);
            prop_assert!(lines.clone().all(|line| hit(&cache, line)));
        }

        /// Whatever others do in the other ways, and wherever they hit: a cache of these ways alone sees the same.
        #[test]
        fn lines_in_ways_of_its_own_are_those_of_a_smaller_cache(
            all in 2_u32..=64, first in 0_u32..64, count in 1_u32..64, sets in 1_u64..5,
            accesses in prop::collection::vec((any::<bool>(), 0_u64..200), 1..600),
        ) {
            let first = first % (all - 1);
            let count = 1 + count % (all - 1 - first).max(1);
            let own = (u64::MAX >> (64 - count)) << first;
            let whole = u64::MAX >> (64 - all);
            let cache = Cache::new(sets * u64::from(all) * LINE_BYTES, all, 0).unwrap();
            let alone = Cache::new(sets * u64::from(count) * LINE_BYTES, count, 0).unwrap();
            for (is_own, line) in accesses {
                if is_own {
                    prop_assert_eq!(hit_in(&cache, line, own), hit(&alone, line));
                } else {
                    hit_in(&cache, 1000 + line, whole & !own);
                }
            }
        }

        /// Others' hits in its ways may leave all of them recent: it then still has at least the line of its last access.
        #[test]
        fn the_last_line_is_there_whatever_the_masks(
            ways in 2_u32..=64, accesses in prop::collection::vec((any::<u64>(), 0_u64..300), 1..500),
        ) {
            let cache = Cache::new(u64::from(ways) * LINE_BYTES, ways, 0).unwrap();
            let whole = u64::MAX >> (64 - ways);
            for (mask, line) in accesses {
                let mask = if mask & whole == 0 { whole } else { mask };
                hit_in(&cache, line, mask);
                prop_assert!(hit_in(&cache, line, mask));
            }
        }

        /// Masks of single ways can leave all ways recent: once they are gone, all ways are used again.
        #[test]
        fn masks_that_are_gone_leave_no_trace(
            ways in 2_u32..=64, masked in prop::collection::vec((0_u32..64, 0_u64..300), 1..300),
        ) {
            let cache = Cache::new(u64::from(ways) * LINE_BYTES, ways, 0).unwrap();
            for (way, line) in masked {
                hit_in(&cache, line, 1 << (way % ways));
            }
            for line in 1000..1000 + u64::from(ways) {
                hit(&cache, line);
            }
            let last = 1000 + u64::from(ways) - 1;
            prop_assert!(hit(&cache, last) && hit(&cache, last - 1));
        }

        #[test]
        fn two_ways_are_exact_lru(sets in 1_u64..20, accesses in prop::collection::vec(0_u64..200, 0..500)) {
            let cache = Cache::new(sets * 2 * LINE_BYTES, 2, 0).unwrap();
            let mut reference = vec![VecDeque::new(); sets as usize];
            for line in accesses {
                let set = &mut reference[(line % sets) as usize];
                let held = set.iter().position(|&other| other == line);
                set.remove(held.unwrap_or(1));
                set.push_front(line);
                prop_assert_eq!(hit(&cache, line), held.is_some());
            }
        }

        #[test]
        fn the_last_few_lines_of_a_set_are_never_replaced(ways in 2_u64..=64, accesses in prop::collection::vec(0_u64..100, 2..500)) {
            // Bit-PLRU keeps at least the two most recent lines of a set, whatever came before.
            let cache = Cache::new(ways * LINE_BYTES, ways as u32, 0).unwrap();
            for pair in accesses.windows(2) {
                hit(&cache, pair[0]);
                hit(&cache, pair[1]);
                prop_assert!(hit(&cache, pair[0]));
                prop_assert!(hit(&cache, pair[1]));
            }
        }
    }

    #[test]
    fn a_hot_line_outlives_a_scan() {
        let cache = Cache::new(16 * LINE_BYTES, 16, 0).unwrap();
        hit(&cache, 0);
        for line in 1..1000 {
            hit(&cache, line);
            assert!(hit(&cache, 0), "after line {line}");
        }
    }

    #[test]
    fn a_scan_twice_the_size_misses_mostly() {
        let cache = Cache::new(512 << 10, 16, 0).unwrap();
        let lines = (1 << 20) / LINE_BYTES;
        for line in 0..lines {
            hit(&cache, line);
        }
        let hits = (0..lines).filter(|&line| hit(&cache, line)).count() as u64;
        assert!(hits * 10 < lines, "{hits} of {lines}");
    }

    /// As of a line that cores write in turns.
    #[test]
    fn a_line_that_is_taken_away_each_time_costs_others_one_at_most() {
        let cache = Cache::new(8 * LINE_BYTES, 8, 0).unwrap();
        for line in 0..7 {
            hit(&cache, line);
        }
        for _ in 0..20 {
            hit(&cache, 100);
            assert!(cache.remove(100));
        }
        let kept = (0..7).filter(|line| cache.holds(*line)).count();
        assert!(kept >= 6, "{kept} of 7");
    }

    #[test]
    fn unknown_and_huge_associativity_keep_the_size() {
        for (ways, expected) in [(0, 16), (100, 64), (u32::MAX, 64)] {
            let cache = Cache::new(1 << 20, ways, 0).unwrap();
            assert_eq!((cache.ways, cache.tags.len()), (expected, (1 << 20) / 64));
        }
        assert_eq!(Cache::new(0, 0, 0).unwrap().tags.len(), 1);
    }
}
