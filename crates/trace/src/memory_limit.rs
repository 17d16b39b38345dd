//! A limit of the memory that files of symbols may take.

use crate::image::MOST_EXPANSION;
use rustix::fs::fstat;
use std::cell::Cell;
use std::fs::{self, File};

/// Memory that they may take, whatever their length, in bytes.
const LEAST_BYTES: u64 = 256 << 20;
/// Memory is looked at after this many bytes were read: what is kept of them takes at most some hundred times as much.
const LOOK_EVERY: usize = 64 << 10;
/// Bytes of debugging information that may be read, for the time that it takes: some seconds. Large files may be read
/// [`MOST_EXPANSION`] times.
const MOST_READ: u64 = 128 << 20;
/// A block of `st_blocks`.
const BLOCK: u64 = 512;

/// What may be taken, and what has been taken, by all files of one recording together.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    /// Resident memory of this process before the first file.
    before: u64,
    /// The allocated bytes of the files, times [`MOST_EXPANSION`].
    lengths: Cell<u64>,
    read: Cell<u64>,
    unlooked: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl MemoryLimit {
    pub fn new() -> Self {
        let (lengths, read) = (Cell::new(0), Cell::new(0));
        Self { before: resident(), lengths, read, unlooked: Cell::new(0), is_exceeded: Cell::new(false) }
    }

    /// Allows what a file of this length needs.
    pub fn allow(&self, file: &File) {
        self.lengths.set(self.lengths.get().saturating_add(allocated(file).saturating_mul(MOST_EXPANSION)));
    }

    /// What the files may be decompressed to.
    pub fn lengths(&self) -> u64 {
        self.lengths.get()
    }

    /// Whether some more bytes may be read.
    pub fn may_read(&self, bytes: usize) -> bool {
        let unlooked = self.unlooked.get().saturating_add(bytes);
        self.unlooked.set(unlooked);
        if unlooked >= LOOK_EVERY {
            self.unlooked.set(0);
            self.read.set(self.read.get().saturating_add(unlooked as u64));
            let taken = resident().saturating_sub(self.before);
            let lengths = self.lengths.get();
            if taken > LEAST_BYTES.max(lengths) || self.read.get() > MOST_READ.max(lengths) {
                self.is_exceeded.set(true);
            }
        }
        !self.is_exceeded.get()
    }

    /// Whether nothing may be read any more.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }
}

/// The bytes of a file that are stored: a file with holes can be as long as its owner likes.
pub(crate) fn allocated(file: &File) -> u64 {
    let stored = |found: rustix::fs::Stat| found.st_size.cast_unsigned().min(found.st_blocks.cast_unsigned() * BLOCK);
    fstat(file).map_or(0, stored)
}

/// Resident memory of this process, or 0 without /proc.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_beyond_its_bound_ends_the_reading() {
        let limit = MemoryLimit::new();
        assert!(limit.may_read(LOOK_EVERY));
        let taken = vec![1_u8; 2 * LEAST_BYTES as usize];
        assert!(limit.may_read(LOOK_EVERY - 1) && !limit.may_read(1) && limit.is_exceeded());
        assert!(taken.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn more_reading_than_takes_seconds_ends() {
        let limit = MemoryLimit::new();
        let most = MOST_READ >> 20;
        let times = (0..2 * most).take_while(|_| limit.may_read(1 << 20)).count();
        assert_eq!(times as u64, most);
    }

    #[test]
    fn holes_of_a_file_allow_nothing() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert!(allocated(&file) < 1 << 20);
    }
}
