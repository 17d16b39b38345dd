//! Memory shared with another process, or with the host of a virtual machine, as atomic words.

use crate::shortened::Guard;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// A shared mapping of a part of a file or device. Whoever else maps it may change it at any time, so it is
/// seen as atomic words only and nothing read from it can be trusted to stay.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<c_void>,
    words: usize,
    /// Of a file that others may shorten.
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only reachable as atomics.
unsafe impl Send for SharedWords {}
// SAFETY: as above; atomics may be used from several threads at once.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `bytes` bytes of a file for reading and writing. The file must be at least that long and stay so:
    /// touching a page behind its end is a bus error, as with every mapping.
    pub fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map_at(file, 0, bytes)
    }

    /// As [`map`](Self::map), from an offset on, which is of whole pages.
    pub fn map_at(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap(null_mut(), bytes, access, flags, file, offset) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, words: bytes / size_of::<AtomicU64>(), guard: None })
    }

    /// As [`map`](Self::map), of a file that others may shorten: words behind its end are zeroes from then on, which nobody
    /// shares. Sees to SIGBUS for all of this process.
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
        // SAFETY: this range was mapped by `map` and no reference into it outlives `self`.
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
