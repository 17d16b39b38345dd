//! What is known of the addresses in a mapped file.

use crate::{FileIdentity, MappedFile};
use machine::SMALL_PAGE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum total size of the decompressed debug sections of a file, in bytes; for a large file, [`MOST_EXPANSION`] times
/// its length.
pub const MOST_EXPANDED_BYTES: u64 = 128 << 20;
/// Maximum ratio of the memory for a large file's decompressed debug sections, and of what is read of them, to its length. Compilers' output has 2 to 5.
pub const MOST_EXPANSION: u64 = 10;

/// A mapped file, with symbols for the addresses that occurred in it. Addresses are those of its own symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Path of the file.
    pub path: Arc<str>,
    /// Identity of the file.
    pub file: FileIdentity,
    /// Whether it could be read.
    pub state: ImageState,
    /// Its loaded segments.
    pub segments: Vec<Segment>,
    /// Its sections with code or data, by address.
    pub sections: Vec<Named>,
    /// Its variables that occurred, by address.
    pub variables: Vec<Named>,
    /// Its code that occurred, by address: the innermost inlined function first, then the functions around it. For a
    /// return address, the key is the byte before, which belongs to the call.
    pub code: BTreeMap<u64, Vec<CodeLine>>,
}

/// Whether a file could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum ImageState {
    /// It is the mapped file, and was read.
    Read,
    /// It no longer exists.
    Missing,
    /// It is not the mapped file, or cannot be verified: it has no build ID, or was modified since.
    Changed,
    /// It may not be read, or is not an ELF file.
    Unreadable,
    /// It was read, but its source lines were not, or not all: its debugging information takes too much memory, such as
    /// compressed sections that exceed [`MOST_EXPANDED_BYTES`].
    TooCompressed,
}

/// A loaded segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its start in the file, in bytes.
    pub offset: u64,
    /// Length in the file, in bytes.
    pub file_bytes: u64,
    /// First address.
    pub address: u64,
    /// Length in memory, in bytes: the part beyond the file is zeros.
    pub memory_bytes: u64,
    /// Whether it is executable.
    pub executable: bool,
}

/// A named range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Name from the linker or the source; demangled for C++ and Rust.
    pub name: Arc<str>,
    /// First address.
    pub address: u64,
    /// Length, in bytes.
    pub bytes: u64,
}

/// A source location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeLine {
    /// Name of the function, demangled.
    pub function: Option<Arc<str>>,
    /// Path of the source file, as the compiler recorded it.
    pub source: Option<Arc<str>>,
    /// Line number, from 1.
    pub line: Option<u32>,
    /// First address of the function; for inlined code, of the function that it is inlined into.
    pub begins: Option<u64>,
}

impl Image {
    /// A file of which nothing is known except that it was mapped.
    pub fn new(path: Arc<str>, file: FileIdentity, state: ImageState) -> Self {
        let (segments, sections, variables, code) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        Self { path, file, state, segments, sections, variables, code }
    }

    /// Converts an address of a process to one of this file, given the mapping that contains it or ends right before
    /// it.
    pub fn address(&self, mapped: &MappedFile, address: u64) -> Option<u64> {
        let page = |value: u64| value / SMALL_PAGE * SMALL_PAGE;
        let begins = |segment: &&Segment| page(segment.offset) == mapped.offset;
        let holds = |segment: &&Segment| {
            (page(segment.offset)..segment.offset.saturating_add(segment.file_bytes)).contains(&mapped.offset)
        };
        let alike = |segment: &&Segment| segment.executable == mapped.executable;
        // Adjacent segments may share a page of the file: the mapping as long as the segment belongs to it.
        let as_long = |segment: &&Segment| {
            let end = segment.offset.saturating_add(segment.file_bytes);
            end.checked_sub(page(segment.offset))
                .is_some_and(|bytes| page(bytes.saturating_add(SMALL_PAGE - 1)) == mapped.bytes)
        };
        let all = || self.segments.iter();
        let exact = all().filter(begins).filter(alike).find(as_long);
        let segment = exact.or_else(|| all().filter(begins).find(alike)).or_else(|| all().filter(holds).find(alike));
        let segment = segment.or_else(|| all().find(holds))?;
        let in_file = address.checked_sub(mapped.start)?.checked_add(mapped.offset)?;
        // Both are at the same offset within their pages.
        let first = segment.address.checked_sub(segment.offset - page(segment.offset))?;
        first.checked_add(in_file.checked_sub(page(segment.offset))?)
    }

