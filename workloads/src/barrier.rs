//! A barrier at which threads spin for a while before they sleep, as those of OpenMP programs do (GNU's runtime does so
//! unless `OMP_WAIT_POLICY` says otherwise). Programs with many short rounds would otherwise spend more time waiting
//! for the kernel to wake their threads, one after the other, than working.

use crossbeam_utils::CachePadded;
use rustix::thread::futex;
use std::hint::spin_loop;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Number of checks before a thread sleeps: some tenths of a millisecond.
const LOOKS: u32 = 100_000;
/// Number of checks before it yields the core to its sibling briefly.
const AT_ONCE: u32 = 64;

/// A reusable barrier for a number of threads.
pub struct Barrier {
    threads: u32,
    arrived: CachePadded<AtomicU32>,
    /// Number of completed rounds; wraps around.
    round: CachePadded<AtomicU32>,
}

impl Barrier {
    /// A barrier for this many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads as u32, arrived: CachePadded::default(), round: CachePadded::default() }
    }

    /// Waits until all threads have arrived. Their earlier writes are then visible to all.
    pub fn wait(&self) {
        let round = self.round.load(Acquire);
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.threads {
            self.arrived.store(0, Relaxed);
            self.round.store(round.wrapping_add(1), Release);
            // This cannot fail for an address of this process.
            let _ = futex::wake(&self.round, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
            return;
        }
        for look in 0..LOOKS {
            if self.round.load(Acquire) != round {
                return;
            }
            if look % AT_ONCE == 0 {
                spin_loop();
            }
        }
        while self.round.load(Acquire) == round {
            // Returns at once when the round is over, and spuriously on signals.
            let _ = futex::wait(&self.round, futex::Flags::PRIVATE, round, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn no_thread_continues_before_all_have_arrived() {
        let (barrier, arrived) = (Barrier::new(4), AtomicUsize::new(0));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (barrier, arrived) = (&barrier, &arrived);
                scope.spawn(move || {
                    for round in 1..=200 {
                        // Long enough for the others to go to sleep.
                        if thread == 0 && round % 50 == 0 {
                            thread::sleep(Duration::from_millis(20));
                        }
                        arrived.fetch_add(1, Relaxed);
                        barrier.wait();
                        let now = arrived.load(Relaxed);
                        assert!((4 * round..4 * (round + 1)).contains(&now), "{now} arrivals in round {round}");
                    }
                });
            }
        });
        assert_eq!(arrived.into_inner(), 800);
    }
}
