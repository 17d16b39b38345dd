//! Per-thread counters of this host: instructions, and cache misses that go to memory.

use super::LiveError;
use super::host_counters::whole;
use super::permission::{Refusal, Scope};
use linux::{Pid, Tid};
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::io;

/// Counters of threads may use one in this many of the process's file descriptors.
const PART_OF_FILES: u64 = 4;

/// Counters of threads. Not yet tested on hardware.
#[derive(Default)]
pub struct ThreadCounters {
    threads: BTreeMap<(Pid, Tid), OfThread>,
}

/// The counters of a thread. They occupy hardware counters only while the thread runs.
struct OfThread {
    instructions: Counter,
    /// Accesses that no cache served, as the kernel maps `cache-misses`: those that miss the last level on Intel and
    /// AMD.
    misses: Counter,
}

/// Counts of a thread since its counters were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCount {
    /// Instructions in user space.
    pub instructions: u64,
    /// Accesses that no cache served, in user space.
    pub misses: u64,
}

impl ThreadCounters {
    /// Tests whether the processor counts per thread, with the calling thread. Needs `kernel.perf_event_paranoid` at
    /// 2 or less, or `CAP_PERFMON`.
    pub fn probe() -> Result<(), LiveError> {
        let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let what = "count instructions and cache misses of threads (perf)";
        OfThread::open(own)
            .map(drop)
            .map_err(|error| LiveError::refused(what, &Refusal::Event(None, error), Scope::Own))
    }

    /// From now on, counts for exactly these threads. Threads of other users, and those for which no file descriptors
    /// are left, are skipped.
    pub fn follow(&mut self, threads: impl Iterator<Item = (Pid, Tid)>) {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(files / PART_OF_FILES / 2).unwrap_or(usize::MAX);
        let mut before = std::mem::take(&mut self.threads);
        for thread in threads.take(most) {
            let counters = before.remove(&thread).or_else(|| OfThread::open(thread.1).ok());
            self.threads.extend(counters.map(|counters| (thread, counters)));
        }
    }

    /// Counts of each thread since it was first followed. Threads whose counters were multiplexed too much are left
    /// out.
    pub fn counts(&mut self) -> impl Iterator<Item = ((Pid, Tid), ThreadCount)> {
        self.threads.iter_mut().filter_map(|(thread, counters)| Some((*thread, counters.count()?)))
    }
}

impl OfThread {
    fn open(thread: Tid) -> io::Result<Self> {
        let pid = thread.0.try_into().map_err(|_| io::Error::from(Errno::SRCH))?;
        let open = |event| -> io::Result<Counter> {
            let mut counter = Builder::new(event).observe_pid(pid).any_cpu().exclude_kernel(true).build()?;
            counter.enable()?;
            Ok(counter)
        };
        Ok(Self { instructions: open(Hardware::INSTRUCTIONS)?, misses: open(Hardware::CACHE_MISSES)? })
    }

    fn count(&mut self) -> Option<ThreadCount> {
        let counted = |counter: &mut Counter| {
            let data = counter.read_full().ok()?;
            whole(data.count(), data.time_enabled(), data.time_running())
        };
        Some(ThreadCount { instructions: counted(&mut self.instructions)?, misses: counted(&mut self.misses)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_or_the_processor_has_no_counters() {
        let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let thread = (Pid(std::process::id()), own);
        let mut counters = ThreadCounters::default();
        counters.follow([thread, (thread.0, Tid(u32::MAX))].into_iter());
        let work: u64 = std::hint::black_box((0..10_000_u64).fold(1, |a, b| a ^ b.wrapping_mul(a)));
        let counted: Vec<_> = counters.counts().collect();
        match ThreadCounters::probe() {
            Ok(()) => {
                assert!(matches!(counted[..], [(of, count)] if of == thread && count.instructions > 10_000), "{work}");
            }
            Err(why) => assert!(counted.is_empty() && why.to_string().contains("count instructions"), "{why}"),
        }
        counters.follow(std::iter::empty());
        assert_eq!(counters.counts().count(), 0);
    }
}
