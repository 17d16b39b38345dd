//! What each thread did in a round, from what the lab had counted of it before.

use machine::{Pid, Tid};
use rustc_hash::FxHashMap;
use trace::live::MeasuredTask;

/// What a thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadWork {
    pub instructions: u64,
    /// Accesses that memory served.
    pub misses: u64,
}

/// What was counted of threads.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounts {
    before: FxHashMap<(Pid, Tid), ThreadWork>,
}

impl ThreadCounts {
    /// What each thread did since the last time. A number that was given out again counts with the thread that had it.
    pub fn take(&mut self, counted: &[MeasuredTask]) -> FxHashMap<(Pid, Tid), ThreadWork> {
        let mut now: FxHashMap<(Pid, Tid), ThreadWork> = FxHashMap::default();
        for task in counted {
            let work = now.entry((Pid(task.pid), Tid(task.tid))).or_default();
            work.instructions = work.instructions.saturating_add(task.instructions);
            work.misses =
                task.dram_accesses_by_node.iter().fold(work.misses, |sum, &misses| sum.saturating_add(misses));
        }
        let since = |(key, work): (&(Pid, Tid), &ThreadWork)| {
            let before = self.before.get(key).copied().unwrap_or_default();
            let instructions = work.instructions.saturating_sub(before.instructions);
            (*key, ThreadWork { instructions, misses: work.misses.saturating_sub(before.misses) })
        };
        let done = now.iter().map(since).collect();
        self.before = now;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(tid: u32, instructions: u64, misses: Vec<u64>) -> MeasuredTask {
        let (pid, name) = (5, String::new());
        let (cpu_time_s, memory_wait_s) = (0.0, 0.0);
        MeasuredTask { pid, tid, name, instructions, cpu_time_s, memory_wait_s, dram_accesses_by_node: misses }
    }

    #[test]
    fn a_round_has_what_was_done_in_it() {
        let mut counts = ThreadCounts::default();
        counts.take(&[task(6, 100, vec![3, 4])]);
        let done = counts.take(&[task(6, 150, vec![3, 9]), task(7, 10, vec![1]), task(7, 5, vec![])]);
        assert_eq!(done[&(Pid(5), Tid(6))], ThreadWork { instructions: 50, misses: 5 });
        assert_eq!(done[&(Pid(5), Tid(7))], ThreadWork { instructions: 15, misses: 1 });
        // Numbers that go back are no work.
        let none = counts.take(&[task(6, 1, vec![])]);
        assert_eq!(none[&(Pid(5), Tid(6))], ThreadWork::default());
        assert_eq!(counts.take(&[task(8, u64::MAX, vec![u64::MAX; 2]), task(8, 1, vec![1])]).len(), 1);
    }
}
