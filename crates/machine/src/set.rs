//! Sets of nodes and of CPUs, with the syntax of numactl and cpusets.

use crate::ids::{CpuId, NodeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// The largest ID in a set: far above any kernel's limit, low enough that `0-4294967295` cannot exhaust memory.
pub const MAX_ID: u32 = 1 << 20;

/// An ordered set of IDs of one kind. Its text form is the kernel's list format: `0-3,5`; the empty set is the empty
/// text. It takes memory by its ranges, not its IDs: a text of a few bytes names a million.
pub struct IdSet<T> {
    /// The last ID of each range, by the first. No range touches the next.
    ranges: BTreeMap<u32, u32>,
    kind: PhantomData<T>,
}

/// A set of NUMA nodes.
pub type NodeSet = IdSet<NodeId>;
/// A set of CPUs.
pub type CpuSet = IdSet<CpuId>;

/// Why a text is not a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A part between commas is neither a number nor a range.
    #[error("{} is neither a number nor a range such as 0-3", within(part, text))]
    NotANumber {
        /// The whole text.
        text: String,
        /// The invalid part.
        part: String,
    },
    /// A range runs backwards.
    #[error("the range {} ends before it begins", within(part, text))]
    Backwards {
        /// The whole text.
        text: String,
        /// The range.
        part: String,
    },
    /// An ID is larger than `MAX_ID`.
    #[error("{id} in `{text}` is above the largest id, {MAX_ID}")]
    TooLarge {
        /// The whole text.
        text: String,
        /// The ID.
        id: String,
    },
}

impl<T> IdSet<T> {
    /// The empty set.
    pub fn new() -> Self {
        Self { ranges: BTreeMap::new(), kind: PhantomData }
    }

    /// The number of IDs.
    pub fn len(&self) -> usize {
        self.ranges.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn ids(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(&first, &last)| first..=last)
    }

    /// The range that has this ID.
    fn range_of(&self, id: u32) -> Option<(u32, u32)> {
        let (&first, &last) = self.ranges.range(..=id).next_back()?;
        (id <= last).then_some((first, last))
    }

    /// The parts of a range that the set has.
    fn within(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let begin = self.range_of(first).map_or(first, |(begin, _)| begin);
        self.ranges.range(begin..=last).map(move |(&from, &to)| (from.max(first), to.min(last)))
    }

    fn insert_range(&mut self, first: u32, last: u32) {
        let begin = first.checked_sub(1).and_then(|before| self.range_of(before)).map_or(first, |(begin, _)| begin);
        let mut end = last;
        while let Some((&from, &to)) = self.ranges.range(begin..=last.saturating_add(1)).next() {
            self.ranges.remove(&from);
            end = end.max(to);
        }
        self.ranges.insert(begin, end);
    }

    fn remove_range(&mut self, first: u32, last: u32) {
        let parts: Vec<(u32, u32)> = self.within(first, last).collect();
        for (from, to) in parts {
            let Some((begin, end)) = self.range_of(from) else { continue };
            self.ranges.remove(&begin);
            if begin < from {
                self.ranges.insert(begin, from - 1);
            }
            if to < end {
                self.ranges.insert(to + 1, end);
            }
        }
    }

    /// Adds the IDs of another set.
    pub fn insert_all(&mut self, other: &Self) {
        other.ranges.iter().for_each(|(&first, &last)| self.insert_range(first, last));
    }

    /// The IDs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (few, many) = if self.ranges.len() < other.ranges.len() { (self, other) } else { (other, self) };
        let parts = few.ranges.iter().flat_map(|(&first, &last)| many.within(first, last));
        Self { ranges: parts.collect(), kind: PhantomData }
    }

    /// The IDs of this set that the other has not.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        for (&first, &last) in &self.ranges {
            other.within(first, last).for_each(|(from, to)| left.remove_range(from, to));
        }
        left
    }

    /// Whether every ID of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.ranges.iter().all(|(&first, &last)| other.range_of(first).is_some_and(|(_, end)| last <= end))
    }
}

impl<T: From<u32> + Into<u32>> IdSet<T> {
    /// Adds an ID. Returns whether it was new.
    pub fn insert(&mut self, id: T) -> bool {
        let id = id.into();
        let is_new = self.range_of(id).is_none();
        if is_new {
            self.insert_range(id, id);
        }
        is_new
    }

    /// Removes an ID. Returns whether the set had it.
    pub fn remove(&mut self, id: T) -> bool {
        let id = id.into();
        let is_there = self.range_of(id).is_some();
        self.remove_range(id, id);
        is_there
    }

