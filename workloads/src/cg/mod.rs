//! A sparse linear system, solved by conjugate gradients: NAS's CG.
//!
//! In NAS's CG, each thread makes its rows of the matrix and its parts of the vectors (`makea` and all loops of the
//! OpenMP version run in parallel over rows), and works on them alone, except for one vector, `p`, which all threads
//! read at the positions of their rows' columns: so each thread touches its parts first here too. The matrix is by far
//! the largest object, and local: a placement can only lose that. A vector, as in NAS's class C, is no larger than a
//! huge page, so that with huge pages it is on a single node, no matter which thread touches it: splitting them gains
//! something.
//!
//! Unlike NAS's, the matrix has equally many entries in each row, and the largest on its diagonal: it is symmetric and
//! positive definite without a search for the symmetric entry. With `--size`, the number of rows is a power of two, so
//! that the parts of threads begin at huge pages; with a class of NAS's, or `lab`, parts are as odd as there.
//!
//! With `--spacing`, every element of every array is that far from the next one, as in Gachod's test of whether cache lines
//! that threads share are what makes a pinning slow (5.3.1).

mod shape;

use shape::Shape;
pub use shape::{Class, Spacing};

use crate::arithmetic::mix;
use crate::error::Error;
use crate::memory::{share, untouched};
use crate::options::CgOptions;
use crate::team::{Span, Team};
use crossbeam_utils::CachePadded;
use machine::Random;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Steps of one solution, as in NAS's CG.
const STEPS: usize = 25;
/// Rounds of a step: the product; the next solution and residual; the next direction.
const ROUNDS: usize = 3;
/// Maximum relative difference of the residual and the value that the steps have computed: rounding is a thousand times
/// less.
const TOLERANCE: f64 = 1e-9;

/// Positions of the entries of a matrix.
struct Matrix {
    rows: usize,
    /// One for each off-diagonal entry of a row.
    pairings: Vec<Pairing>,
}

/// A random assignment of rows to each other, in pairs.
struct Pairing {
    /// Odd.
    factor: u64,
    inverse: u64,
    change: u64,
}

/// One thread's rows; elements are `S` apart.
struct Part<'a, const S: usize> {
    thread: usize,
    first_row: usize,
    columns: &'a mut [u32],
    values: &'a mut [f64],
    right: &'a mut [f64],
    solution: &'a mut [f64],
    residual: &'a mut [f64],
    product: &'a mut [f64],
    /// The square of the residual.
    square: f64,
}

/// Data that all threads read.
struct Shared<'a> {
    matrix: Matrix,
    /// The direction of the next step, bits of `f64`.
    direction: &'a [AtomicU64],
    /// Each thread's part of a sum over all rows: of the direction's product with itself over the matrix, of the square
    /// of the residual, of the square of the solution.
    sums: [Vec<CachePadded<AtomicU64>>; 3],
}

/// Duration and result of the solutions.
#[derive(Debug, Serialize)]
pub struct Solution {
    rows: usize,
    /// Time of the rounds, without making the matrix.
    #[serde(flatten)]
    span: Span,
    /// Time of the second half of the systems, after what changes memory while the first are solved.
    second_half: Span,
    /// The last residual, relative to the right-hand side.
    residual: f64,
    /// Sixteen hexadecimal digits computed from the last solution, which depend only on size, threads and repeats.
    checksum: String,
}

impl fmt::Display for Solution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, span: Span { seconds, .. }, residual, checksum, .. } = self;
        write!(f, "{seconds:.4} s for {rows} rows, residual {residual:.1e}, checksum {checksum}")
    }
}

/// Solves `repeat` systems with one matrix, each for the previous solution.
pub fn run(team: &Team, options: &CgOptions, size: usize, repeat: usize) -> Result<Solution, Error> {
    let shape = Shape::new(options, team.threads, size)?;
    // The distance of elements is known to the compiler, as in a program that was written for it.
    match shape.spacing {
        Spacing::None => solve::<1>(team, shape, repeat),
        Spacing::Line => solve::<8>(team, shape, repeat),
        Spacing::OneAndAHalf => solve::<12>(team, shape, repeat),
        Spacing::Two => solve::<16>(team, shape, repeat),
        Spacing::Four => solve::<32>(team, shape, repeat),
    }
}

/// The elements that are used of an array.
fn spaced<const S: usize, T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.chunks_exact(S).map(|element| &element[0])
}

/// The same, to be changed.
fn spaced_mut<const S: usize, T>(all: &mut [T]) -> impl Iterator<Item = &mut T> {
    all.chunks_exact_mut(S).map(|element| &mut element[0])
}

