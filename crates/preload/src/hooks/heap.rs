//! Heap functions.

use super::called_from;
use crate::libc_symbols::{EARLY, Early};
use crate::loss::NOTHING;
use crate::process::{Writer, settings, symbols};
use crate::thread::{Entered, enter};
use crate::walk::Frame;
use crate::{clock, ring, small_parts};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use rings::{Head, Kind};

called_from! {
    /// Records an object.
    malloc => malloc_from, "rsi", "rdx";
    /// Records an object.
    calloc => calloc_from, "rdx", "rcx";
    /// Records the end of the old object and the new one.
    realloc => realloc_from, "rdx", "rcx";
    /// Records the end of the old object and the new one.
    reallocarray => reallocarray_from, "rcx", "r8";
    /// Records an object.
    memalign => memalign_from, "rdx", "rcx";
    /// Records an object.
    aligned_alloc => aligned_alloc_from, "rdx", "rcx";
    /// Records an object.
    posix_memalign => posix_memalign_from, "rcx", "r8";
    /// Records an object.
    valloc => valloc_from, "rsi", "rdx";
    /// Records an object.
    pvalloc => pvalloc_from, "rsi", "rdx";
}

/// Alignment that suits every type.
const ALIGNMENT: usize = 16;

unsafe extern "C" fn malloc_from(bytes: usize, stack: usize, base: usize) -> *mut c_void {
    let Some(symbols) = symbols() else { return EARLY.allocate(bytes, ALIGNMENT) };
    // SAFETY: the caller's own call.
    let address = unsafe { (symbols.malloc)(bytes) };
    allocated(address, bytes, Frame { stack, base });
    address
}

unsafe extern "C" fn calloc_from(number: usize, each: usize, stack: usize, base: usize) -> *mut c_void {
    let Some(symbols) = symbols() else {
        return number.checked_mul(each).map_or(null_mut(), |bytes| EARLY.allocate(bytes, ALIGNMENT));
    };
    // SAFETY: the caller's own call.
    let address = unsafe { (symbols.calloc)(number, each) };
    allocated(address, number.wrapping_mul(each), Frame { stack, base });
    address
}

unsafe extern "C" fn memalign_from(alignment: usize, bytes: usize, stack: usize, base: usize) -> *mut c_void {
    let Some(symbols) = symbols() else { return EARLY.allocate(bytes, alignment) };
    // SAFETY: the caller's own call.
    let address = unsafe { (symbols.memalign)(alignment, bytes) };
    allocated(address, bytes, Frame { stack, base });
    address
}

unsafe extern "C" fn aligned_alloc_from(alignment: usize, bytes: usize, stack: usize, base: usize) -> *mut c_void {
    let Some(symbols) = symbols() else { return EARLY.allocate(bytes, alignment) };
    // SAFETY: the caller's own call.
    let address = unsafe { (symbols.aligned_alloc)(alignment, bytes) };
    allocated(address, bytes, Frame { stack, base });
    address
}

unsafe extern "C" fn posix_memalign_from(
    place: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
    stack: usize,
    base: usize,
) -> c_int {
    let Some(symbols) = symbols() else { return libc::ENOMEM };
    // SAFETY: the caller's own call.
    let result = unsafe { (symbols.posix_memalign)(place, alignment, bytes) };
    if result == 0 {
        // SAFETY: it was written, as the call succeeded.
        allocated(unsafe { *place }, bytes, Frame { stack, base });
    }
    result
}

unsafe extern "C" fn valloc_from(bytes: usize, stack: usize, base: usize) -> *mut c_void {
    let Some(symbols) = symbols() else { return EARLY.allocate(bytes, rings::PAGE) };
    // SAFETY: the caller's own call.
    let address = unsafe { (symbols.valloc)(bytes) };
    allocated(address, bytes, Frame { stack, base });
    address
}

unsafe extern "C" fn pvalloc_from(bytes: usize, stack: usize, base: usize) -> *mut c_void {
    let Some(symbols) = symbols() else {
        let bytes = bytes.checked_next_multiple_of(rings::PAGE);
        return bytes.map_or(null_mut(), |bytes| EARLY.allocate(bytes, rings::PAGE));
    };
    let Some(pvalloc) = symbols.pvalloc else { return null_mut() };
    // SAFETY: the caller's own call.
    let address = unsafe { pvalloc(bytes) };
    allocated(address, bytes, Frame { stack, base });
    address
}

unsafe extern "C" fn reallocarray_from(
    address: *mut c_void,
    number: usize,
    each: usize,
    stack: usize,
    base: usize,
) -> *mut c_void {
    // Not the C library's function, which calls `realloc`: the object would be recorded twice.
    let Some(bytes) = number.checked_mul(each) else {
        // SAFETY: the C library's address of this thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return null_mut();
    };
    if let Some(realloc) = symbols().and_then(|symbols| symbols.operators.own_realloc) {
        // A program with an allocator of its own, whose objects are not recorded, may have no function of this name.
        // SAFETY: equivalent to the caller's own call.
        return unsafe { realloc(address, bytes) };
    }
    // SAFETY: equivalent to the caller's own call.
    unsafe { realloc_from(address, bytes, stack, base) }
}

