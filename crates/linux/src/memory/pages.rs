//! Anonymous memory whose nodes and page size are chosen before it is touched.

use crate::memory::memory_policy::{Misplaced, bind_range};
use machine::MemoryPolicy;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes of a huge page, as a length and as the alignment that allows one.
pub const HUGE_PAGE: usize = machine::HUGE_PAGE as usize;

/// Numbers for which all-zero bytes mean 0.
///
/// # Safety
///
/// All bits zero must be a valid value of the type.
pub unsafe trait Zeroed: 'static {}

// SAFETY: it is an integer.
unsafe impl Zeroed for u32 {}
// SAFETY: as above.
unsafe impl Zeroed for u64 {}
// SAFETY: IEEE 754 defines it so.
unsafe impl Zeroed for f64 {}
// SAFETY: it has the representation of an integer.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}

/// Memory that is reserved but not touched yet, aligned for huge pages.
#[derive(Debug)]
pub struct Pages {
    mapped: NonNull<c_void>,
    mapped_bytes: usize,
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this is its only owner.
unsafe impl Send for Pages {}

impl Pages {
    /// Reserves this many bytes, rounded up to huge pages. No page is present yet.
    pub fn reserve(bytes: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_much)?;
        let mapped_bytes = bytes.checked_add(HUGE_PAGE).ok_or_else(too_much)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let mapped = unsafe { mmap_anonymous(null_mut(), mapped_bytes, access, MapFlags::PRIVATE) }?;
        let ahead = mapped.align_offset(HUGE_PAGE);
        // SAFETY: the mapping is one huge page longer than the used part, so its first aligned address is inside.
        let start = unsafe { mapped.byte_add(ahead) };
        let (Some(mapped), Some(start)) = (NonNull::new(mapped), NonNull::new(start)) else {
            return Err(io::Error::other("mmap returned address 0"));
        };
        Ok(Self { mapped, mapped_bytes, start, bytes })
    }

