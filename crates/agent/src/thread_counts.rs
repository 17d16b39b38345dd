//! What each thread did in a round, from the lab's cumulative counts.

use machine::{Pid, Tid};
use observe::{MeasuredTask, ThreadCount};
use rustc_hash::FxHashMap;

/// Cumulative counts of threads.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounts {
    before: FxHashMap<(Pid, Tid), ThreadCount>,
}

/// The lab's counts of a thread.
pub(crate) fn of_task(task: &MeasuredTask) -> ((Pid, Tid), ThreadCount) {
    let misses = task.dram_accesses_by_node.iter().fold(0_u64, |sum, &misses| sum.saturating_add(misses));
    ((Pid(task.pid), Tid(task.tid)), ThreadCount { instructions: task.instructions, misses })
}

impl ThreadCounts {
    /// What each thread did since the last call. A reused TID counts as the same thread.
    pub fn take(
        &mut self,
        counted: impl Iterator<Item = ((Pid, Tid), ThreadCount)>,
    ) -> FxHashMap<(Pid, Tid), ThreadCount> {
        let mut now: FxHashMap<(Pid, Tid), ThreadCount> = FxHashMap::default();
        for (thread, ThreadCount { instructions, misses }) in counted {
            let sum = now.entry(thread).or_default();
            sum.instructions = sum.instructions.saturating_add(instructions);
            sum.misses = sum.misses.saturating_add(misses);
        }
        let since = |(key, count): (&(Pid, Tid), &ThreadCount)| {
            let before = self.before.get(key).copied().unwrap_or_default();
            let instructions = count.instructions.saturating_sub(before.instructions);
            (*key, ThreadCount { instructions, misses: count.misses.saturating_sub(before.misses) })
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
        let mut take = |tasks: &[MeasuredTask]| counts.take(tasks.iter().map(of_task));
        take(&[task(6, 100, vec![3, 4])]);
        let done = take(&[task(6, 150, vec![3, 9]), task(7, 10, vec![1]), task(7, 5, vec![])]);
        assert_eq!(done[&(Pid(5), Tid(6))], ThreadCount { instructions: 50, misses: 5 });
        assert_eq!(done[&(Pid(5), Tid(7))], ThreadCount { instructions: 15, misses: 1 });
        // Counts that decrease add no work.
        let none = take(&[task(6, 1, vec![])]);
        assert_eq!(none[&(Pid(5), Tid(6))], ThreadCount::default());
        assert_eq!(take(&[task(8, u64::MAX, vec![u64::MAX; 2]), task(8, 1, vec![1])]).len(), 1);
    }
}
