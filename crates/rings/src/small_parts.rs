//! Objects of which a program keeps parts on small pages from their allocation on.
//!
//! A program finds the path of a file in [`SMALL_PARTS_VARIABLE`] and maps it, shared. It has [`HEADER_WORDS`] words, then
//! [`RULE_WORDS`] words for each object, a rule, then the borders of all. The program counts in the rules what it does.

use core::ops::Range;

/// The environment variable with the path of the file.
pub const SMALL_PARTS_VARIABLE: &str = "NEARSIDE_SMALL_PARTS";
/// Identifies these files, and the version of their layout.
pub const SMALL_PARTS_MAGIC: u64 = u64::from_le_bytes(*b"smparts1");
/// Words before the first rule: the magic number, the number of rules, and that of words of the file.
pub const HEADER_WORDS: usize = 3;
/// Words of a rule.
pub const RULE_WORDS: usize = 12;
/// In the place of an error number: the program has too many mappings to mark more ranges.
pub const TOO_MANY_MARKS: u64 = u64::MAX;
/// Size of a huge page, bytes.
const HUGE: u64 = 2 << 20;
/// How far the border of two nodes' parts may be from where samples have it, bytes: half of a detector's cell, of 64 a
/// huge page, on either side, and as much again because samples are sparse.
const SLACK: u64 = 32 << 10;

/// Indices of words in a rule.
pub mod small_part {
    /// The object's [`crate::ObjectKey`].
    pub const KEY: usize = 0;
    /// Its size, bytes.
    pub const BYTES: usize = 1;
    /// [`crate::ObjectKey::of_build`] of the file whose frames name its allocation site; 0 for an object with a name.
    pub const FILE: usize = 2;
    /// Longest chain, in frames of all files, in which those of that file were recorded.
    pub const FRAMES: usize = 3;
    /// Its recorded address.
    pub const START: usize = 4;
    /// The first of its borders among all, and their number. A border is an offset in the object where another node's
    /// part begins; they ascend.
    pub const FIRST: usize = 5;
    /// See [`FIRST`].
    pub const BORDERS: usize = 6;
    /// [`crate::CountedFrom`].
    pub const FROM: usize = 7;
    /// Written by programs: objects that matched.
    pub const MET: usize = 8;
    /// Huge pages' worth of memory that is kept on small pages.
    pub const KEPT: usize = 9;
    /// Ranges that the kernel refused to keep so.
    pub const REFUSED: usize = 10;
    /// The last of its error numbers.
    pub const ERRNO: usize = 11;
}

/// What names an object in every run of a program: the code that allocated it, or its name. FNV-1a, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey(u64);

impl ObjectKey {
    /// A site without frames.
    pub const SITE: Self = Self(0xcbf2_9ce4_8422_2325);

    fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// With the next caller: the offset of its return address in the file.
    #[must_use]
    pub fn with_frame(self, offset: u64) -> Self {
        self.with(&offset.to_le_bytes())
    }

    /// Of a mapped file's path, or of a range that the program named.
    pub fn of_name(name: &[u8]) -> Self {
        Self::SITE.with(b"name").with(name)
    }

    /// Of a file's build ID, not 0.
    pub fn of_build(id: &[u8]) -> u64 {
        Self::SITE.with(b"build").with(id).0.max(1)
    }

    /// As it is stored.
    pub const fn word(self) -> u64 {
        self.0
    }
}

/// Where a program counts the parts of an object from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedFrom {
    /// That is not known: either.
    Unknown = 0,
    /// The object's first address.
    Start = 1,
    /// The first huge page in it, as programs do that align their memory themselves.
    FirstHugePage = 2,
}

impl CountedFrom {
    /// As it is stored; [`CountedFrom::Unknown`] for others.
    pub fn of_word(word: u64) -> Self {
        match word {
            1 => Self::Start,
            2 => Self::FirstHugePage,
            _ => Self::Unknown,
        }
    }

    /// The ways to find a border.
    pub fn ways(self) -> &'static [Self] {
        match self {
            Self::Unknown => &[Self::Start, Self::FirstHugePage],
            Self::Start => &[Self::Start],
            Self::FirstHugePage => &[Self::FirstHugePage],
        }
    }
}

/// An object of which parts are kept on small pages: a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallPart<'a> {
    /// The object, by its site or name.
    pub key: ObjectKey,
    /// [`ObjectKey::of_build`] of the file whose frames are in the key; 0 for a name.
    pub file: u64,
    /// Longest recorded chain of the site.
    pub frames: u64,
    /// Its size, bytes.
    pub bytes: u64,
    /// Its recorded address.
    pub start: u64,
    /// Where the program counts its parts from.
    pub from: CountedFrom,
    /// Offsets in it where another node's part begins, ascending.
    pub borders: &'a [u64],
}

