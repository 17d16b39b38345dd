//! A compilation of many programs, as by make (Horký: Support for NUMA hardware in `HelenOS`, 2011, section 7.3).
//!
//! Each program takes five jobs: A first; B and C each need A; D needs C; E needs B and D. A job is a process that
//! reads a file, allocates and frees objects of the sizes that compilers use, and goes through them; one of the five
//! has two threads. Its memory is on the node where it runs when it fills it: short processes are local as long as the
//! scheduler leaves them there, and the gain depends on where they are started.
//!
//! A job slot is a thread, which starts a process and waits for it, as make does: `--threads 8` corresponds to `-j 8`.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory;
use crate::processes::Process;
use crate::team::{Span, Team, seconds};
use clap::ValueEnum;
use machine::Random;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::sync::{Condvar, Mutex, PoisonError};

/// One of the jobs of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Kind {
    A,
    B,
    C,
    D,
    E,
}

const KINDS: [Kind; 5] = [Kind::A, Kind::B, Kind::C, Kind::D, Kind::E];
/// Maximum and minimum number of words of an object.
const WORDS: [usize; 2] = [64, 2];
/// Bytes of a file that a job reads.
const FILE_BYTES: u64 = 256 << 10;

/// State of all jobs.
struct Schedule {
    /// For each program, the state of each job.
    states: Vec<[State; KINDS.len()]>,
    /// Why no further job is started.
    failed: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Running,
    Done(u64),
}

/// The next step of a job slot.
#[derive(Debug, PartialEq)]
enum Next {
    /// A job of a program, with the combined results of the jobs before it.
    Start(usize, Kind, u64),
    /// The remaining jobs need running ones.
    Wait,
    /// No job is left.
    Stop,
}

/// Duration and result of the compilation.
#[derive(Debug, Serialize)]
pub struct Compilation {
    programs: usize,
    jobs: usize,
    /// From the start of the first job to the end of the last.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all programs, which depend only on size and repeats.
    checksum: String,
}

/// Result of a job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Output {
    seconds: f64,
    sum: u64,
}

impl fmt::Display for Compilation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, jobs, span: Span { seconds, .. }, checksum } = self;
        write!(f, "{seconds:.4} s for {jobs} jobs of {programs} programs, checksum {checksum}")
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s, checksum {:016x}", self.seconds, self.sum)
    }
}

/// Compiles `repeat` programs, with jobs that use `size` bytes or twice as much.
pub fn run(team: &Team, size: usize, repeat: usize) -> Result<Compilation, Error> {
    memory::check(size)?;
    let schedule = Mutex::new(Schedule::new(repeat));
    let changed = Condvar::new();
    let slots = (0..team.threads).collect();
    let rounds = team.rounds(slots, 1, |_, _| work(&schedule, &changed, size))?;
    let schedule = schedule.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sum = schedule.check(size)?;
    let (jobs, span) = (repeat * KINDS.len(), Span::from_rounds(&rounds));
    Ok(Compilation { programs: repeat, jobs, span, checksum: format!("{sum:016x}") })
}

/// A job slot: runs jobs until none is left.
fn work(schedule: &Mutex<Schedule>, changed: &Condvar, size: usize) {
    let mut state = schedule.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match state.next() {
            Next::Stop => return,
            Next::Wait => state = changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Next::Start(program, kind, input) => {
                drop(state);
                let output = kind.start(size, program, input);
                state = schedule.lock().unwrap_or_else(PoisonError::into_inner);
                match output {
                    Ok(sum) => state.states[program][kind as usize] = State::Done(sum),
                    Err(error) => state.failed = Some(error),
                }
                changed.notify_all();
            }
        }
    }
}

