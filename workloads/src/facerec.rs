//! One hot object that is written once and then only read: the basis of `ALPBench`'s face recognition.
//!
//! In the original, one thread reads the basis, a matrix of 15 MB, from a file; then all threads multiply their own
//! pictures with it. The `MemProf` study finds 99 % of remote accesses on that matrix, and the cure is a copy of it on
//! each node, which `--cure` makes. The product kept here (`transposeMultiplyMatrixL`) goes through the matrix row by
//! row; it is stored by columns, so that prefetchers see no sequence.

use crate::arithmetic::mix;
use crate::cure::nodes;
use crate::error::Error;
use crate::memory::filled;
use crate::team::{Span, Team};
use linux::current_cpu;
use machine::NodeId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Columns of the basis, and numbers of a product.
const COLUMNS: usize = 240;
/// Arithmetic for each word, in steps of four instructions: enough that one line is in flight at a time, and that a
/// controller is nearly, but not more than, busy when all cores of the study's machine B read from it.
const STEPS: usize = 10;
/// Distance of the threads' first rows, so that threads that share a cache are far apart: a prime.
const APART: usize = 379;

/// Eight numbers of a column: a cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

/// A matrix, stored by columns.
struct Matrix {
    lines: Vec<Line>,
    /// Lines per column.
    rows: usize,
}

/// Data of one thread.
#[derive(Default)]
struct Part {
    first_row: usize,
    picture: Vec<Line>,
    sum: u64,
}

/// Duration and result of the recognition.
#[derive(Debug, Serialize)]
pub struct Recognition {
    cure: bool,
    /// Pictures of all threads.
    pictures: usize,
    /// Time of the rounds.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all products, which depend only on size, threads and rounds.
    checksum: String,
}

impl fmt::Display for Recognition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} pictures, checksum {}", self.span.seconds, self.pictures, self.checksum)
    }
}

/// Each thread projects `repeat` pictures onto a basis of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize, cure: bool) -> Result<Recognition, Error> {
    let basis = team.touch(|| read_basis(size))?;
    let copies = if cure { replicate(team, &basis)? } else { BTreeMap::new() };
    let mut parts: Vec<Part> = (0..team.threads).map(|_| Part::default()).collect();
    let rows = basis.rows;
    let numbered: Vec<_> = parts.iter_mut().enumerate().collect();
    let rounds = team.parallel_rounds(numbered, repeat + 1, |(thread, part), round| {
        if round == 0 {
            let picture = (0..rows).map(|row| line(*thread as u64 + 1, row)).collect();
            **part = Part { first_row: *thread * APART % rows, picture, sum: 0 };
        } else {
            let here = current_cpu().ok().and_then(|(_, node)| copies.get(&node)).unwrap_or(&basis);
            part.sum = part.sum.wrapping_add(project(here, &part.picture, part.first_row));
        }
    })?;
    let sum = parts.iter().fold(0_u64, |sum, part| sum.wrapping_add(part.sum));
    let span = Span::from_rounds(rounds.get(1..).unwrap_or_default());
    Ok(Recognition { cure, pictures: team.threads * repeat, span, checksum: format!("{sum:016x}") })
}

fn line(seed: u64, place: usize) -> Line {
    Line(std::array::from_fn(|word| mix(seed ^ (place * 8 + word) as u64, 2)))
}

/// Not inlined, so that the basis's call chain names it.
#[inline(never)]
fn read_basis(size: usize) -> Result<Matrix, Error> {
    let rows = (size / size_of::<Line>() / COLUMNS).max(1);
    Ok(Matrix { lines: filled(rows * COLUMNS, |place| line(0, place))?, rows })
}

/// A copy on each node, made by a thread that runs there.
fn replicate(team: &Team, basis: &Matrix) -> Result<BTreeMap<NodeId, Matrix>, Error> {
    let copy = |(node, cpus): (NodeId, machine::CpuSet)| Ok((node, team.touch_on(cpus.first(), || copy_basis(basis))?));
    nodes(team.allowed())?.into_iter().map(copy).collect()
}

/// Not inlined, so that the copies' call chain names it.
#[inline(never)]
fn copy_basis(basis: &Matrix) -> Result<Matrix, Error> {
    Ok(Matrix { lines: filled(basis.lines.len(), |place| basis.lines[place])?, rows: basis.rows })
}

/// The sum of the product of a picture with all columns. Any row may come first.
#[inline(never)]
fn project(basis: &Matrix, picture: &[Line], first_row: usize) -> u64 {
    let mut product = [0_u64; COLUMNS];
    for row in (first_row..basis.rows).chain(0..first_row) {
        let pixels = picture[row];
        for (column, number) in product.iter_mut().enumerate() {
            let line = basis.lines[column * basis.rows + row];
            let pairs = line.0.iter().zip(&pixels.0);
            let added = pairs.fold(0, |sum: u64, (a, b)| mix(sum ^ a.wrapping_add(*b), STEPS));
            *number = number.wrapping_add(added);
        }
    }
    product.iter().enumerate().fold(0, |sum, (column, number)| sum.wrapping_add(mix(*number, column % 7)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_depends_on_every_line_and_not_on_the_first_row() {
        let mut basis = read_basis(10 * COLUMNS * 64).unwrap();
        let picture: Vec<_> = (0..10).map(|row| line(1, row)).collect();
        let product = project(&basis, &picture, 0);
        assert_eq!(project(&basis, &picture, 7), product);
        assert_eq!(project(&copy_basis(&basis).unwrap(), &picture, 3), product);
        for place in [0, 9, 10, 10 * COLUMNS - 1] {
            basis.lines[place].0[7] ^= 1;
            assert_ne!(project(&basis, &picture, 0), product);
            basis.lines[place].0[7] ^= 1;
        }
    }
}
