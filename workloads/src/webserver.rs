//! Objects that the threads of one process share, while those threads are all over the machine: Apache with PHP.
//!
//! In Apache, each process has threads on all nodes, and their shared objects (the pools of `apr_pools`) are on the
//! node where the process started. The `MemProf` study finds 75 % of accesses remote and no placement of memory that
//! helps, as every object is used from everywhere; the cure is to run the threads of each process on one node, which
//! `--cure` does.

use crate::arithmetic::mix;
use crate::cure::nodes;
use crate::error::Error;
use crate::memory::{self, filled};
use crate::processes::{Process, wait_for_start};
use crate::team::{Span, Team};
use linux::{Tid, set_affinity};
use machine::Random;
use machine::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines of a piece of the pool.
const PIECE_LINES: usize = 1024;
/// Arithmetic for each line that a request reads, in steps of four instructions.
const STEPS: usize = 48;
/// One in this many requests writes its result.
const WRITES: u64 = 64;

/// A line of the pool: its data, and its number of changes.
#[repr(align(64))]
struct Line {
    word: u64,
    changes: AtomicU64,
}

/// Duration and result of the answers of all processes.
#[derive(Debug, Serialize)]
pub struct Answers {
    cure: bool,
    processes: usize,
    /// Requests of all processes.
    requests: usize,
    /// Start of the first process, and duration of the slowest.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all answers, which depend only on size, threads, processes and rounds.
    checksum: String,
}

/// The same for one process.
#[derive(Debug, Serialize, Deserialize)]
pub struct OwnAnswers {
    requests: usize,
    /// Time of the rounds.
    #[serde(flatten)]
    span: Span,
    sum: u64,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, requests, span: Span { seconds, .. }, checksum, .. } = self;
        write!(f, "{seconds:.4} s for {requests} requests to {processes} processes, checksum {checksum}")
    }
}

impl fmt::Display for OwnAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} requests, checksum {:016x}", self.span.seconds, self.requests, self.sum)
    }
}

/// Processes answer requests, each from a pool of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize, processes: usize, cure: bool) -> Result<Answers, Error> {
    memory::check(size)?;
    let threads = (team.threads / processes).max(1);
    let cpus: Vec<CpuId> = team.cpus().iter().collect();
    let nodes = if cure { nodes(team.cpus())? } else { Vec::new() };
    let options = |process: usize| {
        let options = format!("--size {size} --threads {threads} --repeat {repeat} --json");
        if cure || threads * processes > cpus.len() {
            return options;
        }
        let dealt: CpuSet = (0..threads).map(|thread| cpus[thread * processes + process]).collect();
        format!("{options} --pin {dealt} --touch-cpu {}", cpus[process * cpus.len() / processes])
    };
    let start = |process| {
        let own = nodes.get(process % nodes.len().max(1)).map_or(team.cpus(), |(_, cpus)| cpus);
        set_affinity(Tid::CALLER, own)?;
        Process::start("webserver-process", &options(process))
    };
    let mut servers = (0..processes).map(start).collect::<io::Result<Vec<_>>>().map_err(Error::System)?;
    let mut all = Answers { cure, processes, requests: 0, span: Span::default(), checksum: String::new() };
    let mut answers = || -> io::Result<u64> {
        servers.iter_mut().try_for_each(Process::wait_until_ready)?;
        servers.iter_mut().try_for_each(Process::go)?;
        servers.iter_mut().try_fold(0_u64, |sum, server| {
            let own: OwnAnswers = server.answer()?;
            all.requests += own.requests;
            all.span = if all.span == Span::default() { own.span } else { all.span.join(own.span) };
            Ok(sum.wrapping_add(own.sum))
        })
    };
    let sum = answers().map_err(Error::System)?;
    Ok(Answers { checksum: format!("{sum:016x}"), ..all })
}

/// One process: fills a pool of `size` bytes, reports that, and answers after the start signal.
pub fn process(team: &Team, size: usize, repeat: usize) -> Result<OwnAnswers, Error> {
    let pool = team.touch(|| fill_pool(size))?;
    wait_for_start()?;
    let requests = (pool.len() * PIECE_LINES / team.threads).max(1);
    let mut parts: Vec<(Random, u64)> = (0..team.threads).map(|thread| (Random(thread as u64 + 1), 0)).collect();
    let rounds = team.rounds(parts.iter_mut().collect(), repeat, |(random, sum), _| {
        // Parts of several threads share cache lines: data that changes with each request is kept apart.
        let (mut own, mut answers) = (Random(random.0), *sum);
        for _ in 0..requests {
            answers = answers.wrapping_add(answer(&pool, own.bits()));
        }
        (*random, *sum) = (own, answers);
    })?;
    let changes: u64 = pool.iter().flatten().map(|line| line.changes.load(Relaxed)).sum();
    let sum = parts.iter().fold(mix(changes, 1), |sum, (_, answers)| sum.wrapping_add(*answers));
    let span = Span::from_rounds(&rounds);
    Ok(OwnAnswers { requests: requests * team.threads * repeat, span, sum })
}

/// Pieces of memory that hold everything that requests need.
fn fill_pool(size: usize) -> Result<Vec<Vec<Line>>, Error> {
    let pieces = (size / size_of::<Line>() / PIECE_LINES).max(1);
    (0..pieces).map(|piece| allocate_from_pool(piece as u64)).collect()
}

/// Not inlined, so that the pieces' call chain names it.
#[inline(never)]
fn allocate_from_pool(piece: u64) -> Result<Vec<Line>, Error> {
    let mut random = Random(piece);
    filled(PIECE_LINES, |_| Line { word: random.bits(), changes: AtomicU64::new(0) })
}

/// Answers one request, starting at some line of the pool.
#[inline(never)]
fn answer(pool: &[Vec<Line>], request: u64) -> u64 {
    let place = Random(request).below(pool.len() * PIECE_LINES);
    let line = &pool[place / PIECE_LINES][place % PIECE_LINES];
    let answer = mix(line.word ^ request, STEPS);
    if answer.is_multiple_of(WRITES) {
        line.changes.fetch_add(1, Relaxed);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_depend_on_the_request_and_change_some_lines() {
        let pool = fill_pool(128 << 10).unwrap();
        let answers: Vec<u64> = (0..800).map(|request| answer(&pool, request)).collect();
        assert_eq!(answers, (0..800).map(|request| answer(&pool, request)).collect::<Vec<_>>());
        let changes: u64 = pool.iter().flatten().map(|line| line.changes.load(Relaxed)).sum();
        assert!((5..100).contains(&changes), "{changes} of 1,600 answers");
    }
}
