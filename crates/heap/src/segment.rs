//! Segments: 4 MiB of memory on one node, owned by one heap.

use crate::fault::Fault;
use crate::heap::Heap;
use crate::place::{self, PLACES};
use crate::slices::{self, SLICES};
use crate::span::Span;
use crate::stack::{Linked, Stack};
use crate::system;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Size and alignment of a segment, in bytes.
pub const SEGMENT_BYTES: usize = 4 << 20;
/// Size of a slice, in bytes. The first slice has the header.
pub const SLICE_BYTES: usize = SEGMENT_BYTES / SLICES;

/// What the 4 MiB at an address begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Spans of a heap.
    Spans,
    /// One object with a mapping of its own.
    Huge,
}

/// The header of a mapping.
#[repr(C)]
pub struct Head {
    pub kind: Kind,
    /// Index of the node on which it should be.
    pub place: usize,
    /// Size of the mapping in bytes, and where its object begins, if it is of one object.
    pub bytes: usize,
    pub start: usize,
    /// Whether its pages are on the nodes of the threads that touched them first, and not on its place.
    pub is_first_touch: bool,
}

/// The header of a segment with spans. Only the thread that runs the owner uses it, except for `owner`.
#[repr(C)]
pub struct Segment {
    pub head: Head,
    /// The heap that owns it. Constant for as long as an object is in it.
    pub owner: *mut Heap,
    /// Slices in use.
    used: u64,
    /// Slices that may have other bytes than zeros.
    dirty: u64,
    /// Whether its pages came from another node, as its own was full.
    pub is_borrowed: bool,
    /// Whether its pages were left in it when it was given back.
    is_kept: bool,
    /// Whether it is in its heap's list of segments with a free slice, and the links of that list.
    pub is_listed: bool,
    pub next: *mut Segment,
    pub previous: *mut Segment,
    /// The next free segment of this place.
    link: AtomicPtr<Segment>,
    /// The first slice of the span that has each slice.
    first: [u8; SLICES],
    spans: [Span; SLICES],
}

const HEAD_SLICE: u64 = 1;
const _: () = assert!(size_of::<Segment>() <= SLICE_BYTES);

// SAFETY: segments are aligned to their size, and are never unmapped.
unsafe impl Linked for Segment {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

/// A bit for each 4 MiB of the address space: whether a mapping of ours begins there.
static BEGINS: [AtomicU64; 1 << (47 - 22 - 6)] = [const { AtomicU64::new(0) }; 1 << (47 - 22 - 6)];
static MAPPED: AtomicUsize = AtomicUsize::new(0);
static BORROWED: AtomicUsize = AtomicUsize::new(0);
/// Free segments whose pages were left in them, and most of these: 64 MiB. To give pages back and take them again costs some
/// hundred times as much as to use them again.
static KEPT: AtomicUsize = AtomicUsize::new(0);
const MOST_KEPT: usize = 16;
/// Free segments of each place, and those whose pages were left in them, which are used first.
static FREE: [Stack<Segment>; PLACES] = [const { Stack::new() }; PLACES];
static FREE_KEPT: [Stack<Segment>; PLACES] = [const { Stack::new() }; PLACES];

/// Bytes of address space that the heap has mapped, without freed objects that are kept.
pub fn mapped_bytes() -> usize {
    MAPPED.load(Relaxed)
}

/// Segments in use whose memory the kernel took from another node, as their own was full.
pub fn borrowed_segments() -> usize {
    BORROWED.load(Relaxed)
}

/// The header of the mapping that has this object; `None` if it is not ours. An object at a multiple of 4 MiB has its header
/// one segment below.
#[inline]
pub fn head_of(object: usize) -> Option<*mut Head> {
    let start = object.wrapping_sub(1) & !(SEGMENT_BYTES - 1);
    let number = start / SEGMENT_BYTES;
    let word = BEGINS.get(number / 64)?;
    (word.load(Relaxed) >> (number % 64) & 1 == 1).then(|| core::ptr::with_exposed_provenance_mut(start))
}

/// Notes that a mapping begins or ends here.
pub fn set_begin(head: *mut Head, bytes: usize, begins: bool) {
    let number = head.expose_provenance() / SEGMENT_BYTES;
    let (word, bit) = (&BEGINS[number / 64], 1 << (number % 64));
    if begins {
        word.fetch_or(bit, Relaxed);
        MAPPED.fetch_add(bytes, Relaxed);
    } else {
        word.fetch_and(!bit, Relaxed);
        MAPPED.fetch_sub(bytes, Relaxed);
    }
}

impl Segment {
    /// A segment without spans: one that was given back, or a new one.
    pub fn take(place: usize, owner: *mut Heap) -> Option<*mut Self> {
        let free = FREE_KEPT[place].pop().or_else(|| FREE[place].pop());
        let segment = match free {
            // SAFETY: only this thread uses it now.
            Some(segment) => unsafe { Self::follow_policy(segment, place) },
            None => Self::map(place)?,
        };
        // SAFETY: only this thread uses it; its second slice is its own.
        unsafe {
            (*segment).owner = owner;
            KEPT.fetch_sub((*segment).is_kept.into(), Relaxed);
            (*segment).is_kept = false;
            let first = segment.cast::<u8>().add(SLICE_BYTES);
            // Touches the page, which shows from where the kernel takes memory now, unless it was kept.
            first.write_volatile(0);
            (*segment).is_borrowed = !(*segment).head.is_first_touch && place::is_elsewhere(first, place);
            BORROWED.fetch_add((*segment).is_borrowed.into(), Relaxed);
        }
        Some(segment)
    }