    /// Like [`reserve`](Self::reserve), from the hugetlb pools of 2 MiB pages. ENOMEM: the pools of all nodes together
    /// have too few. Touching the memory under a policy whose nodes have no free pages ends the process (SIGBUS).
    pub fn reserve_hugetlb(bytes: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE).ok_or_else(too_much)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let mapped = unsafe { mmap_anonymous(null_mut(), bytes, access, flags) }?;
        let start = NonNull::new(mapped).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { mapped: start, mapped_bytes: bytes, start, bytes })
    }

    /// Sets the memory policy for its pages.
    pub fn bind(&mut self, policy: &MemoryPolicy) -> io::Result<()> {
        bind_range(self.start.as_ptr() as usize, self.bytes, policy, Misplaced::default())
    }

    /// Requests huge pages, or none.
    pub fn advise_huge(&mut self, huge: bool) -> io::Result<()> {
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: both only affect the allocation of pages, not their contents; the range belongs to this mapping.
        let result = unsafe { libc::madvise(self.start.as_ptr(), self.bytes, advice) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Its address range.
    pub fn range(&self) -> Range<u64> {
        let start = self.start.as_ptr() as u64;
        start..start + self.bytes as u64
    }

    /// Writes one byte, which makes its page present.
    ///
    /// # Panics
    ///
    /// When the byte is outside.
    pub fn touch(&mut self, byte: usize) {
        assert!(byte < self.bytes);
        // SAFETY: the byte is inside the mapping, and has no other owner.
        unsafe { self.start.cast::<u8>().add(byte).write_volatile(1) };
    }

    /// Initializes all of it with `element(i)` at index `i`, and leaks it for the rest of the process.
    ///
    /// # Panics
    ///
    /// When `T` has no size, or needs a larger alignment than a huge page.
    pub fn fill<T: 'static>(self, mut element: impl FnMut(usize) -> T) -> &'static mut [T] {
        assert!(size_of::<T>() > 0 && align_of::<T>() <= HUGE_PAGE);
        let (start, count) = (self.start.cast::<T>(), self.bytes / size_of::<T>());
        for i in 0..count {
            // SAFETY: index `i` is inside the mapping, aligned, and has no other owner; it holds no value yet.
            unsafe { start.add(i).write(element(i)) };
        }
        std::mem::forget(self);
        // SAFETY: all `count` elements were just written, and the mapping is never unmapped nor used otherwise.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count) }
    }

    /// Leaks all of it as zeros, untouched, for the rest of the process. Unless a policy was set, each page is placed
    /// on the node of the thread that first writes to it.
    pub fn zeroed<T: Zeroed>(self) -> &'static mut [T] {
        let (start, count) = (self.start.cast::<T>(), self.bytes / size_of::<T>());
        std::mem::forget(self);
        // SAFETY: anonymous memory reads as zeros until it is written, which is a value of `T`; the range is aligned to
        // a huge page, has no other owner, and the mapping is never unmapped nor used otherwise. A byte written by
        // `touch` is also fine: integers and floating-point numbers have no invalid bit patterns.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), count) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `reserve` created this mapping, and no reference into it has been given away.
        let _ = unsafe { munmap(self.mapped.as_ptr(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{allowed_memory_nodes, node_of};

    #[test]
    fn pages_hold_what_they_are_filled_with_where_they_are_bound() {
        let mut pages = Pages::reserve(3 << 20).unwrap();
        pages.advise_huge(false).unwrap();
        let node = allowed_memory_nodes().ok().and_then(|nodes| nodes.iter().last());
        if let Some(node) = node {
            pages.bind(&MemoryPolicy::bind(node)).unwrap();
        }
        let words = pages.fill(|i| i as u64);
        assert_eq!(words.as_ptr() as usize % HUGE_PAGE, 0);
        assert_eq!((words.len(), words[0], words[words.len() - 1]), (4 << 17, 0, (4 << 17) - 1));
        if let Some(node) = node {
            assert_eq!(node_of(&words[1 << 17]).unwrap(), node);
        }
    }

    #[test]
    fn untouched_pages_are_zeros_and_nowhere() {
        let pages = Pages::reserve(HUGE_PAGE).unwrap();
        let range = pages.range();
        let words = pages.zeroed::<AtomicU64>();
        let mut pagemap = crate::Pagemap::new(&crate::Process::open(crate::Pid(std::process::id())).unwrap()).unwrap();
        assert!(pagemap.read(&range).unwrap().all(|page| !page.is_present()));
        assert!(words.len() == 1 << 18 && words.iter_mut().all(|word| *word.get_mut() == 0));
    }

    /// Claim 25 of the specification: memory is page-aligned, does not overlap other memory, and is released.
    #[test]
    fn each_reservation_is_apart_and_goes_with_its_owner() {
        let process = crate::Process::open(crate::Pid(std::process::id())).unwrap();
        let is_mapped = |range: &Range<u64>| {
            let holds = |mapping: &crate::Mapping| mapping.range.start <= range.start && range.end <= mapping.range.end;
            process.mappings().unwrap().iter().any(holds)
        };
        // Large enough that no other test's memory can take its place.
        let (one, other) = (Pages::reserve(1 << 28).unwrap(), Pages::reserve(1 << 28).unwrap());
        let (first, second) = (one.range(), other.range());
        assert!(first.start % 4096 == 0 && (first.end <= second.start || second.end <= first.start));
        assert!(is_mapped(&first) && is_mapped(&second));
        drop(one);
        assert!(!is_mapped(&first) && is_mapped(&second));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Pages::reserve(usize::MAX).is_err());
        assert!(Pages::reserve(usize::MAX - HUGE_PAGE).is_err());
        assert!(Pages::reserve(1).unwrap().bind(&MemoryPolicy::bind(machine::NodeId(100_000))).is_err());
    }
}
