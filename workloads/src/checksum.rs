//! Detects lost writes: threads add to random words of an array, and at the end the array's sum must equal the sum of
//! everything added. For tests that move pages during writes.

use crate::error::Error;
use crate::memory::filled;
use crate::team::Team;
use serde::Serialize;
use std::fmt;

/// Any number but 0; each thread adds its index.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The result: no write was lost.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// Writes of all threads in all rounds.
    writes: u64,
    /// The sum of all words, modulo 2^64.
    sum: u64,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} writes, none lost", self.writes)
    }
}

/// The part of the array that one thread writes to.
struct Part<'a> {
    words: &'a mut [u64],
    state: u64,
    added: &'a mut u64,
}

/// Each thread does `writes` random writes per round to its own part of an array.
pub fn run(team: &Team, size: usize, repeat: usize, writes: usize) -> Result<Kept, Error> {
    let mut array = team.touch(|| filled(size / size_of::<u64>(), |_| 0_u64))?;
    let mut added = vec![0_u64; team.threads];
    let share = array.len() / team.threads;
    let parts = array.chunks_exact_mut(share).zip(&mut added).enumerate();
    let parts = parts.map(|(thread, (words, added))| Part { words, state: SEED + thread as u64, added }).collect();
    team.rounds(parts, repeat, |part, _| write(part, writes))?;
    let sum = |words: &[u64]| words.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
    let (found, expected) = (sum(&array), sum(&added));
    if found != expected {
        return Err(Error::WritesLost { expected, found });
    }
    Ok(Kept { writes: (writes * repeat * team.threads) as u64, sum: found })
}

#[inline(never)]
fn write(part: &mut Part<'_>, writes: usize) {
    for _ in 0..writes {
        part.state ^= part.state << 13;
        part.state ^= part.state >> 7;
        part.state ^= part.state << 17;
        let place = (part.state % part.words.len() as u64) as usize;
        part.words[place] = part.words[place].wrapping_add(part.state);
        *part.added = part.added.wrapping_add(part.state);
    }
}