fn solve<const S: usize>(team: &Team, shape: Shape, repeat: usize) -> Result<Solution, Error> {
    let Shape { rows, entries, .. } = shape;
    let matrix = Matrix::new(shape);
    let (columns, values) = (untouched(rows * entries * S)?, untouched(rows * entries * S)?);
    let vector = || untouched(rows * S);
    let [right, solution, residual, product] = [vector()?, vector()?, vector()?, vector()?];
    let sums = || (0..team.threads).map(|_| CachePadded::default()).collect();
    let shared = Shared { matrix, direction: untouched(rows * S)?, sums: [sums(), sums(), sums()] };
    let part = |thread| share(rows, team.threads, thread);
    // Shares consist of whole rows.
    let mut rest = (&mut *columns, &mut *values, [&mut *right, &mut *solution, &mut *residual, &mut *product]);
    let parts = (0..team.threads).map(|thread| {
        let rows = part(thread).len() * S;
        let columns = rest.0.split_off_mut(..rows * entries).unwrap_or_default();
        let values = rest.1.split_off_mut(..rows * entries).unwrap_or_default();
        let vectors = rest.2.each_mut().map(|rest| rest.split_off_mut(..rows).unwrap_or_default());
        let [right, solution, residual, product] = vectors;
        let first_row = part(thread).start;
        Part::<S> { thread, first_row, columns, values, right, solution, residual, product, square: 0.0 }
    });
    let rounds_of_one = 2 + STEPS * ROUNDS;
    let rounds =
        team.parallel_rounds(parts.collect(), 1 + repeat * rounds_of_one, |part, round| match round.checked_sub(1) {
            None => part.make(&shared.matrix),
            Some(round) => part.work(&shared, round / rounds_of_one, round % rounds_of_one),
        })?;
    let steps_say = shared.sum(1).sqrt();
    let [right, solution]: [Vec<f64>; 2] = [right, solution].map(|vector| spaced::<S, _>(vector).copied().collect());
    let length = right.iter().map(|value| value * value).sum::<f64>().sqrt();
    check(&shared.matrix, &right, &solution, steps_say)?;
    let hash = |hash: u64, value: &f64| (hash ^ value.to_bits()).wrapping_mul(0x0100_0000_01b3);
    let checksum = format!("{:016x}", solution.iter().fold(0xcbf2_9ce4_8422_2325, hash));
    let (span, second_half) =
        (Span::from_rounds(&rounds[1..]), Span::from_rounds(&rounds[1 + repeat / 2 * rounds_of_one..]));
    Ok(Solution { rows, span, second_half, residual: steps_say / length, checksum })
}

/// The sequential check: the residual is as large as the steps have computed, and they have reduced it to nearly zero.
/// The entries are made anew, to find lost ones too.
fn check(matrix: &Matrix, right: &[f64], solution: &[f64], steps_say: f64) -> Result<(), Error> {
    let left = |row: usize| right[row] - matrix.row(row).map(|(column, value)| value * solution[column]).sum::<f64>();
    let found = (0..matrix.rows()).map(|row| left(row).powi(2)).sum::<f64>().sqrt();
    let length = right.iter().map(|value| value * value).sum::<f64>().sqrt();
    // NaN is an error too.
    if (found - steps_say).abs() <= TOLERANCE * length && found <= TOLERANCE * length {
        return Ok(());
    }
    let expected = format!("{steps_say:e}, at most {:e}", TOLERANCE * length);
    Err(Error::Wrong { what: "the rest of the right-hand side", expected, found: format!("{found:e}") })
}

impl Matrix {
    fn new(Shape { rows, entries, .. }: Shape) -> Self {
        let mut random = Random(1);
        let pairing = |_| {
            let factor = random.bits() | 1;
            // Newton's method: each step doubles the number of correct bits; an odd number starts with three.
            let refine = |inverse: u64| inverse.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(inverse)));
            let inverse = (0..5).fold(factor, |inverse, _| refine(inverse));
            Pairing { factor, inverse, change: random.bits() | 1 }
        };
        Self { rows, pairings: (1..entries).map(pairing).collect() }
    }

    fn rows(&self) -> usize {
        self.rows
    }

    /// Entries of a row.
    fn entries(&self) -> usize {
        self.pairings.len() + 1
    }

    /// The entries of a row, starting with the diagonal one. Each of the others pairs rows at random, and both rows of
    /// a pair have the same entry. With an odd number of rows, one has itself as its pair.
    fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> {
        let (rows, own) = (self.rows as u64, row as u64);
        let others = self.pairings.iter().map(move |pairing| {
            let other = pairing.other(own, rows);
            let bits = mix(own.min(other) << 32 | own.max(other), 2) >> 11;
            (other as usize, bits as f64 / (1_u64 << 53) as f64)
        });
        // Larger than the sum of all others, each of which is below 1.
        [(row, self.entries() as f64)].into_iter().chain(others)
    }
}

