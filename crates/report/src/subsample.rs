//! Selects a subset of items to draw.

use machine::Random;

/// At most `most` of `all` items, in order: one from each of `most` equal parts. A fixed hash of the part selects the
/// item: periodic items do not alias with the selection, and the same profile always gives the same picture.
pub(crate) fn subsample<T>(items: impl Iterator<Item = T>, all: usize, most: usize) -> impl Iterator<Item = T> {
    let (all, parts) = (all as u64, most.min(all) as u64);
    let bound = move |part: u64| (u128::from(part) * u128::from(all) / u128::from(parts.max(1))) as u64;
    let index_in = move |part: u64| bound(part) + Random::nth(part) % (bound(part + 1) - bound(part)).max(1);
    let mut part = 0;
    items.zip(0..).filter_map(move |(item, at)| {
        let is_next = part < parts && at == index_in(part);
        part += u64::from(is_next);
        is_next.then_some(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_part_is_taken_and_always_the_same() {
        for (all, most) in [(0, 10), (7, 10), (10, 10), (11, 10), (1000, 10), (100_003, 8000), (50, 0)] {
            let once: Vec<usize> = subsample(0..all, all, most).collect();
            assert_eq!(once.len(), all.min(most), "{most} of {all}");
            assert!(once.is_sorted_by(|one, other| one < other));
            assert!(
                once.iter().enumerate().all(|(part, at)| at * most.min(all) / all.max(1) == part || all % most != 0)
            );
            assert_eq!(once, subsample(0..all, all, most).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_comes_in_a_rhythm_is_not_hidden() {
        // Threads take turns, so drawing every hundredth item would show one thread only.
        let drawn: Vec<usize> = subsample((0..100_000).map(|at| at % 4), 100_000, 1000).collect();
        for thread in 0..4 {
            let of_thread = drawn.iter().filter(|&&other| other == thread).count();
            assert!((180..320).contains(&of_thread), "{of_thread} of thread {thread}");
        }
    }
}