/// The words of a file with these rules.
pub fn small_parts_file<'a>(rules: &'a [SmallPart<'a>]) -> impl Iterator<Item = u64> + 'a {
    let after_rules = HEADER_WORDS + rules.len() * RULE_WORDS;
    let borders = rules.iter().map(|rule| rule.borders.len()).sum::<usize>();
    let header = [SMALL_PARTS_MAGIC, rules.len() as u64, (after_rules + borders) as u64];
    let firsts = rules.iter().scan(after_rules as u64, |next, rule| {
        let first = *next;
        *next += rule.borders.len() as u64;
        Some(first)
    });
    let words = rules.iter().zip(firsts).flat_map(|(rule, first)| {
        let mut words = [0; RULE_WORDS];
        words[small_part::KEY] = rule.key.word();
        words[small_part::FILE] = rule.file;
        words[small_part::FRAMES] = rule.frames;
        words[small_part::BYTES] = rule.bytes;
        words[small_part::START] = rule.start;
        words[small_part::FROM] = rule.from as u64;
        words[small_part::FIRST] = first;
        words[small_part::BORDERS] = rule.borders.len() as u64;
        words
    });
    header.into_iter().chain(words).chain(rules.iter().flat_map(|rule| rule.borders.iter().copied()))
}

/// The memory of an object to keep on small pages around a border: whole huge pages, as far as the object has them. If
/// the object is not aligned as when it was recorded, the border may be in another huge page than its samples show,
/// so that one is kept as well. Empty for a border between two huge pages.
pub fn around_border(object: &Range<u64>, recorded_start: u64, border: u64, from: CountedFrom) -> Range<u64> {
    let at = object.start.saturating_add(border);
    if is_aligned_as(object.start, recorded_start) {
        return blocks(object, at, at);
    }
    if from == CountedFrom::FirstHugePage {
        // It is aligned as it was then.
        let to_first = |start: u64| (HUGE - start % HUGE) % HUGE;
        let at = at.saturating_add(to_first(object.start)).saturating_sub(to_first(recorded_start));
        return blocks(object, at, at);
    }
    blocks(object, at.saturating_sub(SLACK), at.saturating_add(SLACK))
}

/// Whether two objects begin at the same place in a huge page, so that it does not matter where parts are counted from.
pub fn is_aligned_as(start: u64, recorded_start: u64) -> bool {
    start % HUGE == recorded_start % HUGE
}

/// The huge pages that have something on both sides of a point between these addresses.
fn blocks(object: &Range<u64>, low: u64, high: u64) -> Range<u64> {
    let (start, end) = (low / HUGE * HUGE, high.div_ceil(HUGE).saturating_mul(HUGE));
    let (start, end) = (start.max(object.start.div_ceil(4096).saturating_mul(4096)), end.min(object.end / 4096 * 4096));
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 0x7f00_0000_0000;

    #[test]
    fn the_huge_page_of_a_border_is_kept_small_and_one_between_huge_pages_needs_none() {
        let object = START..START + 6 * HUGE;
        let around = |border| around_border(&object, START, border, CountedFrom::Start);
        assert_eq!(around(HUGE + 4096), START + HUGE..START + 2 * HUGE);
        assert!(around(2 * HUGE).is_empty());
        // The object ends within the last one.
        let short = START..START + HUGE + 5000;
        let range = around_border(&short, START, HUGE + 4096, CountedFrom::FirstHugePage);
        assert_eq!(range, START + HUGE..START + HUGE + 4096);
    }

    #[test]
    fn an_object_at_another_place_is_counted_from_its_start_or_from_its_first_huge_page() {
        let shifted = START + 0x10_0000;
        let object = shifted..shifted + 6 * HUGE;
        let around = |recorded, border| {
            [CountedFrom::Start, CountedFrom::FirstHugePage].map(|from| around_border(&object, recorded, border, from))
        };
        let block = |number: u64| START + number * HUGE;
        // A border in the middle of the second huge page is now at the end of one.
        assert_eq!(around(START, HUGE + HUGE / 2), [block(1)..block(3), block(2)..block(3)]);
        // It was recorded there.
        assert_eq!(around(shifted - 8 * HUGE, HUGE), [block(1)..block(2), block(1)..block(2)]);
    }

    #[test]
    fn a_file_has_its_rules_and_then_their_borders() {
        let key = ObjectKey::of_name(b"table");
        let from = CountedFrom::FirstHugePage;
        let rule = SmallPart { key, file: 0, frames: 0, bytes: HUGE, start: 0, from, borders: &[4096, 8192] };
        let mut words = [0; 60];
        let rules = [rule, SmallPart { borders: &[12288], ..rule }];
        let number = words.iter_mut().zip(small_parts_file(&rules)).map(|(place, word)| *place = word).count();
        assert_eq!((words[0], words[1], words[2] as usize), (SMALL_PARTS_MAGIC, 2, number));
        let second = &words[HEADER_WORDS + RULE_WORDS..];
        let at = |place: usize| second[place] as usize;
        assert_eq!((words[at(small_part::FIRST)], at(small_part::BORDERS)), (12288, 1));
        assert_eq!(CountedFrom::of_word(second[small_part::FROM]), from);
        assert_eq!((second[small_part::KEY], number), (key.word(), HEADER_WORDS + 2 * RULE_WORDS + 3));
    }

    #[test]
    fn keys_tell_sites_names_and_builds_apart() {
        let site = ObjectKey::SITE.with_frame(1).with_frame(2);
        assert_ne!(site, ObjectKey::SITE.with_frame(2).with_frame(1));
        assert_ne!(ObjectKey::of_name(b"a"), ObjectKey::of_name(b"b"));
        assert_ne!(ObjectKey::of_build(b"a"), ObjectKey::of_name(b"a").word());
    }

    proptest! {
        #[test]
        fn ranges_are_pages_of_the_object(pages in 1..5000_u64, at: u64, recorded: u64, border: u64) {
            let start = at % (1 << 47);
            let object = start..start + pages * 4096;
            for from in CountedFrom::Unknown.ways() {
                let range = around_border(&object, recorded % (1 << 47), border % (1 << 40), *from);
                if !range.is_empty() {
                    prop_assert!(range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096));
                    prop_assert!(object.start <= range.start && range.end <= object.end);
                }
            }
        }
    }
}
