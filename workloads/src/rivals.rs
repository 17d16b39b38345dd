//! Bandwidth left by neighbours: one timed reader of an array, beside others that never stop (the microbenchmark of
//! Razavi: Performance isolation on multicore hardware, 2011, section 4.1).

use crate::error::Error;
use crate::memory::{filled, share};
use crate::passes::Passes;
use crate::stream::Line;
use crate::team::{Round, Team};
use machine::quantile;
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;

/// Read bandwidth, in MB/s (10^6 bytes per second).
#[derive(Debug, Serialize)]
pub struct Bandwidth {
    /// Number of rival CPUs.
    rivals: usize,
    /// Median of all passes but the first.
    median_mb_per_s: f64,
    /// Slowest pass.
    least_mb_per_s: f64,
    /// Fastest pass.
    most_mb_per_s: f64,
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rivals, median_mb_per_s: median, least_mb_per_s: least, most_mb_per_s: most } = self;
        write!(f, "{median:.0} MB/s beside {rivals} rivals (from {least:.0} to {most:.0})")
    }
}

/// Measures the team's read bandwidth on an array of `size` bytes, while each rival reads its own.
pub fn run(
    team: &Team,
    rivals: Option<&Team>,
    size: usize,
    repeat: usize,
    written: Passes,
) -> Result<Bandwidth, Error> {
    let array = || filled(size / size_of::<Line>(), |_| Line([1.0; 8]));
    let mine = team.touch(array)?;
    let theirs = rivals.map_or(Ok(Vec::new()), |rivals| rivals.touch_each(array))?;
    let parts = (0..team.threads).map(|thread| (thread, &mine[share(mine.len(), team.threads, thread)])).collect();
    let stop = AtomicBool::new(false);
    let (at_work, all_at_work) = channel();
    let (rivals_count, passes) = (theirs.len(), repeat + 1);
    let rounds = thread::scope(|scope| {
        let rivals = scope.spawn(|| {
            let parts = theirs.iter().map(|array| (&array[..], Some(at_work.clone()))).collect();
            drop(at_work);
            rivals.map_or(Ok(Vec::new()), |rivals| {
                rivals.rounds(parts, 1, |(array, at_work), _| {
                    while !stop.load(Relaxed) {
                        pass(array);
                        if let Some(at_work) = at_work.take() {
                            // The receiver is gone if the measurement could not start; then it is over.
                            let _ = at_work.send(());
                        }
                    }
                })
            })
        });
        // It also ends, with fewer messages, if a rival cannot be started.
        all_at_work.iter().take(rivals_count).count();
        let rounds = team.rounds(parts, passes, |(thread, part), round| {
            // The first pass is not counted.
            if *thread == 0 && round > 0 {
                written.next();
            }
            pass(part);
        });
        stop.store(true, Relaxed);
        rivals.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        rounds
    })?;
    written.end()?;
    let megabytes = size_of_val(&*mine) as f64 / 1e6;
    let mut bandwidths: Vec<f64> = rounds.iter().skip(1).map(|round: &Round| megabytes / round.seconds()).collect();
    bandwidths.sort_by(f64::total_cmp);
    let at = |place: usize| bandwidths[place.min(repeat - 1)];
    let median_mb_per_s = quantile(&bandwidths, 0.5).unwrap_or(f64::NAN);
    Ok(Bandwidth { rivals: rivals_count, median_mb_per_s, least_mb_per_s: at(0), most_mb_per_s: at(repeat) })
}

/// Reads one word of every line.
#[inline(never)]
fn pass(lines: &[Line]) {
    let mut sum = 0_u64;
    for line in lines {
        sum = sum.wrapping_add(line.0[0].to_bits());
        // Keeps the compiler from reading several lines at once, or in another order.
        black_box(());
    }
    black_box(sum);
}
