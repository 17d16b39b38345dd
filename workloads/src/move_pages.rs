//! The bare loop of `move_pages` that `nearside migrate` is compared with: one thread; everything is prepared before
//! the clock starts, without lookups or counts.

use crate::error::Error;
use crate::options::MoveOptions;
use linux::{PageBatch, Pid, Whose};
use machine::{NodeId, SMALL_PAGE};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Instant;

#[derive(Serialize)]
struct Moved {
    pages: usize,
    bytes: u64,
    seconds: f64,
}

/// Moves small pages of another process, batch by batch, and prints how long that took.
pub fn run(options: &MoveOptions) -> Result<(), Error> {
    let (pid, target) = (Pid(options.pid), Some(NodeId(options.node)));
    let addresses: Vec<u64> = (options.start..).step_by(SMALL_PAGE as usize).take(options.pages).collect();
    let batch = |addresses: &[u64]| {
        let mut batch = PageBatch::with_capacity(addresses.len());
        for address in addresses {
            batch.push(*address, target);
        }
        batch
    };
    let mut batches: Vec<PageBatch> = addresses.chunks(options.batch.max(1)).map(batch).collect();
    let begin = Instant::now();
    for batch in &mut batches {
        batch.move_pages_by(1, pid, Whose::Private).map_err(Error::System)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let arrived = |batch: &PageBatch| batch.outcomes().filter(|(_, node, status)| status.node() == Ok(*node)).count();
    let pages = batches.iter().map(arrived).sum();
    let moved = Moved { pages, bytes: pages as u64 * SMALL_PAGE, seconds };
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, &moved).map_err(io::Error::from)?;
    writeln!(output)?;
    Ok(())
}