impl Kind {
    /// The jobs that must be done before.
    fn needs(self) -> &'static [Self] {
        match self {
            Self::A => &[],
            Self::B | Self::C => &[Self::A],
            Self::D => &[Self::C],
            Self::E => &[Self::B, Self::D],
        }
    }

    /// Its memory, in units of the requested size.
    fn bytes(self, size: usize) -> usize {
        match self {
            Self::A | Self::E => size,
            Self::B | Self::C | Self::D => 2 * size,
        }
    }

    fn threads(self) -> usize {
        if self == Self::C { 2 } else { 1 }
    }

    /// Runs it as a process; returns its result.
    fn start(self, size: usize, program: usize, input: u64) -> io::Result<u64> {
        let (bytes, threads) = (self.bytes(size), self.threads());
        let name = format!("{self:?}").to_lowercase();
        let options = format!("--size {bytes} --threads {threads} --repeat 1 --json --kind {name}");
        let options = format!("{options} --program {program} --input {input}");
        Ok(Process::start("hmake-job", &options)?.answer::<Output>()?.sum)
    }

    /// Its expected result, computed without memory: the sequential check.
    fn expected(self, size: usize, program: usize, input: u64) -> u64 {
        let objects = Objects::new(program, self, input);
        (0..self.threads()).fold(0_u64, |sum, thread| {
            let of_thread = objects.of_thread(thread, self.bytes(size) / self.threads());
            of_thread.fold(sum, |sum, (words, first)| {
                (0..words as u64).fold(sum, |sum, word| sum.wrapping_add(content(first, word)))
            })
        })
    }
}

impl Schedule {
    fn new(programs: usize) -> Self {
        Self { states: vec![[State::Waiting; KINDS.len()]; programs], failed: None }
    }

    /// Takes the first job whose dependencies are done.
    fn next(&mut self) -> Next {
        if self.failed.is_some() {
            return Next::Stop;
        }
        for (program, states) in self.states.iter_mut().enumerate() {
            for kind in KINDS {
                if let (State::Waiting, Some(input)) = (states[kind as usize], input(states, kind)) {
                    states[kind as usize] = State::Running;
                    return Next::Start(program, kind, input);
                }
            }
        }
        if self.states.iter().flatten().any(|state| *state == State::Waiting) { Next::Wait } else { Next::Stop }
    }

    /// Checks that each job has the expected result. Returns a hash of all last jobs.
    fn check(self, size: usize) -> Result<u64, Error> {
        if let Some(error) = self.failed {
            return Err(Error::System(error));
        }
        let mut hash = 0_u64;
        for (program, found) in self.states.iter().enumerate() {
            let mut expected = [State::Waiting; KINDS.len()];
            for kind in KINDS {
                // Each job comes after its dependencies.
                let input = input(&expected, kind).unwrap_or_default();
                hash = kind.expected(size, program, input);
                expected[kind as usize] = State::Done(hash);
            }
            error::check("the result of a program's jobs", expected, *found)?;
        }
        Ok(hash)
    }
}

/// The combined results of a job's dependencies, if all are done.
fn input(states: &[State; KINDS.len()], kind: Kind) -> Option<u64> {
    kind.needs().iter().try_fold(0_u64, |sum, needed| match states[*needed as usize] {
        State::Done(own) => Some(mix(sum ^ own, 1)),
        _ => None,
    })
}

/// The objects of a job: their sizes and contents.
#[derive(Clone, Copy)]
struct Objects {
    seed: u64,
}

impl Objects {
    fn new(program: usize, kind: Kind, input: u64) -> Self {
        Self { seed: mix(input ^ (program as u64) << 8 ^ kind as u64, 2) }
    }

