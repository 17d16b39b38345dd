//! A hot node that moves: the integer ranking of NAS's IS.
//!
//! In NAS's IS, each thread makes its keys and clears its part of the buffer (`create_seq` and `alloc_key_buff` of the
//! OpenMP version run in parallel), so each touches its part first here too. In each iteration threads count their keys
//! by bucket, copy them into the buffer in the order of buckets, and then all go through the buckets from the first to
//! the last: all read one node's memory, then all the next one's. In IS.D that lasts less than a second for each node,
//! which the Carrefour study finds too short for decisions once per second: pages move when the burst is over.
//!
//! Here the hot part of the buffer, one for each node, changes after each `--period`, or when no work is left in it;
//! with `--sweeps` each bucket is processed several times, for more work.

use crate::arithmetic::mix;
use crate::cure::nodes;
use crate::error::{self, Error};
use crate::memory::{share, shares, untouched};
use crate::team::{Span, Team};
use machine::Random;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// As in NAS's IS.
const BUCKETS: usize = 1024;
/// Keys are sums of four 16-bit numbers: as in NAS's IS, those in the middle are much more frequent.
const KEYS: usize = 4 << 16;
const KEYS_OF_BUCKET: usize = KEYS / BUCKETS;

/// Rounds of an iteration: count, copy, rank.
const ROUNDS: usize = 3;

/// One thread's keys.
struct Part<'a> {
    thread: usize,
    first: usize,
    keys: &'a mut [u32],
    /// Where each bucket starts in the buffer, and at the end where all end.
    bases: Vec<usize>,
    /// Position of this thread's next key of each bucket.
    places: Vec<usize>,
}

/// Data shared by all threads.
struct Shared<'a> {
    /// The keys, sorted by bucket.
    buffer: &'a [AtomicU32],
    /// Number of keys of each thread in each bucket.
    counts: Vec<Vec<AtomicU32>>,
    /// Number of keys below each.
    ranks: &'a [AtomicU32],
    /// Number of buckets taken of each part, in each iteration.
    taken: Vec<Vec<AtomicUsize>>,
    sweeps: usize,
    period: Duration,
    start: Instant,
}

/// Duration and result of the ranking.
#[derive(Debug, Serialize)]
pub struct Ranking {
    keys: usize,
    period_s: f64,
    sweeps: usize,
    /// Number of parts of the buffer, each of which is hot in turn.
    parts: usize,
    /// Time of the rounds, without making the keys.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all ranks, which depend only on size.
    checksum: String,
}

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} keys, checksum {}", self.span.seconds, self.keys, self.checksum)
    }
}

/// Ranks `size` bytes of keys `repeat` times.
pub fn run(team: &Team, size: usize, repeat: usize, period: Duration, sweeps: usize) -> Result<Ranking, Error> {
    error::check_count(size, size_of::<u32>())?;
    let count = size / size_of::<u32>();
    let parts = nodes(team.cpus())?.len().max(1);
    let shared = Shared {
        buffer: untouched(count)?,
        counts: (0..team.threads).map(|_| (0..BUCKETS).map(|_| AtomicU32::new(0)).collect()).collect(),
        ranks: untouched(KEYS)?,
        taken: (0..repeat).map(|_| (0..parts).map(|_| AtomicUsize::new(0)).collect()).collect(),
        sweeps,
        period,
        start: Instant::now(),
    };
    let keys = untouched(count)?;
    let part = |(thread, keys)| Part {
        thread,
        first: share(count, team.threads, thread).start,
        keys,
        bases: Vec::new(),
        places: Vec::new(),
    };
    let parts_of_threads = shares(keys, team.threads).enumerate().map(part).collect();
    let rounds =
        team.parallel_rounds(parts_of_threads, 1 + repeat * ROUNDS, |part, round| match round.checked_sub(1) {
            None => part.make(&shared),
            Some(round) => match round % ROUNDS {
                0 => part.count(&shared),
                1 => part.copy(&shared),
                _ => part.rank(&shared, round / ROUNDS),
            },
        })?;
    let ranks: Vec<u32> = shared.ranks.iter().map(|rank| rank.load(Relaxed)).collect();
    check(count, &ranks)?;
    let sum =
        ranks.iter().zip(0..).fold(0_u64, |sum, (rank, key)| sum.wrapping_add(mix(u64::from(*rank) ^ key << 32, 2)));
    let (period_s, span) = (period.as_secs_f64(), Span::from_rounds(&rounds[1..]));
    Ok(Ranking { keys: count, period_s, sweeps, parts, span, checksum: format!("{sum:016x}") })
}

