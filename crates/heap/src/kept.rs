//! Freed objects of their own mapping that are kept for the next ones: mapping and unmapping one, and taking its pages from
//! the kernel again, costs some hundred times as much as an object of a span.

use crate::place;
use crate::segment::{Head, SEGMENT_BYTES};
use crate::system;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};

/// Objects that are kept at most.
const SLOTS: usize = 64;
/// Their bytes at most, all together.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of the largest one that is kept.
const LARGEST: usize = 16 << 20;
const PAGE: usize = 4096;
/// Pages whose node is asked before an object is kept, at most.
const LOOKS: usize = 8;
/// Bits of a word for the size in pages, and for the place. Headers are aligned to a segment, which leaves 22 bits.
const PAGE_BITS: u32 = 12;

/// For each object the address of its header, its size and its place in one word, so that it can be judged before it is
/// taken: until then another thread may take and unmap it. 0 for none.
static WORDS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static BYTES: AtomicUsize = AtomicUsize::new(0);

const _: () = assert!(LARGEST / PAGE <= 1 << PAGE_BITS && crate::MAX_NODES << PAGE_BITS <= SEGMENT_BYTES);

fn word(head: *mut Head, bytes: usize, node: usize) -> usize {
    head.expose_provenance() | node << PAGE_BITS | (bytes / PAGE - 1)
}

fn pages_of(word: usize) -> usize {
    (word & ((1 << PAGE_BITS) - 1)) + 1
}

fn node_of(word: usize) -> usize {
    (word & (SEGMENT_BYTES - 1)) >> PAGE_BITS
}

/// Keeps a mapping of this size for this node, in the place of older ones if there are too many. Returns false if it has to
/// be unmapped: other threads may have touched its pages first, on other nodes.
///
/// # Safety
///
/// Nothing uses the mapping, or what is kept.
pub unsafe fn keep(head: *mut Head, bytes: usize, node: usize) -> bool {
    if bytes > LARGEST || node >= crate::MAX_NODES {
        return false;
    }
    let step = (bytes / PAGE).div_ceil(LOOKS) * PAGE;
    if (0..bytes).step_by(step).any(|offset| place::is_elsewhere(head.cast::<u8>().wrapping_add(offset), node)) {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { insert(word(head, bytes, node), bytes) }
}

/// # Safety
///
/// As for [`keep`].
unsafe fn insert(word: usize, bytes: usize) -> bool {
    for _ in 0..SLOTS {
        if BYTES.fetch_add(bytes, Relaxed) + bytes <= MOST_BYTES
            && WORDS
                .iter()
                .any(|slot| slot.load(Relaxed) == 0 && slot.compare_exchange(0, word, AcqRel, Relaxed).is_ok())
        {
            return true;
        }
        BYTES.fetch_sub(bytes, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { evict() };
    }
    false
}

/// Unmaps one that is kept, each in turn.
///
/// # Safety
///
/// Nothing uses what is kept.
unsafe fn evict() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let slot = &WORDS[NEXT.fetch_add(1, Relaxed) % SLOTS];
    let word = slot.swap(0, AcqRel);
    if word != 0 {
        let bytes = pages_of(word) * PAGE;
        BYTES.fetch_sub(bytes, Relaxed);
        // SAFETY: it was taken out, and the caller's promise.
        unsafe { system::unmap(core::ptr::with_exposed_provenance_mut(word & !(SEGMENT_BYTES - 1)), bytes) };
    }
}

/// A kept mapping of at least this size, and at most an eighth more, of this node, and its bytes. It is not zeroed. None for
/// a thread with a policy of its own, which new pages follow.
pub fn take(bytes: usize, node: usize) -> Option<(*mut Head, usize)> {
    if bytes > LARGEST || BYTES.load(Relaxed) == 0 || place::is_placing() && place::has_own_policy() {
        return None;
    }
    let pages = bytes.div_ceil(PAGE);
    let fits =
        |word: usize| word != 0 && node_of(word) == node && (pages..=pages + pages / 8).contains(&pages_of(word));
    WORDS.iter().find_map(|slot| {
        let word = slot.load(Relaxed);
        if !fits(word) || slot.compare_exchange(word, 0, AcqRel, Relaxed).is_err() {
            return None;
        }
        let bytes = pages_of(word) * PAGE;
        BYTES.fetch_sub(bytes, Relaxed);
        Some((core::ptr::with_exposed_provenance_mut(word & !(SEGMENT_BYTES - 1)), bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_for_objects_of_its_node_and_about_its_size() {
        let mapping = || system::map_aligned(LARGEST, SEGMENT_BYTES).unwrap().cast::<Head>();
        // SAFETY: nothing uses these mappings. Their pages are on no node yet.
        let keep = |head, bytes, node| unsafe { insert(word(head, bytes, node), bytes) };
        let (head, node) = (mapping(), 1000);
        assert!(keep(head, 2 << 20, node));
        assert_eq!(take(2 << 20, 999), None);
        assert_eq!((take(1 << 20, node), take((2 << 20) + 1, node)), (None, None));
        assert_eq!(
            take((2 << 20) - 9000, node).map(|(head, bytes)| (head.addr(), bytes)),
            Some((head.addr(), 2 << 20))
        );
        assert_eq!(take(2 << 20, node), None);
        // SAFETY: as above.
        let is_refused = |bytes, node| unsafe { !super::keep(head, bytes, node) };
        assert!(is_refused(LARGEST + PAGE, node) && is_refused(2 << 20, crate::MAX_NODES));
        // Later ones take the place of earlier ones.
        let heads: Vec<_> = (0..20).map(|_| mapping()).filter(|head| keep(*head, LARGEST, node)).collect();
        assert_eq!(heads.len(), 20);
        let mut kept: Vec<_> = (0..20).filter_map(|_| take(LARGEST, node)).map(|(head, _)| head).collect();
        assert!(!kept.is_empty() && kept.len() <= MOST_BYTES / LARGEST && kept.contains(&heads[19]), "{kept:?}");
        kept.sort_unstable();
        kept.dedup();
        assert!(kept.iter().all(|head| heads.contains(head)));
    }
}
