//! hwloc's text form of sets: 32-bit hexadecimal groups from the highest to the lowest, `0x00000001,,0x0` for the ID
//! 64, with `0xf...f` in front if all higher IDs are in the set too.

use crate::set::{IdSet, MAX_ID};
use std::fmt;

const GROUP_BITS: u32 = 32;

/// A set of IDs, possibly unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bitmap {
    /// Lowest IDs first.
    groups: Vec<u32>,
    /// Whether every ID above the groups is in the set.
    infinite: bool,
}

impl Bitmap {
    pub fn from_set<T: From<u32> + Into<u32>>(set: &IdSet<T>) -> Self {
        let mut bitmap = Self::default();
        set.iter().for_each(|id| bitmap.insert(id.into()));
        bitmap
    }

    pub fn insert(&mut self, id: u32) {
        let group = (id / GROUP_BITS) as usize;
        if self.groups.len() <= group {
            self.groups.resize(group + 1, 0);
        }
        if let Some(group) = self.groups.get_mut(group) {
            *group |= 1 << (id % GROUP_BITS);
        }
    }

    /// Adds the IDs of another, bounded set.
    pub fn extend(&mut self, other: &Self) {
        self.groups.resize(self.groups.len().max(other.groups.len()), 0);
        self.groups.iter_mut().zip(&other.groups).for_each(|(own, others)| *own |= others);
    }

    /// Parses hwloc's text form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = text.trim().split(',').collect();
        let infinite = parts.first() == Some(&"0xf...f");
        if infinite {
            parts.remove(0);
        }
        if parts.len() * GROUP_BITS as usize > MAX_ID as usize {
            return Err(format!("has {} groups of 32 ids, which is above the largest id, {MAX_ID}", parts.len()));
        }
        let group = |part: &str| {
            let digits = part.strip_prefix("0x").unwrap_or(part);
            let empty = part.is_empty() && text.contains(',');
            let hexadecimal = (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let value = u32::from_str_radix(digits, 16).ok().filter(|_| hexadecimal);
            value.or(empty.then_some(0)).ok_or_else(|| {
                let short: String = part.chars().take(20).collect();
                format!("`{short}` is not a group of a set: write 0x and up to 8 hexadecimal digits")
            })
        };
        let groups = parts.into_iter().rev().map(group).collect::<Result<_, _>>()?;
        Ok(Self { groups, infinite })
    }

    /// The size of the set; an unbounded set is larger than any other.
    pub fn len(&self) -> usize {
        let finite = self.groups.iter().map(|group| group.count_ones() as usize).sum();
        if self.infinite { usize::MAX } else { finite }
    }

    /// The IDs of the set below [`Self::endless_from`].
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        (0_u32..).step_by(GROUP_BITS as usize).zip(&self.groups).flat_map(|(base, &group)| {
            (0..GROUP_BITS).filter(move |bit| group >> bit & 1 != 0).map(move |bit| base + bit)
        })
    }

    /// The ID from which on every ID is in the set, for an unbounded set.
    pub fn endless_from(&self) -> Option<u32> {
        self.infinite.then_some(self.groups.len() as u32 * GROUP_BITS)
    }
}

impl fmt::Display for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.groups.iter().rposition(|&group| group != 0).map_or(0, |highest| highest + 1);
        let mut comma = "";
        if self.infinite {
            f.write_str("0xf...f")?;
            comma = ",";
        }
        let groups = if self.infinite { &self.groups[..] } else { self.groups.get(..used).unwrap_or_default() };
        for (index, &group) in groups.iter().enumerate().rev() {
            match (group, index) {
                (0, 0) => write!(f, "{comma}0x0")?,
                (0, _) => f.write_str(comma)?,
                (_, _) => write!(f, "{comma}{group:#010x}")?,
            }
            comma = ",";
        }
        if comma.is_empty() { f.write_str("0x0") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> (Vec<u32>, Option<u32>) {
        let bitmap = Bitmap::parse(text).unwrap();
        (bitmap.ids().collect(), bitmap.endless_from())
    }

    #[test]
    fn reads_what_hwloc_writes() {
        assert_eq!(read("0x0"), (vec![], None));
        assert_eq!(read("0x00000005"), (vec![0, 2], None));
        assert_eq!(read("0x00000001,,0x0"), (vec![64], None));
        assert_eq!(read("0x00400000,0x0"), (vec![54], None));
        assert_eq!(read("0xf...f,0x40000000,0x00000001"), (vec![0, 62], Some(64)));
        assert_eq!(read("0xf...f"), (vec![], Some(0)));
    }

    #[test]
    fn refuses_what_is_no_set() {
        let long = ",".repeat(40_000);
        for text in ["", "x", "0x", "0x123456789", "0x1 ,0x2", "+1", "0xf...f,0xf...f", "0x+1", "1-2", &long] {
            assert!(Bitmap::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ids in proptest::collection::vec(0..3000_u32, 0..40), infinite in any::<bool>()) {
            let mut bitmap = Bitmap { infinite, ..Bitmap::default() };
            for &id in &ids {
                bitmap.insert(id);
            }
            let known = |bitmap: &Bitmap| (bitmap.ids().collect::<Vec<_>>(), bitmap.endless_from());
            prop_assert_eq!(Bitmap::parse(&bitmap.to_string()).map(|read| known(&read)), Ok(known(&bitmap)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fx,. ]*") {
            let _ = Bitmap::parse(&text).map(|bitmap| bitmap.ids().count());
        }
    }
}