impl Pairing {
    /// The row that is paired with this one, of this number.
    fn other(&self, row: u64, rows: u64) -> u64 {
        if rows.is_power_of_two() {
            return (row.wrapping_mul(self.factor) ^ self.change).wrapping_mul(self.inverse) & (rows - 1);
        }
        // The rows in a random order, folded in the middle of a ring.
        let place = permuted(row, rows, self.factor);
        let folded = (self.change % rows + rows - place) % rows;
        permuted(folded, rows, self.inverse)
    }
}

/// A permutation of the numbers below `rows`; the inverse factor makes the inverse permutation. One of the next power
/// of two is repeated until it leads below.
fn permuted(number: u64, rows: u64, factor: u64) -> u64 {
    let bits = rows.next_power_of_two().ilog2();
    // A shift by half of the bits or more is its own inverse.
    let mixed = |number: u64| number ^ number >> bits.div_ceil(2);
    let step = |number: u64| mixed(mixed(number).wrapping_mul(factor) & ((1 << bits) - 1));
    let mut found = step(number);
    while found >= rows {
        found = step(found);
    }
    found
}

impl Shared<'_> {
    fn sum(&self, which: usize) -> f64 {
        self.sums[which].iter().map(|sum| f64::from_bits(sum.load(Relaxed))).sum()
    }

    fn put(&self, which: usize, thread: usize, sum: f64) {
        self.sums[which][thread].store(sum.to_bits(), Relaxed);
    }
}

