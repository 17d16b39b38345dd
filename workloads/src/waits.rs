//! How long threads wait for each other: hand-overs of a word, of a byte in a pipe and of a lock, timers, and parallel
//! regions and barriers whose threads spin or sleep, as those of GNU's OpenMP do (`OMP_WAIT_POLICY`).

use crate::error::{Error, check};
use crate::team::Team;
use clap::ValueEnum;
use crossbeam_utils::CachePadded;
use rustix::pipe::pipe;
use rustix::thread::futex;
use serde::Serialize;
use std::fmt;
use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// How threads wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Two threads that hand a word to each other, and sleep until they get it (futex); a round trip
    Futex,
    /// Two threads that send bytes to each other through two pipes, as `perf bench sched pipe --threads` does one; a
    /// round trip
    Pipe,
    /// A thread that sleeps for 100 us; the actual duration
    Timer,
    /// A parallel region: all threads start at a barrier, add 1,000 numbers, and end at another; they spin while they
    /// wait
    Awake,
    /// The same, with threads that sleep while they wait
    Asleep,
    /// A barrier alone; two of them are a parallel region without its work
    BarrierAwake,
    /// The same, with threads that sleep while they wait
    BarrierAsleep,
    /// A lock that all threads take in turn, spinning until they get it; one hand-over
    Lock,
}

/// Duration of a wait.
#[derive(Debug, Serialize)]
pub struct Waited {
    wait: Wait,
    /// All of them together.
    seconds: f64,
    /// Microseconds each, mean of all.
    mean_us: f64,
    /// Number of waits.
    times: u64,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean_us, times, wait, .. } = self;
        let what = match wait {
            Wait::Futex | Wait::Pipe => "a round trip",
            Wait::Timer => "for a sleep of 100 us",
            Wait::Awake | Wait::Asleep => "a parallel region",
            Wait::BarrierAwake | Wait::BarrierAsleep => "a barrier",
            Wait::Lock => "a hand-over",
        };
        write!(f, "{mean_us:.2} us {what}, mean of {times}")
    }
}

/// Minimum duration of a thread's sleep.
const SLEEP: Duration = Duration::from_micros(100);
/// Numbers that each thread adds up in a parallel region.
const ADDED: u64 = 1000;

/// Measures how long the team's threads wait for each other, `times` times, after as many uncounted ones.
/// `bytes` go through each pipe.
pub fn run(team: &Team, times: usize, wait: Wait, bytes: u16) -> Result<Waited, Error> {
    let wanted = match wait {
        Wait::Futex | Wait::Pipe => Some(2),
        Wait::Timer => Some(1),
        Wait::Awake | Wait::Asleep | Wait::BarrierAwake | Wait::BarrierAsleep | Wait::Lock => None,
    };
    if let Some(wanted) = wanted.filter(|&wanted| wanted != team.threads) {
        return Err(Error::OtherThreads { threads: team.threads, wanted });
    }
    let times = times as u64;
    let took = match wait {
        Wait::Futex => handed_over(team, times)?,
        Wait::Pipe => piped(team, times, bytes)?,
        Wait::Timer => timed(team, times, |_, _| std::thread::sleep(SLEEP))?,
        Wait::Awake => regions(team, times, true)?,
        Wait::Asleep => regions(team, times, false)?,
        Wait::BarrierAwake => barriers(team, times, true)?,
        Wait::BarrierAsleep => barriers(team, times, false)?,
        Wait::Lock => locked(team, times)?,
    };
    let seconds = took.as_secs_f64();
    Ok(Waited { wait, seconds, mean_us: seconds * 1e6 / times as f64, times })
}

