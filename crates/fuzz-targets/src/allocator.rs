//! The allocator, whose input is the sequence of calls of a program.

use heap::Place;
use heap::model::{Call, check_counts, run};

/// Bytes of a call.
const CALL_BYTES: usize = 4;
/// Calls of a sequence, at most: each may fill a megabyte.
const MOST_CALLS: usize = 2000;

/// Calls of several threads, four bytes each: the call with its thread, and what it needs. Objects do not overlap, are
/// aligned, keep their contents, and their memory returns.
pub(crate) fn allocator(input: &[u8]) {
    let (calls, _) = input.as_chunks::<CALL_BYTES>();
    run(calls.iter().take(MOST_CALLS).map(|&[how, first, second, third]| {
        let thread = usize::from(how >> 2 & 3);
        let number = usize::from(first) << 8 | usize::from(second);
        let call = match how & 3 {
            0 | 1 => Call::Allocate {
                bytes: size(third, number),
                // All powers of two up to 8 MiB, twice a segment.
                alignment: if how & 1 == 0 { 16 } else { 1 << (third >> 2).min(23) },
                place: match how >> 4 & 3 {
                    0 | 1 => Place::Local,
                    2 => Place::Interleaved,
                    _ => Place::On(usize::from(how >> 6 & 1)),
                },
                zeroed: how >> 7 == 1,
            },
            2 if third == 0xff => Call::End,
            2 => Call::Free(number),
            _ => Call::Resize(usize::from(how >> 4), size(third, number)),
        };
        (thread, call)
    }));
    check_counts();
}

/// A size in bytes: small ones, those of all size classes, and those of an object with a mapping of its own.
fn size(class: u8, number: usize) -> usize {
    match class & 3 {
        0 => number % 600,
        1 => number % 40_000,
        2 => number,
        _ => number * 48,
    }
}
