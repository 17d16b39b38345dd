//! An irregular mesh whose parts change owners: NAS's UA. Each element gathers from others that it is connected with,
//! most of them near; every few steps the mesh is dealt anew, and each thread then works on elements that another
//! thread has filled.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::{share, untouched};
use crate::team::{Span, Team};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Connections of an element.
const CONNECTIONS: usize = 6;
/// Bytes of an element: its value in this step and the next, and its connections.
const ELEMENT_BYTES: usize = 2 * size_of::<u64>() + CONNECTIONS * size_of::<u32>();
/// Steps until the mesh is dealt anew.
const STEPS: usize = 5;
/// Elements within which most connections are.
const NEAR: u64 = 2048;
/// Steps of [`mix`] for values and connections.
const VALUES: usize = 7;

/// The mesh.
struct Mesh<'a> {
    values: [&'a [AtomicU64]; 2],
    connections: &'a [AtomicU64],
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Steps {
    /// Time of the steps, without making the mesh.
    #[serde(flatten)]
    span: Span,
    elements: usize,
    /// Sixteen hexadecimal digits, which depend only on size and repeats.
    checksum: String,
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} elements, checksum {}", self.span.seconds, self.elements, self.checksum)
    }
}

/// Does `repeat` times five steps on a mesh of `size` bytes. Threads fill their own elements; after every five steps the
/// elements of a thread are half of its own and half of the next thread's before.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Steps, Error> {
    error::check_count(size, ELEMENT_BYTES * team.threads)?;
    let elements = size / ELEMENT_BYTES;
    let values = [untouched::<AtomicU64>(elements)?, untouched::<AtomicU64>(elements)?].map(|values| &*values);
    let connections = &*untouched::<AtomicU64>(elements * CONNECTIONS / 2)?;
    let mesh = Mesh { values, connections };
    let threads: Vec<usize> = (0..team.threads).collect();
    let rounds = team.parallel_rounds(threads, 1 + repeat * STEPS, |thread, round| match round.checked_sub(1) {
        None => mesh.fill(share(elements, team.threads, *thread)),
        Some(step) => owned(elements, team.threads, *thread, step / STEPS).for_each(|part| mesh.step(step, part)),
    })?;
    let checksum = mesh.checksum(repeat * STEPS);
    check(elements, repeat * STEPS, &checksum)?;
    Ok(Steps { span: Span::from_rounds(&rounds[1..]), elements, checksum })
}

/// The elements of a thread after the mesh was dealt anew this number of times: its share, moved on by halves, in up to
/// two pieces.
fn owned(elements: usize, threads: usize, thread: usize, dealt: usize) -> impl Iterator<Item = Range<usize>> {
    let part = share(elements, threads, thread);
    let (start, length) = ((part.start + dealt * (elements / (2 * threads))) % elements.max(1), part.len());
    let first = start..(start + length).min(elements);
    let rest = 0..length - first.len();
    [first, rest].into_iter()
}

/// The sequential check: the same mesh, by one thread.
fn check(elements: usize, steps: usize, found: &str) -> Result<(), Error> {
    let zeros = |count: usize| (0..count).map(|_| AtomicU64::default()).collect::<Vec<_>>();
    let (now, next, connections) = (zeros(elements), zeros(elements), zeros(elements * CONNECTIONS / 2));
    let mesh = Mesh { values: [&now, &next], connections: &connections };
    mesh.fill(0..elements);
    (0..steps).for_each(|step| mesh.step(step, 0..elements));
    let expected = mesh.checksum(steps);
    if expected == found {
        return Ok(());
    }
    Err(Error::Wrong { what: "the checksum of all elements", expected, found: found.to_owned() })
}

/// The elements that an element is connected with: one anywhere, and others near.
fn connected(element: usize, connection: usize, elements: usize) -> u64 {
    let (random, all) = (mix((element * CONNECTIONS + connection) as u64, VALUES), elements as u64);
    if connection == 0 {
        random % all
    } else {
        (element as u64 + all + random % NEAR.min(all) - NEAR.min(all) / 2) % all
    }
}

impl Mesh<'_> {
    /// Not inlined, so that profilers can distinguish it. Two connections are in a word.
    #[inline(never)]
    fn fill(&self, part: Range<usize>) {
        let elements = self.values[0].len();
        for element in part {
            self.values[0][element].store(mix(element as u64, VALUES), Relaxed);
            self.values[1][element].store(0, Relaxed);
            for pair in 0..CONNECTIONS / 2 {
                let [low, high] = [0, 1].map(|half| connected(element, 2 * pair + half, elements));
                self.connections[element * CONNECTIONS / 2 + pair].store(high << 32 | low, Relaxed);
            }
        }
    }

    #[inline(never)]
    fn step(&self, step: usize, part: Range<usize>) {
        let (now, next) = (self.values[step % 2], self.values[(step + 1) % 2]);
        for element in part {
            let mut sum = now[element].load(Relaxed).rotate_left(7);
            for pair in 0..CONNECTIONS / 2 {
                let both = self.connections[element * CONNECTIONS / 2 + pair].load(Relaxed);
                sum = sum.wrapping_add(now[(both & 0xffff_ffff) as usize].load(Relaxed));
                sum = sum.wrapping_mul(0x0100_0000_01b3) ^ now[(both >> 32) as usize].load(Relaxed);
            }
            next[element].store(sum, Relaxed);
        }
    }

    fn checksum(&self, steps: usize) -> String {
        let hash = |hash: u64, value: &AtomicU64| (hash ^ value.load(Relaxed)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", self.values[steps % 2].iter().fold(0xcbf2_9ce4_8422_2325, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_move_and_every_element_has_one() {
        for dealt in 0..9 {
            let mut owners = vec![0; 1003];
            for thread in 0..4 {
                owned(1003, 4, thread, dealt).flatten().for_each(|element| owners[element] += 1);
            }
            assert!(owners.iter().all(|count| *count == 1), "{dealt}: {owners:?}");
        }
        assert_ne!(owned(1003, 4, 1, 0).next(), owned(1003, 4, 1, 1).next());
    }

    #[test]
    fn a_lost_step_is_found() {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::default()).collect::<Vec<_>>();
        let (now, next, connections) = (zeros(5000), zeros(5000), zeros(15_000));
        let mesh = Mesh { values: [&now, &next], connections: &connections };
        mesh.fill(0..5000);
        mesh.step(0, 0..5000);
        check(5000, 1, &mesh.checksum(1)).unwrap();
        mesh.step(1, 0..4999);
        assert!(check(5000, 2, &mesh.checksum(2)).is_err());
        assert!((0..5000).all(|element| (0..6).all(|connection| connected(element, connection, 5000) < 5000)));
    }
}
