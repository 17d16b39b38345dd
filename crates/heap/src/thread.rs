//! The calling thread's heaps.

#[cfg(not(miri))]
mod current;
#[cfg(miri)]
#[path = "thread/current_miri.rs"]
mod current;

use self::current::{current, set_current};
use crate::heap::Heap;
use crate::place;
use crate::span;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Allocations after which a thread asks on which node it runs: that costs as much as some allocations.
const CHECK_EVERY: u32 = 32;

/// The heap of the node on which the calling thread runs. `None` if there is no memory for one.
#[inline]
pub fn local() -> Option<&'static mut Heap> {
    ready().or_else(local_slowly)
}

/// Likewise. `None` also if the thread has no heap yet, or has to ask on which node it runs.
#[inline]
pub fn ready() -> Option<&'static mut Heap> {
    // SAFETY: only this thread runs its heaps, and no caller keeps the reference beyond one allocation.
    let heap = unsafe { current().as_mut() }?;
    heap.until_check = heap.until_check.checked_sub(1)?;
    Some(heap)
}

#[cold]
#[inline(never)]
fn local_slowly() -> Option<&'static mut Heap> {
    let heap = on(place::local())?;
    heap.until_check = if place::is_placing() { CHECK_EVERY } else { u32::MAX };
    set_current(heap);
    Some(heap)
}

/// The calling thread's heap of a place.
pub fn on(place: usize) -> Option<&'static mut Heap> {
    let home = home();
    let mut heap = home;
    // SAFETY: this thread runs the heaps of the list.
    unsafe {
        while !heap.is_null() {
            if (*heap).place == place {
                return heap.as_mut();
            }
            heap = (*heap).next_of_thread;
        }
        let heap = Heap::adopt_or_create(place)?;
        let home = if home.is_null() { heap } else { home };
        (*heap).runner.store(home, Relaxed);
        if heap == home {
            set_current(heap);
            at_exit(heap);
        } else {
            (*heap).next_of_thread = (*home).next_of_thread;
            (*home).next_of_thread = heap;
        }
        heap.as_mut()
    }
}

/// The thread's first heap.
fn home() -> *mut Heap {
    // SAFETY: this thread runs it.
    unsafe { current().as_ref() }.map_or(null_mut(), |heap| heap.runner.load(Relaxed))
}

/// The heap if the calling thread allocates from it.
#[inline]
pub fn current_if(heap: *mut Heap) -> Option<&'static mut Heap> {
    // SAFETY: as for `ready`.
    if heap == current() { unsafe { heap.as_mut() } } else { None }
}

/// The heap if the calling thread runs it.
///
/// # Safety
///
/// The pointer is of a heap.
#[inline]
pub unsafe fn own(heap: *mut Heap) -> Option<&'static mut Heap> {
    let current = current();
    // SAFETY: heaps are never unmapped. Only this thread runs heaps with its own home; others' may change at any time.
    unsafe {
        let is_own = heap == current || (!current.is_null() && (*heap).runner.load(Relaxed) == home());
        if is_own { heap.as_mut() } else { None }
    }
}

/// The key whose destructor runs when a thread ends, plus one; 0 before there is one.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Has the thread's heaps left to others when it ends.
fn at_exit(home: *mut Heap) {
    let mut key = KEY.load(Acquire);
    if key == 0 {
        span::choose_secret();
        let mut new = 0;
        // SAFETY: the destructor is of this library, which is never unloaded while a thread has a heap.
        if unsafe { libc::pthread_key_create(&raw mut new, Some(ended)) } != 0 {
            return; // The heaps of ended threads are lost.
        }
        match KEY.compare_exchange(0, new + 1, AcqRel, Acquire) {
            Ok(_) => key = new + 1,
            Err(other) => {
                // SAFETY: no thread has used it.
                unsafe { libc::pthread_key_delete(new) };
                key = other;
            }
        }
    }
    // SAFETY: a key of this process. The C library may allocate, which works, as this thread has its heap.
    unsafe { libc::pthread_setspecific(key - 1, home.cast::<c_void>()) };
}

/// A later destructor of the thread that allocates gets a new heap, and is followed by another call of this.
unsafe extern "C" fn ended(home: *mut c_void) {
    let home = home.cast::<Heap>();
    set_current(null_mut());
    let mut heap = home;
    while !heap.is_null() {
        // SAFETY: this thread runs the heaps of the list.
        unsafe {
            // First of all: a thread that runs `home` next would take the others for its own.
            (*heap).runner.store(null_mut(), Relaxed);
            heap = (*heap).next_of_thread;
        }
    }
    heap = home;
    while !heap.is_null() {
        // SAFETY: this thread ran the heaps of the list and has forgotten them.
        unsafe {
            let next = (*heap).next_of_thread;
            Heap::abandon(heap);
            heap = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::heap::Heap;
    use crate::{Place, allocate, free};
    use std::sync::mpsc::sync_channel;
    use std::thread;
    use std::time::Duration;

    /// Addresses of objects, so that they can go to other threads.
    fn objects(place: Place, count: usize) -> Vec<usize> {
        (0..count).map(|_| allocate(16, 16, place).expose_provenance()).collect()
    }

    fn free_all(objects: Vec<usize>) {
        // SAFETY: live objects.
        objects.into_iter().for_each(|object| unsafe { free(core::ptr::with_exposed_provenance_mut(object)) });
    }

    /// A thread leaves its heaps one after the other. The next thread already runs the first one when it frees objects of
    /// the second, which takes long to leave, as many of its objects come home. No object may get lost.
    #[test]
    fn a_heap_that_is_being_left_is_not_the_next_threads_own() {
        for _ in 0..30 {
            let (sender, receiver) = sync_channel(1);
            let (freed, are_freed) = sync_channel(1);
            let first = thread::spawn(move || {
                free_all(objects(Place::Local, 1));
                sender.send(objects(Place::On(1), 1_000_000)).unwrap();
                are_freed.recv().unwrap();
            });
            // Both threads free from the end on.
            let all = receiver.recv().unwrap();
            free_all(all.iter().step_by(2).copied().collect());
            let rest = all.into_iter().skip(1).step_by(2).rev().collect();
            freed.send(()).unwrap();
            thread::sleep(Duration::from_micros(50));
            let next = thread::spawn(move || {
                free_all(objects(Place::Local, 1));
                free_all(rest);
            });
            next.join().unwrap();
            first.join().unwrap();
            // SAFETY: only this thread uses it, and leaves it again.
            unsafe {
                let heap = Heap::adopt_or_create(1).unwrap();
                Heap::abandon(heap);
                assert!((*heap).is_empty(), "objects are lost");
            }
        }
    }
}
