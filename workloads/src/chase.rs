//! Latency: loads that each depend on the previous one.

use crate::error::Error;
use crate::memory::{filled, share};
use crate::team::{Round, Team};
use machine::Random;
use measure::chase::{Line, UNROLLED, lay, shuffle, walk};
use serde::Serialize;
use std::fmt;

const SEED: u64 = 1;

/// Duration of a load, over all threads and steps of a round.
#[derive(Debug, Serialize)]
pub struct Latency {
    /// Loads of one thread in one round.
    loads: usize,
    /// Nanoseconds per load, in the fastest round.
    best_ns: f64,
    /// Nanoseconds per load, mean of all rounds.
    mean_ns: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ns a load (best round {:.2} ns)", self.mean_ns, self.best_ns)
    }
}

/// Measures the latency of an array of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Latency, Error> {
    let (lines, starts) = team.touch(|| {
        let lines = lines(size / size_of::<Line>())?;
        let order = cycle(lines.len(), &mut Random(SEED))?;
        lay(lines, &order);
        let start = |thread| order[share(order.len(), team.threads, thread).start];
        Ok((lines, (0..team.threads).map(start).collect::<Vec<_>>()))
    })?;
    let loads = lines.len().next_multiple_of(UNROLLED);
    let parts = starts.into_iter().map(|start| &lines[start as usize]).collect();
    let rounds = team.rounds(parts, repeat, |line, _| *line = walk(line, loads))?;
    let ns = |round: &Round| round.busy.as_secs_f64() * 1e9 / (loads * team.threads) as f64;
    let best_ns = rounds.iter().map(ns).fold(f64::INFINITY, f64::min);
    let mean_ns = rounds.iter().map(ns).sum::<f64>() / rounds.len() as f64;
    Ok(Latency { loads, best_ns, mean_ns })
}

/// Lines that are never freed: a process measures once, and static references need no owner.
fn lines(count: usize) -> Result<&'static [Line], Error> {
    Ok(filled(count, |_| Line::new())?.leak())
}

/// All numbers below `count` in random order.
fn cycle(count: usize, random: &mut Random) -> Result<Vec<u32>, Error> {
    let mut order = filled(count, |line| line as u32)?;
    shuffle(&mut order, random);
    Ok(order)
}
