//! Parts of one array, each used by one thread at random: falsely shared huge pages where parts meet, and more small
//! pages than a TLB has entries for. Small pages cure the first, and large ones the second; only where just the pages
//! at the borders are small is neither a problem.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, shares, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a part for each load of a round.
const BYTES_A_LOAD: usize = 64;
/// Steps of [`mix`] for values, and for positions of loads.
const VALUES: usize = 3;
const POSITIONS: usize = 4;

/// One thread's part.
struct Slab<'a> {
    thread: u64,
    first: usize,
    words: &'a mut [u64],
    /// Sum of all words that were loaded.
    sum: u64,
}

/// Duration and result of the loads.
#[derive(Debug, Serialize)]
pub struct Loads {
    /// Time of the rounds, without filling the array.
    #[serde(flatten)]
    span: Span,
    /// Time of the second half of the rounds, after what changes memory during the first.
    second_half: Span,
    /// Loads of all threads in all rounds.
    all: usize,
    /// Time of one load of one thread, ns.
    mean_ns: f64,
    /// Sixteen hexadecimal digits, which depend only on size, threads and repeats.
    checksum: String,
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span: Span { seconds, .. }, all, mean_ns, checksum, .. } = self;
        write!(f, "{seconds:.4} s for {all} loads, {mean_ns:.1} ns each, checksum {checksum}")
    }
}

/// Loads words at random, as many as a part has lines, `repeat` times. Threads fill their own parts, in turn: as a program
/// does that makes one object after another.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Loads, Error> {
    error::check_count(size, size_of::<u64>() * team.threads)?;
    let words = size / size_of::<u64>();
    let array = untouched::<u64>(words)?;
    let part = |(thread, words_of): (usize, _)| Slab {
        thread: thread as u64,
        first: share(words, team.threads, thread).start,
        words: words_of,
        sum: 0,
    };
    let parts: Vec<Slab> = shares(array, team.threads).enumerate().map(part).collect();
    let count = |thread: usize| share(words, team.threads, thread).len().div_ceil(BYTES_A_LOAD / size_of::<u64>());
    let sums: Vec<AtomicU64> = (0..team.threads).map(|_| AtomicU64::default()).collect();
    let threads = team.threads;
    let rounds = team.parallel_rounds(parts, threads + repeat, |slab, round| {
        let loads = count(slab.thread as usize);
        match round.checked_sub(threads) {
            None if round as u64 == slab.thread => slab.fill(),
            None => {}
            Some(round) => {
                slab.load(round, loads);
                sums[slab.thread as usize].store(slab.sum, Relaxed);
            }
        }
    })?;
    let mut checksum = 0_u64;
    for (thread, sum) in sums.into_iter().map(AtomicU64::into_inner).enumerate() {
        check(thread, share(words, threads, thread), repeat, count(thread), sum)?;
        checksum = mix(checksum ^ sum, VALUES);
    }
    let span = Span::from_rounds(&rounds[threads..]);
    let second_half = Span::from_rounds(&rounds[threads + repeat / 2..]);
    let all = repeat * (0..threads).map(count).sum::<usize>();
    let mean_ns = span.seconds * 1e9 * threads as f64 / all.max(1) as f64;
    Ok(Loads { span, second_half, all, mean_ns, checksum: format!("{checksum:016x}") })
}

/// The word that a load gets, of a part of this length.
fn position(thread: u64, round: usize, load: usize, words: usize) -> usize {
    let random = mix(thread << 48 | (round as u64) << 32 | load as u64, POSITIONS);
    ((u128::from(random) * words as u128) >> 64) as usize
}

/// The sequential check: the sum of what the loads should have found, computed without the array.
fn check(thread: usize, part: std::ops::Range<usize>, repeat: usize, loads: usize, found: u64) -> Result<(), Error> {
    let word = |(round, load)| mix((part.start + position(thread as u64, round, load, part.len())) as u64, VALUES);
    let all = (0..repeat).flat_map(|round| (0..loads).map(move |load| (round, load)));
    let expected = all.map(word).fold(0, u64::wrapping_add);
    if found == expected {
        return Ok(());
    }
    Err(Error::Wrong { what: "a thread's sum", expected: expected.to_string(), found: found.to_string() })
}

impl Slab<'_> {
    /// Not inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn fill(&mut self) {
        (self.first..).zip(&mut *self.words).for_each(|(index, word)| *word = mix(index as u64, VALUES));
    }

    #[inline(never)]
    fn load(&mut self, round: usize, loads: usize) {
        for load in 0..loads {
            self.sum = self.sum.wrapping_add(self.words[position(self.thread, round, load, self.words.len())]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_word_is_found() {
        let mut words: Vec<u64> = vec![0; 1000];
        let mut slab = Slab { thread: 2, first: 500, words: &mut words, sum: 0 };
        slab.fill();
        (0..3).for_each(|round| slab.load(round, 125));
        let sum = slab.sum;
        check(2, 500..1500, 3, 125, sum).unwrap();
        assert!(check(2, 500..1500, 3, 125, sum + 1).is_err() && check(1, 500..1500, 3, 125, sum).is_err());
        // Nearly every line is used.
        let lines: std::collections::HashSet<_> = (0..500).map(|load| position(2, 0, load, 1000) / 8).collect();
        assert!(lines.len() > 115, "{}", lines.len());
    }
}
