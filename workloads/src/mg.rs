//! Grids of several resolutions: NAS's MG. A Poisson equation on a periodic cube is solved by cycles over grids, each of
//! half the resolution. Threads have planes of every grid, and read those of their neighbours; the coarse grids are so
//! small that a huge page has the planes of all threads.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Arrays of a grid: solution, right-hand side, residual.
const ARRAYS: usize = 3;
/// Cells along an edge of the coarsest grid.
const COARSEST: usize = 4;
/// Improvements on the coarsest grid, and on others before and after the coarser ones.
const SOLVE: usize = 12;
const SMOOTH: usize = 2;
/// Weight of Jacobi's method for seven-point stencils.
const WEIGHT: f64 = 6.0 / 7.0;
/// Each cycle reduces the residual at least to this share.
const LEAST: f64 = 0.6;
/// Steps of [`mix`] for the right-hand side.
const VALUES: usize = 8;
/// Difference of the sequential sum from that of the threads, by rounding.
const TOLERANCE: f64 = 1e-9;

/// A grid of `side` cells in each direction, plane by plane.
struct Grid {
    side: usize,
    solution: &'static [AtomicU64],
    right: &'static [AtomicU64],
    residual: &'static [AtomicU64],
}

/// One round of all threads, on the grid of this number; 0 is the finest.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// Fill the right-hand side of the finest grid.
    Fill,
    /// Start from zero.
    Clear(usize),
    /// Compute the residual.
    Residual(usize),
    /// Improve the solution by the residual.
    Improve(usize),
    /// The residual becomes the right-hand side of the next coarser grid.
    Restrict(usize),
    /// Add the solution of the next coarser grid.
    Prolong(usize),
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Cycles {
    /// Time of the cycles, without filling the grids.
    #[serde(flatten)]
    span: Span,
    /// Cells along an edge.
    side: usize,
    /// The last residual, relative to the right-hand side.
    residual: f64,
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {1} x {1} x {1} cells, residual {2:.1e}", self.span.seconds, self.side, self.residual)
    }
}

/// Runs `repeat` cycles on a cube of which all arrays have up to `size` bytes. Threads fill their own planes.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Cycles, Error> {
    error::check_count(size, ARRAYS * size_of::<u64>() * COARSEST.pow(3))?;
    let cells = size / (ARRAYS * size_of::<u64>());
    let sides = iter::successors(Some(COARSEST), |side| Some(side * 2)).take_while(|side| side.pow(3) <= cells);
    let mut grids: Vec<Grid> = sides.map(Grid::new).collect::<Result<_, _>>()?;
    grids.reverse();
    let first = [Work::Fill].into_iter().chain((0..grids.len()).map(Work::Clear)).collect::<Vec<_>>();
    let cycle = cycle(grids.len());
    let last = [Work::Residual(0)];
    let works: Vec<Work> = first.iter().chain(iter::repeat_n(&cycle, repeat).flatten()).chain(&last).copied().collect();
    let threads: Vec<usize> = (0..team.threads).collect();
    let rounds = team.parallel_rounds(threads, works.len(), |thread, round| {
        let planes = |grid: usize| share(grids[grid].side, team.threads, *thread);
        work(&grids, works[round], planes);
    })?;
    let residual = check(&grids[0], repeat)?;
    Ok(Cycles { span: Span::from_rounds(&rounds[first.len()..]), side: grids[0].side, residual })
}

/// The rounds of one cycle: down to the coarsest grid, and back.
fn cycle(grids: usize) -> Vec<Work> {
    let improve =
        |grid: usize, times: usize| iter::repeat_n([Work::Residual(grid), Work::Improve(grid)], times).flatten();
    let mut works = Vec::new();
    for grid in 0..grids - 1 {
        works.extend(improve(grid, SMOOTH));
        works.extend([Work::Residual(grid), Work::Restrict(grid), Work::Clear(grid + 1)]);
    }
    works.extend(improve(grids - 1, SOLVE));
    for grid in (0..grids - 1).rev() {
        works.push(Work::Prolong(grid));
        works.extend(improve(grid, SMOOTH));
    }
    works
}

/// The part of a round that has these planes of each grid.
fn work(grids: &[Grid], work: Work, planes: impl Fn(usize) -> Range<usize>) {
    match work {
        Work::Fill => grids[0].fill(planes(0)),
        Work::Clear(grid) => grids[grid].clear(planes(grid)),
        Work::Residual(grid) => grids[grid].find_residual(planes(grid)),
        Work::Improve(grid) => grids[grid].improve(planes(grid)),
        Work::Restrict(grid) => grids[grid].restrict(&grids[grid + 1], planes(grid + 1)),
        Work::Prolong(grid) => grids[grid].prolong(&grids[grid + 1], planes(grid)),
    }
}

