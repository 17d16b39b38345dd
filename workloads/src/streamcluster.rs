//! One hot object that all threads read and write: the points of PARSEC's streamcluster.
//!
//! In the original, one thread reads `block`, the coordinates of all points, from a file; then all threads work on it.
//! The points are shuffled, so each thread's are on all pages: no thread or page can be moved to make accesses local,
//! and the node that holds the block is saturated. The `MemProf` study finds 81 % of remote accesses on that block, and
//! the cure is to interleave it, which `--cure` does. The loop kept here is the one that opens centres (`pspeedy`):
//! each round, every point is compared with one candidate centre, and assigned to it if that is nearer than its current
//! centre.

use crate::cure::interleaved;
use crate::error::Error;
use crate::memory::{filled, share};
use crate::passes::Passes;
use crate::team::{Span, Team};
use machine::Random;
use measure::chase::shuffle;
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const SEED: u64 = 1;
const DIMENSIONS: usize = 60;
/// Coordinates are integers below this: every squared distance, at most `60 * 255 * 255` and so less than 2^24, is then
/// exact in an `f32`, whatever the order of summation.
const COORDINATES: usize = 256;

/// A point and its centre: four cache lines.
#[repr(C, align(64))]
struct Point {
    coordinates: [f32; DIMENSIONS],
    /// Squared distance to the centre.
    cost: AtomicU32,
    /// Index of the point that is the centre.
    centre: AtomicU32,
}

/// The points and the order in which threads divide them.
struct Points {
    block: Vec<Point>,
    order: Vec<u32>,
}

/// A thread's data for one of its points: a cache line, as PARSEC pads each thread's work memory.
#[repr(align(64))]
struct Member {
    point: u32,
    /// How much nearer the latest candidate would be.
    saving: u32,
}

/// Duration and result of the clustering.
#[derive(Debug, Serialize)]
pub struct Clustering {
    cure: bool,
    points: usize,
    /// Time of the rounds.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from every point's cost and centre, which depend only on size and rounds.
    checksum: String,
}

impl fmt::Display for Clustering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} points, checksum {}", self.span.seconds, self.points, self.checksum)
    }
}

/// Clusters `size` bytes of points around as many centres as there are rounds.
pub fn run(team: &Team, size: usize, repeat: usize, cure: bool, passes: Passes) -> Result<Clustering, Error> {
    let points = team.touch(|| Points::new(size / size_of::<Point>(), cure))?;
    let mut random = Random(SEED + 1);
    let candidates: Vec<u32> = (0..repeat).map(|_| random.below(points.block.len()) as u32).collect();
    let parts = (0..team.threads)
        .map(|thread| (thread, &points.order[share(points.order.len(), team.threads, thread)], Vec::new()))
        .collect();
    let rounds = team.rounds(parts, repeat + 1, |(thread, order, members), round| {
        if round == 0 {
            *members = own_memory(order);
            return;
        }
        if *thread == 0 {
            passes.next();
        }
        open(&points.block, members, candidates[round - 1]);
    })?;
    passes.end()?;
    let span = Span::from_rounds(rounds.get(1..).unwrap_or_default());
    Ok(Clustering { cure, points: points.block.len(), span, checksum: format!("{:016x}", checksum(&points.block)) })
}

impl Points {
    fn new(count: usize, cure: bool) -> Result<Self, Error> {
        let mut random = Random(SEED);
        let mut read = || read_block(count, &mut random);
        let block = if cure { interleaved(read)? } else { read()? };
        let mut order = filled(count, |point| point as u32)?;
        shuffle(&mut order, &mut random);
        Ok(Self { block, order })
    }
}

/// Not inlined, so that the block's call chain names it.
#[inline(never)]
fn read_block(count: usize, random: &mut Random) -> Result<Vec<Point>, Error> {
    let mut coordinate = |_| random.below(COORDINATES) as f32;
    filled(count, |_| Point {
        coordinates: std::array::from_fn(&mut coordinate),
        cost: AtomicU32::new(u32::MAX),
        centre: AtomicU32::new(u32::MAX),
    })
}

