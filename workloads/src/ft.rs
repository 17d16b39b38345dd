//! All-to-all exchange that is best left alone: the three-dimensional transform of NAS's FT.
//!
//! In NAS's FT, each thread makes its planes of a cube of numbers (`compute_initial_conditions` and the loops of the
//! OpenMP version run in parallel over planes), so each touches its planes first here too. Transforms along the first
//! two dimensions stay within planes; those along the third are distributed across them, so that every thread reads and
//! writes the memory of all: nodes are balanced, two thirds of accesses are local, and no other placement is better.
//! Interleaving loses the two thirds.
//!
//! The transform is Walsh's instead of Fourier's: its memory accesses are the same, with the same blocks of lines
//! copied back and forth, but its steps are an addition and a subtraction, so that it is memory-bound, and integers are
//! exact.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::team::{Span, Team};
use machine::Random;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of lines transformed together, as in NAS's FT.
const BLOCK: usize = 32;
/// Factor of the transformed numbers in each iteration; odd, so that no information is lost.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Rounds of a transform, one for each dimension.
const ROUNDS: usize = 3;

/// The number of elements along each dimension; each a power of two.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cube([usize; 3]);

/// One thread's share of each dimension, and its buffer.
struct Part {
    planes: Range<usize>,
    rows: Range<usize>,
    block: Vec<u64>,
}

/// Duration and result of the transforms.
#[derive(Debug, Serialize)]
pub struct Transforms {
    elements: usize,
    /// Time of the rounds, without making the numbers.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from the last numbers, which depend only on size and repeats.
    checksum: String,
}

impl fmt::Display for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} elements, checksum {}", self.span.seconds, self.elements, self.checksum)
    }
}

/// Transforms `size` bytes, then changes them `repeat` times and transforms a copy back.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Transforms, Error> {
    let cube = Cube::new((size / size_of::<u64>()).ilog2());
    let spectrum: &[AtomicU64] = untouched(cube.elements())?;
    let back: &[AtomicU64] = untouched(cube.elements())?;
    let part = |thread| {
        let [planes, rows] = [2, 1].map(|dimension| share(cube.0[dimension], team.threads, thread));
        Part { planes, rows, block: Vec::new() }
    };
    let iteration = 1 + ROUNDS;
    let rounds =
        team.parallel_rounds((0..team.threads).map(part).collect(), 1 + ROUNDS + repeat * iteration, |part, round| {
            match (round, round.checked_sub(1 + ROUNDS)) {
                (0, _) => part.make(cube, spectrum, back),
                (_, None) => part.transform(cube, spectrum, round - 1),
                (_, Some(round)) if round % iteration == 0 => part.evolve(cube, spectrum, back),
                (_, Some(round)) => part.transform(cube, back, round % iteration - 1),
            }
        })?;
    let evolved = (0..repeat).fold(1_u64, |factor, _| factor.wrapping_mul(FACTOR));
    let sum = check(spectrum, back, evolved)?;
    Ok(Transforms { elements: cube.elements(), span: Span::from_rounds(&rounds[1..]), checksum: format!("{sum:016x}") })
}

/// The number at a position before all transforms.
fn initial(place: usize) -> u64 {
    Random(place as u64).bits()
}

/// The sequential check: one number of the spectrum by its definition, and every number that was transformed back,
/// which is the original times its factors and the number of elements. Returns a hash.
fn check(spectrum: &[AtomicU64], back: &[AtomicU64], evolved: u64) -> Result<u64, Error> {
    let frequency = Random(1).below(spectrum.len());
    let (mut defined, mut hash) = (0_u64, 0_u64);
    let scale = evolved.wrapping_mul(spectrum.len() as u64);
    for (place, back) in back.iter().enumerate() {
        let (number, back) = (initial(place), back.load(Relaxed));
        let negative = (place & frequency).count_ones() % 2 == 1;
        defined = if negative { defined.wrapping_sub(number) } else { defined.wrapping_add(number) };
        error::check("a number that was transformed and back", number.wrapping_mul(scale), back)?;
        hash = mix(hash ^ back, 1);
    }
    error::check("one number of the spectrum", defined.wrapping_mul(evolved), spectrum[frequency].load(Relaxed))?;
    Ok(hash)
}

impl Cube {
    /// A cube of two to the power of `bits` elements, with dimensions as equal as possible.
    fn new(bits: u32) -> Self {
        Self([bits.div_ceil(3), (bits + 1) / 3, bits / 3].map(|bits| 1 << bits))
    }

    fn elements(self) -> usize {
        self.0.iter().product()
    }

    /// Distance of elements along each dimension.
    fn strides(self) -> [usize; 3] {
        [1, self.0[0], self.0[0] * self.0[1]]
    }
}

impl Part {
    fn places(&self, cube: Cube) -> Range<usize> {
        let plane = cube.strides()[2];
        self.planes.start * plane..self.planes.end * plane
    }

