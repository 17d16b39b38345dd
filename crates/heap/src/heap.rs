//! Heaps: the spans of one thread on one place.

use crate::place::PLACES;
use crate::segment::{SLICE_BYTES, Segment};
use crate::size_class::{CLASSES, LARGEST, block_bytes};
use crate::span::{Block, Span};
use crate::stack::{self, Linked, Stack};
use crate::system;
use core::marker::PhantomPinned;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Blocks up to this size, in bytes, have spans of one slice; larger ones, of eight.
const SMALL: usize = 8 << 10;
/// Segments that are searched for adjacent free slices: those where slices were freed last come first. A segment that has
/// some, but too few for an object of 1 MiB, would otherwise be looked at for each.
const MOST_SEARCHED: usize = 64;
/// Class of a span with one block, which is freed with it.
const SINGLE: usize = CLASSES;

/// A heap. It never changes its place and is never unmapped: a block that another thread frees finds its list in any case.
#[repr(C, align(4096))]
pub struct Heap {
    /// Allocations until the thread asks on which node it runs.
    pub until_check: u32,
    /// Spans that may have a free block, by size class.
    bins: [*mut Span; CLASSES],
    /// Segments with a free slice.
    segments: *mut Segment,
    /// A segment without spans that waits for its next use.
    spare: *mut Segment,
    pub place: usize,
    /// The first heap of the thread that runs this one, which no other thread runs; null between two threads.
    pub runner: AtomicPtr<Heap>,
    /// The next heap of that thread.
    pub next_of_thread: *mut Heap,
    /// Blocks that other threads freed. On lines of its own, as they write it.
    remote: Remote,
    /// The next heap that no thread runs.
    link: AtomicPtr<Heap>,
    /// Other threads write `remote` while this one has an exclusive reference: the compiler must not take it for the only one.
    _shared: PhantomPinned,
}

#[repr(align(128))]
struct Remote(AtomicPtr<Block>);

// SAFETY: aligned above; heaps are never unmapped.
unsafe impl Linked for Heap {
    fn link(&self) -> &AtomicPtr<Self> {
        &self.link
    }
}

const _: () = assert!(size_of::<Heap>() == stack::ALIGNMENT && align_of::<Heap>() == stack::ALIGNMENT);

/// Heaps of ended threads.
static IDLE: [Stack<Heap>; PLACES] = [const { Stack::new() }; PLACES];

impl Heap {
    /// A heap of an ended thread, with its segments, or a new one.
    pub fn adopt_or_create(place: usize) -> Option<*mut Self> {
        if let Some(heap) = IDLE[place].pop() {
            return Some(heap);
        }
        let heap = system::map_aligned(size_of::<Self>(), stack::ALIGNMENT)?.cast::<Self>();
        heap.expose_provenance();
        // SAFETY: a new mapping of this size.
        unsafe {
            heap.write(Self {
                until_check: 0,
                bins: [null_mut(); CLASSES],
                segments: null_mut(),
                spare: null_mut(),
                place,
                runner: AtomicPtr::new(null_mut()),
                next_of_thread: null_mut(),
                remote: Remote(AtomicPtr::new(null_mut())),
                link: AtomicPtr::new(null_mut()),
                _shared: PhantomPinned,
            });
        }
        Some(heap)
    }

