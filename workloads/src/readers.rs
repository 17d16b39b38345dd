//! One hot object that is only read: the whole of it, by every thread.

use crate::error::Error;
use crate::memory::{filled, share};
use crate::stream::{Line, sum};
use crate::team::{Round, Team};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;

/// How fast all threads together read.
#[derive(Debug, Serialize)]
pub struct Throughput {
    /// Units of 1,000,000,000 bytes a second, in the fastest round.
    best_gb_per_s: f64,
    /// All bytes over all time.
    mean_gb_per_s: f64,
    /// What all rounds took.
    seconds: f64,
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} GB/s (best round {:.3} GB/s), {:.4} s", self.mean_gb_per_s, self.best_gb_per_s, self.seconds)
    }
}

/// Measures how fast the team reads an array of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Throughput, Error> {
    let array = team.touch(|| filled(size / size_of::<Line>(), |_| Line([1.0; 8])))?;
    // Each thread starts elsewhere: in step, threads that share a cache would fetch for each other.
    let starts = (0..team.threads).map(|thread| share(array.len(), team.threads, thread).start).collect();
    let rounds = team.rounds(starts, repeat, |start, _| {
        let (after, before) = (sum(&array[*start..]), sum(&array[..*start]));
        black_box((after, before));
    })?;
    let gigabytes = (team.threads * size_of_val(&*array)) as f64 / 1e9;
    let seconds: f64 = rounds.iter().map(Round::seconds).sum();
    let best = rounds.iter().map(Round::seconds).fold(f64::INFINITY, f64::min);
    Ok(Throughput { best_gb_per_s: gigabytes / best, mean_gb_per_s: gigabytes * repeat as f64 / seconds, seconds })
}
