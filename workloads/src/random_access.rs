//! Independent random accesses: the cost of remote memory for a core that has several of them in flight (Kiefer,
//! Schlegel, Lehner: Experimental evaluation of NUMA effects on database management systems, 2013).

use crate::error::Error;
use crate::memory::filled;
use crate::options::Access;
use crate::team::{Round, Team};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;

/// Any number but 0; each thread adds its index.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;
/// Default bytes of the array for each access of a round.
const BYTES_AN_ACCESS: usize = 64;

/// Duration of an access, over all threads and accesses of a round.
#[derive(Debug, Serialize)]
pub struct Pace {
    /// Accesses of one thread in one round.
    accesses: usize,
    /// Nanoseconds per access, in the fastest round.
    best_ns: f64,
    /// Nanoseconds per access, mean of all rounds.
    mean_ns: f64,
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ns an access (best round {:.2} ns)", self.mean_ns, self.best_ns)
    }
}

/// Reads or writes random words of an array of `size` bytes, rounded down to a power of two, so that a mask keeps
/// accesses inside it.
pub fn run(team: &Team, size: usize, repeat: usize, access: Access, accesses: Option<usize>) -> Result<Pace, Error> {
    let words = 1 << (size / size_of::<u64>()).ilog2();
    let mut array = team.touch(|| filled(words, |word| word as u64))?;
    let accesses = accesses.unwrap_or(words * size_of::<u64>() / BYTES_AN_ACCESS);
    let seeds = (0..team.threads as u64).map(|thread| SEED + thread);
    let rounds = match access {
        Access::Read => team.rounds(seeds.collect(), repeat, |state, _| read(&array, state, accesses)),
        Access::Write => {
            // Threads write to disjoint parts, as Rust requires.
            let share = words / team.threads.next_power_of_two();
            let parts = array.chunks_exact_mut(share).zip(seeds).collect();
            team.rounds(parts, repeat, |(part, state), _| write(part, state, accesses))
        }
    }?;
    let ns = |round: &Round| round.busy.as_secs_f64() * 1e9 / (accesses * team.threads) as f64;
    let best_ns = rounds.iter().map(ns).fold(f64::INFINITY, f64::min);
    let mean_ns = rounds.iter().map(ns).sum::<f64>() / rounds.len() as f64;
    Ok(Pace { accesses, best_ns, mean_ns })
}

#[inline(never)]
fn read(words: &[u64], state: &mut u64, accesses: usize) {
    let mut sum = 0_u64;
    for _ in 0..accesses {
        sum = sum.wrapping_add(words[next(state) as usize & (words.len() - 1)]);
    }
    black_box(sum);
}

#[inline(never)]
fn write(words: &mut [u64], state: &mut u64, accesses: usize) {
    let mask = words.len() - 1;
    for _ in 0..accesses {
        let random = next(state);
        words[random as usize & mask] = random;
    }
    black_box(words);
}

/// Marsaglia's xorshift: only shifts, as cheap as a generator can be.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // Vigna, An experimental exploration of Marsaglia's xorshift generators, 2016, lists 13, 7, 17 as a full-period
        // triple; from 1 its first number is 1 ^ 1 << 13, after the other shifts.
        let mut state = 1;
        assert_eq!([next(&mut state), next(&mut state)], [1_082_269_761, 1_152_992_998_833_853_505]);
    }

    #[test]
    fn writes_reach_every_part_of_the_array() {
        let mut words = vec![0; 1024];
        write(&mut words, &mut SEED.clone(), 16 * 1024);
        assert_eq!(words.iter().filter(|word| **word == 0).count(), 0);
    }
}