    /// Leaves the heap for another thread.
    ///
    /// # Safety
    ///
    /// The calling thread ran it, and no heap has its runner any more.
    pub unsafe fn abandon(heap: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            (*heap).tidy();
            (*heap).next_of_thread = null_mut();
            // The next thread asks at its first allocation on which node it runs.
            (*heap).until_check = 0;
            IDLE[(*heap).place].push(&*heap);
        }
    }

    /// A block of a size class that was freed or carved before; null if the first span of the list has none.
    #[inline]
    pub fn take(&mut self, class: usize) -> *mut Block {
        // SAFETY: spans of the list are of this heap.
        unsafe { self.bins[class].as_mut() }.map_or(null_mut(), Span::pop)
    }

    /// A block of a size class; null if there is no memory.
    #[inline]
    pub fn allocate(&mut self, class: usize) -> *mut Block {
        let block = self.take(class);
        if block.is_null() { self.allocate_slowly(class) } else { block }
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(&mut self, class: usize) -> *mut Block {
        self.collect();
        while !self.bins[class].is_null() {
            let span = self.bins[class];
            // SAFETY: spans of the list are of this heap.
            unsafe {
                if (*span).has_free() || (*span).carve(Segment::start_of(span)) {
                    return (*span).pop();
                }
            }
            self.unlist_span(span); // All blocks are in use. The first one that is freed lists it again.
        }
        let bytes = block_bytes(class);
        let slices = if bytes <= SMALL { 1 } else { 8 };
        let Some((span, _)) = self.add_span(slices, class, bytes) else { return null_mut() };
        self.list_span(span);
        // SAFETY: a new span of this heap.
        unsafe {
            (*span).carve(Segment::start_of(span));
            (*span).pop()
        }
    }

    /// An object that takes a span of its own, and whether it is zeroed.
    pub fn allocate_large(&mut self, bytes: usize) -> Option<(*mut u8, bool)> {
        debug_assert!(bytes > LARGEST);
        self.collect();
        let slices = bytes.div_ceil(SLICE_BYTES);
        let (span, is_zeroed) = self.add_span(slices, SINGLE, slices * SLICE_BYTES)?;
        // SAFETY: a new span of this heap. Its one block is never in a list, so that its pages may stay untouched.
        unsafe {
            let start = Segment::start_of(span);
            (*span).take_whole(start, is_zeroed);
            Some((start, is_zeroed))
        }
    }

    /// Frees a block of this heap.
    ///
    /// # Safety
    ///
    /// The calling thread runs this heap, `span` is the block's, and the block is marked free.
    #[inline]
    pub unsafe fn free(&mut self, span: *mut Span, block: *mut Block) {
        // SAFETY: the caller's promise.
        unsafe {
            (*span).push(block);
            let is_extra = (*span).used == 0 && self.bins[usize::from((*span).class) % CLASSES] != span;
            if is_extra || !(*span).is_listed {
                self.free_slowly(span);
            }
        }
    }

    #[inline(never)]
    unsafe fn free_slowly(&mut self, span: *mut Span) {
        // SAFETY: as for `free`.
        let (class, used, is_listed) = unsafe { (usize::from((*span).class), (*span).used, (*span).is_listed) };
        if class == SINGLE {
            return self.remove_span(span);
        }
        let first = self.bins[class];
        if used == 0 && first != span {
            // One empty span stays in each class: the first of its list.
            if is_listed {
                self.unlist_span(span);
            }
            return self.remove_span(span);
        }
        if !is_listed {
            self.list_span(span);
            // SAFETY: spans of the list are of this heap.
            if !first.is_null() && unsafe { (*first).used } == 0 {
                // It is not the first any more.
                self.unlist_span(first);
                self.remove_span(first);
            }
        }
    }

    /// Whether it has no span.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.segments.is_null() && self.bins.iter().all(|first| first.is_null())
    }

    /// Puts a block onto the list of another thread's heap.
    ///
    /// # Safety
    ///
    /// The block is of this heap and marked free.
    pub unsafe fn free_remotely(heap: *const Self, block: *mut Block) {
        // SAFETY: heaps are never unmapped; this field is shared.
        let remote = unsafe { &(*heap).remote.0 };
        let mut first = remote.load(Relaxed);
        loop {
            // SAFETY: the caller's promise.
            unsafe { (*block).next = first };
            match remote.compare_exchange_weak(first, block, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(changed) => first = changed,
            }
        }
    }

    /// Frees what other threads put onto the list.
    fn collect(&mut self) {
        if self.remote.0.load(Relaxed).is_null() {
            return;
        }
        let mut block = self.remote.0.swap(null_mut(), Acquire);
        while !block.is_null() {
            // SAFETY: blocks of the list are of segments that this heap owns, and are marked free.
            unsafe {
                let next = (*block).next;
                let segment = Segment::of_span(block.cast());
                self.free(Segment::span_of(segment, block.addr()), block);
                block = next;
            }
        }
    }

    /// Gives back what is empty.
    fn tidy(&mut self) {
        self.collect();
        for class in 0..CLASSES {
            let span = self.bins[class];
            // SAFETY: spans of the list are of this heap.
            if !span.is_null() && unsafe { (*span).used } == 0 {
                self.unlist_span(span);
                self.remove_span(span);
            }
        }
        if !self.spare.is_null() {
            // SAFETY: only this heap uses it.
            unsafe { Segment::give_back(self.spare) };
            self.spare = null_mut();
        }
    }

    fn add_span(&mut self, slices: usize, class: usize, bytes: usize) -> Option<(*mut Span, bool)> {
        let mut segment = self.segments;
        let mut searched = 0;
        while !segment.is_null() && searched < MOST_SEARCHED {
            searched += 1;
            // SAFETY: segments of the list are of this heap.
            unsafe {
                if let Some(added) = Segment::add_span(segment, slices, class, bytes) {
                    if (*segment).is_full() {
                        self.unlist_segment(segment);
                    }
                    return Some(added);
                }
                segment = (*segment).next;
            }
        }
        let segment = self.new_segment()?;
        self.list_segment(segment);
        // SAFETY: only this heap uses it. A new segment has room for any span, and another slice.
        unsafe { Segment::add_span(segment, slices, class, bytes) }
    }

    fn new_segment(&mut self) -> Option<*mut Segment> {
        if !self.spare.is_null() {
            return Some(core::mem::replace(&mut self.spare, null_mut()));
        }
        self.tidy_idle_heaps();
        // The heap's own pointer: one of this reference would end with it.
        let own = core::ptr::with_exposed_provenance_mut((&raw const *self).addr());
        Segment::take(self.place, own)
    }

    /// Idle heaps may have empty segments by now, as other threads freed their blocks.
    fn tidy_idle_heaps(&self) {
        let mut idle = null_mut::<Self>();
        while let Some(heap) = IDLE[self.place].pop() {
            // SAFETY: only this thread uses it now.
            unsafe {
                (*heap).next_of_thread = idle;
                if !(*heap).remote.0.load(Relaxed).is_null() {
                    (*heap).tidy();
                }
            }
            idle = heap;
        }
        while !idle.is_null() {
            // SAFETY: as above, until it is pushed.
            unsafe {
                let next = core::mem::replace(&mut (*idle).next_of_thread, null_mut());
                IDLE[self.place].push(&*idle);
                idle = next;
            }
        }
    }

    fn remove_span(&mut self, span: *mut Span) {
        let segment = Segment::of_span(span);
        // SAFETY: the span is of this heap, empty and in no list.
        unsafe {
            Segment::remove_span(segment, span);
            if !(*segment).is_empty() {
                // To the front, where the next search begins.
                if (*segment).is_listed {
                    self.unlist_segment(segment);
                }
                self.list_segment(segment);
                return;
            }
            if (*segment).is_listed {
                self.unlist_segment(segment);
            }
            if self.spare.is_null() && !(*segment).is_borrowed {
                self.spare = segment;
            } else {
                Segment::give_back(segment);
            }
        }
    }
}

