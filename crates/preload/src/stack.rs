//! Which stack memory may be read: all of the thread's own stack, and of others (signal stacks, coroutines) a copy made
//! by the kernel, as their bounds are unknown.

use core::ffi::c_void;
use rustix::process::getpid;

/// Words of a copy.
const WINDOW: usize = 1024;

/// A copy of part of a stack that is not the thread's own.
#[repr(C)]
pub struct Window {
    words: [usize; WINDOW],
    start: usize,
    used: usize,
}

impl Window {
    /// Copies what is readable from `address` on.
    pub fn copy(&mut self, address: usize) {
        let bytes = size_of_val(&self.words);
        let to = libc::iovec { iov_base: self.words.as_mut_ptr().cast(), iov_len: bytes };
        let from = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
        let errno = crate::thread::Errno::keep();
        // SAFETY: the kernel writes no more to `words` than fits, and skips unmapped memory.
        let copied =
            unsafe { libc::process_vm_readv(getpid().as_raw_nonzero().get(), &raw const to, 1, &raw const from, 1, 0) };
        drop(errno);
        self.start = address;
        self.used = usize::try_from(copied).unwrap_or(0) / 8;
    }

    fn word(&self, address: usize) -> Option<usize> {
        let index = address.checked_sub(self.start)? / 8;
        self.words.get(..self.used)?.get(index).copied()
    }
}

/// The readable stack memory.
pub struct Reach<'a> {
    /// Bounds of the thread's own stack.
    pub own: (usize, usize),
    /// Part of another stack.
    pub window: Option<&'a Window>,
}

impl Reach<'_> {
    /// The word at an address.
    pub fn word(&self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let (low, high) = self.own;
        if address >= low && address.checked_add(8)? <= high {
            // SAFETY: a thread may read all of its own stack, down to the limit of its growth.
            return Some(unsafe { (address as *const usize).read_volatile() });
        }
        self.window?.word(address)
    }
}
