//! Speed of the model alone, on one thread of this host.

use crate::target::{Row, Target, median};
use bench::Error;
use model::{AccessKind, LINE_BYTES, Mechanisms, MemoryRange, Model, Request};
use std::time::Instant;

const MACHINE: &str = "opteron-6164x2";
const NODE_BYTES: u64 = 1 << 30;
/// Accesses between two checks of the clock, as in the lab.
const BATCH: usize = 1000;
/// Accesses per measurement, and number of measurements.
const SAMPLE: usize = 100_000;
const SAMPLES: usize = 200;
/// Array sizes: less than an L1 cache, and more than all caches.
const SMALL_BYTES: u64 = 16 << 10;
const LARGE_BYTES: u64 = 1 << 30;
/// Time between the accesses of a CPU, ps.
const WORK_PS: u64 = 400;

/// Times accesses that hit in L1 and accesses that go to memory.
pub fn measure() -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (level, mechanisms) in [("full", Mechanisms::full()), ("fast", Mechanisms::fast())] {
        let hits = accesses_per_s(&mechanisms, SMALL_BYTES)?;
        let misses = accesses_per_s(&mechanisms, LARGE_BYTES)?;
        rows.push(row(&format!("L1 hits, {level}"), 100.0, hits));
        rows.push(row(&format!("random DRAM accesses, {level}"), 25.0, misses));
    }
    Ok(rows)
}

fn row(what: &str, least: f64, accesses_per_s: f64) -> Row {
    Row {
        what: format!("model: {what}"),
        target: Target::AtLeast(least),
        measured: accesses_per_s / 1e6,
        unit: "M/s",
        command: "nearside-bench --only model".to_owned(),
    }
}

/// CPU 0 loads random lines of an array of `bytes`.
fn accesses_per_s(mechanisms: &Mechanisms, bytes: u64) -> Result<f64, Error> {
    let machine = machine::presets::find(MACHINE)?;
    let range = |node| MemoryRange { start: node as u64 * NODE_BYTES, end: (node as u64 + 1) * NODE_BYTES, node };
    let memory: Vec<_> = (0..machine.nodes.len()).map(range).collect();
    let model = Model::new(&machine, &memory, mechanisms)?;
    let mut random = 1_u64;
    let mut address = || {
        // Knuth's MMIX generator; only its high bits are random.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 20) % (bytes / LINE_BYTES) * LINE_BYTES
    };
    let mut time_ps = 0;
    let mut sample = || {
        let addresses: Vec<u64> = (0..SAMPLE).map(|_| address()).collect();
        let started = Instant::now();
        for batch in addresses.chunks(BATCH) {
            for &address in batch {
                time_ps += WORK_PS + model.access(0, time_ps, Request::to(address, AccessKind::Load), || None).stall_ps;
            }
            model.advance(time_ps);
        }
        SAMPLE as f64 / started.elapsed().as_secs_f64()
    };
    // The first accesses fill the caches of the model and of the host.
    for _ in 0..SAMPLES / 10 {
        sample();
    }
    Ok(median((0..SAMPLES).map(|_| sample())))
}
