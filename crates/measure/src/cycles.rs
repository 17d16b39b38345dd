//! Work without memory accesses: to measure the core's clock, and for pauses that avoid clock reads, which are slow in
//! virtual machines.

use std::hint::black_box;

/// Cycles per step: a shift and an addition, each of which waits for the previous one. Nothing simpler works: the
/// compiler folds several shifts and exclusive ors.
pub(crate) const CYCLES_A_STEP: f64 = 2.0;
const UNROLLED: u64 = 32;

/// Executes this many steps, rounded up to a multiple of 32.
#[inline(never)]
pub(crate) fn spend(steps: u64) {
    let (mut x, addend) = (black_box(1_u64), black_box(0x1e37_79b9_7f4a_7c15_u64));
    for _ in 0..steps.div_ceil(UNROLLED) {
        for _ in 0..UNROLLED {
            x = (x >> 1).wrapping_add(addend);
        }
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_compiler_leaves_the_work_in() {
        let took = |steps| {
            let start = Instant::now();
            spend(steps);
            start.elapsed()
        };
        // 2,000,000 cycles: 0.2 ms at 10 GHz.
        assert!(took(1_000_000).as_micros() > 200);
    }
}
