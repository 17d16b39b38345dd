//! Objects of custom allocators, which the program announces (include/nearside.h).

use super::called_from;
use super::heap::tell_allocated;
use crate::clock;
use crate::ring;
use crate::thread::enter;
use crate::walk::Frame;
use core::ffi::c_void;
use rings::Kind;

called_from! {
    /// Records an object: `void nearside_allocated(const void *address, size_t bytes)`.
    nearside_allocated => nearside_allocated_from, "rdx", "rcx";
}

extern "C" fn nearside_allocated_from(address: *mut c_void, bytes: usize, stack: usize, base: usize) {
    if !address.is_null()
        && let Some(mut entered) = enter((address as usize, bytes))
    {
        tell_allocated(&mut entered, address, bytes, Frame { stack, base }, false);
    }
}

/// Records the end of an object: `void nearside_freed(const void *address)`.
#[unsafe(no_mangle)]
pub extern "C" fn nearside_freed(address: *mut c_void) {
    if !address.is_null()
        && let Some(entered) = enter((address as usize, 0))
    {
        let time = clock::now();
        entered.writer.ring.tell(ring::event(Kind::Freed, time, address as usize, 0));
    }
}