    /// Number of words and first content of objects, up to a total of `bytes`.
    fn of_thread(self, thread: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> {
        let mut random = Random(self.seed ^ (thread as u64) << 32);
        let mut left = bytes;
        std::iter::from_fn(move || {
            let words = WORDS[1] + random.below(WORDS[0] - WORDS[1]);
            left = left.checked_sub(words * size_of::<u64>())?;
            Some((words, random.bits()))
        })
    }
}

fn content(first: u64, word: u64) -> u64 {
    first.wrapping_add(word.wrapping_mul(first | 1))
}

/// The work of a job's process.
pub fn job(team: &Team, size: usize, kind: Kind, program: usize, input: u64) -> Result<Output, Error> {
    read_file()?;
    let objects = Objects::new(program, kind, input);
    let mut sums = vec![0_u64; team.threads];
    let numbered = sums.iter_mut().enumerate().collect();
    let bytes = size / team.threads;
    let rounds = team.rounds(numbered, 1, |(thread, sum), _| **sum = compile(objects.of_thread(*thread, bytes)))?;
    Ok(Output { seconds: seconds(&rounds), sum: sums.iter().fold(0, |sum, own| sum.wrapping_add(*own)) })
}

/// Reads a file that exists on every machine: the program itself. Its contents do not matter.
fn read_file() -> io::Result<()> {
    let mut bytes = Vec::new();
    File::open(std::env::current_exe()?)?.take(FILE_BYTES).read_to_end(&mut bytes)?;
    black_box(bytes);
    Ok(())
}

/// Allocates objects, frees every fourth at once, and goes through the others at the end. Not inlined, so that their
/// call chains name it.
#[inline(never)]
fn compile(objects: impl Iterator<Item = (usize, u64)>) -> u64 {
    let (mut kept, mut sum) = (Vec::new(), 0_u64);
    let through = |sum, object: Vec<u64>| object.iter().fold(sum, |sum: u64, word| sum.wrapping_add(*word));
    for (place, (words, first)) in objects.enumerate() {
        let object: Vec<u64> = (0..words as u64).map(|word| content(first, word)).collect();
        if place % 4 == 3 { sum = through(sum, object) } else { kept.push(object) }
    }
    kept.into_iter().fold(sum, through)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_after_what_they_need_and_together_otherwise() {
        let mut schedule = Schedule::new(2);
        assert_eq!([schedule.next(), schedule.next()], [Next::Start(0, Kind::A, 0), Next::Start(1, Kind::A, 0)]);
        assert_eq!(schedule.next(), Next::Wait);
        schedule.states[1][0] = State::Done(7);
        let of_a = mix(7, 1);
        assert_eq!([schedule.next(), schedule.next()], [Next::Start(1, Kind::B, of_a), Next::Start(1, Kind::C, of_a)]);
        schedule.states[1][Kind::B as usize] = State::Done(8);
        assert_eq!(schedule.next(), Next::Wait);
        schedule.states[1][Kind::C as usize] = State::Done(9);
        assert_eq!([schedule.next(), schedule.next()], [Next::Start(1, Kind::D, mix(9, 1)), Next::Wait]);
        schedule.states[1][Kind::D as usize] = State::Done(5);
        assert_eq!(schedule.next(), Next::Start(1, Kind::E, mix(mix(8, 1) ^ 5, 1)));
        schedule.failed = Some(io::Error::other("no more processes"));
        assert_eq!(schedule.next(), Next::Stop);
        assert!(schedule.check(4096).unwrap_err().to_string().contains("no more processes"));
    }

    /// Runs every job like its process, one after the other.
    fn compiled(programs: usize) -> Schedule {
        let mut schedule = Schedule::new(programs);
        while let Next::Start(program, kind, input) = schedule.next() {
            let objects = Objects::new(program, kind, input);
            let bytes = kind.bytes(8192) / kind.threads();
            let sums = (0..kind.threads()).map(|thread| compile(objects.of_thread(thread, bytes)));
            schedule.states[program][kind as usize] = State::Done(sums.fold(0, u64::wrapping_add));
        }
        schedule
    }

    #[test]
    fn the_check_refuses_a_job_that_came_to_something_else() {
        compiled(3).check(8192).unwrap();
        assert!(compiled(3).check(16384).is_err());
        for kind in KINDS {
            for wrong in [State::Done(0), State::Running] {
                let mut schedule = compiled(3);
                schedule.states[1][kind as usize] = wrong;
                assert!(matches!(schedule.check(8192), Err(Error::Wrong { .. })));
            }
        }
    }
}
