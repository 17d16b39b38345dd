//! Memory that its owner places: an anonymous mapping of whole base pages, released with its owner.

use machine::SMALL_PAGE;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// Private anonymous memory. Unlike [`Pages`](crate::Pages) it is rounded up to base pages of 4 KiB, and can be read,
/// written and released. It reads as zeros until it is written.
#[derive(Debug)]
pub struct NodeMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this is its only owner.
unsafe impl Send for NodeMemory {}
// SAFETY: shared references only read the memory.
unsafe impl Sync for NodeMemory {}

impl NodeMemory {
    /// Reserves this many bytes, rounded up to base pages. No page is present yet. Needs no privileges. EINVAL: 0
    /// bytes. ENOMEM: more than the address space, the limit of it (`RLIMIT_AS`) or the kernel's commit limit allow.
    pub fn reserve(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let Some(bytes) = Self::rounded(bytes) else { return Err(io::Error::from_raw_os_error(libc::ENOMEM)) };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, bytes })
    }

    /// The bytes of the base pages that hold `bytes` bytes; none if there are not as many addresses.
    fn rounded(bytes: usize) -> Option<usize> {
        bytes.checked_next_multiple_of(SMALL_PAGE as usize).filter(|bytes| isize::try_from(*bytes).is_ok())
    }

    /// Its address range.
    pub fn range(&self) -> Range<usize> {
        let start = self.start.as_ptr() as usize;
        start..start + self.bytes
    }

    /// Its contents.
    pub fn contents(&self) -> &[u8] {
        // SAFETY: the mapping is readable, initialized (zeros until written), as long as this, and only written through
        // `contents_mut`, which excludes other references.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Its contents, to write.
    pub fn contents_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `contents`; the mapping is writable, and the exclusive reference excludes others.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Gives up ownership: the caller releases the memory with [`from_raw`](Self::from_raw).
    pub fn into_raw(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }

    /// Takes ownership back. `None` if `start` and `bytes` cannot be those of a memory.
    ///
    /// # Safety
    ///
    /// `start` must come from [`into_raw`](Self::into_raw) of a memory that was reserved with `bytes`, must not have been
    /// taken back before, and no reference to the memory may be used afterwards.
    pub unsafe fn from_raw(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let is_page = (start.as_ptr() as usize).is_multiple_of(SMALL_PAGE as usize);
        let bytes = Self::rounded(bytes).filter(|bytes| *bytes > 0 && is_page)?;
        Some(Self { start, bytes })
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        // SAFETY: `reserve` created this mapping, and the borrow checker ended all references into it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claim 25 of the specification: memory is page-aligned, apart from other memory, and reads as zeros.
    #[test]
    fn memory_is_whole_pages_of_zeros() {
        let mut one = NodeMemory::reserve(4097).unwrap();
        let other = NodeMemory::reserve(1).unwrap();
        assert_eq!((one.contents().len(), other.contents().len()), (8192, 4096));
        assert!(one.range().start.is_multiple_of(4096));
        assert!(one.range().end <= other.range().start || other.range().end <= one.range().start);
        assert!(one.contents().iter().all(|byte| *byte == 0));
        one.contents_mut()[8191] = 7;
        assert_eq!(one.contents()[8191], 7);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (bytes, errno) in [(0, libc::EINVAL), (usize::MAX, libc::ENOMEM), (usize::MAX / 2 + 1, libc::ENOMEM)] {
            assert_eq!(NodeMemory::reserve(bytes).unwrap_err().raw_os_error(), Some(errno), "{bytes}");
        }
        let memory = NodeMemory::reserve(1).unwrap();
        let start = memory.into_raw();
        // SAFETY: the refused calls take no ownership; the last one takes it once, with the size that was reserved.
        unsafe {
            assert!(NodeMemory::from_raw(start.add(1), 1).is_none());
            assert!(NodeMemory::from_raw(start, 0).is_none());
            assert!(NodeMemory::from_raw(start, usize::MAX).is_none());
            drop(NodeMemory::from_raw(start, 1).unwrap());
        }
    }
}
