//! Random reads and writes over a shared graph: `PageRank`, pushed along edges with atomic additions.
//!
//! In Ligra, one thread reads the graph from a file into one array (`readGraphFromBinary`), so all edges are on its
//! node; the threads fill the ranks in parallel (`PageRank`), so each part of the ranks is on its thread's node. Then
//! each thread goes through the edges of its vertices in order, and adds to the ranks of their target vertices, which
//! are anywhere, some much more frequent than others. Numbers are fixed-point: the order of additions makes no
//! difference.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{filled, share, untouched};
use crate::skew::skewed;
use crate::team::{Span, Team};
use machine::Random;
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Outgoing edges per vertex.
const DEGREE: usize = 4;
/// The initial rank of every vertex, in fixed-point units.
const ONE: u64 = 1 << 40;
/// The part of a vertex's rank that does not come from others, in percent: as in the paper.
const KEPT: u64 = 15;

/// The targets of each vertex's edges, vertex by vertex.
struct Graph {
    bits: u32,
    targets: Vec<u32>,
}

/// Duration and result of the ranking.
#[derive(Debug, Serialize)]
pub struct Ranks {
    vertices: usize,
    edges: usize,
    /// Time of the rounds, without reading the graph.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all ranks, which depend only on size and repeats.
    checksum: String,
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vertices, edges, span: Span { seconds, .. }, checksum } = self;
        write!(f, "{seconds:.4} s for {edges} edges of {vertices} vertices, checksum {checksum}")
    }
}

/// Ranks the vertices of a graph of `size` bytes of edges in `repeat` iterations.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Ranks, Error> {
    error::check_count(size, DEGREE * size_of::<u32>())?;
    let graph = team.touch(|| read_graph((size / DEGREE / size_of::<u32>()).ilog2()))?;
    let vertices = graph.vertices();
    let ranks: &[AtomicU64] = untouched(vertices)?;
    let next: &[AtomicU64] = untouched(vertices)?;
    let parts = (0..team.threads).map(|thread| share(vertices, team.threads, thread)).collect();
    // The last iteration's sums are kept for the check.
    let rounds = team.parallel_rounds(parts, 2 * repeat, |own, round| match round {
        0 => start(own, ranks, next),
        _ if round % 2 == 1 => push(&graph, own, ranks, next),
        _ => take(own, ranks, next),
    })?;
    let sum = check(&graph, ranks, next)?;
    let checksum = format!("{sum:016x}");
    Ok(Ranks { vertices, edges: graph.targets.len(), span: Span::from_rounds(&rounds[1..]), checksum })
}

/// Not inlined, so that the edges' call chain names it.
#[inline(never)]
fn read_graph(bits: u32) -> Result<Graph, Error> {
    let mut random = Random(1);
    Ok(Graph { bits, targets: filled(DEGREE << bits, |_| skewed(&mut random, bits) as u32)? })
}

impl Graph {
    fn vertices(&self) -> usize {
        1 << self.bits
    }

    /// Vertices with the targets of their edges.
    fn edges(&self, vertices: Range<usize>) -> impl Iterator<Item = (usize, &[u32])> {
        let targets = &self.targets[vertices.start * DEGREE..vertices.end * DEGREE];
        vertices.zip(targets.chunks_exact(DEGREE))
    }
}

/// The part of a vertex's rank that each target gets.
fn given(rank: u64) -> u64 {
    rank / 100 * (100 - KEPT) / DEGREE as u64
}

/// Not inlined, as the other rounds, so that profilers can distinguish them.
#[inline(never)]
fn start(own: &Range<usize>, ranks: &[AtomicU64], next: &[AtomicU64]) {
    for vertex in own.clone() {
        ranks[vertex].store(ONE, Relaxed);
        next[vertex].store(0, Relaxed);
    }
}

#[inline(never)]
fn push(graph: &Graph, own: &Range<usize>, ranks: &[AtomicU64], next: &[AtomicU64]) {
    for (vertex, targets) in graph.edges(own.clone()) {
        let given = given(ranks[vertex].load(Relaxed));
        for target in targets {
            next[*target as usize].fetch_add(given, Relaxed);
        }
    }
}

