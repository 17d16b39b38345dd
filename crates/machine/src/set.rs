//! Sets of nodes and of CPUs, with the syntax of numactl and cpusets.

use crate::ids::{CpuId, NodeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// The largest ID in a set: far above any kernel's limit, low enough that `0-4294967295` cannot exhaust memory.
pub const MAX_ID: u32 = 1 << 20;

/// An ordered set of IDs of one kind. Its text form is the kernel's list format: `0-3,5`; the empty set is the empty
/// text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<T> {
    ids: BTreeSet<u32>,
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
        id: u32,
    },
}

impl<T> IdSet<T> {
    /// The empty set.
    pub fn new() -> Self {
        Self { ids: BTreeSet::new(), kind: PhantomData }
    }

    /// The number of IDs.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

impl<T: From<u32> + Into<u32>> IdSet<T> {
    /// Adds an ID. Returns whether it was new.
    pub fn insert(&mut self, id: T) -> bool {
        self.ids.insert(id.into())
    }

    /// Removes an ID. Returns whether the set had it.
    pub fn remove(&mut self, id: T) -> bool {
        self.ids.remove(&id.into())
    }

    /// Whether the set has this ID.
    pub fn contains(&self, id: T) -> bool {
        self.ids.contains(&id.into())
    }

    /// The IDs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + '_ {
        self.ids.iter().map(|&id| T::from(id))
    }

    /// The lowest ID.
    pub fn first(&self) -> Option<T> {
        self.ids.first().map(|&id| T::from(id))
    }

    /// The IDs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.ids.intersection(&other.ids).map(|&id| T::from(id)).collect()
    }

    /// Whether every ID of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.ids.is_subset(&other.ids)
    }
}

impl<T> Default for IdSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Into<u32>> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        Self { ids: ids.into_iter().map(Into::into).collect(), kind: PhantomData }
    }
}

impl<T: Into<u32>> Extend<T> for IdSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ids: I) {
        self.ids.extend(ids.into_iter().map(Into::into));
    }
}

impl<T> FromStr for IdSet<T> {
    type Err = SetError;

    /// Parses the kernel's list format. White space around parts and at the ends is ignored.
    fn from_str(text: &str) -> Result<Self, SetError> {
        let number = |part: &str, number: &str| {
            let not_a_number = || SetError::NotANumber { text: shown(text), part: shown(part) };
            let id: u32 = number.trim().parse().map_err(|_| not_a_number())?;
            if id > MAX_ID { Err(SetError::TooLarge { text: shown(text), id }) } else { Ok(id) }
        };
        let mut set = Self::new();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(part, first)?, number(part, last)?);
            if last < first {
                return Err(SetError::Backwards { text: shown(text), part: shown(part) });
            }
            set.ids.extend(first..=last);
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
                        return Err(SetError::TooLarge { text: shown(text), id: base + bit });
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
        let mut ids = self.ids.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
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
        assert_eq!(error("!"), "`!` is neither a number nor a range such as 0-3");
        assert_eq!(error("1,x"), "`x` in `1,x` is neither a number nor a range such as 0-3");
        assert_eq!(error("3-1"), "the range `3-1` ends before it begins");
    }

    #[test]
    fn errors_are_short() {
        let long = "\0".repeat(4096);
        assert!(long.parse::<CpuSet>().unwrap_err().to_string().len() < 300);
    }

    proptest! {
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