/// A list's functions: the first item is a field of the heap, and items have `next`, `previous` and `is_listed`.
macro_rules! list {
    ($item:ident, $add:ident, $remove:ident, |$heap:ident, $of:ident| $first:expr) => {
        impl Heap {
            fn $add(&mut self, item: *mut $item) {
                let ($heap, $of) = (self, item);
                // SAFETY: items are of this heap, and `item` is not in the list.
                unsafe {
                    let first = &mut $first;
                    (*item).next = *first;
                    (*item).previous = null_mut();
                    (*item).is_listed = true;
                    if let Some(next) = first.as_mut() {
                        next.previous = item;
                    }
                    *first = item;
                }
            }

            fn $remove(&mut self, item: *mut $item) {
                let ($heap, $of) = (self, item);
                // SAFETY: items are of this heap, and `item` is in the list.
                unsafe {
                    let (next, previous) = ((*item).next, (*item).previous);
                    match previous.as_mut() {
                        Some(previous) => previous.next = next,
                        None => $first = next,
                    }
                    if let Some(next) = next.as_mut() {
                        next.previous = previous;
                    }
                    (*item).is_listed = false;
                }
            }
        }
    };
}

list!(Span, list_span, unlist_span, |heap, span| heap.bins[usize::from((*span).class)]);
list!(Segment, list_segment, unlist_segment, |heap, _segment| heap.segments);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size_class::class_of;

    /// Each span in turn becomes the first of the list, and then empty.
    #[test]
    fn one_empty_span_stays_whatever_the_order_of_frees() {
        let class = class_of(64);
        // SAFETY: only this thread uses the heap and its blocks.
        unsafe {
            let heap = &mut *Heap::adopt_or_create(7).unwrap();
            let blocks: Vec<_> = (0..10_000).map(|_| heap.allocate(class)).collect();
            for block in blocks {
                Block::mark_free(block);
                heap.free(Segment::span_of(Segment::of_span(block.cast()), block.addr()), block);
            }
            let first = heap.bins[class];
            assert!((*first).used == 0 && (*first).next.is_null(), "an empty span is not given back");
            Heap::abandon(heap);
            assert!(heap.is_empty());
        }
    }
}