#[inline(never)]
fn take(own: &Range<usize>, ranks: &[AtomicU64], next: &[AtomicU64]) {
    for vertex in own.clone() {
        ranks[vertex].store(ONE / 100 * KEPT + next[vertex].load(Relaxed), Relaxed);
        next[vertex].store(0, Relaxed);
    }
}

/// The sequential check: the sum of what all vertices got, weighted by their numbers, against the sum of what all gave,
/// weighted by the targets; and no rank came from nowhere. Weights are mixed numbers, so that one sum matches another
/// only by chance. Returns the sum.
fn check(graph: &Graph, ranks: &[AtomicU64], next: &[AtomicU64]) -> Result<u64, Error> {
    let weight = |vertex: usize| mix(vertex as u64 + 1, 2);
    let (mut expected, mut total) = (0_u64, 0_u64);
    for (vertex, targets) in graph.edges(0..graph.vertices()) {
        let rank = ranks[vertex].load(Relaxed);
        let weights = targets.iter().fold(0_u64, |sum, target| sum.wrapping_add(weight(*target as usize)));
        expected = expected.wrapping_add(given(rank).wrapping_mul(weights));
        total = total.wrapping_add(rank);
    }
    let sums = next.iter().enumerate().map(|(vertex, sum)| sum.load(Relaxed).wrapping_mul(weight(vertex)));
    let found = sums.fold(0, u64::wrapping_add);
    error::check("the sum of what vertices were given", expected, found)?;
    // Divisions round down: ranks shrink by a few units in each iteration, and never grow.
    let all = ONE * graph.vertices() as u64;
    error::check("whether ranks come to what they were", true, (all - all / 1000..=all).contains(&total))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(graph: &Graph, iterations: usize, threads: usize) -> [Vec<AtomicU64>; 2] {
        let [ranks, next] = [(); 2].map(|()| (0..graph.vertices()).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let each = |work: &dyn Fn(&Range<usize>)| {
            (0..threads).for_each(|thread| work(&share(graph.vertices(), threads, thread)));
        };
        each(&|own| start(own, &ranks, &next));
        each(&|own| push(graph, own, &ranks, &next));
        for _ in 1..iterations {
            each(&|own| take(own, &ranks, &next));
            each(&|own| push(graph, own, &ranks, &next));
        }
        [ranks, next]
    }

    #[test]
    fn ranks_are_those_of_the_definition() {
        let graph = read_graph(8).unwrap();
        let (mut ranks, mut given_to) = (vec![0.0; 256], vec![1.0; 256]);
        for _ in 0..5 {
            ranks.clone_from(&given_to);
            given_to.fill(0.15);
            for (edge, target) in graph.targets.iter().enumerate() {
                given_to[*target as usize] += 0.85 * ranks[edge / DEGREE] / DEGREE as f64;
            }
        }
        let [found, _] = ranked(&graph, 5, 3);
        for (rank, found) in ranks.iter().zip(found) {
            let found = found.load(Relaxed) as f64 / ONE as f64;
            assert!((rank - found).abs() < 1e-6, "{found} instead of {rank}");
        }
    }

    #[test]
    fn the_check_finds_what_was_lost_and_does_not_depend_on_threads() {
        let graph = read_graph(10).unwrap();
        let [ranks, next] = ranked(&graph, 3, 1);
        let sum = check(&graph, &ranks, &next).unwrap();
        let [others, other_next] = ranked(&graph, 3, 7);
        assert_eq!(check(&graph, &others, &other_next).unwrap(), sum);
        next[5].fetch_sub(given(ONE), Relaxed);
        assert!(matches!(check(&graph, &ranks, &next), Err(Error::Wrong { .. })));
        // A contribution to the wrong vertex.
        next[6].fetch_add(given(ONE), Relaxed);
        assert!(check(&graph, &ranks, &next).is_err());
        // A rank that all continued with.
        ranks[9].fetch_add(1 << 44, Relaxed);
        assert!(check(&graph, &ranks, &other_next).is_err());
    }
}
