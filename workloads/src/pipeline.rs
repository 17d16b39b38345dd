//! Producers and consumers on different nodes: each producer fills pictures that one consumer processes.
//!
//! A ring of buffers is allocated by the thread that starts the pipeline, as in media and packet pipelines
//! (`GStreamer`'s buffer pools), but first written by the producer: so it is on the producer's node, and the consumer
//! reads it from there. Buffers are handed over, not copied; a producer waits if none is free, a consumer if none is
//! full.
//!
//! The first half of the threads produces and the second half consumes: with `--pin 0-7` thread 0 fills for thread 4.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{shares, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Buffers of a ring.
const BUFFERS: usize = 4;

/// A buffer that circulates.
type Buffer<'a> = &'a mut [u64];

/// State of one thread.
struct Stage<'a> {
    pair: usize,
    takes: Receiver<Buffer<'a>>,
    gives: Sender<Buffer<'a>>,
    /// Of all pictures so far: their number, and for consumers their sum.
    pictures: u64,
    sum: u64,
}

/// Duration and result of the pipeline.
#[derive(Debug, Serialize)]
pub struct Transfer {
    /// Number of producers, which equals that of consumers.
    pairs: usize,
    /// Pictures of all pairs.
    pictures: usize,
    picture_bytes: usize,
    /// Time of the rounds, without the first turn of each ring.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all pictures, which depend only on size, threads and repeats.
    checksum: String,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, pictures, span: Span { seconds, .. }, checksum, .. } = self;
        write!(f, "{seconds:.4} s for {pictures} pictures through {pairs} pipelines, checksum {checksum}")
    }
}

/// Sends pictures through rings of `size` bytes in total, each of which goes round `repeat` times.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Transfer, Error> {
    let pairs = team.threads / 2;
    if pairs == 0 {
        return Err(Error::TooFewThreads { threads: team.threads, least: 2 });
    }
    let words = size / size_of::<u64>() / pairs / BUFFERS;
    let memory = untouched(pairs * BUFFERS * words)?;
    let (mut producers, mut consumers) = (Vec::new(), Vec::new());
    for (pair, ring) in shares(memory, pairs).enumerate() {
        let (gives_full, takes_full) = channel();
        let (gives_free, takes_free) = channel();
        for buffer in ring.chunks_exact_mut(words) {
            // The receiver is in this scope: it is still open.
            _ = gives_free.send(buffer);
        }
        producers.push(Stage { pair, takes: takes_free, gives: gives_full, pictures: 0, sum: 0 });
        consumers.push(Stage { pair, takes: takes_full, gives: gives_free, pictures: 0, sum: 0 });
    }
    let mut stages: Vec<Stage> = producers.into_iter().chain(consumers).collect();
    let numbered = stages.iter_mut().enumerate().collect();
    // In the first round each producer touches its ring.
    let rounds = team.rounds(
        numbered,
        1 + repeat,
        |(thread, stage), _| {
            if *thread < pairs { stage.produce() } else { stage.consume() }
        },
    )?;
    let sums: Vec<u64> = stages[pairs..].iter().map(|stage| stage.sum).collect();
    let pictures = ((1 + repeat) * BUFFERS) as u64;
    let sum = check(pictures, words, &sums)?;
    let span = Span::from_rounds(&rounds[1..]);
    let (pictures, picture_bytes) = (pairs * BUFFERS * repeat, words * size_of::<u64>());
    Ok(Transfer { pairs, pictures, picture_bytes, span, checksum: format!("{sum:016x}") })
}

/// A word of a picture.
#[inline]
fn word(pair: usize, picture: u64, place: u64) -> u64 {
    mix((pair as u64) << 48 ^ picture << 32 ^ place, 1)
}

/// A consumer's result for a picture: its words weighted by their positions.
#[inline]
fn weighted(sum: u64, word: u64) -> u64 {
    sum.wrapping_mul(5).wrapping_add(word)
}

/// The sequential check: each consumer saw all words of its pictures, in order. Returns a sum.
fn check(pictures: u64, words: usize, sums: &[u64]) -> Result<u64, Error> {
    for (pair, found) in sums.iter().enumerate() {
        let places = (0..pictures).flat_map(|picture| (0..words as u64).map(move |place| (picture, place)));
        let expected = places.fold(0, |sum, (picture, place)| weighted(sum, word(pair, picture, place)));
        error::check("the sum of a pipeline's pictures", expected, *found)?;
    }
    Ok(sums.iter().fold(0, |sum, own| mix(sum ^ own, 1)))
}

impl Stage<'_> {
    /// Fills as many pictures as there are buffers. Not inlined, so that profilers can distinguish it.
    #[inline(never)]
    fn produce(&mut self) {
        for buffer in self.takes.iter().take(BUFFERS) {
            for (place, own) in (0..).zip(buffer.iter_mut()) {
                *own = word(self.pair, self.pictures, place);
            }
            self.pictures += 1;
            // A consumer that has ended needs no more pictures.
            _ = self.gives.send(buffer);
        }
    }

    /// Processes the pictures; not inlined either.
    #[inline(never)]
    fn consume(&mut self) {
        for buffer in self.takes.iter().take(BUFFERS) {
            self.sum = buffer.iter().fold(self.sum, |sum, word| weighted(sum, *word));
            self.pictures += 1;
            _ = self.gives.send(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of some pipelines whose pictures have ten words.
    fn sums(pairs: usize, pictures: u64) -> Vec<u64> {
        let sum = |pair| {
            let words = (0..pictures).flat_map(|picture| (0..10).map(move |place| word(pair, picture, place)));
            words.fold(0, weighted)
        };
        (0..pairs).map(sum).collect()
    }

    #[test]
    fn the_check_wants_every_word_in_its_place() {
        let mut found = sums(3, 4);
        check(4, 10, &found).unwrap();
        assert!(check(3, 10, &found).is_err() && check(4, 9, &found).is_err());
        found[2] ^= 1 << 63;
        assert!(matches!(check(4, 10, &found), Err(Error::Wrong { .. })));
        found.swap(0, 1);
        assert!(check(4, 10, &found).is_err());
        assert_ne!(weighted(weighted(0, 1), 2), weighted(weighted(0, 2), 1));
    }

    #[test]
    fn buffers_go_round() {
        let mut memory = vec![0; BUFFERS * 10];
        let (gives_full, takes_full) = channel();
        let (gives_free, takes_free) = channel();
        memory.chunks_exact_mut(10).for_each(|buffer| gives_free.send(buffer).unwrap());
        let mut producer = Stage { pair: 1, takes: takes_free, gives: gives_full, pictures: 0, sum: 0 };
        let mut consumer = Stage { pair: 1, takes: takes_full, gives: gives_free, pictures: 0, sum: 0 };
        for _ in 0..3 {
            producer.produce();
            consumer.consume();
        }
        assert_eq!((producer.pictures, consumer.pictures, consumer.sum), (12, 12, sums(2, 12)[1]));
    }
}
