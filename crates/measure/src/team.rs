//! Pinned threads that start together and are timed individually.

use crate::error::MeasureError;
use linux::{Tid, set_affinity};
use machine::CpuId;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{self, Builder, ScopedJoinHandle};
use std::time::Instant;

/// The result of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadRate {
    /// Bytes or loads.
    pub amount: usize,
    /// From its start to its end.
    pub seconds: f64,
}

impl ThreadRate {
    /// Amount per second.
    pub fn rate(self) -> f64 {
        self.amount as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// Signals the end of the measurement to all threads of a team.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub fn now(&self) {
        self.0.store(true, Relaxed);
    }

    pub fn is_now(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Runs `work` on one CPU.
pub(crate) fn on<T: Send>(cpu: CpuId, work: impl FnOnce() -> T + Send) -> Result<T, MeasureError> {
    thread::scope(|scope| {
        let pinned = move || {
            pin(cpu)?;
            Ok(work())
        };
        let thread = Builder::new().spawn_scoped(scope, pinned).map_err(MeasureError::Thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives each CPU its part and makes all of them do `work` at once, which returns the amount done. The first to finish
/// should call [`Stop::now`], as the others are then no longer measured under the same load.
pub(crate) fn together<P: Send>(
    parts: Vec<(CpuId, P)>,
    work: impl Fn(P, &Stop) -> usize + Sync,
) -> Result<Vec<ThreadRate>, MeasureError> {
    let (threads, stop) = (parts.len(), Stop::default());
    // Each thread has its own CPU, so it may spin; a sleeping barrier wakes threads one after the other, and the first
    // would stream alone for a while.
    let arrived = AtomicUsize::new(0);
    // Threads wait here until all of them exist: if one cannot be started, the others would otherwise wait forever.
    let all_started: OnceLock<bool> = OnceLock::new();
    let not_pinned = AtomicBool::new(false);
    let worker = |cpu, part| {
        let pinned = pin(cpu);
        not_pinned.fetch_or(pinned.is_err(), Relaxed);
        let nothing = ThreadRate { amount: 0, seconds: 0.0 };
        if !*all_started.wait() {
            return Ok(nothing);
        }
        arrived.fetch_add(1, SeqCst);
        while arrived.load(SeqCst) < threads {
            spin_loop();
        }
        pinned?;
        if not_pinned.load(Relaxed) {
            return Ok(nothing);
        }
        let start = Instant::now();
        let amount = work(part, &stop);
        Ok(ThreadRate { amount, seconds: start.elapsed().as_secs_f64() })
    };
    thread::scope(|scope| {
        let worker = &worker;
        let start = |(cpu, part)| Builder::new().spawn_scoped(scope, move || worker(cpu, part));
        let workers: Result<Vec<_>, _> = parts.into_iter().map(start).collect();
        all_started.get_or_init(|| workers.is_ok());
        let join = |worker: ScopedJoinHandle<'_, _>| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.map_err(MeasureError::Thread)?.into_iter().map(join).collect()
    })
}

fn pin(cpu: CpuId) -> Result<(), MeasureError> {
    set_affinity(Tid::CALLER, &[cpu].into_iter().collect()).map_err(|error| MeasureError::Pin { cpu, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<CpuId> {
        linux::affinity(Tid::CALLER).unwrap().iter().collect()
    }

    #[test]
    fn threads_run_where_they_are_pinned_and_stop_together() {
        let parts: Vec<_> = allowed().into_iter().map(|cpu| (cpu, cpu)).collect();
        let count = parts.len();
        let work = |cpu: CpuId, stop: &Stop| {
            assert_eq!(linux::affinity(Tid::CALLER).unwrap().iter().collect::<Vec<_>>(), [cpu]);
            stop.now();
            while !stop.is_now() {}
            cpu.0 as usize + 1
        };
        let done = together(parts, work).unwrap();
        assert_eq!(done.iter().map(|done| done.amount).collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
        assert!(done.iter().all(|done| done.rate() > 0.0));
    }

    #[test]
    fn a_missing_cpu_is_named_and_no_thread_waits_for_it() {
        let parts = vec![(allowed()[0], ()), (CpuId(100_000), ())];
        let error = together(parts, |(), _| 1).unwrap_err().to_string();
        assert!(error.contains("CPU 100000"), "{error}");
        assert!(on(CpuId(100_000), || ()).is_err());
    }
}
