//! /proc/PID/pagemap: the page table entry of each base page of a process.

use crate::processes::process::{Process, ProcessError};
use machine::SMALL_PAGE;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes per entry.
const ENTRY_BYTES: u64 = 8;

/// The kernel's entry for one base page (Linux 2.6.25).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageEntry(pub u64);

impl PageEntry {
    fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// Whether the page is present.
    pub fn is_present(self) -> bool {
        self.has(63)
    }

    /// Whether it is swapped out.
    pub fn is_swapped(self) -> bool {
        self.has(62)
    }

    /// Whether it belongs to a file or to shared anonymous memory. Since Linux 3.5.
    pub fn is_file_or_shared(self) -> bool {
        self.has(61)
    }

    /// Whether no other process maps it. Since Linux 4.2.
    pub fn is_exclusive(self) -> bool {
        self.has(56)
    }

    /// Its frame number, in base pages. `None` if the page is not present, and without `CAP_SYS_ADMIN`, where the
    /// kernel reports 0 (since Linux 4.2).
    pub fn frame(self) -> Option<u64> {
        let frame = self.0 & ((1 << 55) - 1);
        (self.is_present() && frame != 0).then_some(frame)
    }
}

/// The page table of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    bytes: Vec<u8>,
}

impl Pagemap {
    /// Opens the page table of this process. Needs the process's user, or `CAP_SYS_PTRACE`.
    pub fn new(process: &Process) -> Result<Self, ProcessError> {
        Ok(Self { file: process.file("pagemap")?, bytes: Vec::new() })
    }

    /// The entries of a range of whole base pages. Fewer if the address space ends before it, or the process has
    /// exited. Takes 8 bytes of memory per entry: read large ranges in parts.
    pub fn read(&mut self, range: &Range<u64>) -> io::Result<impl Iterator<Item = PageEntry> + '_> {
        let first = range.start / SMALL_PAGE;
        let count = (range.end / SMALL_PAGE).saturating_sub(first);
        self.bytes.resize((count * ENTRY_BYTES) as usize, 0);
        let filled = read_up_to(&self.file, &mut self.bytes, first.saturating_mul(ENTRY_BYTES))?;
        self.bytes.truncate(filled);
        let (entries, _) = self.bytes.as_chunks();
        Ok(entries.iter().map(|entry| PageEntry(u64::from_ne_bytes(*entry))))
    }
}

/// Reads into a buffer from an offset, up to the end of the file.
pub(crate) fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pages, Pid};

    #[test]
    fn bits_are_the_kernels() {
        let entry = PageEntry(1 << 63 | 1 << 61 | 0x1234);
        assert!(entry.is_present() && entry.is_file_or_shared() && !entry.is_exclusive() && !entry.is_swapped());
        assert_eq!((entry.frame(), PageEntry(1 << 63).frame(), PageEntry(7).frame()), (Some(0x1234), None, None));
        assert!(PageEntry(1 << 62 | 1 << 56).is_swapped() && PageEntry(1 << 56).is_exclusive());
    }

    #[test]
    fn own_pages_have_entries() {
        let mut memory = Pages::reserve(1).unwrap();
        memory.advise_huge(false).unwrap_or_default();
        memory.touch(4096);
        let start = memory.range().start;
        let process = Process::open(Pid(std::process::id())).unwrap();
        let mut pagemap = Pagemap::new(&process).unwrap();
        let entries: Vec<PageEntry> = pagemap.read(&(start..start + 3 * 4096)).unwrap().collect();
        assert_eq!(entries.iter().map(|entry| entry.is_present()).collect::<Vec<_>>(), [false, true, false]);
        assert!(entries[1].is_exclusive() && !entries[1].is_file_or_shared());
        assert_eq!(pagemap.read(&(u64::MAX - 8191..u64::MAX)).map_or(0, Iterator::count), 0);
    }
}