    /// Whether the set has this ID.
    pub fn contains(&self, id: T) -> bool {
        self.range_of(id.into()).is_some()
    }

    /// The IDs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + '_ {
        self.ids().map(T::from)
    }

    /// The lowest ID.
    pub fn first(&self) -> Option<T> {
        self.ranges.keys().next().map(|&id| T::from(id))
    }
}

impl<T> Clone for IdSet<T> {
    fn clone(&self) -> Self {
        Self { ranges: self.ranges.clone(), kind: PhantomData }
    }
}

impl<T> PartialEq for IdSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.ranges == other.ranges
    }
}

impl<T> Eq for IdSet<T> {}

impl<T> PartialOrd for IdSet<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for IdSet<T> {
    /// By the first ID in which they differ.
    fn cmp(&self, other: &Self) -> Ordering {
        // Common beginnings are compared by ranges, which may be long.
        let is_same = |((one, other), _): &((_, _), usize)| one == other;
        let pairs = self.ranges.iter().zip(&other.ranges).zip(0..);
        let common = pairs.take_while(is_same).count();
        let rest = |set: &Self| set.ranges.iter().nth(common).map(|(&first, &last)| (first, last));
        match (rest(self), rest(other)) {
            (Some((one, one_end)), Some((two, two_end))) if one == two => {
                // The shorter range goes on with a higher ID, or ends.
                let goes_on = |set: &Self| set.ranges.len() > common + 1;
                match one_end.cmp(&two_end) {
                    Ordering::Less if goes_on(self) => Ordering::Greater,
                    Ordering::Greater if goes_on(other) => Ordering::Less,
                    order => order,
                }
            }
            (one, two) => one.cmp(&two),
        }
    }
}

impl<T> Hash for IdSet<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ranges.hash(state);
    }
}

impl<T> Default for IdSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Into<u32>> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<T: Into<u32>> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        ids.into_iter().map(Into::into).for_each(|id| self.insert_range(id, id));
    }
}

impl<T> FromStr for IdSet<T> {
    type Err = SetError;

    /// Parses the kernel's list format. White space around parts and at the ends is ignored.
    fn from_str(text: &str) -> Result<Self, SetError> {
        let number = |part: &str, number: &str| {
            let not_a_number = || SetError::NotANumber { text: shown(text), part: shown(part) };
            let too_large = || SetError::TooLarge { text: shown(text), id: shown(number.trim()) };
            let id: u32 = number.trim().parse().map_err(|why: ParseIntError| match why.kind() {
                IntErrorKind::PosOverflow => too_large(),
                _ => not_a_number(),
            })?;
            if id > MAX_ID { Err(too_large()) } else { Ok(id) }
        };
        let mut set = Self::new();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(part, first)?, number(part, last)?);
            if last < first {
                return Err(SetError::Backwards { text: shown(text), part: shown(part) });
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }
}

/// Longest part of an invalid text in an error.
const SHOWN: usize = 60;

impl<T: From<u32> + Into<u32>> IdSet<T> {
    /// Parses the kernel's mask format: hexadecimal groups of 32 bits from the highest to the lowest, `1,0000000f` for
    /// 0-3 and 32.
    pub fn from_mask(text: &str) -> Result<Self, SetError> {
        let mut set = Self::new();
        let mut base = 0_u32;
        for group in text.trim().rsplit(',') {
            let not_a_number = || SetError::NotANumber { text: shown(text), part: shown(group) };
            // Old kernels write one long group.
            for digit in group.bytes().rev() {
                let bits = char::from(digit).to_digit(16).ok_or_else(not_a_number)?;
                for bit in (0..4).filter(|bit| bits >> bit & 1 != 0) {
                    if base + bit > MAX_ID {
                        return Err(SetError::TooLarge { text: shown(text), id: (base + bit).to_string() });
                    }
                    set.insert(T::from(base + bit));
                }
                base = base.checked_add(4).ok_or_else(not_a_number)?;
            }
        }
        Ok(set)
    }
}

