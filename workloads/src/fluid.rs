//! Particles in cells, which those of neighbouring cells push: PARSEC's fluidanimate. Threads fill their own planes of
//! cells, and read those of their neighbours where planes meet.
//!
//! All arithmetic is of whole numbers, so that a result does not depend on the order of additions.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::passes::Passes;
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Particles of a cell.
const PARTICLES: usize = 4;
/// Words of a particle: its place in the cell, and the density around it. A cell is a cache line.
const WORDS: usize = 4;
const CELL: usize = PARTICLES * WORDS;
/// Length of a cell's edge.
const EDGE: i64 = 1 << 10;
/// Particles this far apart do not push each other, squared.
const REACH: i64 = EDGE * EDGE;

/// A box of cells, plane by plane.
#[derive(Clone, Copy)]
struct Cells<'a> {
    side: usize,
    words: &'a [AtomicU32],
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Steps {
    /// Time of the steps, without filling the cells.
    #[serde(flatten)]
    span: Span,
    particles: usize,
    /// Sixteen hexadecimal digits, which depend only on size and repeats.
    checksum: String,
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} particles, checksum {}", self.span.seconds, self.particles, self.checksum)
    }
}

/// Steps `repeat` times through a box of this number of bytes.
pub fn run(team: &Team, bytes: usize, repeat: usize, passes: Passes) -> Result<Steps, Error> {
    let cell_bytes = CELL * size_of::<u32>();
    error::check_count(bytes, cell_bytes)?;
    let side = side(bytes / cell_bytes);
    let words = untouched::<AtomicU32>(side.pow(3) * CELL)?;
    let cells = Cells { side, words };
    let threads: Vec<usize> = (0..team.threads).collect();
    let rounds = team.parallel_rounds(threads, 1 + 2 * repeat, |thread, round| {
        let planes = share(side, team.threads, *thread);
        if *thread == 0 && round % 2 == 1 {
            passes.next();
        }
        match round {
            0 => cells.fill(planes),
            round if round % 2 == 1 => cells.weigh(planes),
            _ => cells.push(planes),
        }
    })?;
    passes.end()?;
    let checksum = cells.checksum();
    let expected = checked(side, repeat);
    if checksum != expected {
        return Err(Error::Wrong { what: "the checksum of all particles", expected, found: checksum });
    }
    Ok(Steps { span: Span::from_rounds(&rounds[1..]), particles: side.pow(3) * PARTICLES, checksum })
}

/// Cells along an edge of the largest box of at most this number of cells.
fn side(cells: usize) -> usize {
    let side = (cells as f64).cbrt() as usize;
    if (side + 1).pow(3) <= cells { side + 1 } else { side }
}

/// The checksum by one thread, which meets each pair of particles once and adds to the densities of both.
fn checked(side: usize, repeat: usize) -> String {
    let words: Vec<AtomicU32> = (0..side.pow(3) * CELL).map(|_| AtomicU32::default()).collect();
    let cells = Cells { side, words: &words };
    cells.fill(0..side);
    for _ in 0..repeat {
        for word in words.iter().skip(WORDS - 1).step_by(WORDS) {
            word.store(0, Relaxed);
        }
        for one in 0..side.pow(3) {
            for other in cells.around(one).chain([one]).filter(|other| *other <= one) {
                for a in 0..PARTICLES {
                    for b in 0..PARTICLES {
                        if one == other && b >= a {
                            continue;
                        }
                        let weight = cells.weight((one, a), (other, b));
                        for (cell, particle) in [(one, a), (other, b)] {
                            let density = cells.word(cell, particle, WORDS - 1);
                            density.store(density.load(Relaxed).wrapping_add(weight), Relaxed);
                        }
                    }
                }
            }
        }
        cells.push(0..side);
    }
    cells.checksum()
}

