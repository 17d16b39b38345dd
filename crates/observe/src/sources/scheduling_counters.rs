//! How often the scheduler and the kernel's NUMA balancing move threads: tracepoints that are counted on all CPUs, for all
//! programs.

use super::LiveError;
use super::perf_rings::online_cpus;
use super::permission::{Refusal, Scope};
use super::tracepoint::Tracepoint;
use linux::monotonic_ns;
use perf_event::Builder;
use perf_event::events::Tracepoint as TracepointEvent;
use std::collections::BTreeMap;
use std::io;
use trace::{Count, Counter};

const TRACEPOINTS: [(Counter, &str); 4] = [
    (Counter::ThreadMigrations, "sched/sched_migrate_task"),
    (Counter::NumaMoves, "sched/sched_move_numa"),
    (Counter::NumaStays, "sched/sched_stick_numa"),
    (Counter::NumaSwaps, "sched/sched_swap_numa"),
];

/// Counters of what the kernel does with threads.
pub struct SchedulingCounters {
    /// Of each CPU.
    counters: Vec<(Counter, Vec<perf_event::Counter>)>,
}

impl SchedulingCounters {
    /// Opens those that the kernel has. Needs root, or `CAP_PERFMON` and read access to tracefs.
    pub fn open() -> Result<Self, LiveError> {
        let first = Tracepoint::find(TRACEPOINTS[0].1)?;
        // A kernel without NUMA balancing has no others.
        let others =
            TRACEPOINTS[1..].iter().filter_map(|(counter, name)| Some((*counter, Tracepoint::find(name).ok()?)));
        let open = |(counter, tracepoint): (Counter, Tracepoint)| Ok((counter, open_cpus(&tracepoint)?));
        let counters: io::Result<Vec<_>> = std::iter::once((TRACEPOINTS[0].0, first)).chain(others).map(open).collect();
        let what = "count moves of threads (perf)";
        let failed = |error| LiveError::refused(what, &Refusal::Event(None, error), Scope::Tracepoint);
        Ok(Self { counters: counters.map_err(failed)? })
    }

    /// Totals since they were opened. A counter that cannot be read has none.
    pub fn totals(&mut self) -> BTreeMap<Counter, u64> {
        let total =
            |cpus: &mut Vec<perf_event::Counter>| cpus.iter_mut().map(|cpu| cpu.read().ok()).sum::<Option<u64>>();
        self.counters.iter_mut().filter_map(|(counter, cpus)| Some((*counter, total(cpus)?))).collect()
    }

    /// The same as rows of a trace.
    pub fn counts(&mut self, counts: &mut Vec<Count>) {
        let time_ns = monotonic_ns();
        let count = |(counter, value)| Count { time_ns, counter, from: None, to: None, cpu: None, value };
        counts.extend(self.totals().into_iter().map(count));
    }
}

/// Opens a tracepoint on all CPUs, for all processes.
fn open_cpus(tracepoint: &Tracepoint) -> io::Result<Vec<perf_event::Counter>> {
    let open = |cpu: machine::CpuId| {
        let mut builder = Builder::new(TracepointEvent::with_id(tracepoint.id));
        // Tracepoints fire in the kernel.
        builder.exclude_kernel(false).any_pid().one_cpu(cpu.0 as usize);
        let mut counter = builder.build()?;
        counter.enable()?;
        Ok(counter)
    };
    online_cpus()?.iter().map(open).collect()
}