    /// Not inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn make(&mut self, cube: Cube, numbers: &[AtomicU64], back: &[AtomicU64]) {
        for place in self.places(cube) {
            numbers[place].store(initial(place), Relaxed);
            back[place].store(0, Relaxed);
        }
        self.block = vec![0; BLOCK * cube.0.iter().max().unwrap_or(&0)];
    }

    /// Changes the spectrum, and copies it to where it is transformed back.
    #[inline(never)]
    fn evolve(&self, cube: Cube, spectrum: &[AtomicU64], back: &[AtomicU64]) {
        let places = self.places(cube);
        for (spectrum, back) in spectrum[places.clone()].iter().zip(&back[places]) {
            let number = spectrum.load(Relaxed).wrapping_mul(FACTOR);
            spectrum.store(number, Relaxed);
            back.store(number, Relaxed);
        }
    }

    /// Transforms this thread's lines along a dimension.
    #[inline(never)]
    fn transform(&mut self, cube: Cube, numbers: &[AtomicU64], dimension: usize) {
        let strides = cube.strides();
        // Lines are grouped in blocks of neighbours: rows of a plane, or elements of rows.
        let (neighbours, outer) = match dimension {
            0 => (1, 2),
            1 => (0, 2),
            _ => (0, 1),
        };
        let outer_places = if outer == 2 { self.planes.clone() } else { self.rows.clone() };
        let width = BLOCK.min(cube.0[neighbours]);
        for outer_place in outer_places {
            for first in (0..cube.0[neighbours]).step_by(width) {
                let lines = Lines {
                    start: outer_place * strides[outer] + first * strides[neighbours],
                    length: cube.0[dimension],
                    stride: strides[dimension],
                    width,
                    lane_stride: strides[neighbours],
                };
                let block = &mut self.block[..width * lines.length];
                lines.each(|place, own| block[own] = numbers[place].load(Relaxed));
                walsh(block, width);
                lines.each(|place, own| numbers[place].store(block[own], Relaxed));
            }
        }
    }
}

/// Lines of a cube that are transformed together.
struct Lines {
    start: usize,
    length: usize,
    stride: usize,
    width: usize,
    lane_stride: usize,
}

impl Lines {
    /// Every element's position in the cube and in a block, in the cube's order.
    #[inline]
    fn each(&self, mut element: impl FnMut(usize, usize)) {
        if self.lane_stride < self.stride {
            for step in 0..self.length {
                for lane in 0..self.width {
                    element(self.start + step * self.stride + lane * self.lane_stride, step * self.width + lane);
                }
            }
        } else {
            for lane in 0..self.width {
                for step in 0..self.length {
                    element(self.start + step * self.stride + lane * self.lane_stride, step * self.width + lane);
                }
            }
        }
    }
}

/// Walsh's transform of each of `width` columns.
fn walsh(block: &mut [u64], width: usize) {
    let mut half = width;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (low.wrapping_add(*high), low.wrapping_sub(*high));
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUBE: Cube = Cube([16, 8, 8]);

    fn numbers() -> Vec<AtomicU64> {
        (0..CUBE.elements()).map(|place| AtomicU64::new(initial(place))).collect()
    }

    fn transform(numbers: &[AtomicU64], threads: usize) {
        for dimension in 0..3 {
            for thread in 0..threads {
                let [planes, rows] = [2, 1].map(|dimension| share(CUBE.0[dimension], threads, thread));
                Part { planes, rows, block: vec![0; BLOCK * 16] }.transform(CUBE, numbers, dimension);
            }
        }
    }

    #[test]
    fn a_cube_is_as_even_as_can_be() {
        assert_eq!([9, 10, 11, 21].map(Cube::new), [[8; 3], [16, 8, 8], [16, 16, 8], [128; 3]].map(Cube));
    }

    #[test]
    fn two_numbers_become_their_sum_and_difference() {
        let mut block = [5, 100, 3, 1];
        walsh(&mut block, 2);
        assert_eq!(block, [8, 101, 2, 99]);
    }

    #[test]
    fn any_threads_transform_to_the_definition() {
        for threads in [1, 3, 20] {
            let spectrum = numbers();
            transform(&spectrum, threads);
            for (frequency, found) in spectrum.iter().enumerate() {
                let sign = |place: usize| if (place & frequency).count_ones() % 2 == 1 { u64::MAX } else { 1 };
                let terms = (0..CUBE.elements()).map(|place| initial(place).wrapping_mul(sign(place)));
                assert_eq!(found.load(Relaxed), terms.fold(0, u64::wrapping_add));
            }
        }
    }

    #[test]
    fn the_check_refuses_a_wrong_number() {
        let (spectrum, back) = (numbers(), numbers());
        transform(&spectrum, 2);
        transform(&back, 2);
        transform(&back, 2);
        check(&spectrum, &back, 1).unwrap();
        assert!(check(&spectrum, &back, 3).is_err());
        let frequency = Random(1).below(spectrum.len());
        for wrong in [&back[0], &back[1023], &spectrum[frequency]] {
            wrong.fetch_add(1 << 40, Relaxed);
            assert!(matches!(check(&spectrum, &back, 1), Err(Error::Wrong { .. })));
            wrong.fetch_sub(1 << 40, Relaxed);
        }
    }
}