impl Cells<'_> {
    fn word(&self, cell: usize, particle: usize, word: usize) -> &AtomicU32 {
        &self.words[cell * CELL + particle * WORDS + word]
    }

    fn of(&self, planes: Range<usize>) -> Range<usize> {
        planes.start * self.side.pow(2)..planes.end * self.side.pow(2)
    }

    /// The cells that share a face with one.
    fn around(&self, cell: usize) -> impl Iterator<Item = usize> {
        let (side, steps) = (self.side, [1, self.side, self.side * self.side]);
        steps.into_iter().flat_map(move |step| {
            let along = cell / step % side;
            let before = (along > 0).then(|| cell - step);
            let after = (along + 1 < side).then(|| cell + step);
            before.into_iter().chain(after)
        })
    }

    #[inline(never)]
    fn fill(&self, planes: Range<usize>) {
        for cell in self.of(planes) {
            for particle in 0..PARTICLES {
                for axis in 0..3 {
                    let place = mix((cell * CELL + particle * WORDS + axis) as u64 + 1, 4) >> 54;
                    self.word(cell, particle, axis).store(place as u32, Relaxed);
                }
            }
        }
    }

    /// Sums what all particles around each weigh.
    #[inline(never)]
    fn weigh(&self, planes: Range<usize>) {
        for cell in self.of(planes) {
            for particle in 0..PARTICLES {
                let mut density = 0_u32;
                for other in self.around(cell).chain([cell]) {
                    for there in (0..PARTICLES).filter(|there| other != cell || *there != particle) {
                        density = density.wrapping_add(self.weight((cell, particle), (other, there)));
                    }
                }
                self.word(cell, particle, WORDS - 1).store(density, Relaxed);
            }
        }
    }

    /// The more the nearer two particles are.
    fn weight(&self, (cell, particle): (usize, usize), (other, there): (usize, usize)) -> u32 {
        let mut square = 0;
        for axis in 0..3 {
            let step = self.side.pow(axis as u32);
            let at = |cell: usize, particle| {
                i64::from((cell / step % self.side) as u32) * EDGE
                    + i64::from(self.word(cell, particle, axis).load(Relaxed))
            };
            square += (at(cell, particle) - at(other, there)).pow(2);
        }
        ((REACH - square).max(0) >> 8) as u32
    }

    /// Moves each particle within its cell, the farther the denser it is around it.
    #[inline(never)]
    fn push(&self, planes: Range<usize>) {
        for cell in self.of(planes) {
            for particle in 0..PARTICLES {
                let density = self.word(cell, particle, WORDS - 1).load(Relaxed);
                for axis in 0..3 {
                    let place = self.word(cell, particle, axis);
                    let step = 1 + (density >> (4 * axis)) % 64;
                    place.store((place.load(Relaxed) + step) % EDGE as u32, Relaxed);
                }
            }
        }
    }

    fn checksum(&self) -> String {
        let hash = |hash: u64, word: &AtomicU32| (hash ^ u64::from(word.load(Relaxed))).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", self.words.iter().fold(0xcbf2_9ce4_8422_2325, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_neighbour_is_found() {
        assert_eq!([7, 8, 26, 27, 63, 64, 1000].map(side), [1, 2, 2, 3, 3, 4, 10]);
        let words: Vec<AtomicU32> = (0..8 * 8 * 8 * CELL).map(|_| AtomicU32::default()).collect();
        let cells = Cells { side: 8, words: &words };
        cells.fill(0..8);
        for planes in [0..3, 3..8] {
            cells.weigh(planes);
        }
        cells.push(0..8);
        assert_eq!(cells.checksum(), checked(8, 1));
        let first = cells.word(0, 0, 0).load(Relaxed);
        cells.word(0, 0, 0).store((first + 1) % 1024, Relaxed);
        assert_ne!(cells.checksum(), checked(8, 1));
    }

    #[test]
    fn cells_have_neighbours_within_the_box() {
        let cells = Cells { side: 3, words: &[] };
        assert_eq!(cells.around(0).collect::<Vec<_>>(), [1, 3, 9]);
        assert_eq!(cells.around(13).collect::<Vec<_>>(), [12, 14, 10, 16, 4, 22]);
    }
}
