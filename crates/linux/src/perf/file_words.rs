//! A private read-only mapping of a file.

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A private mapping of a file as read-only words. Other processes may write the file meanwhile.
#[derive(Debug)]
pub struct FileWords {
    start: NonNull<c_void>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read.
unsafe impl Send for FileWords {}
// SAFETY: it is only read, through shared references, and nothing of it changes.
unsafe impl Sync for FileWords {}

impl FileWords {
    /// Maps the first `bytes` bytes of a file. The file must be at least that long and stay so: accessing a page past
    /// its end raises SIGBUS, as with every mapping.
    pub fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, words: bytes / size_of::<AtomicU64>() })
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The sum of every `step`th word, modulo 2^64, starting at index `from`.
    pub fn sum_of(&self, from: usize, step: usize) -> u64 {
        // SAFETY: the mapping is page aligned, at least `words` words long, and lives as long as `self`. Other
        // processes may write the file, which atomics allow; relaxed loads of words are valid on read-only memory.
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
        // SAFETY: `map` created this mapping, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.words * size_of::<AtomicU64>()) };
    }
}
