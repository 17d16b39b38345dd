//! Work of each thread of the guest, derived from the work of its CPUs while it ran.

use crate::task::Task;
use model::MeasuredTask;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of threads counted: their counts fit into the virtual PMU.
const TASKS_MAX: usize = 2048;
/// Maximum number of threads noted as not counted.
const LEFT_OUT_MAX: usize = 1 << 20;

/// Work of a CPU or a thread so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) instructions: u64,
    pub(crate) ran_ps: u64,
    pub(crate) waited_ps: u64,
    /// Accesses served by memory, by node.
    pub(crate) dram_accesses: Vec<u64>,
}

impl Work {
    /// The work since an earlier state.
    fn since(&self, before: &Self) -> Self {
        let before_of = |node: usize| before.dram_accesses.get(node).copied().unwrap_or(0);
        let nodes = self.dram_accesses.iter().enumerate();
        Self {
            instructions: self.instructions.wrapping_sub(before.instructions),
            ran_ps: self.ran_ps.wrapping_sub(before.ran_ps),
            waited_ps: self.waited_ps.wrapping_sub(before.waited_ps),
            dram_accesses: nodes.map(|(node, count)| count.wrapping_sub(before_of(node))).collect(),
        }
    }

    fn add(&mut self, more: &Self) {
        self.instructions += more.instructions;
        self.ran_ps += more.ran_ps;
        self.waited_ps += more.waited_ps;
        self.dram_accesses.resize(more.dram_accesses.len().max(self.dram_accesses.len()), 0);
        self.dram_accesses.iter_mut().zip(&more.dram_accesses).for_each(|(sum, count)| *sum += count);
    }
}

/// The thread on a CPU, and the CPU's work when that was last counted.
#[derive(Debug, Default)]
struct Running {
    /// The address of its `task_struct`.
    record: u64,
    task: Task,
    counted: Work,
}

/// A thread, identified also by the address of its `task_struct`, since thread ids are reused.
type Key = (u64, u32, u32);

#[derive(Debug, Default)]
struct Counted {
    tasks: HashMap<Key, ([u8; 16], Work)>,
    /// Threads that are not counted, as there are too many; at most [`LEFT_OUT_MAX`].
    left_out: HashSet<Key>,
}

/// The work of all threads.
pub(crate) struct TaskCounts {
    /// By CPU.
    running: Vec<Mutex<Running>>,
    counted: Mutex<Counted>,
}

/// No code below panics during a change, so a poisoned lock still guards consistent values.
fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TaskCounts {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { running: (0..cpus).map(|_| Mutex::default()).collect(), counted: Mutex::default() }
    }

    /// Resets all counts. The work of CPUs so far counts for no thread.
    pub(crate) fn start(&self, work: impl Fn(usize) -> Work) {
        *lock(&self.counted) = Counted::default();
        for (cpu, running) in self.running.iter().enumerate() {
            *lock(running) = Running { counted: work(cpu), ..Running::default() };
        }
    }

    /// A CPU runs the thread with this record. If the thread has changed, the CPU's work since the last call is counted
    /// for the previous one or, if that was the idle thread, for this one, which has started since.
    pub(crate) fn see(&self, cpu: usize, record: u64, read: impl FnOnce() -> Task, work: impl FnOnce() -> Work) {
        let Some(running) = self.running.get(cpu) else { return };
        let mut running = lock(running);
        if running.record == record {
            if running.task.tid == 0 {
                // What an idle CPU does is not the next thread's.
                running.counted = work();
            }
            return;
        }
        let (before, now) = ((running.record, running.task), work());
        (running.record, running.task) = (record, read());
        let (record, task) = if before.1.tid == 0 { (running.record, running.task) } else { before };
        self.count(record, &task, &now.since(&running.counted));
        running.counted = now;
    }

    fn count(&self, record: u64, task: &Task, work: &Work) {
        // 0 stands for an idle CPU.
        if task.tid == 0 || work.instructions == 0 {
            return;
        }
        let mut counted = lock(&self.counted);
        let key = (record, task.pid, task.tid);
        if counted.tasks.len() >= TASKS_MAX && !counted.tasks.contains_key(&key) {
            if counted.left_out.len() < LEFT_OUT_MAX {
                counted.left_out.insert(key);
            }
            return;
        }
        counted.tasks.entry(key).or_insert_with(|| (task.name, Work::default())).1.add(work);
    }

    /// The work of all threads so far, and the number of threads left out because there were too many, at most
    /// [`LEFT_OUT_MAX`].
    pub(crate) fn take(&self, work: impl Fn(usize) -> Work) -> (Vec<MeasuredTask>, u64) {
        for (cpu, running) in self.running.iter().enumerate() {
            let mut running = lock(running);
            let now = work(cpu);
            self.count(running.record, &running.task, &now.since(&running.counted));
            running.counted = now;
        }
        let counted = lock(&self.counted);
        let seconds = |ps: u64| Duration::from_nanos(ps / 1000).as_secs_f64();
        let tasks = counted.tasks.iter().map(|(&(_, pid, tid), (name, work))| MeasuredTask {
            pid,
            tid,
            name: text(name),
            instructions: work.instructions,
            cpu_time_s: seconds(work.ran_ps),
            memory_wait_s: seconds(work.waited_ps),
            dram_accesses_by_node: work.dram_accesses.clone(),
        });
        (tasks.collect(), counted.left_out.len() as u64)
    }
}