/// Each thread does `step` for twice as many times; returns the first thread's time for the second half. `step` gets
/// the thread's index and its own number, from 0.
fn timed(team: &Team, times: u64, step: impl Fn(usize, u64) + Sync) -> Result<Duration, Error> {
    let took = Mutex::new(Duration::ZERO);
    team.rounds((0..team.threads).collect(), 1, |&mut thread, _| {
        (0..times).for_each(|number| step(thread, number));
        let began = Instant::now();
        (times..2 * times).for_each(|number| step(thread, number));
        if thread == 0 {
            *took.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = began.elapsed();
        }
    })?;
    Ok(took.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// A word that threads wait for.
#[derive(Default)]
struct Word(CachePadded<AtomicU32>);

impl Word {
    fn set(&self, value: u32) {
        self.0.store(value, Release);
        // This cannot fail for an address of this process.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
    }

    fn wait_asleep(&self, wanted: u32) {
        loop {
            let value = self.0.load(Acquire);
            if value == wanted {
                return;
            }
            // Returns at once when the word has changed, and spuriously on signals.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, value, None);
        }
    }

    fn wait_awake(&self, wanted: u32) {
        while self.0.load(Acquire) != wanted {
            spin_loop();
        }
    }
}

fn handed_over(team: &Team, times: u64) -> Result<Duration, Error> {
    let word = Word::default();
    timed(team, times, |thread, number| {
        let (first, second) = (2 * number as u32 + 1, 2 * number as u32 + 2);
        if thread == 0 {
            word.set(first);
            word.wait_asleep(second);
        } else {
            word.wait_asleep(first);
            word.set(second);
        }
    })
}

fn piped(team: &Team, times: u64, bytes: u16) -> Result<Duration, Error> {
    let open =
        || pipe().map(|(reader, writer)| (reader.into(), writer.into())).map_err(|why| Error::System(why.into()));
    let (there, back): ((std::fs::File, std::fs::File), (std::fs::File, std::fs::File)) = (open()?, open()?);
    let buffers = [(); 2].map(|()| Mutex::new(vec![0; bytes.into()]));
    // Both ends of both pipes live until all threads have finished, so that no call fails.
    timed(team, times, |thread, _| {
        let mut bytes = buffers[thread].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (mut from, mut to) = if thread == 0 { (&back.0, &there.1) } else { (&there.0, &back.1) };
        if thread == 0 {
            let _ = to.write_all(&bytes);
        }
        let _ = from.read_exact(&mut bytes);
        if thread != 0 {
            let _ = to.write_all(&bytes);
        }
    })
}

/// The barrier of a team: the last thread releases the others.
struct Barrier {
    threads: u32,
    awake: bool,
    arrived: CachePadded<AtomicU32>,
    round: Word,
}

impl Barrier {
    fn new(team: &Team, awake: bool) -> Self {
        Self { threads: team.threads as u32, awake, arrived: CachePadded::default(), round: Word::default() }
    }

    fn wait(&self) {
        let next = self.round.0.load(Acquire).wrapping_add(1);
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.threads {
            self.arrived.store(0, Relaxed);
            if self.awake { self.round.0.store(next, Release) } else { self.round.set(next) }
        } else if self.awake {
            self.round.wait_awake(next);
        } else {
            self.round.wait_asleep(next);
        }
    }
}

fn regions(team: &Team, times: u64, awake: bool) -> Result<Duration, Error> {
    let (barrier, sum) = (Barrier::new(team, awake), AtomicU64::new(0));
    let took = timed(team, times, |thread, number| {
        barrier.wait();
        let added: u64 = (0..ADDED).map(black_box).sum();
        if thread == 0 {
            sum.fetch_add(added + number, Relaxed);
        }
        barrier.wait();
    })?;
    let wanted = 2 * times * (ADDED * (ADDED - 1) / 2) + 2 * times * (2 * times - 1) / 2;
    check("sum of all regions", wanted, sum.load(Relaxed))?;
    Ok(took)
}

fn barriers(team: &Team, times: u64, awake: bool) -> Result<Duration, Error> {
    let barrier = Barrier::new(team, awake);
    let took = timed(team, times, |_, _| barrier.wait())?;
    check("number of barriers", 2 * times, u64::from(barrier.round.0.load(Acquire)))?;
    Ok(took)
}

/// A ticket lock. No thread queues for it again before all others have, so that every hand-over is to another thread,
/// even if one gets far ahead before the others have started.
fn locked(team: &Team, times: u64) -> Result<Duration, Error> {
    let (next, serving) = (Word::default(), Word::default());
    let guarded = CachePadded::new(AtomicU64::new(0));
    let rounds = times.div_ceil(team.threads as u64);
    let took = timed(team, rounds, |_, number| {
        let ticket = next.0.fetch_add(1, AcqRel);
        serving.wait_awake(ticket);
        // Not an atomic addition: the lock must prevent lost updates.
        guarded.store(guarded.load(Relaxed) + 1, Relaxed);
        serving.0.store(ticket.wrapping_add(1), Release);
        // After the last round there are no other threads to wait for.
        if number + 1 < 2 * rounds {
            while next.0.load(Acquire).wrapping_sub(ticket) < team.threads as u32 {
                spin_loop();
            }
        }
    })?;
    let all = 2 * rounds * team.threads as u64;
    check("number of hand-overs", all, guarded.load(Relaxed))?;
    Ok(took.mul_f64(times as f64 / (rounds * team.threads as u64) as f64))
}
