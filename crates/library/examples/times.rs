//! What some calls of the library take on this host: `cargo run --release -p nearside-library --example times`.

use library::{Faults, MemoryMode, MemoryPolicy, Replicated, allocate, move_lazily, nodes, where_is};
use std::hint::black_box;
use std::time::Instant;

/// Pages of 4 KiB to find.
const PAGES: usize = 1 << 20;
/// Pages of the memory that moves lazily: 1 GiB.
const LAZY_PAGES: usize = 1 << 18;
/// Loads timed, dependent on each other.
const READS: usize = 50_000_000;
/// Values, 32 KiB: they stay in the first cache, so that only the choice of the copy is timed.
const VALUES: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut memory = allocate(PAGES << 12, &MemoryPolicy::plain(MemoryMode::Default))?;
    linux::advise(&memory.range(), linux::Advice::NoHugePages)?;
    memory.contents_mut().fill(1);
    let best = (0..5).map(|_| {
        let begin = Instant::now();
        where_is(&memory.range()).map(|found| (begin.elapsed().as_secs_f64() * 1e3, found))
    });
    let mut best = best.collect::<Result<Vec<_>, _>>()?;
    best.sort_by(|one, other| one.0.total_cmp(&other.0));
    println!("where_is of {PAGES} pages: {:.1} ms, {:?}", best[0].0, best[0].1);
    drop(memory);
    touch_half_of_a_lazy_move()?;

    // A cycle through all values.
    let values: Vec<u64> = (0..VALUES).map(|index| ((index + 1021) % VALUES) as u64).collect();
    let replicated = Replicated::new(&values, &nodes("all")?)?;
    let time = |read: &dyn Fn(usize) -> u64| {
        let begin = Instant::now();
        let end = (0..READS).fold(0, |at, _| read(at as usize));
        black_box(end);
        begin.elapsed().as_secs_f64() * 1e9 / READS as f64
    };
    let local = time(&|at| black_box(&values)[at]);
    let replica = time(&|at| replicated.read()[at]);
    let how = if replicated.is_found_without_a_call() { "rseq" } else { "getcpu" };
    println!("a read of plain memory: {local:.2} ns; through a replica ({how}): {replica:.2} ns");
    Ok(())
}

/// Every other page is touched: the worst case for what is put back.
fn touch_half_of_a_lazy_move() -> Result<(), Box<dyn std::error::Error>> {
    let mut memory = allocate(LAZY_PAGES << 12, &MemoryPolicy::plain(MemoryMode::Default))?;
    memory.contents_mut().fill(1);
    let mut lazy = move_lazily(memory, Faults::Program).map_err(|(_, refused)| refused)?;
    let begin = Instant::now();
    if let Some(memory) = lazy.memory_mut() {
        memory.contents_mut().iter_mut().step_by(2 << 12).for_each(|byte| *byte = 2);
    }
    let touched = begin.elapsed();
    let (_, tally) = lazy.end().ok_or("the moving thread ended early")?;
    let (us_a_page, end_s) =
        (touched.as_secs_f64() * 2e6 / LAZY_PAGES as f64, begin.elapsed().as_secs_f64() - touched.as_secs_f64());
    println!(
        "a lazy move of 1 GiB, half of it touched: {tally:?}; {us_a_page:.1} us a page; the end took {end_s:.2} s"
    );
    Ok(())
}