/// A name from the kernel, up to the first zero byte.
fn text(name: &[u8; 16]) -> String {
    String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(instructions: u64) -> Work {
        Work {
            instructions,
            ran_ps: 2000 * instructions,
            waited_ps: 1000 * instructions,
            dram_accesses: vec![0, instructions],
        }
    }

    fn task(tid: u32) -> Task {
        Task { pid: tid, tid, name: *b"program\0\0\0\0\0\0\0\0\0" }
    }

    /// Instructions by thread, ascending.
    fn taken(counts: &TaskCounts, now: u64) -> Vec<(u32, u64)> {
        let mut tasks: Vec<_> = counts.take(|_| work(now)).0.iter().map(|task| (task.tid, task.instructions)).collect();
        tasks.sort_unstable();
        tasks
    }

    #[test]
    fn what_a_cpu_did_is_who_ran_on_it() {
        let counts = TaskCounts::new(1);
        counts.start(|_| work(100));
        counts.see(0, 0x10, || task(0), || work(105));
        counts.see(0, 0x10, || unreachable!("the same thread"), || work(110));
        counts.see(0, 0x20, || task(7), || work(130));
        counts.see(0, 0x20, || unreachable!("the same thread"), || unreachable!());
        counts.see(0, 0x30, || task(8), || work(180));
        counts.see(0, 0x10, || task(0), || work(200));
        assert_eq!(taken(&counts, 1000), [(7, 20 + 50), (8, 20)], "work while idle counts for no thread");
        let (tasks, left_out) = counts.take(|_| work(1000));
        let first = tasks.iter().find(|task| task.tid == 7).unwrap();
        assert_eq!((first.name.as_str(), first.pid, left_out), ("program", 7, 0));
        assert_eq!(first.dram_accesses_by_node, [0, 70]);
        assert!((first.cpu_time_s - 140e-9).abs() < 1e-12 && (first.memory_wait_s - 70e-9).abs() < 1e-12);
    }

    #[test]
    fn a_number_that_is_given_out_again_is_another_thread() {
        let counts = TaskCounts::new(1);
        counts.start(|_| work(0));
        counts.see(0, 0x20, || task(7), || work(10));
        counts.see(0, 0x30, || task(7), || work(30));
        assert_eq!(taken(&counts, 35), [(7, 5), (7, 30)]);
    }

    #[test]
    fn too_many_threads_are_reported() {
        let counts = TaskCounts::new(1);
        counts.start(|_| work(0));
        for tid in 1..=TASKS_MAX as u32 + 5 {
            counts.see(0, u64::from(tid), || task(tid), || work(u64::from(tid)));
        }
        let (tasks, left_out) = counts.take(|_| work(10_000));
        assert_eq!((tasks.len(), left_out), (TASKS_MAX, 5));
    }
}
