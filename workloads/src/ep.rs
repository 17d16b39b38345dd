//! Pairs of normally distributed numbers: NAS's EP. Nothing is shared, and each thread's memory is its own: no placement
//! has an effect, so a difference between placements is noise.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, shares, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

/// Squares that NAS's EP counts: `l` to `l + 1` from the origin.
const SQUARES: usize = 10;
/// Steps of [`mix`] for a random number.
const NUMBERS: usize = 5;

/// One thread's numbers and its results.
struct Part<'a> {
    thread: usize,
    first: usize,
    numbers: &'a mut [f64],
    counts: [u64; SQUARES],
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Pairs {
    /// Time of all rounds.
    #[serde(flatten)]
    span: Span,
    /// Pairs within the unit circle.
    inside: u64,
    /// Pairs by the square that they are in.
    counts: [u64; SQUARES],
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} pairs", self.span.seconds, self.inside)
    }
}

/// Makes `size` bytes of random numbers, `repeat` times, and counts the pairs that they give.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Pairs, Error> {
    error::check_count(size, 2 * size_of::<f64>() * team.threads)?;
    let all = size / size_of::<f64>();
    let (threads, found) = (team.threads, Mutex::new(vec![[0; SQUARES]; team.threads]));
    let part =
        |(thread, numbers)| Part { thread, first: share(all, threads, thread).start, numbers, counts: [0; SQUARES] };
    let parts = shares(untouched::<f64>(all)?, threads).enumerate().map(part).collect();
    let rounds = team.parallel_rounds(parts, repeat, |part, round| {
        part.fill(round * all);
        part.count();
        if let Some(counts) = found.lock().ok().as_mut().and_then(|found| found.get_mut(part.thread)) {
            *counts = part.counts;
        }
    })?;
    let found = found.into_inner().unwrap_or_default();
    for (thread, found) in found.iter().enumerate() {
        check(share(all, threads, thread), all, repeat, found)?;
    }
    let sum = |square: usize| found.iter().map(|counts| counts[square]).sum::<u64>();
    let counts = std::array::from_fn(sum);
    Ok(Pairs { span: Span::from_rounds(&rounds), inside: counts.iter().sum(), counts })
}

/// The sequential check: the same counts, without the array.
fn check(part: Range<usize>, all: usize, repeat: usize, found: &[u64; SQUARES]) -> Result<(), Error> {
    let mut expected = [0; SQUARES];
    for round in 0..repeat {
        for pair in 0..part.len() / 2 {
            let at = round * all + part.start + 2 * pair;
            count(number(at), number(at + 1), &mut expected);
        }
    }
    if expected == *found {
        return Ok(());
    }
    Err(Error::Wrong { what: "the counts of a thread", expected: format!("{expected:?}"), found: format!("{found:?}") })
}

/// From -1 to 1.
fn number(index: usize) -> f64 {
    (mix(index as u64, NUMBERS) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Counts a pair, by Marsaglia's polar method.
fn count(x: f64, y: f64, counts: &mut [u64; SQUARES]) {
    let square = x * x + y * y;
    if square > 0.0 && square <= 1.0 {
        let factor = (-2.0 * square.ln() / square).sqrt();
        let farthest = (x * factor).abs().max((y * factor).abs());
        counts[(farthest as usize).min(SQUARES - 1)] += 1;
    }
}

impl Part<'_> {
    #[inline(never)]
    fn fill(&mut self, from: usize) {
        (from + self.first..).zip(&mut *self.numbers).for_each(|(index, place)| *place = number(index));
    }

    #[inline(never)]
    fn count(&mut self) {
        self.numbers.chunks_exact(2).for_each(|pair| count(pair[0], pair[1], &mut self.counts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_normally_distributed_numbers() {
        let mut numbers = vec![0.0; 200_000];
        let mut part = Part { thread: 0, first: 10, numbers: &mut numbers, counts: [0; SQUARES] };
        part.fill(0);
        part.count();
        let pairs = part.counts.iter().sum::<u64>() as f64;
        assert!((pairs / 100_000.0 - std::f64::consts::FRAC_PI_4).abs() < 0.01, "{pairs}");
        // Both numbers are below 1 for a share of erf(1 / sqrt(2))^2 of all pairs.
        assert!((part.counts[0] as f64 / pairs - 0.466).abs() < 0.01, "{:?}", part.counts);
        check(10..200_010, 1 << 20, 1, &part.counts).unwrap();
        part.counts[1] += 1;
        assert!(check(10..200_010, 1 << 20, 1, &part.counts).is_err());
    }
}
