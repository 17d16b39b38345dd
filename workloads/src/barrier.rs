//! A barrier at which threads look for the last one for a while before they sleep, as those of OpenMP programs do
//! (GNU's runtime does so unless `OMP_WAIT_POLICY` says otherwise). Programs with many short rounds would else wait
//! longer for the kernel to wake their threads, one after the other, than they work.

use crossbeam_utils::CachePadded;
use rustix::thread::futex;
use std::hint::spin_loop;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// How often a thread looks before it sleeps: for some tenths of a millisecond.
const LOOKS: u32 = 100_000;
/// How often it looks before it leaves the core to its sibling for a moment.
const AT_ONCE: u32 = 64;

/// A barrier for a number of threads, over and over.
pub struct Barrier {
    threads: u32,
    arrived: CachePadded<AtomicU32>,
    /// How often all have arrived; wraps around.
    round: CachePadded<AtomicU32>,
}

impl Barrier {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads as u32, arrived: CachePadded::default(), round: CachePadded::default() }
    }

    /// Waits until all threads are here. What any of them did before, all see after it.
    pub fn wait(&self) {
        let round = self.round.load(Acquire);
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.threads {
            self.arrived.store(0, Relaxed);
            self.round.store(round.wrapping_add(1), Release);
            // It fails for no address of a process's own.
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
            // It returns at once when the round is over, and at any time when a signal comes.
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
    fn nobody_goes_on_before_all_are_here() {
        let (barrier, arrived) = (Barrier::new(4), AtomicUsize::new(0));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (barrier, arrived) = (&barrier, &arrived);
                scope.spawn(move || {
                    for round in 1..=200 {
                        // Long enough for the others to sleep.
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
