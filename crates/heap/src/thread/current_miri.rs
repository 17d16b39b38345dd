//! The heap from which the calling thread allocates, for programs that Miri interprets: it runs no assembly.

use crate::heap::Heap;
use core::ptr::null_mut;
use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<*mut Heap> = const { Cell::new(null_mut()) };
}

pub fn current() -> *mut Heap {
    CURRENT.get()
}

pub fn set_current(heap: *mut Heap) {
    CURRENT.set(heap);
}