/// Not inlined, so that its call chain names it.
#[inline(never)]
fn own_memory(points: &[u32]) -> Vec<Member> {
    points.iter().map(|&point| Member { point, saving: 0 }).collect()
}

/// Assigns the points that are nearer to `candidate` than to their centre.
fn open(block: &[Point], members: &mut [Member], candidate: u32) {
    let centre = block[candidate as usize].coordinates;
    round_once();
    for member in members {
        let point = &block[member.point as usize];
        let cost = distance(&point.coordinates, &centre) as u32;
        let before = point.cost.load(Relaxed);
        member.saving = before.saturating_sub(cost);
        if member.saving > 0 {
            point.cost.store(cost, Relaxed);
            point.centre.store(candidate, Relaxed);
        }
    }
}

/// Rounds a number, as any program with fractional numbers does. The processor then sets a sticky flag (`PE` in MXCSR),
/// and QEMU uses the host's own floating-point instructions only once it is set.
fn round_once() {
    black_box(black_box(1.0_f32) / 3.0);
}

/// The squared distance, added up in four columns so that vectors can be used: the loop should be memory-bound.
fn distance(a: &[f32; DIMENSIONS], b: &[f32; DIMENSIONS]) -> f32 {
    let (a, b) = (a.as_chunks::<4>().0, b.as_chunks::<4>().0);
    let add = |sums: [f32; 4], (a, b): (&[f32; 4], &[f32; 4])| {
        std::array::from_fn(|column| sums[column] + (a[column] - b[column]) * (a[column] - b[column]))
    };
    a.iter().zip(b).fold([0.0; 4], add).iter().sum()
}

/// FNV-1a over the result of the clustering.
fn checksum(block: &[Point]) -> u64 {
    let results = block.iter().flat_map(|point| [point.cost.load(Relaxed), point.centre.load(Relaxed)]);
    results.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: [u32; 4] = [7, 500, 7, 999];

    fn clustered(threads: usize) -> Points {
        let points = Points::new(1000, false).unwrap();
        for candidate in ROUNDS {
            for thread in 0..threads {
                open(&points.block, &mut own_memory(&points.order[share(1000, threads, thread)]), candidate);
            }
        }
        points
    }

    #[test]
    fn a_point_is_four_lines() {
        assert_eq!(size_of::<Point>(), 256);
    }

    #[test]
    fn every_point_ends_at_its_nearest_centre() {
        let points = clustered(1).block;
        for point in &points {
            let exact = |centre: &u32| -> u32 {
                let pairs = point.coordinates.iter().zip(&points[*centre as usize].coordinates);
                pairs.map(|(a, b)| (*a as i32 - *b as i32).pow(2) as u32).sum()
            };
            let nearest = ROUNDS.iter().map(exact).min();
            assert_eq!(nearest, Some(point.cost.load(Relaxed)));
            assert_eq!(nearest, Some(exact(&point.centre.load(Relaxed))));
        }
    }

    #[test]
    fn the_checksum_does_not_depend_on_threads() {
        let one = checksum(&clustered(1).block);
        assert!([2, 3, 8, 1000].iter().all(|threads| checksum(&clustered(*threads).block) == one));
        let other = Points::new(1000, false).unwrap();
        open(&other.block, &mut own_memory(&other.order), 8);
        assert_ne!(checksum(&other.block), one);
    }

    #[test]
    fn each_threads_points_lie_on_all_pages() {
        let points = Points::new(16 * 1000, false).unwrap();
        let pages: std::collections::HashSet<_> = points.order[..4000].iter().map(|point| point / 16).collect();
        assert!(pages.len() > 900, "a quarter of the points touches {} of 1,000 pages", pages.len());
    }
}