/// The key at a position: the same no matter which thread makes it.
fn key(place: usize) -> u32 {
    let bits = Random(place as u64).bits();
    (0..4).map(|number| (bits >> (16 * number)) as u32 & 0xffff).sum()
}

/// The sequential check: the increments of the ranks match the number of keys of each kind. Every key is counted in one
/// sum, weighted by its kind, and every increment of the ranks in another. Keys are made anew, to find lost ones too.
fn check(count: usize, ranks: &[u32]) -> Result<(), Error> {
    let weight = |key: u64| mix(key + 1, 2);
    let expected = (0..count).fold(0_u64, |sum, place| sum.wrapping_add(weight(u64::from(key(place)))));
    let ends = ranks.iter().skip(1).map(|rank| u64::from(*rank)).chain([count as u64]);
    let steps = ranks.iter().zip(ends).map(|(rank, end)| end.wrapping_sub(u64::from(*rank)));
    let found = steps.zip(0..).fold(0_u64, |sum, (step, key)| sum.wrapping_add(step.wrapping_mul(weight(key))));
    error::check("the sum of all keys by their ranks", expected, found)
}

impl Part<'_> {
    /// Not inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn make(&mut self, shared: &Shared) {
        for (place, own) in (self.first..).zip(&mut *self.keys) {
            *own = key(place);
        }
        shared.buffer[self.first..][..self.keys.len()].iter().for_each(|place| place.store(0, Relaxed));
        let own_ranks = share(KEYS, shared.counts.len(), self.thread);
        shared.ranks[own_ranks].iter().for_each(|rank| rank.store(0, Relaxed));
        // The kernel's work for new memory must not be measured.
        (self.bases, self.places) = (vec![1; BUCKETS + 1], vec![1; BUCKETS]);
    }

    #[inline(never)]
    fn count(&self, shared: &Shared) {
        let mut counts = [0_u32; BUCKETS];
        for key in &*self.keys {
            counts[*key as usize / KEYS_OF_BUCKET] += 1;
        }
        for (shared, count) in shared.counts[self.thread].iter().zip(counts) {
            shared.store(count, Relaxed);
        }
    }

    /// Copies keys after those of preceding threads in the same bucket.
    #[inline(never)]
    fn copy(&mut self, shared: &Shared) {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            self.bases[bucket] = next;
            for (thread, counts) in shared.counts.iter().enumerate() {
                if thread == self.thread {
                    self.places[bucket] = next;
                }
                next += counts[bucket].load(Relaxed) as usize;
            }
        }
        self.bases[BUCKETS] = next;
        for key in &*self.keys {
            let place = &mut self.places[*key as usize / KEYS_OF_BUCKET];
            shared.buffer[*place].store(*key, Relaxed);
            *place += 1;
        }
    }

    /// Processes bucket after bucket of the hot part.
    #[inline(never)]
    fn rank(&self, shared: &Shared, iteration: usize) {
        let taken = &shared.taken[iteration];
        let parts: Vec<Range<usize>> = parts(&self.bases, taken.len());
        let tasks: Vec<usize> = parts.iter().map(|buckets| buckets.len() * shared.sweeps).collect();
        while let Some((part, task)) = take(taken, &tasks, hot(shared.start.elapsed(), shared.period, taken.len())) {
            let bucket = parts[part].start + task % parts[part].len();
            self.rank_bucket(shared, bucket);
        }
    }

    fn rank_bucket(&self, shared: &Shared, bucket: usize) {
        let keys = self.bases[bucket]..self.bases[bucket + 1];
        let (mut counts, mut rank) = ([0_u32; KEYS_OF_BUCKET], keys.start as u32);
        for key in &shared.buffer[keys] {
            counts[key.load(Relaxed) as usize % KEYS_OF_BUCKET] += 1;
        }
        for (place, count) in shared.ranks[bucket * KEYS_OF_BUCKET..].iter().zip(counts) {
            place.store(rank, Relaxed);
            rank += count;
        }
    }
}

