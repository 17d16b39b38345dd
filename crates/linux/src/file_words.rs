//! A file that is mapped for reading, by this process alone.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A private mapping of a file, as words that may only be read. Others may write the file meanwhile.
#[derive(Debug)]
pub struct FileWords {
    start: NonNull<c_void>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read.
unsafe impl Send for FileWords {}
// SAFETY: as above.
unsafe impl Sync for FileWords {}

impl FileWords {
    /// Maps the first `bytes` bytes of a file. The file must be at least that long and stay so: touching a page behind
    /// its end is a bus error, as with every mapping.
    pub fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, words: bytes / size_of::<AtomicU64>() })
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The sum of every `step`th word, modulo 2^64, from the `from`th on.
    pub fn sum_of(&self, from: usize, step: usize) -> u64 {
        // SAFETY: the mapping is page aligned, at least `words` words long, and lives as long as `self`; others may
        // write the file, which atomics allow, and relaxed loads of words may be of memory that is only read.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), self.words) };
        let words = words.get(from..).unwrap_or_default().iter().step_by(step.max(1));
        words.fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    /// The sum of all its words, modulo 2^64.
    pub fn sum(&self) -> u64 {
        self.sum_of(0, 1)
    }
}

impl Drop for FileWords {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `map` and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.words * size_of::<AtomicU64>()) };
    }
}
