//! Objects with a mapping of their own. No heap owns them: any thread unmaps them.

use crate::kept;
use crate::place::{self, Place};
use crate::segment::{Head, Kind, SEGMENT_BYTES, set_begin};
use crate::system;
use rustix::io::Errno;

const PAGE: usize = 4096;

/// Objects larger than this, in bytes, get a mapping of their own.
pub const LARGER_THAN: usize = 1 << 20;

/// An object of its own mapping on a place, and whether it is zeroed. A local one is on the nodes of the threads that touch
/// it first: programs fill large arrays with many threads.
pub fn allocate(bytes: usize, alignment: usize, place: Place) -> Option<(*mut u8, bool)> {
    if bytes > isize::MAX as usize || alignment > isize::MAX as usize {
        return None;
    }
    // The object begins at a multiple of its alignment behind the header. With alignments above a segment's, the header is
    // exactly a segment below, where `head_of` looks for it.
    let start = alignment.clamp(PAGE, SEGMENT_BYTES);
    let all = start.checked_add(bytes.max(1).checked_next_multiple_of(PAGE)?)?;
    let (index, is_first_touch) = (place.index(), place.is_first_touch());
    if is_first_touch
        && start == PAGE
        && let Some((head, all)) = kept::take(all, index)
    {
        // SAFETY: a mapping of this size that nothing uses.
        return unsafe {
            Some((begin(head, Head { kind: Kind::Huge, place: index, bytes: all, start, is_first_touch }), false))
        };
    }
    let head = if alignment <= SEGMENT_BYTES {
        system::map_aligned(all, SEGMENT_BYTES)?
    } else {
        let before = alignment - SEGMENT_BYTES;
        let mapping = system::map_aligned(before.checked_add(all)?, alignment)?;
        // SAFETY: the part before the header is of this mapping and not used.
        unsafe {
            system::unmap(mapping, before);
            mapping.add(before)
        }
    };
    let is_first_touch = is_first_touch || !place::place(head, all, index);
    let header = Head { kind: Kind::Huge, place: index, bytes: all, start, is_first_touch };
    // SAFETY: a new mapping with room for the header before the object.
    unsafe { Some((begin(head.cast(), header), true)) }
}

/// Writes the header of a mapping. Returns its object.
///
/// # Safety
///
/// The mapping has the header's size, and nothing uses it.
unsafe fn begin(head: *mut Head, header: Head) -> *mut u8 {
    let (bytes, start) = (header.bytes, header.start);
    // SAFETY: the caller's promise.
    unsafe {
        head.write(header);
        set_begin(head, bytes, true);
        head.cast::<u8>().add(start)
    }
}

/// Bytes of an object.
///
/// # Safety
///
/// The header is of a huge object.
pub unsafe fn usable_size(head: *mut Head) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*head).bytes - (*head).start }
}

/// # Safety
///
/// The header is of a huge object that nothing uses any more.
pub unsafe fn free(head: *mut Head) {
    // SAFETY: the caller's promise. The bit goes first: another thread may map the same addresses at once.
    unsafe {
        let Head { bytes, place, start, is_first_touch, .. } = *head;
        set_begin(head, bytes, false);
        if !(is_first_touch && start == PAGE && kept::keep(head, bytes, place)) {
            system::unmap(head.cast(), bytes);
        }
    }
}

/// Resizes an object without copying: in place, or by moving its pages to other addresses. `None` if it stays as it is.
///
/// # Safety
///
/// As for `realloc`; `bytes` is more than [`LARGER_THAN`].
pub unsafe fn resize(head: *mut Head, bytes: usize) -> Option<*mut u8> {
    // SAFETY: the header is there until the pages move, and then at the new address.
    unsafe {
        let (old, start) = ((*head).bytes, (*head).start);
        let new = start.checked_add(bytes.checked_next_multiple_of(PAGE)?)?;
        if bytes > isize::MAX as usize {
            return None;
        }
        let resized = if old == new { Ok(()) } else { system::resize(head.cast(), old, new) };
        if resized.is_ok() {
            set_begin(head, old, false);
            (*head).bytes = new;
            set_begin(head, new, true);
            return Some(head.cast::<u8>().add(start));
        }
        // Other errors mean that it cannot be moved either: the program has split the mapping, by mprotect or madvise.
        // At SEGMENT_BYTES the object may have a larger alignment, which moving would lose.
        if resized != Err(Errno::NOMEM) || start == SEGMENT_BYTES {
            return None;
        }
        let target = system::map_aligned(new, SEGMENT_BYTES)?;
        set_begin(head, old, false);
        if !system::move_pages(head.cast(), old, new, target) {
            set_begin(head, old, true);
            return None; // The target is lost if it is still mapped.
        }
        (*target.cast::<Head>()).bytes = new;
        set_begin(target.cast(), new, true);
        Some(target.add(start))
    }
}