/// The buckets of each part of the buffer: those that start in it.
fn parts(bases: &[usize], parts: usize) -> Vec<Range<usize>> {
    let (bases, keys) = (&bases[..BUCKETS], bases[BUCKETS]);
    let first = |part: usize| {
        if part == parts { BUCKETS } else { bases.partition_point(|base| *base < share(keys, parts, part).start) }
    };
    (0..parts).map(|part| first(part)..first(part + 1)).collect()
}

/// The part that is hot at a time.
fn hot(elapsed: Duration, period: Duration, parts: usize) -> usize {
    (elapsed.as_nanos() / period.as_nanos().max(1) % parts as u128) as usize
}

/// The next work in the hot part, or in the first part after it with work left.
fn take(taken: &[AtomicUsize], tasks: &[usize], hot: usize) -> Option<(usize, usize)> {
    let in_turn = (hot..tasks.len()).chain(0..hot);
    in_turn.map(|part| (part, taken[part].fetch_add(1, Relaxed))).find(|(part, task)| *task < tasks[*part])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks by counting one key after the other.
    fn ranks(keys: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut counts = vec![0; KEYS + 1];
        keys.for_each(|key| counts[key as usize + 1] += 1);
        (1..=KEYS).for_each(|key| counts[key] += counts[key - 1]);
        counts.truncate(KEYS);
        counts
    }

    #[test]
    fn the_check_accepts_the_right_ranks_only() {
        let right = ranks((0..10_000).map(key));
        check(10_000, &right).unwrap();
        let middle = key(0) as usize;
        for change in [1, u32::MAX] {
            let mut wrong = right.clone();
            wrong[middle] = wrong[middle].wrapping_add(change);
            assert!(matches!(check(10_000, &wrong), Err(Error::Wrong { .. })));
        }
        // One key lost, or one replaced by its neighbour.
        assert!(check(10_000, &ranks((1..10_000).map(key))).is_err());
        let other = |place| if place == 0 { key(0) ^ 1 } else { key(place) };
        assert!(check(10_000, &ranks((0..10_000).map(other))).is_err());
    }

    #[test]
    fn keys_in_the_middle_are_frequent() {
        let keys: Vec<u32> = (0..10_000).map(key).collect();
        assert!(keys.iter().all(|key| (*key as usize) < KEYS));
        let middle = keys.iter().filter(|key| (KEYS / 4..KEYS * 3 / 4).contains(&(**key as usize))).count();
        assert!(middle > 9_000, "{middle}");
    }

    #[test]
    fn the_parts_have_every_bucket_once_and_as_many_keys() {
        let bases: Vec<usize> = (0..=BUCKETS).map(|bucket| bucket * bucket).collect();
        let parts = parts(&bases, 4);
        assert_eq!(parts.iter().map(|part| part.start).collect::<Vec<_>>(), [0, 512, 725, 887]);
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start) && parts[3].end == BUCKETS);
    }

    #[test]
    fn the_hot_part_is_another_after_each_period_or_when_nothing_is_left() {
        let at = |ms| hot(Duration::from_millis(ms), Duration::from_millis(10), 4);
        assert_eq!([0, 9, 10, 25, 39, 40].map(at), [0, 0, 1, 2, 3, 0]);
        assert_eq!(hot(Duration::from_secs(1), Duration::ZERO, 3), 1_000_000_000 % 3);
        let taken = [0, 0, 0].map(AtomicUsize::new);
        let order: Vec<_> = std::iter::from_fn(|| take(&taken, &[2, 1, 2], 1)).collect();
        assert_eq!(order, [(1, 0), (2, 0), (2, 1), (0, 0), (0, 1)]);
    }
}
