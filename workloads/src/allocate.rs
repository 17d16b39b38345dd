//! Pairs of malloc and free: measures the overhead of tools that intercept them.

use crate::error::Error;
use clap::{Args, value_parser};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Options of `allocate`.
#[derive(Args, Clone, Copy)]
pub struct AllocateOptions {
    /// Number of threads; each allocates and frees its own objects
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u16).range(1..))]
    threads: u16,
    /// Bytes of each object
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    bytes: usize,
    /// Pairs in a burst, the unit that is timed
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pairs: u32,
    /// Bursts of each thread
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    bursts: u32,
    /// Rest after each burst, us
    #[arg(long, default_value_t = 0, value_name = "US")]
    rest: u64,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Duration of the pairs.
#[derive(Serialize)]
struct Pairs {
    /// Median over bursts, ns per pair.
    median_ns: f64,
    /// Mean over bursts, ns per pair.
    mean_ns: f64,
    /// Number of pairs of all threads together.
    number: u64,
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ns a pair (mean {:.1} ns), {} pairs", self.median_ns, self.mean_ns, self.number)
    }
}

/// Allocates and frees, and prints the durations.
pub fn run(options: &AllocateOptions) -> Result<(), Error> {
    let barrier = Barrier::new(options.threads.into());
    let ns: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(|| bursts(options, &barrier))).collect();
        // A thread that panics has printed its message.
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let median_ns = machine::median(ns.iter().copied()).unwrap_or(f64::NAN);
    let mean_ns = ns.iter().sum::<f64>() / ns.len() as f64;
    let number = u64::from(options.pairs) * ns.len() as u64;
    let pairs = Pairs { median_ns, mean_ns, number };
    let mut output = io::stdout().lock();
    if options.json {
        serde_json::to_writer(&mut output, &pairs).map_err(io::Error::from)?;
        writeln!(output)?;
    } else {
        writeln!(output, "allocate: {pairs}")?;
    }
    Ok(())
}

/// The time per pair in each burst, ns.
fn bursts(options: &AllocateOptions, barrier: &Barrier) -> Vec<f64> {
    barrier.wait();
    let mut ns = Vec::with_capacity(options.bursts as usize);
    for _ in 0..options.bursts {
        let start = Instant::now();
        for _ in 0..options.pairs {
            drop(black_box(Vec::<u8>::with_capacity(black_box(options.bytes))));
        }
        ns.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(options.pairs));
        if options.rest != 0 {
            thread::sleep(Duration::from_micros(options.rest));
        }
    }
    ns
}
