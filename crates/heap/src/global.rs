//! The heap as Rust's allocator.

use crate::{Place, allocate, allocate_zeroed, free, reallocate};
use core::alloc::{GlobalAlloc, Layout};

/// An allocator for Rust: `#[global_allocator] static HEAP: heap::NodeAllocator = heap::NodeAllocator(heap::Place::Local);`
#[derive(Clone, Copy, Debug)]
pub struct NodeAllocator(
    /// Where objects should be.
    pub Place,
);

// SAFETY: objects do not overlap, are as large and aligned as asked for, and stay until they are freed.
unsafe impl GlobalAlloc for NodeAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout.size(), layout.align(), self.0)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocate_zeroed(layout.size(), layout.align(), self.0)
    }

    unsafe fn dealloc(&self, object: *mut u8, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free(object) };
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { reallocate(object, bytes, layout.align(), self.0) }
    }
}