impl<const S: usize> Part<'_, S> {
    /// Not inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn make(&mut self, matrix: &Matrix) {
        let entries = matrix.entries();
        let rows = self.columns.chunks_exact_mut(entries * S).zip(self.values.chunks_exact_mut(entries * S));
        for (row, (columns, values)) in (self.first_row..).zip(rows) {
            let elements = spaced_mut::<S, _>(columns).zip(spaced_mut::<S, _>(values));
            for ((column, value), entry) in elements.zip(matrix.row(row)) {
                (*column, *value) = (entry.0 as u32, entry.1);
            }
        }
    }

    /// A round of one of the solutions. What one round adds to a sum is read by all in a later round.
    fn work(&mut self, shared: &Shared, solution: usize, round: usize) {
        match (round.checked_sub(1), solution) {
            (None, 0) => self.start(shared, |_, _| 1.0),
            (None, _) => {
                let length = shared.sum(2).sqrt();
                self.start(shared, |_, before| before / length);
            }
            (Some(round), _) if round == STEPS * ROUNDS => {
                shared.put(2, self.thread, spaced::<S, _>(self.solution).map(|value| value * value).sum());
            }
            (Some(round), _) => match round % ROUNDS {
                0 => {
                    if round == 0 {
                        self.square = shared.sum(1);
                    }
                    self.multiply(shared);
                }
                1 => self.improve(shared),
                _ => self.turn(shared),
            },
        }
    }

    /// A new right-hand side, from each old one and its solution.
    #[inline(never)]
    fn start(&mut self, shared: &Shared, right: impl Fn(f64, f64) -> f64) {
        let mut square = 0.0;
        for at in (0..self.right.len()).step_by(S) {
            let value = right(self.right[at], self.solution[at]);
            (self.right[at], self.solution[at], self.residual[at], self.product[at]) = (value, 0.0, value, 0.0);
            shared.direction[self.first_row * S + at].store(value.to_bits(), Relaxed);
            square += value * value;
        }
        shared.put(1, self.thread, square);
    }

    /// The matrix times the direction.
    #[inline(never)]
    fn multiply(&mut self, shared: &Shared) {
        let (mut together, own) = (0.0, &shared.direction[self.first_row * S..]);
        let entries = shared.matrix.entries();
        let rows = self.columns.chunks_exact(entries * S).zip(self.values.chunks_exact(entries * S));
        let vectors = spaced_mut::<S, _>(self.product).zip(spaced::<S, _>(own));
        for ((product, direction), (columns, values)) in vectors.zip(rows) {
            let mut sum = 0.0;
            for (column, value) in spaced::<S, _>(columns).zip(spaced::<S, _>(values)) {
                sum += value * f64::from_bits(shared.direction[*column as usize * S].load(Relaxed));
            }
            *product = sum;
            together += sum * f64::from_bits(direction.load(Relaxed));
        }
        shared.put(0, self.thread, together);
    }

    /// A step in the direction.
    #[inline(never)]
    fn improve(&mut self, shared: &Shared) {
        let (step, mut square) = (self.square / shared.sum(0), 0.0);
        let own = spaced::<S, _>(&shared.direction[self.first_row * S..]);
        let vectors = spaced_mut::<S, _>(self.solution).zip(spaced_mut::<S, _>(self.residual));
        for (((solution, residual), product), direction) in vectors.zip(spaced::<S, _>(self.product)).zip(own) {
            *solution += step * f64::from_bits(direction.load(Relaxed));
            *residual -= step * product;
            square += *residual * *residual;
        }
        shared.put(1, self.thread, square);
    }

    /// The direction of the next step.
    #[inline(never)]
    fn turn(&mut self, shared: &Shared) {
        let square = shared.sum(1);
        let ratio = square / self.square;
        self.square = square;
        let own = spaced::<S, _>(&shared.direction[self.first_row * S..]);
        for (residual, direction) in spaced::<S, _>(self.residual).zip(own) {
            let next = residual + ratio * f64::from_bits(direction.load(Relaxed));
            direction.store(next.to_bits(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn shape(rows: usize, entries: usize) -> Shape {
        Shape { rows, entries, spacing: Spacing::None }
    }

    #[test]
    fn the_matrix_is_symmetric_and_has_its_largest_entries_on_the_diagonal() {
        let matrix = Matrix::new(shape(256, 16));
        let mut entries = BTreeMap::<(usize, usize), f64>::new();
        for row in 0..matrix.rows() {
            for (place, (column, value)) in matrix.row(row).enumerate() {
                assert_eq!(place == 0, column == row);
                *entries.entry((row, column)).or_default() += value;
            }
            let others: f64 = matrix.row(row).skip(1).map(|(_, value)| value.abs()).sum();
            assert!(others < 16.0);
        }
        assert!(entries.iter().all(|((row, column), value)| {
            (entries.get(&(*column, *row)).copied().unwrap_or(0.0) - value).abs() < 1e-12
        }));
    }

    #[test]
    fn any_number_of_rows_is_paired() {
        for rows in [3, 7, 100, 1400, 2457, 7000] {
            for pairing in &Matrix::new(shape(rows, 9)).pairings {
                let others: Vec<u64> = (0..rows as u64).map(|row| pairing.other(row, rows as u64)).collect();
                assert!((0..rows as u64).all(|row| others[others[row as usize] as usize] == row), "{rows} rows");
                assert!(others.iter().zip(0..).filter(|(other, row)| *other == row).count() <= 2, "{rows} rows");
            }
        }
        let matrix = Matrix::new(shape(150_000, 240));
        let parts: std::collections::HashSet<_> = matrix.row(77_777).map(|(column, _)| column / 2000).collect();
        assert!(parts.len() > 60, "240 entries are in {} of 75 parts", parts.len());
    }

    #[test]
    fn columns_are_all_over_the_matrix() {
        let matrix = Matrix::new(shape(4096, 16));
        let pages: std::collections::HashSet<_> =
            (0..64).flat_map(|row| matrix.row(row).map(|(column, _)| column / 64).collect::<Vec<_>>()).collect();
        assert!(pages.len() > 50, "64 rows name columns on {} of 64 parts", pages.len());
    }

    /// A solution by iteration (Jacobi's method): of the right-hand side of ones.
    fn solved(matrix: &Matrix) -> Vec<f64> {
        let improve = |before: Vec<f64>, _| {
            let others =
                |row: usize| matrix.row(row).skip(1).map(|(column, value)| value * before[column]).sum::<f64>();
            (0..matrix.rows()).map(|row| (1.0 - others(row)) / matrix.entries() as f64).collect()
        };
        (0..100).fold(vec![0.0; matrix.rows()], improve)
    }

    #[test]
    fn the_check_refuses_a_wrong_solution() {
        let matrix = Matrix::new(shape(256, 16));
        let mut solution = solved(&matrix);
        let right = vec![1.0; 256];
        check(&matrix, &right, &solution, 0.0).unwrap();
        assert!(check(&matrix, &right, &solution, 1e-6).is_err());
        assert!(check(&matrix, &right, &solution, f64::NAN).is_err());
        solution[77] += 1e-7;
        let error = check(&matrix, &right, &solution, 0.0).unwrap_err().to_string();
        assert!(error.starts_with("the result is wrong: the rest of the right-hand side is 1"), "{error}");
        solution[77] = f64::NAN;
        assert!(check(&matrix, &right, &solution, 0.0).is_err());
    }
}
