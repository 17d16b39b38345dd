//! Host time per access, by the level that serves it. The targets are in docs/figures.md.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use divan::{Bencher, counter::ItemsCount};
use machine::Random;
use model::{AccessKind, LINE_BYTES, Request};

/// Accesses between two clock updates, as in the lab.
const BATCH: usize = 1000;
/// Accesses per sample.
const SAMPLE: usize = 20_000;

fn main() {
    divan::main();
}

/// Makes CPU 0 repeat these accesses, as the lab does: each advances its time, and windows close. Samples are short, so
/// that on a busy host the fastest one was not interrupted.
fn measure(bencher: Bencher, addresses: &[u64], kind: AccessKind) {
    let model = support::model("opteron-6164x2");
    let mut time_ps = 0;
    let mut pass = |addresses: &[u64]| {
        for batch in addresses.chunks(BATCH) {
            for &address in batch {
                time_ps += 400 + model.access(0, time_ps, Request::to(address, kind), || None).stall_ps;
            }
            model.advance(time_ps);
        }
    };
    pass(addresses);
    let mut samples = addresses.chunks_exact(SAMPLE).cycle();
    bencher.counter(ItemsCount::new(SAMPLE)).bench_local(|| samples.next().map(&mut pass));
}

fn random(lines: u64, count: usize) -> Vec<u64> {
    let mut random = Random(1);
    (0..count).map(|_| random.bits() % lines * LINE_BYTES).collect()
}

#[divan::bench(sample_count = 500, sample_size = 1)]
fn l1_hits(bencher: Bencher) {
    measure(bencher, &random((16 << 10) / LINE_BYTES, 100_000), AccessKind::Load);
}

#[divan::bench(sample_count = 500, sample_size = 1)]
fn l2_hits(bencher: Bencher) {
    measure(bencher, &random((256 << 10) / LINE_BYTES, 100_000), AccessKind::Load);
}

#[divan::bench(sample_count = 500, sample_size = 1)]
fn l3_hits(bencher: Bencher) {
    measure(bencher, &random((3 << 20) / LINE_BYTES, 100_000), AccessKind::Load);
}

#[divan::bench(sample_count = 500, sample_size = 1)]
fn random_dram(bencher: Bencher) {
    measure(bencher, &random((1 << 30) / LINE_BYTES, 1_000_000), AccessKind::Load);
}

#[divan::bench(sample_count = 500, sample_size = 1)]
fn random_dram_stores(bencher: Bencher) {
    measure(bencher, &random((1 << 30) / LINE_BYTES, 1_000_000), AccessKind::Store);
}

#[divan::bench(sample_count = 500, sample_size = 1)]
fn streamed_dram(bencher: Bencher) {
    let addresses: Vec<_> = (0..1_000_000).map(|line| line * LINE_BYTES).collect();
    measure(bencher, &addresses, AccessKind::Load);
}

/// Closing a window with every pair of 8 nodes busy.
#[divan::bench(sample_count = 500, sample_size = 1)]
fn window_closing(bencher: Bencher) {
    let model = support::model("small-8x2");
    let mut random = Random(1);
    let mut time_ps = 0;
    bencher.bench_local(|| {
        for cpu in 0..model.cpus() {
            for _ in 0..100 {
                model.access(cpu, time_ps, Request::to(random.bits() % (8 << 30), AccessKind::Load), || None);
            }
        }
        time_ps += model::WINDOW_PS;
        model.advance(time_ps);
    });
}
