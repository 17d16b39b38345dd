//! A wavefront: NAS's LU. Each cell depends on those above and to the left, so threads work on diagonals of blocks: each
//! has a strip of columns, and reads the last column of the strip before.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Rows that a thread works on before its right neighbour can begin.
const BLOCK: usize = 16;
/// Steps of [`mix`] for a first value.
const VALUES: usize = 6;

/// A square of cells, row by row.
struct Cells<'a> {
    side: usize,
    values: &'a [AtomicU64],
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Sweeps {
    /// Time of the sweeps, without filling the cells.
    #[serde(flatten)]
    span: Span,
    /// Cells of a row, and rows.
    side: usize,
    /// Sixteen hexadecimal digits, which depend only on size and repeats.
    checksum: String,
}

impl fmt::Display for Sweeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {1} x {1} cells, checksum {2}", self.span.seconds, self.side, self.checksum)
    }
}

/// Sweeps `repeat` times over a square of this number of bytes. Threads fill their own strips.
pub fn run(team: &Team, bytes: usize, repeat: usize) -> Result<Sweeps, Error> {
    error::check_count(bytes, size_of::<u64>() * team.threads * team.threads)?;
    let side = (bytes / size_of::<u64>()).isqrt();
    let cells = Cells { side, values: untouched::<AtomicU64>(side * side)? };
    let blocks = side.div_ceil(BLOCK);
    let rounds_of_one = blocks + team.threads - 1;
    let threads: Vec<usize> = (0..team.threads).collect();
    let rounds = team.parallel_rounds(threads, 1 + repeat * rounds_of_one, |thread, round| {
        let columns = share(side, team.threads, *thread);
        match round.checked_sub(1) {
            None => cells.fill(0..side, columns),
            // The n-th thread is n blocks behind the first.
            Some(round) => {
                if let Some(block) = (round % rounds_of_one).checked_sub(*thread).filter(|block| *block < blocks) {
                    cells.sweep(block * BLOCK..((block + 1) * BLOCK).min(side), columns);
                }
            }
        }
    })?;
    let checksum = cells.checksum();
    check(side, repeat, &checksum)?;
    Ok(Sweeps { span: Span::from_rounds(&rounds[1..]), side, checksum })
}

/// The sequential check: the same cells, one after another.
fn check(side: usize, repeat: usize, found: &str) -> Result<(), Error> {
    let values: Vec<AtomicU64> = (0..side * side).map(|_| AtomicU64::default()).collect();
    let cells = Cells { side, values: &values };
    cells.fill(0..side, 0..side);
    (0..repeat).for_each(|_| cells.sweep(0..side, 0..side));
    let expected = cells.checksum();
    if expected == found {
        return Ok(());
    }
    Err(Error::Wrong { what: "the checksum of all cells", expected, found: found.to_owned() })
}

impl Cells<'_> {
    fn get(&self, row: usize, column: usize) -> f64 {
        f64::from_bits(self.values[row * self.side + column].load(Relaxed))
    }

    fn put(&self, row: usize, column: usize, value: f64) {
        self.values[row * self.side + column].store(value.to_bits(), Relaxed);
    }

    /// Not inlined, so that profilers can distinguish it.
    #[inline(never)]
    fn fill(&self, rows: Range<usize>, columns: Range<usize>) {
        for row in rows {
            for column in columns.clone() {
                let bits = mix((row * self.side + column) as u64, VALUES) >> 11;
                self.put(row, column, bits as f64 / (1_u64 << 53) as f64);
            }
        }
    }

    #[inline(never)]
    fn sweep(&self, rows: Range<usize>, columns: Range<usize>) {
        for row in rows {
            for column in columns.clone() {
                let above = if row > 0 { self.get(row - 1, column) } else { 0.0 };
                let left = if column > 0 { self.get(row, column - 1) } else { 0.0 };
                self.put(row, column, 0.5 * self.get(row, column) + 0.25 * above + 0.2 * left);
            }
        }
    }

    fn checksum(&self) -> String {
        let hash = |hash: u64, value: &AtomicU64| (hash ^ value.load(Relaxed)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", self.values.iter().fold(0xcbf2_9ce4_8422_2325, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_out_of_order_is_found() {
        let values: Vec<AtomicU64> = (0..64 * 64).map(|_| AtomicU64::default()).collect();
        let cells = Cells { side: 64, values: &values };
        cells.fill(0..64, 0..64);
        for (rows, columns) in [(0..32, 0..32), (32..64, 0..32), (0..32, 32..64), (32..64, 32..64)] {
            cells.sweep(rows, columns);
        }
        check(64, 1, &cells.checksum()).unwrap();
        cells.sweep(0..64, 32..64);
        cells.sweep(0..64, 0..32);
        assert!(check(64, 2, &cells.checksum()).is_err());
    }
}
