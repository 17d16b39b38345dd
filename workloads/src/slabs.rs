//! Parts of one array, each used by one thread at random: falsely shared huge pages where parts meet, and more small
//! pages than a TLB has entries for. Small pages cure the first, and large ones the second; only where just the pages
//! at the borders are small is neither a problem. With `--move-every`, the parts change owners: a cure that follows each
//! time costs more than it gains.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a part for each load of a round.
const BYTES_A_LOAD: usize = 64;
/// Steps of [`mix`] for values, and for positions of loads.
const VALUES: usize = 3;
const POSITIONS: usize = 4;

/// The array, and who uses which part of it.
#[derive(Clone, Copy)]
struct Slabs<'a> {
    words: &'a [AtomicU64],
    threads: usize,
    /// Rounds after which each part is its next thread's; none if parts stay with their threads.
    move_every: Option<usize>,
}

/// One thread.
struct User {
    thread: usize,
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
pub fn run(team: &Team, size: usize, repeat: usize, move_every: Option<usize>) -> Result<Loads, Error> {
    let threads = team.threads;
    error::check_count(size, size_of::<u64>() * threads)?;
    let slabs = Slabs { words: untouched::<AtomicU64>(size / size_of::<u64>())?, threads, move_every };
    let users = (0..threads).map(|thread| User { thread, sum: 0 }).collect();
    let sums: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::default()).collect();
    let rounds =
        team.parallel_rounds(users, threads + repeat, |user: &mut User, round| match round.checked_sub(threads) {
            None if round == user.thread => slabs.fill(user.thread),
            None => {}
            Some(round) => {
                user.load(slabs, round);
                sums[user.thread].store(user.sum, Relaxed);
            }
        })?;
    let mut checksum = 0_u64;
    for (thread, sum) in sums.into_iter().map(AtomicU64::into_inner).enumerate() {
        slabs.check(thread, repeat, sum)?;
        checksum = mix(checksum ^ sum, VALUES);
    }
    let span = Span::from_rounds(&rounds[threads..]);
    let second_half = Span::from_rounds(&rounds[threads + repeat / 2..]);
    let all: usize =
        (0..repeat).map(|round| (0..threads).map(|thread| slabs.loads(thread, round)).sum::<usize>()).sum();
    let mean_ns = span.seconds * 1e9 * threads as f64 / all.max(1) as f64;
    Ok(Loads { span, second_half, all, mean_ns, checksum: format!("{checksum:016x}") })
}

/// The word that a load gets, of a part of this length.
fn position(thread: usize, round: usize, load: usize, words: usize) -> usize {
    let random = mix((thread as u64) << 48 | (round as u64) << 32 | load as u64, POSITIONS);
    ((u128::from(random) * words as u128) >> 64) as usize
}

impl Slabs<'_> {
    /// The words of a part.
    fn part(&self, number: usize) -> Range<usize> {
        share(self.words.len(), self.threads, number)
    }

    /// The words of the part that a thread uses in a round.
    fn part_of(&self, thread: usize, round: usize) -> Range<usize> {
        let moves = self.move_every.map_or(0, |rounds| round / rounds);
        self.part((thread + moves) % self.threads)
    }

    /// Loads of a thread in a round.
    fn loads(&self, thread: usize, round: usize) -> usize {
        self.part_of(thread, round).len().div_ceil(BYTES_A_LOAD / size_of::<u64>())
    }

    /// The indices that a thread loads in a round.
    fn indices(&self, thread: usize, round: usize) -> impl Iterator<Item = usize> {
        let part = self.part_of(thread, round);
        (0..self.loads(thread, round)).map(move |load| part.start + position(thread, round, load, part.len()))
    }

    /// Not inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn fill(&self, number: usize) {
        self.part(number).for_each(|index| self.words[index].store(mix(index as u64, VALUES), Relaxed));
    }

    /// The sequential check: the sum of what the loads should have found, computed without the array.
    fn check(&self, thread: usize, repeat: usize, found: u64) -> Result<(), Error> {
        let indices = (0..repeat).flat_map(|round| self.indices(thread, round));
        let expected = indices.map(|index| mix(index as u64, VALUES)).fold(0, u64::wrapping_add);
        if found == expected {
            return Ok(());
        }
        Err(Error::Wrong { what: "a thread's sum", expected: expected.to_string(), found: found.to_string() })
    }
}

impl User {
    #[inline(never)]
    fn load(&mut self, slabs: Slabs<'_>, round: usize) {
        for index in slabs.indices(self.thread, round) {
            self.sum = self.sum.wrapping_add(slabs.words[index].load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_word_is_found() {
        let words: Vec<AtomicU64> = (0..4000).map(|_| AtomicU64::default()).collect();
        let slabs = Slabs { words: &words, threads: 4, move_every: None };
        (0..4).for_each(|part| slabs.fill(part));
        let mut user = User { thread: 2, sum: 0 };
        (0..3).for_each(|round| user.load(slabs, round));
        slabs.check(2, 3, user.sum).unwrap();
        assert!(slabs.check(2, 3, user.sum + 1).is_err() && slabs.check(1, 3, user.sum).is_err());
        // Nearly every line is used.
        let lines: std::collections::HashSet<_> = slabs.indices(2, 0).map(|index| index / 8).collect();
        assert!(lines.len() > 65, "{}", lines.len());
    }

    #[test]
    fn each_part_has_one_user_a_round_and_another_one_later() {
        let words: Vec<AtomicU64> = (0..4001).map(|_| AtomicU64::default()).collect();
        let slabs = Slabs { words: &words, threads: 4, move_every: Some(5) };
        let starts = |round| (0..4).map(|thread| slabs.part_of(thread, round).start).collect::<Vec<_>>();
        assert_eq!((starts(0), starts(4)), (vec![0, 1000, 2000, 3000], vec![0, 1000, 2000, 3000]));
        assert_eq!((starts(5), starts(19)), (vec![1000, 2000, 3000, 0], vec![3000, 0, 1000, 2000]));
        assert_eq!(starts(20), starts(0));
    }
}
