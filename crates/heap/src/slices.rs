//! Which of a segment's 64 slices are in use, a bit each.

/// Number of slices in a segment.
pub const SLICES: usize = 64;

/// The bits of `count` slices from `first` on.
pub fn mask(first: usize, count: usize) -> u64 {
    (if count == SLICES { !0 } else { (1 << count) - 1 }) << first
}

/// The first of `count` adjacent free slices.
pub fn find_free(used: u64, count: usize) -> Option<usize> {
    // After each step, a bit is set where this many free slices begin. Steps double, as far as `count` allows.
    let mut begins = !used;
    let mut length = 1;
    while length < count {
        let step = length.min(count - length);
        begins &= begins >> step;
        length += step;
    }
    (begins != 0).then(|| begins.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_the_first_free_slices(used: u64, more: u64, count in 1..=SLICES) {
            for used in [used, used & more, used & (more << 7) & (more >> 9), 0, 1, !0] {
                let by_search = (0..=SLICES - count).find(|first| used & mask(*first, count) == 0);
                prop_assert_eq!(find_free(used, count), by_search);
            }
        }
    }
}
