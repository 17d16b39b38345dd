//! Parts of one array, each used by one thread at random: falsely shared huge pages where parts meet, and more small
//! pages than a TLB has entries for. Small pages cure the first, and large ones the second; only where just the pages
//! at the borders are small is neither a problem. With `--blocks`, each thread has several parts, dealt in turn as in
//! block-cyclic matrices, so that more pages have a border. With `--move-every`, the parts change owners: a cure that
//! follows each time costs more than it gains.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::untouched;
use crate::options::SlabsOptions;
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
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
    /// Parts of each thread, dealt in turn.
    blocks: usize,
    /// Whether a load waits for the one before.
    dependent: bool,
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
pub fn run(team: &Team, size: usize, repeat: usize, options: &SlabsOptions) -> Result<Loads, Error> {
    let (threads, &SlabsOptions { blocks, dependent, move_every, .. }) = (team.threads, options);
    error::check_count(size, size_of::<u64>() * threads)?;
    let slabs =
        Slabs { words: untouched::<AtomicU64>(size / size_of::<u64>())?, threads, blocks, dependent, move_every };
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
    let all = repeat * threads * slabs.loads();
    let mean_ns = span.seconds * 1e9 * threads as f64 / all.max(1) as f64;
    Ok(Loads { span, second_half, all, mean_ns, checksum: format!("{checksum:016x}") })
}

/// The word that a load gets, of a part of this length.
fn position(thread: usize, round: usize, load: usize, words: usize) -> usize {
    let random = mix((thread as u64) << 48 | (round as u64) << 32 | load as u64, POSITIONS);
    ((u128::from(random) * words as u128) >> 64) as usize
}

impl Slabs<'_> {
    /// Words of a block; some at the end of the array may be in none.
    fn block_words(&self) -> usize {
        self.words.len() / (self.threads * self.blocks)
    }

    /// Loads of a thread in a round.
    fn loads(&self) -> usize {
        (self.block_words() * self.blocks).div_ceil(BYTES_A_LOAD / size_of::<u64>())
    }

    /// The index of a word of a thread's first blocks.
    fn index(&self, thread: usize, word: usize) -> usize {
        let length = self.block_words();
        (word / length * self.threads + thread) * length + word % length
    }

    /// The indices that a thread loads in a round.
    fn indices(&self, thread: usize, round: usize) -> impl Iterator<Item = usize> {
        let moves = self.move_every.map_or(0, |rounds| round / rounds);
        let (owner, words) = ((thread + moves) % self.threads, self.block_words() * self.blocks);
        (0..self.loads()).map(move |load| self.index(owner, position(thread, round, load, words)))
    }

    /// Not inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn fill(&self, thread: usize) {
        for index in (0..self.block_words() * self.blocks).map(|word| self.index(thread, word)) {
            self.words[index].store(mix(index as u64, VALUES), Relaxed);
        }
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
        // A zero that the compiler does not know makes the next address depend on this word.
        let (zero, mut last) = (black_box(0), 0);
        for index in slabs.indices(self.thread, round) {
            let from = if slabs.dependent { (last & zero) as usize } else { 0 };
            last = slabs.words[index + from].load(Relaxed);
            self.sum = self.sum.wrapping_add(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_lost_word_is_found() {
        let words: Vec<AtomicU64> = (0..4000).map(|_| AtomicU64::default()).collect();
        let slabs = Slabs { words: &words, threads: 4, blocks: 1, dependent: true, move_every: None };
        (0..4).for_each(|thread| slabs.fill(thread));
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
        let slabs = Slabs { words: &words, threads: 2, blocks: 2, dependent: false, move_every: Some(5) };
        let blocks = |round| {
            let of = |thread| slabs.indices(thread, round).map(|index| index / 1000).collect::<BTreeSet<_>>();
            [of(0), of(1)].map(|blocks| blocks.into_iter().collect::<Vec<_>>())
        };
        assert_eq!((blocks(0), blocks(4)), ([vec![0, 2], vec![1, 3]], [vec![0, 2], vec![1, 3]]));
        assert_eq!((blocks(5), blocks(10)), ([vec![1, 3], vec![0, 2]], [vec![0, 2], vec![1, 3]]));
        (0..2).for_each(|thread| slabs.fill(thread));
        let filled =
            words.iter().zip(0..).all(|(word, index)| word.load(Relaxed) == mix(index, VALUES) || index == 4000);
        assert!(filled, "each word but the last is in a block");
    }
}
