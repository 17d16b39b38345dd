//! One hot object that is only read: every thread reads all of it.

use crate::error::{Error, check};
use crate::memory::{filled, share};
use crate::stream::{Line, sum};
use crate::team::{Round, Team};
use linux::FileWords;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::Path;

/// Read bandwidth of all threads together.
#[derive(Debug, Serialize)]
pub struct Throughput {
    /// GB/s (10^9 bytes per second), in the fastest round.
    best_gb_per_s: f64,
    /// GB/s, all bytes over all time.
    mean_gb_per_s: f64,
    /// Duration of all rounds, s.
    seconds: f64,
}

impl Throughput {
    /// From rounds in each of which all threads together read `bytes`.
    fn from_rounds(rounds: &[Round], bytes: usize) -> Self {
        let gigabytes = bytes as f64 / 1e9;
        let seconds: f64 = rounds.iter().map(Round::seconds).sum();
        let best = rounds.iter().map(Round::seconds).fold(f64::INFINITY, f64::min);
        let all = gigabytes * rounds.len() as f64;
        Self { best_gb_per_s: gigabytes / best, mean_gb_per_s: all / seconds, seconds }
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} GB/s (best round {:.3} GB/s), {:.4} s", self.mean_gb_per_s, self.best_gb_per_s, self.seconds)
    }
}

/// Measures the team's read bandwidth on an array of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Throughput, Error> {
    let array = team.touch(|| filled(size / size_of::<Line>(), |_| Line([1.0; 8])))?;
    // Each thread starts at another position: in step, threads that share a cache would fetch for each other.
    let starts = (0..team.threads).map(|thread| share(array.len(), team.threads, thread).start).collect();
    let rounds = team.rounds(starts, repeat, |start, _| {
        let (after, before) = (sum(&array[*start..]), sum(&array[..*start]));
        black_box((after, before));
    })?;
    Ok(Throughput::from_rounds(&rounds, team.threads * size_of_val(&*array)))
}

/// Measures the team's read bandwidth on the first `size` bytes of a file, which other processes may read as well.
pub fn of_file(team: &Team, path: &Path, size: usize, repeat: usize) -> Result<Throughput, Error> {
    let file = File::open(path).map_err(Error::System)?;
    if file.metadata().map_err(Error::System)?.len() < size as u64 {
        return Err(Error::System(io::Error::new(io::ErrorKind::UnexpectedEof, "--file is shorter than --size")));
    }
    let words = FileWords::map(&file, size).map_err(Error::System)?;
    let rounds = team.rounds(vec![(); team.threads], repeat, |(), _| {
        black_box(words.sum_of(0, size_of::<Line>() / size_of::<u64>()));
    })?;
    check("the sum of the file's words", sum_of_file(file, size).map_err(Error::System)?, words.sum())?;
    Ok(Throughput::from_rounds(&rounds, team.threads * size))
}

fn sum_of_file(mut file: File, size: usize) -> io::Result<u64> {
    let mut part = vec![0; 1 << 20];
    let mut sum = 0_u64;
    let mut left = size / size_of::<u64>() * size_of::<u64>();
    while left > 0 {
        let part = &mut part[..left.min(1 << 20)];
        file.read_exact(part)?;
        left -= part.len();
        let (words, _) = part.as_chunks();
        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    }
    Ok(sum)
}
