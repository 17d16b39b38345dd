//! Memory whose pages are on the node of the thread that filled them.
//!
//! How that is guaranteed: Linux places a page when it is first written (or read), not when it is allocated. The arrays
//! here are larger than the allocator's mmap threshold (128 KiB in glibc, never more than 32 MiB), and nothing of that
//! size is freed before they are made, so they are fresh, untouched, page-aligned pages from `mmap`; and [`filled`]
//! writes every element itself, on the calling thread. (`vec![0; n]` would not work: it leaves zero pages untouched
//! until a worker accesses them.) Where that is wanted, use [`untouched`].

use crate::error::Error;
use linux::{Pages, Zeroed};
use std::ops::Range;

/// An array with `element(i)` at index `i`, written by the calling thread. Inlined, so that profilers name the function
/// that needs the array.
#[inline(always)]
#[allow(clippy::inline_always, reason = "with a mere hint, names would depend on the compiler's version")]
pub fn filled<T>(count: usize, element: impl FnMut(usize) -> T) -> Result<Vec<T>, Error> {
    let mut array = Vec::new();
    array
        .try_reserve_exact(count)
        .map_err(|_| Error::Memory { bytes: (count as u64).saturating_mul(size_of::<T>() as u64) })?;
    array.extend((0..count).map(element));
    Ok(array)
}

/// Rejects more memory than this system has and can swap out, for allocations in pieces: before any of them is filled.
pub fn check(bytes: usize) -> Result<(), Error> {
    let system = rustix::system::sysinfo();
    let there = (system.totalram + system.totalswap).saturating_mul(system.mem_unit.into());
    if bytes as u64 > there { Err(Error::Memory { bytes: bytes as u64 }) } else { Ok(()) }
}

/// `count` zeros, for the lifetime of the process, on pages whose node is that of the thread that first writes to them:
/// for programs whose threads fill their parts of a shared array themselves.
pub fn untouched<T: Zeroed>(count: usize) -> Result<&'static mut [T], Error> {
    let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
    let pages = Pages::reserve(usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(|_| Error::Memory { bytes })?;
    // Rounded up to whole pages.
    Ok(&mut pages.zeroed()[..count])
}

/// The elements of an array in shares, one per thread.
pub fn shares<T>(array: &mut [T], threads: usize) -> impl Iterator<Item = &mut [T]> {
    let (count, mut rest) = (array.len(), array);
    (0..threads).map(move |thread| rest.split_off_mut(..share(count, threads, thread).len()).unwrap_or_default())
}

/// The share of thread `thread` of `threads`, of `count` elements: shares differ by at most one.
pub fn share(count: usize, threads: usize, thread: usize) -> Range<usize> {
    let edge = |thread: usize| (count as u128 * thread as u128 / threads as u128) as usize;
    edge(thread)..edge(thread + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_everything_once(count in 0_usize..10_000, threads in 1_usize..100) {
            let mut next = 0;
            for thread in 0..threads {
                let share = share(count, threads, thread);
                prop_assert_eq!(share.start, next);
                prop_assert!(share.len() == count / threads || share.len() == count.div_ceil(threads));
                next = share.end;
            }
            prop_assert_eq!(next, count);
            let mut array: Vec<usize> = (0..count).collect();
            for (thread, part) in shares(&mut array, threads).enumerate() {
                prop_assert_eq!(part.to_vec(), share(count, threads, thread).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn refuses_more_memory_than_there_can_be() {
        assert!(matches!(filled(usize::MAX, |i| i), Err(Error::Memory { bytes: u64::MAX })));
        assert!(matches!(untouched::<f64>(usize::MAX), Err(Error::Memory { bytes: u64::MAX })));
    }
}
