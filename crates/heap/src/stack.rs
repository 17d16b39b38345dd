//! Lock-free stacks of segments and heaps.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Items are aligned to this many bytes, which leaves bits for a counter of changes.
pub const ALIGNMENT: usize = 4096;
/// Addresses of programs have at most 47 bits on Linux on x86-64, 12 of which are zero.
const ADDRESS_BITS: u32 = 36;

/// What a stack has: memory that is never unmapped, as another thread may read the link of a removed item.
///
/// # Safety
///
/// Items are aligned to [`ALIGNMENT`] and stay mapped for as long as the process lives.
pub unsafe trait Linked: Sized {
    /// The next item of the stack.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// A stack that any thread may change at any time. A counter in each change's word makes a removed and returned item differ
/// from one that was there all the time.
pub struct Stack<T> {
    /// The first item's address without its zero bits, and above it the number of changes.
    head: AtomicU64,
    items: core::marker::PhantomData<AtomicPtr<T>>,
}

impl<T: Linked> Stack<T> {
    pub const fn new() -> Self {
        Self { head: AtomicU64::new(0), items: core::marker::PhantomData }
    }

    fn first(head: u64) -> *mut T {
        let address = (head & ((1 << ADDRESS_BITS) - 1)) as usize * ALIGNMENT;
        if address == 0 { null_mut() } else { core::ptr::with_exposed_provenance_mut(address) }
    }

    fn next_head(head: u64, first: *mut T) -> u64 {
        let changes = (head >> ADDRESS_BITS).wrapping_add(1) << ADDRESS_BITS;
        changes | (first.expose_provenance() / ALIGNMENT) as u64
    }

    /// Adds an item that only the caller uses, and that is in no stack.
    pub fn push(&self, item: &T) {
        let mut head = self.head.load(Relaxed);
        loop {
            item.link().store(Self::first(head), Relaxed);
            let new = Self::next_head(head, core::ptr::from_ref(item).cast_mut());
            match self.head.compare_exchange_weak(head, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(changed) => head = changed,
            }
        }
    }

    /// Removes an item, which then only the caller uses.
    pub fn pop(&self) -> Option<*mut T> {
        let mut head = self.head.load(Acquire);
        loop {
            let first = Self::first(head);
            // SAFETY: items stay mapped. If another thread removed it meanwhile, the exchange fails.
            let next = unsafe { first.as_ref() }?.link().load(Relaxed);
            match self.head.compare_exchange_weak(head, Self::next_head(head, next), AcqRel, Acquire) {
                Ok(_) => return Some(first),
                Err(changed) => head = changed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[repr(align(4096))]
    struct Item(AtomicPtr<Item>, usize);
    // SAFETY: aligned above; the test leaks its items.
    unsafe impl Linked for Item {
        fn link(&self) -> &AtomicPtr<Self> {
            &self.0
        }
    }

    #[test]
    fn threads_neither_lose_nor_duplicate_items() {
        static STACK: Stack<Item> = Stack::new();
        const ITEMS: usize = 8;
        (0..ITEMS).for_each(|number| STACK.push(Box::leak(Box::new(Item(AtomicPtr::new(null_mut()), number)))));
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let taken: Vec<_> = (0..3).filter_map(|_| STACK.pop()).collect();
                        for item in taken {
                            // SAFETY: items are leaked, and this thread took them.
                            STACK.push(unsafe { &*item });
                        }
                    }
                });
            }
        });
        // SAFETY: as above.
        let left: Vec<usize> = std::iter::from_fn(|| STACK.pop()).map(|item| unsafe { (*item).1 }).collect();
        assert_eq!((left.len(), left.iter().collect::<HashSet<_>>().len()), (ITEMS, ITEMS));
    }
}