/// The sequential check: the residual computed anew is that of the threads, and small enough. Returns its share of the
/// right-hand side.
fn check(grid: &Grid, cycles: usize) -> Result<f64, Error> {
    let square = |values: &[AtomicU64]| values.iter().map(|value| get(value).powi(2)).sum::<f64>();
    let (found, length) = (square(grid.residual).sqrt(), square(grid.right).sqrt());
    let cells = (0..grid.side).flat_map(|z| (0..grid.side).flat_map(move |y| (0..grid.side).map(move |x| [x, y, z])));
    let expected = cells.map(|cell| grid.residual_of(cell).powi(2)).sum::<f64>().sqrt();
    let most = length * LEAST.powi(i32::try_from(cycles).unwrap_or(i32::MAX)) + TOLERANCE * length;
    // A right-hand side that was not filled is an error, and NaN is one too.
    if length > 0.0 && (found - expected).abs() <= TOLERANCE * length && found <= most {
        return Ok(found / length);
    }
    let expected = format!("{expected:e}, at most {most:e}");
    Err(Error::Wrong { what: "the residual", expected, found: format!("{found:e}") })
}

fn get(value: &AtomicU64) -> f64 {
    f64::from_bits(value.load(Relaxed))
}

fn put(place: &AtomicU64, value: f64) {
    place.store(value.to_bits(), Relaxed);
}

impl Grid {
    fn new(side: usize) -> Result<Self, Error> {
        let array = || untouched::<AtomicU64>(side.pow(3)).map(|array| &*array);
        Ok(Self { side, solution: array()?, right: array()?, residual: array()? })
    }

    fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.side + y) * self.side + x
    }

    fn cells(&self, planes: Range<usize>) -> impl Iterator<Item = [usize; 3]> {
        let side = self.side;
        planes.flat_map(move |z| (0..side).flat_map(move |y| (0..side).map(move |x| [x, y, z])))
    }

    /// Charges of 1 and -1 at the two halves of pairs of cells, so that their sum is 0, as a periodic cube needs. Not
    /// inlined, as the other rounds, so that profilers can distinguish them.
    #[inline(never)]
    fn fill(&self, planes: Range<usize>) {
        for cell in self.cells(planes) {
            let index = self.index(cell);
            let random = mix(index as u64 / 2, VALUES) as f64 / u64::MAX as f64;
            put(&self.right[index], if index.is_multiple_of(2) { random } else { -random });
        }
    }

    #[inline(never)]
    fn clear(&self, planes: Range<usize>) {
        self.cells(planes).for_each(|cell| put(&self.solution[self.index(cell)], 0.0));
    }

    fn residual_of(&self, cell: [usize; 3]) -> f64 {
        let (index, last) = (self.index(cell), self.side - 1);
        let mut sum = get(&self.right[index]) - 6.0 * get(&self.solution[index]);
        for direction in 0..3 {
            for to in [if cell[direction] == 0 { last } else { cell[direction] - 1 }, (cell[direction] + 1) & last] {
                let mut neighbour = cell;
                neighbour[direction] = to;
                sum += get(&self.solution[self.index(neighbour)]);
            }
        }
        sum
    }

    #[inline(never)]
    fn find_residual(&self, planes: Range<usize>) {
        self.cells(planes).for_each(|cell| put(&self.residual[self.index(cell)], self.residual_of(cell)));
    }

    #[inline(never)]
    fn improve(&self, planes: Range<usize>) {
        for cell in self.cells(planes) {
            let index = self.index(cell);
            put(&self.solution[index], get(&self.solution[index]) + WEIGHT / 6.0 * get(&self.residual[index]));
        }
    }

    /// A coarse cell has the mean of its eight cells, times four for the doubled distance between cells.
    #[inline(never)]
    fn restrict(&self, coarse: &Self, planes: Range<usize>) {
        for [x, y, z] in coarse.cells(planes) {
            let eight = (0..8).map(|bit| [2 * x + (bit & 1), 2 * y + (bit >> 1 & 1), 2 * z + (bit >> 2)]);
            let sum: f64 = eight.map(|cell| get(&self.residual[self.index(cell)])).sum();
            put(&coarse.right[coarse.index([x, y, z])], sum / 2.0);
        }
    }

    #[inline(never)]
    fn prolong(&self, coarse: &Self, planes: Range<usize>) {
        for cell in self.cells(planes) {
            let index = self.index(cell);
            let coarser = get(&coarse.solution[coarse.index(cell.map(|place| place / 2))]);
            put(&self.solution[index], get(&self.solution[index]) + coarser);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(cycles: usize) -> Vec<Grid> {
        let grids: Vec<Grid> = [16, 8, 4].into_iter().map(|side| Grid::new(side).unwrap()).collect();
        let works = iter::repeat_n(cycle(3), cycles).flatten();
        for each in [Work::Fill, Work::Clear(0)].into_iter().chain(works).chain([Work::Residual(0)]) {
            work(&grids, each, |grid| 0..grids[grid].side);
        }
        grids
    }

    #[test]
    fn cycles_solve_the_equation_and_a_wrong_cell_is_found() {
        let shares: Vec<f64> = (1..6).map(|cycles| check(&solved(cycles)[0], cycles).unwrap()).collect();
        assert!(shares.windows(2).all(|pair| pair[1] < LEAST * pair[0]), "{shares:?}");
        let grids = solved(4);
        put(&grids[0].solution[1000], get(&grids[0].solution[1000]) + 1e-3);
        assert!(check(&grids[0], 4).is_err());
    }
}