    /// Converts a file offset to an address, of code or of data. Offsets past the file's bytes of a segment belong to
    /// the zeros that follow them in memory.
    pub fn address_of_offset(&self, offset: u64, executable: bool) -> Option<u64> {
        let there = self.segments.iter().filter(|segment| segment.executable == executable && segment.offset <= offset);
        let in_memory = |segment: &&Segment| offset - segment.offset < segment.memory_bytes.max(segment.file_bytes);
        // The zeros of one segment may have the offset of the next one's bytes: bytes win.
        let segment = there.filter(in_memory).max_by_key(|segment| segment.offset)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Converts an address to a file offset: the inverse of [`address_of_offset`](Self::address_of_offset).
    pub fn offset_of_address(&self, address: u64) -> Option<u64> {
        let holds =
            |segment: &&Segment| address.checked_sub(segment.address).is_some_and(|at| at < segment.memory_bytes);
        let segment = self.segments.iter().find(holds)?;
        segment.offset.checked_add(address - segment.address)
    }

    /// The code at an address that occurred, or before a return address that did: innermost inlined function first.
    /// Empty if unknown.
    pub fn code(&self, address: u64) -> &[CodeLine] {
        self.code.get(&address).map_or(&[], Vec::as_slice)
    }

    /// The variable at an address that occurred.
    pub fn variable(&self, address: u64) -> Option<&Named> {
        containing(&self.variables, address)
    }

    /// The section at an address: `.data`, `.bss`, `.plt`.
    pub fn section(&self, address: u64) -> Option<&Named> {
        containing(&self.sections, address)
    }
}

/// The range that contains an address. `ranges` has to be sorted.
pub(crate) fn containing(ranges: &[Named], address: u64) -> Option<&Named> {
    let after = ranges.partition_point(|range| range.address <= address);
    let range = ranges.get(after.checked_sub(1)?)?;
    (address - range.address < range.bytes).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(offset: u64, file_bytes: u64, address: u64, memory_bytes: u64, executable: bool) -> Segment {
        Segment { offset, file_bytes, address, memory_bytes, executable }
    }

    fn mapped(start: u64, bytes: u64, offset: u64, executable: bool) -> MappedFile {
        MappedFile { start, bytes, offset, name: "/x".into(), file: None, executable }
    }

    /// The layout of GNU ld: read-only data and variables share a page of the file.
    #[test]
    fn addresses_follow_from_the_segment_that_is_mapped() {
        let mut image = Image::new("/x".into(), FileIdentity { build_id: None, inode: 1 }, ImageState::Read);
        image.segments = vec![
            segment(0, 0x600, 0, 0x600, false),
            segment(0x1000, 0x1234, 0x1000, 0x1234, true),
            segment(0x3000, 0xf00, 0x3000, 0xf00, false),
            segment(0x3df0, 0x400, 0x4df0, 0x9000, false),
        ];
        let base = 0x5555_0000_0000;
        let address = |mapped: MappedFile, address: u64| image.address(&mapped, base + address);
        assert_eq!(address(mapped(base + 0x1000, 0x2000, 0x1000, true), 0x1010), Some(0x1010));
        assert_eq!(address(mapped(base + 0x3000, 0x1000, 0x3000, false), 0x3010), Some(0x3010));
        assert_eq!(address(mapped(base + 0x4000, 0x2000, 0x3000, false), 0x4df8), Some(0x4df8));
        // The zeros behind the file, and the part that the loader made read-only.
        assert_eq!(address(mapped(base + 0x4000, 0x2000, 0x3000, false), 0x8000), Some(0x8000));
        assert_eq!(address(mapped(base + 0x5000, 0x1000, 0x4000, false), 0x5004), Some(0x5004));
        assert_eq!(address(mapped(base, 0x1000, 0x9_0000, false), 0), None);
        assert_eq!(image.address_of_offset(0x1010, true), Some(0x1010));
        assert_eq!(image.address_of_offset(0x1010, false), None);
        // `.bss` starts at an offset where the file has other data, or none.
        assert_eq!(image.address_of_offset(0x5000, false), Some(0x6000));
        assert_eq!(image.offset_of_address(0x6000), Some(0x5000));
    }

    #[test]
    fn ranges_are_found_by_any_address_in_them() {
        let named = |address, bytes| Named { name: "x".into(), address, bytes };
        let ranges = [named(10, 5), named(20, 1)];
        let found = [9, 10, 14, 15, 20, 21].map(|address| containing(&ranges, address).map(|range| range.address));
        assert_eq!(found, [None, Some(10), Some(10), None, Some(20), None]);
    }

    proptest! {
        #[test]
        fn any_segment_and_mapping_make_an_address_or_none(parts: [u64; 4], executable: bool, map: [u64; 3], address: u64) {
            let mut image = Image::new("/x".into(), FileIdentity { build_id: None, inode: 1 }, ImageState::Read);
            image.segments = vec![segment(parts[0], parts[1], parts[2], parts[3], executable)];
            let _ = image.address(&mapped(map[0], map[1], map[2], executable), address);
            let offset = image.offset_of_address(address);
            prop_assert!(offset.is_none_or(|offset| image.address_of_offset(offset, executable) == Some(address)));
        }
    }
}
