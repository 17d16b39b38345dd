//! Bandwidth: the kernels of the STREAM benchmark, and a sequential read.

use crate::error::Error;
use crate::memory::{filled, share};
use crate::options::Kernel;
use crate::team::{Round, Team};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
use strum::VariantArray;

/// A cache line of numbers.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line(pub [f64; 8]);

impl Line {
    fn from_places(number: impl Fn(usize) -> f64) -> Self {
        Self(std::array::from_fn(number))
    }
}

const SCALAR: f64 = 3.0;
impl Kernel {
    /// Number of arrays that one pass reads or writes, as STREAM counts: without the read for ownership of a write.
    fn arrays(self) -> usize {
        match self {
            Self::Read => 1,
            Self::Copy | Self::Scale => 2,
            Self::Add | Self::Triad => 3,
        }
    }
}

/// One thread's share of the three arrays.
struct Part<'a> {
    a: &'a mut [Line],
    b: &'a mut [Line],
    c: &'a mut [Line],
}

/// The bandwidth of every kernel.
#[derive(Debug, Serialize)]
pub struct Bandwidths {
    kernels: Vec<Bandwidth>,
}

/// The bandwidth of one kernel, in MB/s (10^6 bytes per second).
#[derive(Debug, Serialize)]
struct Bandwidth {
    kernel: &'static str,
    /// In the fastest round.
    best_mb_per_s: f64,
    /// Mean: all bytes over all time.
    mean_mb_per_s: f64,
}

impl fmt::Display for Bandwidths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MB/s, best round (mean):")?;
        for (comma, kernel) in [""].into_iter().chain(std::iter::repeat(",")).zip(&self.kernels) {
            write!(f, "{comma} {} {:.0} ({:.0})", kernel.kernel, kernel.best_mb_per_s, kernel.mean_mb_per_s)?;
        }
        Ok(())
    }
}

/// Measures all kernels, or one, on arrays of `size` bytes each.
pub fn run(team: &Team, size: usize, repeat: usize, only: Option<Kernel>) -> Result<Bandwidths, Error> {
    let kernels = only.map_or(Kernel::VARIANTS.to_vec(), |kernel| vec![kernel]);
    let lines = size / size_of::<Line>();
    let array = |lines, value| filled(lines, |_| Line([value; 8]));
    // A read needs only the first array, and filling the others would take longer than the read.
    let others = if only == Some(Kernel::Read) { 0 } else { lines };
    let (mut a, mut b, mut c) = team.touch(|| Ok((array(lines, 1.0)?, array(others, 2.0)?, array(others, 3.0)?)))?;
    let parts = parts(&mut a, &mut b, &mut c, team.threads);
    let rounds =
        team.rounds(parts, repeat * kernels.len(), |part, round| work(part, kernels[round % kernels.len()]))?;
    let bandwidth = |(place, kernel): (usize, &Kernel)| {
        let of_kernel = rounds.iter().skip(place).step_by(kernels.len()).map(Round::seconds);
        let megabytes = (kernel.arrays() * lines * size_of::<Line>()) as f64 / 1e6;
        Bandwidth {
            kernel: kernel.into(),
            best_mb_per_s: megabytes / of_kernel.clone().fold(f64::INFINITY, f64::min),
            mean_mb_per_s: megabytes * repeat as f64 / of_kernel.sum::<f64>(),
        }
    };
    Ok(Bandwidths { kernels: kernels.iter().enumerate().map(bandwidth).collect() })
}

fn parts<'a>(mut a: &'a mut [Line], mut b: &'a mut [Line], mut c: &'a mut [Line], threads: usize) -> Vec<Part<'a>> {
    let count = a.len();
    let mut part = |thread| {
        let length = share(count, threads, thread).len();
        let [a, b, c] =
            [&mut a, &mut b, &mut c].map(|rest| rest.split_off_mut(..length.min(rest.len())).unwrap_or_default());
        Part { a, b, c }
    };
    (0..threads).map(&mut part).collect()
}

/// One round of one kernel. Each line ends at a compiler barrier, which keeps the loops from becoming `memcpy`: that
/// may bypass the caches. Within a line they use vectors, as STREAM's do.
fn work(Part { a, b, c }: &mut Part, kernel: Kernel) {
    match kernel {
        Kernel::Copy => {
            for (c, a) in c.iter_mut().zip(a.iter()) {
                *c = *a;
                black_box(());
            }
        }
        Kernel::Scale => {
            for (b, c) in b.iter_mut().zip(c.iter()) {
                *b = Line::from_places(|i| SCALAR * c.0[i]);
                black_box(());
            }
        }
        Kernel::Add => {
            for ((c, a), b) in c.iter_mut().zip(a.iter()).zip(b.iter()) {
                *c = Line::from_places(|i| a.0[i] + b.0[i]);
                black_box(());
            }
        }
        Kernel::Triad => {
            for ((a, b), c) in a.iter_mut().zip(b.iter()).zip(c.iter()) {
                *a = Line::from_places(|i| b.0[i] + SCALAR * c.0[i]);
                black_box(());
            }
        }
        Kernel::Read => {
            black_box(sum(a));
        }
    }
}

/// Reads all lines in order; the sum of each column's bits, as integers: this measures reading, not arithmetic, and
/// simulators may be much slower with floating-point numbers than with integers.
pub fn sum(lines: &[Line]) -> [u64; 8] {
    let mut sums = [0_u64; 8];
    for line in lines {
        sums = std::array::from_fn(|i| sums[i].wrapping_add(line.0[i].to_bits()));
        black_box(());
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_compute_what_stream_computes() {
        for threads in [1, 3, 10, 12] {
            let mut arrays = [1.0, 2.0, 3.0].map(|value| vec![Line([value; 8]); 10]);
            let [a, b, c] = &mut arrays;
            for mut part in parts(a, b, c, threads) {
                Kernel::VARIANTS.iter().chain(Kernel::VARIANTS).for_each(|kernel| work(&mut part, *kernel));
            }
            // As in STREAM's own check: the same steps on single numbers.
            let [mut a, mut b, mut c] = [1.0, 2.0, 3.0];
            for _ in 0..2 {
                c = a;
                b = SCALAR * c;
                c = a + b;
                a = b + SCALAR * c;
            }
            assert_eq!(arrays, [a, b, c].map(|value| vec![Line([value; 8]); 10]));
        }
    }

    #[test]
    fn the_sum_reads_everything() {
        let lines: Vec<Line> =
            (0..100).map(|line| Line::from_places(|i| f64::from_bits(line * 8 + i as u64))).collect();
        assert_eq!(sum(&lines).iter().sum::<u64>(), 799 * 400);
    }
}
