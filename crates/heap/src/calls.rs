//! What programs call: allocate, free, resize, ask for the size.

use crate::fault::Fault;
use crate::heap::Heap;
use crate::huge;
use crate::place::Place;
use crate::segment::{Head, Kind, Segment, head_of};
use crate::size_class::{LARGEST, SMALL_TABLE_BYTES, SMALLEST, aligned_size, class_of, class_of_small};
use crate::span::{Block, Span};
use crate::thread;
use core::ptr::null_mut;

/// Memory of at least this many bytes at a multiple of `alignment`: a power of two, of which 16 and less are met by every
/// object. Null if there is none, or the size or alignment is impossible.
#[inline]
pub fn allocate(bytes: usize, alignment: usize, place: Place) -> *mut u8 {
    if alignment <= SMALLEST && bytes <= LARGEST && place == Place::Local {
        let Some(heap) = thread::local() else { return null_mut() };
        return heap.allocate(class_of(bytes)).cast();
    }
    allocate_slowly(bytes, alignment, place).0
}

/// Local memory of at least this many bytes if that takes a few instructions; null means nothing but that [`allocate`] has to
/// be called.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would cost as much as the allocation")]
pub fn allocate_at_once(bytes: usize) -> *mut u8 {
    if bytes > SMALL_TABLE_BYTES {
        return null_mut();
    }
    thread::ready().map_or(null_mut(), |heap| heap.take(class_of_small(bytes)).cast())
}

/// Zeroed memory, otherwise as [`allocate`].
pub fn allocate_zeroed(bytes: usize, alignment: usize, place: Place) -> *mut u8 {
    let (object, is_zeroed) = if alignment <= SMALLEST && bytes <= LARGEST {
        (allocate(bytes, alignment, place), false)
    } else {
        allocate_slowly(bytes, alignment, place)
    };
    if !object.is_null() && !is_zeroed {
        // SAFETY: the object has this many bytes.
        unsafe { object.write_bytes(0, bytes) };
    }
    object
}

/// The object, and whether it is zeroed.
fn allocate_slowly(bytes: usize, alignment: usize, place: Place) -> (*mut u8, bool) {
    const NONE: (*mut u8, bool) = (null_mut(), false);
    if !alignment.is_power_of_two() {
        return NONE;
    }
    let heap = || if place == Place::Local { thread::local() } else { thread::on(place.index()) };
    let alignment = alignment.max(SMALLEST);
    if let Some(size) = aligned_size(bytes, alignment) {
        return heap().map_or(NONE, |heap| (heap.allocate(class_of(size)).cast(), false));
    }
    if bytes > LARGEST && bytes <= huge::LARGER_THAN && alignment <= crate::segment::SLICE_BYTES {
        return heap().and_then(|heap| heap.allocate_large(bytes)).unwrap_or(NONE);
    }
    huge::allocate(bytes, alignment, place).unwrap_or(NONE)
}

/// Frees an object. Ends the process with a sentence if it is none of this heap, or was freed before.
///
/// # Safety
///
/// Nothing uses the object any more. Null is ignored.
#[inline]
pub unsafe fn free(object: *mut u8) {
    if object.is_null() {
        return;
    }
    let head = head_of_object(object);
    // SAFETY: the header of a mapping with at least this object in it, and what is found by it.
    unsafe {
        if (*head).kind == Kind::Huge {
            return free_huge(head, object);
        }
        let segment = head.cast::<Segment>();
        let span = Segment::span_of(segment, object.addr());
        let block = object.cast::<Block>();
        Block::mark_free(block);
        let owner = (*segment).owner;
        match thread::current_if(owner) {
            Some(own) => own.free(span, block),
            None => free_elsewhere(owner, span, block),
        }
    }
}

/// Frees a block of another heap: of this thread on another node, or of another thread.
///
/// # Safety
///
/// As for [`Heap::free`] or [`Heap::free_remotely`].
#[inline(never)]
unsafe fn free_elsewhere(owner: *mut Heap, span: *mut Span, block: *mut Block) {
    // SAFETY: the caller's promise.
    unsafe {
        match thread::own(owner) {
            Some(heap) => heap.free(span, block),
            None => Heap::free_remotely(owner, block),
        }
    }
}

/// # Safety
///
/// The header is of a huge object that nothing uses any more.
#[cold]
#[inline(never)]
unsafe fn free_huge(head: *mut Head, object: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { huge::free(check_huge(head, object)) };
}

#[inline]
fn head_of_object(object: *mut u8) -> *mut Head {
    match head_of(object.expose_provenance()) {
        Some(head) if object.addr().is_multiple_of(SMALLEST) => head,
        Some(_) => Fault::Inside.abort(object.addr()),
        None => Fault::Foreign.abort(object.addr()),
    }
}

/// # Safety
///
/// The header is of a huge object.
unsafe fn check_huge(head: *mut Head, object: *mut u8) -> *mut Head {
    // SAFETY: the caller's promise.
    if object.addr() - head.addr() != unsafe { (*head).start } {
        Fault::Inside.abort(object.addr());
    }
    head
}

/// Bytes that the program may use of an object; 0 for null.
///
/// # Safety
///
/// The object is of this heap.
pub unsafe fn usable_size(object: *mut u8) -> usize {
    if object.is_null() {
        return 0;
    }
    let head = head_of_object(object);
    // SAFETY: the header of a mapping with this object in it.
    unsafe {
        match (*head).kind {
            Kind::Huge => huge::usable_size(check_huge(head, object)),
            Kind::Spans => (*Segment::span_of(head.cast(), object.addr())).block_bytes as usize,
        }
    }
}

/// The node on which an object's memory should be; `None` for interleaved objects, for large local ones, which are where
/// they were touched first, and if memory is not placed.
///
/// # Safety
///
/// The object is of this heap.
pub unsafe fn home_node(object: *mut u8) -> Option<usize> {
    // SAFETY: the caller's promise.
    let (place, is_first_touch) = unsafe {
        let head = head_of_object(object);
        ((*head).place, (*head).is_first_touch)
    };
    (!is_first_touch && place < crate::MAX_NODES).then_some(place)
}

/// Resizes an object, which may move, with its contents. Null if there is no memory: then the object stays as it is.
///
/// # Safety
///
/// As for `realloc` with an object of this heap, not null; its alignment was `alignment`.
pub unsafe fn reallocate(object: *mut u8, bytes: usize, alignment: usize, place: Place) -> *mut u8 {
    // SAFETY: the caller's promise; both objects have the bytes that are copied.
    unsafe {
        let usable = usable_size(object);
        let head = head_of_object(object);
        let is_huge = (*head).kind == Kind::Huge && bytes > huge::LARGER_THAN;
        // An object that shrinks by less than half, or an eighth if the kernel can have the rest, stays as it is.
        let least = if is_huge { usable - usable / 8 } else { usable / 2 };
        if bytes <= usable && bytes >= least {
            return object;
        }
        if is_huge && let Some(resized) = huge::resize(head, bytes) {
            return resized;
        }
        let new = allocate(bytes, alignment, place);
        if !new.is_null() {
            new.copy_from_nonoverlapping(object, usable.min(bytes));
            free(object);
        }
        new
    }
}
