//! Memory shared with another process, or with the host of a virtual machine, as atomic words.

use crate::processes::truncation::Guard;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// A shared mapping of part of a file or device. Other processes may change it at any time, so it is only accessible as
/// atomic words, and no value read from it is stable.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<c_void>,
    words: usize,
    /// For a file that other processes may truncate.
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only reachable as atomics.
unsafe impl Send for SharedWords {}
// SAFETY: as above; atomics may be used from several threads at once.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `bytes` bytes of a file for reading and writing. The file must be at least that long and stay so:
    /// accessing a page past its end raises SIGBUS, as with every mapping.
    pub fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map_at(file, 0, bytes)
    }

    /// Like [`map`](Self::map), from a page-aligned offset.
    pub fn map_at(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let start = unsafe { mmap(null_mut(), bytes, access, flags, file, offset) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, words: bytes / size_of::<AtomicU64>(), guard: None })
    }

    /// Like [`map`](Self::map), for a file that other processes may truncate: words past its end then become private
    /// zeroes. Installs a SIGBUS handler for this process.
    pub fn map_of_others(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let mut words = Self::map(file, bytes)?;
        words.guard = Some(Guard::new(words.start.as_ptr() as usize, bytes));
        Ok(words)
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, at least `words` words long, lives as long as `self`, and any bit
        // pattern is an AtomicU64; other mappers are concurrent writers, which atomics allow.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: `map` created this mapping, and no reference into it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.words * size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_others_cut_off_is_zeroes() -> io::Result<()> {
        let file = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC)?;
        for _ in 0..3 {
            rustix::fs::ftruncate(&file, 8192)?;
            let words = SharedWords::map_of_others(&file, 8192)?;
            words[0].store(5, Relaxed);
            words[1000].store(7, Relaxed);
            rustix::fs::ftruncate(&file, 4096)?;
            assert_eq!([0, 1000].map(|word: usize| words[word].load(Relaxed)), [5, 0]);
            words[1001].store(8, Relaxed);
            assert_eq!(words[1001].load(Relaxed), 8);
            rustix::fs::ftruncate(&file, 0)?;
            assert_eq!(words[0].load(Relaxed), 0);
        }
        Ok(())
    }

    #[test]
    fn two_mappings_of_a_file_see_each_other() -> io::Result<()> {
        let file = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, 8192)?;
        let (one, other) = (SharedWords::map(&file, 8192)?, SharedWords::map(&file, 8192)?);
        assert_eq!(one.len(), 1024);
        one[1023].store(7, Relaxed);
        assert_eq!(other[1023].load(Relaxed), 7);
        Ok(())
    }
}