/// A part, and the text that it is in if that has more.
fn within(part: &str, text: &str) -> String {
    if part == text.trim() { format!("`{part}`") } else { format!("`{part}` in `{text}`") }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

impl<T> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (first, last) in &self.ranges {
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl<T> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<T> Serialize for IdSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T> Deserialize<'de> for IdSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn reads_and_writes_the_kernels_list_format() {
        for (text, written) in [("", ""), ("0", "0"), ("0-3,5", "0-3,5"), (" 5 , 0-1,2", "0-2,5"), ("7\n", "7")] {
            assert_eq!(text.parse::<CpuSet>().map(|set| set.to_string()), Ok(written.to_owned()));
        }
    }

    #[test]
    fn refuses_what_is_not_a_set() {
        for text in ["a", "1-", "-1", "3-1", "1,,2", "0-99999999", "4294967296", "1 2"] {
            assert!(text.parse::<NodeSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn reads_the_kernels_mask_format() {
        for (mask, set) in [
            ("0", ""),
            ("", ""),
            ("f\n", "0-3"),
            ("1,0000000f", "0-3,32"),
            ("00000000000000000", ""),
            ("100000000", "32"),
        ] {
            assert_eq!(CpuSet::from_mask(mask).map(|set| set.to_string()), Ok(set.to_owned()), "{mask}");
        }
        for mask in ["0x1", "g", "-1", "1 2", &"f".repeat(1 << 19)] {
            assert!(CpuSet::from_mask(mask).is_err());
        }
    }

    #[test]
    fn a_part_is_shown_in_its_text_if_there_is_more() {
        let error = |text: &str| text.parse::<CpuSet>().unwrap_err().to_string();
        assert_eq!(error("99999999999"), "99999999999 in `99999999999` is above the largest id, 1048576");
        assert_eq!(error("!"), "`!` is neither a number nor a range such as 0-3");
        assert_eq!(error("1,x"), "`x` in `1,x` is neither a number nor a range such as 0-3");
        assert_eq!(error("3-1"), "the range `3-1` ends before it begins");
    }

    #[test]
    fn errors_are_short() {
        let long = "\0".repeat(4096);
        assert!(long.parse::<CpuSet>().unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn a_short_text_takes_little_time_and_memory() {
        let all = format!("0-{MAX_ID}");
        let text = vec![all.as_str(); 5000].join(",");
        let set: CpuSet = text.parse().unwrap();
        assert_eq!((set.len(), set.to_string()), (MAX_ID as usize + 1, all));
    }

    proptest! {
        #[test]
        fn sets_are_those_of_the_standard_library(
            one in proptest::collection::btree_set(0..40_u32, 0..30),
            other in proptest::collection::btree_set(0..40_u32, 0..30),
            id in 0..40_u32,
        ) {
            let set = |ids: &BTreeSet<u32>| ids.iter().copied().map(CpuId).collect::<CpuSet>();
            let ids = |set: &CpuSet| set.iter().map(|cpu| cpu.0).collect::<BTreeSet<u32>>();
            let (a, b) = (set(&one), set(&other));
            prop_assert_eq!(ids(&a), one.clone());
            prop_assert_eq!(a.iter().rev().map(|cpu| cpu.0).collect::<Vec<_>>(), one.iter().rev().copied().collect::<Vec<_>>());
            prop_assert_eq!((a.len(), a.is_empty(), a.first().map(|cpu| cpu.0)), (one.len(), one.is_empty(), one.first().copied()));
            prop_assert_eq!(ids(&a.intersection(&b)), one.intersection(&other).copied().collect());
            prop_assert_eq!(ids(&a.difference(&b)), one.difference(&other).copied().collect());
            prop_assert_eq!((a.is_subset(&b), a.cmp(&b), a == b), (one.is_subset(&other), one.cmp(&other), one == other));
            let (mut union, mut more, mut less) = (a.clone(), a.clone(), a.clone());
            union.insert_all(&b);
            prop_assert_eq!(ids(&union), one.union(&other).copied().collect());
            prop_assert_eq!((more.insert(CpuId(id)), less.remove(CpuId(id))), (!one.contains(&id), one.contains(&id)));
            prop_assert_eq!((a.contains(CpuId(id)), more.contains(CpuId(id)), less.contains(CpuId(id))), (one.contains(&id), true, false));
            // Equal sets have equal ranges.
            prop_assert_eq!(set(&ids(&less)), less);
        }

        #[test]
        fn any_mask_is_read_or_refused(text in ".*") {
            let _ = NodeSet::from_mask(&text);
        }

        #[test]
        fn what_is_written_is_read_back(ids in proptest::collection::btree_set(0..MAX_ID, 0..50)) {
            let set: CpuSet = ids.into_iter().map(CpuId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = text.parse::<NodeSet>();
        }
    }
}