    /// Has a segment without spans placed, unless the calling thread has a policy of its own, which it then follows.
    ///
    /// # Safety
    ///
    /// Only the caller uses it.
    unsafe fn follow_policy(segment: *mut Self, place: usize) -> *mut Self {
        // SAFETY: the caller's promise.
        unsafe {
            let is_left = !place::is_placing() || place::has_own_policy();
            if (*segment).head.is_first_touch != is_left {
                if (*segment).is_kept {
                    Self::discard(segment);
                }
                let start = segment.cast::<u8>();
                (*segment).head.is_first_touch = if is_left {
                    place::leave(start, SEGMENT_BYTES);
                    true
                } else {
                    !place::place(start, SEGMENT_BYTES, place)
                };
            }
        }
        segment
    }

    /// # Safety
    ///
    /// No slice but the header's is in use.
    unsafe fn discard(segment: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            if system::discard(segment.cast::<u8>().add(SLICE_BYTES), SEGMENT_BYTES - SLICE_BYTES) {
                (*segment).dirty = HEAD_SLICE;
            }
        }
    }

    /// Whether its pages, as far as some show it, are where they should be.
    ///
    /// # Safety
    ///
    /// The segment is one.
    unsafe fn is_at_home(segment: *mut Self) -> bool {
        const LOOKS: usize = 4;
        // SAFETY: the caller's promise; slices are in the segment.
        unsafe {
            let Segment { head: Head { place, is_first_touch, .. }, is_borrowed, dirty, .. } = &*segment;
            let dirty = (1..SLICES).filter(|slice| dirty >> slice & 1 == 1);
            // Pages of a thread's own policy are not where others want them.
            !is_borrowed
                && (!is_first_touch || !place::is_placing())
                && !dirty
                    .step_by(SLICES / LOOKS)
                    .any(|slice| place::is_elsewhere(segment.cast::<u8>().add(slice * SLICE_BYTES), *place))
        }
    }

    fn map(place: usize) -> Option<*mut Self> {
        let segment = system::map_aligned(SEGMENT_BYTES, SEGMENT_BYTES)?.cast::<Self>();
        let is_first_touch = !place::place(segment.cast(), SEGMENT_BYTES, place);
        let head = Head { kind: Kind::Spans, place, bytes: SEGMENT_BYTES, start: 0, is_first_touch };
        // SAFETY: a new mapping of this size.
        unsafe {
            segment.write(Self {
                head,
                owner: null_mut(),
                used: HEAD_SLICE,
                dirty: HEAD_SLICE,
                is_borrowed: false,
                is_kept: false,
                is_listed: false,
                next: null_mut(),
                previous: null_mut(),
                link: AtomicPtr::new(null_mut()),
                first: [0; SLICES],
                spans: [Span::UNUSED; SLICES],
            });
        }
        set_begin(segment.cast(), SEGMENT_BYTES, true);
        Some(segment)
    }