unsafe extern "C" fn realloc_from(address: *mut c_void, bytes: usize, stack: usize, base: usize) -> *mut c_void {
    let frame = Frame { stack, base };
    match symbols() {
        Some(symbols) if !EARLY.has(address) => {
            // SAFETY: the caller's own call.
            reallocated(address, bytes, frame, || unsafe { (symbols.realloc)(address, bytes) })
        }
        _ => {
            // SAFETY: equivalent to the caller's own call: a new object, as early objects cannot be resized.
            let new = unsafe { malloc_from(bytes, stack, base) };
            if !new.is_null() && EARLY.has(address) {
                // SAFETY: both have at least this many bytes, and do not overlap.
                unsafe { new.copy_from_nonoverlapping(address, Early::size(address).min(bytes)) };
            }
            new
        }
    }
}

/// Records the end of an object, before its memory can be reused.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(address: *mut c_void) {
    if address.is_null() || EARLY.has(address) {
        return;
    }
    let Some(symbols) = symbols() else { return };
    if let Some(entered) = enter((address as usize, 0)) {
        entered.note(address as usize);
        if !is_small(address) {
            let time = clock::now();
            entered.writer.ring.tell(ring::event(Kind::Freed, time, address as usize, 0));
        }
    }
    // SAFETY: the caller's own call.
    unsafe { (symbols.free)(address) };
}

/// Whether the object is only counted. The answer stays the same for as long as the object does not change.
#[inline]
fn is_small(address: *mut c_void) -> bool {
    let most = settings().small_bytes;
    // SAFETY: the object belongs to the caller.
    most != 0 && symbols().is_some_and(|symbols| unsafe { (symbols.usable_size)(address) } <= most)
}

#[inline]
fn allocated(address: *mut c_void, bytes: usize, frame: Frame) {
    small_parts::allocated(address, bytes, frame);
    if !address.is_null()
        && let Some(mut entered) = enter((address as usize, bytes))
    {
        entered.note(address as usize);
        tell_allocated(&mut entered, address, bytes, frame, is_small(address));
    }
}

/// Records an object that the heap does not know, and which may be inside of one that it knows. Its size is the
/// requested size.
#[cold]
pub fn told_by_operator(address: *mut c_void, bytes: usize, frame: Frame) {
    if let Some(mut entered) = enter((address as usize, bytes)) {
        entered.note(address as usize);
        tell_begun(&mut entered, Kind::Announced, (address, bytes), frame, bytes <= settings().small_bytes);
    }
}

/// Records when such an object ended. Without a size, it may be an object that was only counted: recording an end
/// without a beginning is harmless.
#[cold]
pub fn told_end_by_operator(address: *mut c_void, bytes: Option<usize>, time: u64) {
    if let Some(entered) = enter((address as usize, 0)) {
        entered.note(address as usize);
        if bytes.is_none_or(|bytes| bytes > settings().small_bytes) {
            entered.writer.ring.tell(ring::event(Kind::Withdrawn, time, address as usize, 0));
        }
    }
}

/// Records an object, or counts it.
#[inline]
fn tell_allocated(entered: &mut Entered, address: *mut c_void, bytes: usize, frame: Frame, is_small: bool) {
    tell_begun(entered, Kind::Allocated, (address, bytes), frame, is_small);
}

/// Records an object by a record of `kind`, or counts it.
#[inline]
pub fn tell_begun(
    entered: &mut Entered,
    kind: Kind,
    (address, bytes): (*mut c_void, usize),
    frame: Frame,
    is_small: bool,
) {
    let stack = entered.stack();
    let Writer { ring, walk, .. } = &mut *entered.writer;
    if is_small {
        return match walk.slot(ring, frame, stack) {
            Some(slot) => ring.count(slot, bytes),
            None => ring.lose(NOTHING),
        };
    }
    // First, so that the processor looks up the chain while it reads the clock. Records written by a walk come earlier.
    let mut time = clock::now_after_reads();
    let slot = if let Some(slot) = walk.kept(frame) {
        slot
    } else {
        let Some(slot) = walk.walk(ring, frame, stack) else { return ring.lose((address as usize, bytes)) };
        time = clock::now();
        slot
    };
    ring.tell(Head { slot, ..ring::event(kind, time, address as usize, bytes) });
}

/// Records a reallocation: the old object ends before the call, the new one begins after it.
fn reallocated(old: *mut c_void, bytes: usize, frame: Frame, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let was_recorded = !old.is_null() && enter((old as usize, 0)).is_some() && !is_small(old);
    let before = clock::now();
    let new = call();
    if new.is_null() && (bytes != 0 || old.is_null()) {
        return new; // It failed: nothing has changed.
    }
    if new != old {
        small_parts::allocated(new, bytes, frame);
    }
    let Some(mut entered) = enter((new as usize, bytes)) else { return new };
    let is_small = !new.is_null() && is_small(new);
    let stays = new == old && was_recorded && !is_small;
    if stays {
        let time = clock::now_after_reads();
        entered.writer.ring.tell(ring::event(Kind::Resized, time, new as usize, bytes));
        return new;
    }
    if was_recorded {
        entered.writer.ring.tell(ring::event(Kind::Freed, before, old as usize, 0));
    }
    let stays_small = new == old && is_small && !was_recorded;
    if !new.is_null() && !stays_small {
        tell_allocated(&mut entered, new, bytes, frame, is_small);
    }
    new
}
