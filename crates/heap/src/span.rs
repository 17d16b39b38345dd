//! Adjacent slices with blocks of one size.

use crate::fault::Fault;
use crate::segment::SLICE_BYTES;
use crate::system;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A free block. Its mark tells it from an object that the program holds.
#[repr(C)]
pub struct Block {
    pub next: *mut Block,
    mark: usize,
}

/// The secret of this process from which marks are made.
static SECRET: AtomicUsize = AtomicUsize::new(0);

/// Takes the secret from the random bytes that the kernel gives each program.
pub fn choose_secret() {
    SECRET.store(system::random_word() | 1, Relaxed); // An odd number: no mark is zero, as addresses are even.
}

impl Block {
    /// Marks a block as free. Ends the process if it is free already.
    ///
    /// # Safety
    ///
    /// The block is one of a span, and only the caller uses it.
    #[inline]
    pub unsafe fn mark_free(block: *mut Self) {
        let mark = SECRET.load(Relaxed) ^ block.addr();
        // SAFETY: the caller's promise.
        unsafe {
            if (*block).mark == mark {
                Fault::Twice.abort(block.addr());
            }
            (*block).mark = mark;
        }
    }
}

/// Blocks of one size. All fields but those of the geometry are of the thread that runs the heap.
pub struct Span {
    /// The first block that may be allocated.
    free: *mut Block,
    /// Blocks that the program holds.
    pub used: u32,
    /// Blocks that have been free or used so far: the memory of the others was not touched.
    carved: u32,
    /// Blocks that have room.
    blocks: u32,
    /// Size of a block in bytes; 0 if the span is not in use.
    pub block_bytes: u32,
    /// 2^32 / `block_bytes`, rounded up.
    inverse: u32,
    pub class: u8,
    pub first: u8,
    pub slices: u8,
    /// Whether it is in its heap's list of spans that may have a free block.
    pub is_listed: bool,
    /// Links of that list.
    pub next: *mut Span,
    pub previous: *mut Span,
}

/// Bytes that are carved into blocks at a time: a page, so that memory is touched no sooner than it is needed.
const CARVED_BYTES: usize = 4096;

impl Span {
    pub const UNUSED: Self = Self {
        free: null_mut(),
        used: 0,
        carved: 0,
        blocks: 0,
        block_bytes: 0,
        inverse: 0,
        class: 0,
        first: 0,
        slices: 0,
        is_listed: false,
        next: null_mut(),
        previous: null_mut(),
    };

    pub fn new(first: usize, slices: usize, class: usize, block_bytes: usize) -> Self {
        Self {
            blocks: (slices * SLICE_BYTES / block_bytes) as u32,
            block_bytes: block_bytes as u32,
            inverse: ((1_u64 << 32).div_ceil(block_bytes as u64)) as u32,
            class: class as u8,
            first: first as u8,
            slices: slices as u8,
            ..Self::UNUSED
        }
    }

    /// Takes a block that was freed or carved before.
    #[inline]
    pub fn pop(&mut self) -> *mut Block {
        let block = self.free;
        if !block.is_null() {
            // SAFETY: blocks of the list are in the span and free.
            unsafe {
                self.free = (*block).next;
                (*block).mark = 0;
            }
            self.used += 1;
        }
        block
    }

    /// Whether a block was freed or carved before.
    pub fn has_free(&self) -> bool {
        !self.free.is_null()
    }

    /// Takes the one block of a span. Memory that is still zeroed is not touched.
    ///
    /// # Safety
    ///
    /// The span has one block, which begins at `start` and is free.
    pub unsafe fn take_whole(&mut self, start: *mut u8, is_zeroed: bool) {
        (self.carved, self.used) = (1, 1);
        if !is_zeroed {
            // SAFETY: the caller's promise. An earlier object of this address may have left its mark.
            unsafe { (*start.cast::<Block>()).mark = 0 };
        }
    }

    /// Puts a block back.
    ///
    /// # Safety
    ///
    /// The block is of this span, was in use and is marked free.
    #[inline]
    pub unsafe fn push(&mut self, block: *mut Block) {
        // SAFETY: the caller's promise.
        unsafe { (*block).next = self.free };
        self.free = block;
        self.used -= 1;
    }

    /// Carves more blocks out of untouched memory that begins at `start`. Returns whether there was any.
    ///
    /// # Safety
    ///
    /// `start` is the address of the span's first slice.
    pub unsafe fn carve(&mut self, start: *mut u8) -> bool {
        let bytes = self.block_bytes as usize;
        let count = (CARVED_BYTES / bytes).max(1).min((self.blocks - self.carved) as usize);
        for index in (0..count).rev() {
            // SAFETY: below `blocks`, so inside of the span, and not used yet.
            unsafe {
                let block = start.add((self.carved as usize + index) * bytes).cast::<Block>();
                (*block).next = self.free;
                self.free = block;
            }
        }
        self.carved += count as u32;
        count != 0
    }

    /// Whether this offset from the span's start, in bytes, is a block's.
    #[inline]
    pub fn is_block(&self, offset: usize) -> bool {
        let index = (offset * self.inverse as usize) >> 32;
        index * self.block_bytes as usize == offset && index < self.blocks as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size_class::{CLASSES, block_bytes};

    #[test]
    fn only_starts_of_blocks_are_blocks() {
        for class in 0..CLASSES {
            let span = Span::new(1, 8, class, block_bytes(class));
            for offset in 0..8 * SLICE_BYTES {
                let is_block = offset % block_bytes(class) == 0 && offset / block_bytes(class) < span.blocks as usize;
                assert_eq!(span.is_block(offset), is_block, "{offset} of {}", block_bytes(class));
            }
        }
    }
}
