//! Offsets of the members of a kernel's structures, from its own type information (BTF; the format is in the kernel's
//! Documentation/bpf/btf.rst).

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Depth limit for nested anonymous structures: none in the kernel is deeper, and a hostile file must not cause endless
/// recursion.
const DEPTH_MAX: u32 = 16;

/// A kernel's structures by name.
pub(crate) struct Btf<'a> {
    strings: &'a [u8],
    /// Offset of each type's record; type 0 is `void` and has none.
    types: Vec<usize>,
    records: &'a [u8],
    by_name: HashMap<&'a [u8], u32>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Parses the type information of a little-endian kernel; `None` if it is damaged.
    pub(crate) fn read(file: &'a [u8]) -> Option<Self> {
        if file.get(..2)? != MAGIC.to_le_bytes() {
            return None;
        }
        let part = |offset: usize, length: usize| {
            let start = (word(file, 4)? as usize).checked_add(word(file, offset)? as usize)?;
            file.get(start..start.checked_add(word(file, length)? as usize)?)
        };
        let (records, strings) = (part(8, 12)?, part(16, 20)?);
        let mut btf = Self { strings, types: vec![usize::MAX], records, by_name: HashMap::new() };
        let mut at = 0;
        while at < records.len() {
            let info = word(records, at + 4)?;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            // Size of the data that follows the three common words, by kind.
            let more = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                STRUCT | UNION | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                2 | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
            if kind == STRUCT {
                let name = btf.string(word(records, at)?)?;
                btf.by_name.entry(name).or_insert(btf.types.len() as u32);
            }
            btf.types.push(at);
            at = at.checked_add(12 + more)?;
        }
        Some(btf)
    }

    fn string(&self, offset: u32) -> Option<&'a [u8]> {
        let text = self.strings.get(offset as usize..)?;
        text.split(|&byte| byte == 0).next()
    }

    /// Offset of a member in a structure, in bytes. Members of nested anonymous structures count.
    pub(crate) fn offset_of(&self, structure: &str, member: &str) -> Option<u64> {
        let id = *self.by_name.get(structure.as_bytes())?;
        self.bit_offset(id, member.as_bytes(), DEPTH_MAX).map(|bits| bits / 8)
    }

    fn bit_offset(&self, id: u32, member: &[u8], depth: u32) -> Option<u64> {
        let at = *self.types.get(id as usize)?;
        let info = word(self.records, at.checked_add(4)?)?;
        if depth == 0 || !matches!(info >> 24 & 0x1f, STRUCT | UNION) {
            return None;
        }
        let bitfields = info >> 31 == 1;
        (0..(info & 0xffff) as usize).find_map(|index| {
            let entry = at + 12 + 12 * index;
            let (name, id) = (self.string(word(self.records, entry)?)?, word(self.records, entry + 4)?);
            let offset = word(self.records, entry + 8)?;
            let offset = u64::from(if bitfields { offset & 0x00ff_ffff } else { offset });
            if name == member {
                Some(offset)
            } else if name.is_empty() {
                self.bit_offset(id, member, depth - 1).map(|inner| offset + inner)
            } else {
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct task { int pid; struct { int a; char comm; }; }`
    fn sample() -> Vec<u8> {
        let strings = b"\0task\0pid\0a\0comm\0int\0";
        let words: &[u32] = &[
            17,
            1 << 24,
            4,
            32, // 1: int
            0,
            STRUCT << 24 | 2,
            8,
            10,
            1,
            0,
            12,
            1,
            32, // 2: anonymous
            1,
            STRUCT << 24 | 2,
            12,
            6,
            1,
            0,
            0,
            2,
            32, // 3: task
        ];
        let records: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = [24, 0, records.len() as u32, records.len() as u32, strings.len() as u32];
        let mut file = vec![0x9f, 0xeb, 1, 0];
        file.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        file.extend(records);
        file.extend(strings);
        file
    }

    #[test]
    fn members_are_found_in_anonymous_structures_too() {
        let file = sample();
        let btf = Btf::read(&file);
        let offset = |member| btf.as_ref().and_then(|btf| btf.offset_of("task", member));
        assert_eq!((offset("pid"), offset("a"), offset("comm"), offset("tgid")), (Some(0), Some(4), Some(8), None));
    }

    proptest! {
        #[test]
        fn damage_is_survived(at in 0_usize..200, byte in any::<u8>(), length in 0_usize..200) {
            let mut file = sample();
            let end = file.len();
            file[at % end] = byte;
            file.truncate(length);
            let _ = Btf::read(&file).and_then(|btf| btf.offset_of("task", "comm"));
        }
    }
}