    /// Gives a segment without spans to the heaps of its place, and its pages to the kernel unless few are kept.
    ///
    /// # Safety
    ///
    /// Only the caller uses it, and it is in no list.
    pub unsafe fn give_back(segment: *mut Self) {
        // SAFETY: no slice but the header's is in use.
        unsafe {
            BORROWED.fetch_sub((*segment).is_borrowed.into(), Relaxed);
            let place = (*segment).head.place;
            if Self::is_at_home(segment) {
                if KEPT.fetch_add(1, Relaxed) < MOST_KEPT {
                    (*segment).is_kept = true;
                    return FREE_KEPT[place].push(&*segment);
                }
                KEPT.fetch_sub(1, Relaxed);
            }
            Self::discard(segment);
            FREE[place].push(&*segment);
        }
    }

    /// Whether no span is in use.
    pub fn is_empty(&self) -> bool {
        self.used == HEAD_SLICE
    }

    /// Whether every slice is in use.
    pub fn is_full(&self) -> bool {
        self.used == !0
    }

    /// A new span, and whether its memory is still zeroed.
    ///
    /// # Safety
    ///
    /// Only the caller uses the segment. It is a pointer, not a reference, as the span's pointer comes from it and is used for
    /// all of the span's memory.
    pub unsafe fn add_span(
        segment: *mut Self,
        slices: usize,
        class: usize,
        block_bytes: usize,
    ) -> Option<(*mut Span, bool)> {
        // SAFETY: the caller's promise.
        unsafe {
            let first = slices::find_free((*segment).used, slices)?;
            let mask = slices::mask(first, slices);
            let is_zeroed = (*segment).dirty & mask == 0;
            (*segment).used |= mask;
            (*segment).dirty |= mask;
            (&mut (*segment).first)[first..first + slices].fill(first as u8);
            let span = &raw mut (*segment).spans[first];
            span.write(Span::new(first, slices, class, block_bytes));
            Some((span, is_zeroed))
        }
    }

    /// Frees a span's slices.
    ///
    /// # Safety
    ///
    /// The span is of this segment, no block of it is in use, and no list has it.
    pub unsafe fn remove_span(segment: *mut Self, span: *mut Span) {
        // SAFETY: the caller's promise.
        unsafe {
            (*segment).used &= !slices::mask((*span).first.into(), (*span).slices.into());
            span.write(Span::UNUSED);
        }
    }

    /// The segment that has this span.
    pub fn of_span(span: *mut Span) -> *mut Self {
        span.map_addr(|address| address & !(SEGMENT_BYTES - 1)).cast()
    }

    /// The span of an object's address. Ends the process if no object begins there.
    ///
    /// # Safety
    ///
    /// The object is in this segment.
    #[inline]
    pub unsafe fn span_of(segment: *mut Self, object: usize) -> *mut Span {
        let offset = object - segment.addr();
        // SAFETY: in bounds, as the offset is less than a segment. What is read here does not change for as long as an
        // object is in the span, so that any thread that has the object may read it.
        unsafe {
            let first = usize::from((*segment).first[offset / SLICE_BYTES % SLICES]);
            let span = &raw mut (*segment).spans[first];
            if (*span).block_bytes == 0 {
                Fault::Foreign.abort(object);
            }
            if !(*span).is_block(offset - first * SLICE_BYTES) {
                Fault::Inside.abort(object);
            }
            span
        }
    }

    /// The address of a span's first block.
    ///
    /// # Safety
    ///
    /// The span is of a segment.
    pub unsafe fn start_of(span: *mut Span) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { Self::of_span(span).cast::<u8>().add(usize::from((*span).first) * SLICE_BYTES) }
    }
}
