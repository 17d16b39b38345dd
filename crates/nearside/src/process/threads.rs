//! CPU affinities of a process's threads.

use crate::options::usage_error::UsageError;
use crate::process::target::unseen;
use linux::{Attempt, Process, SystemState, Tid, affinity, diagnose, set_affinity};
use machine::CpuSet;
use report::{RefusedThread, Threads};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The error number for a thread that has ended.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Restricts all threads of a process to these CPUs or, with `intersect`, to those of their current CPUs that are in
/// the set. New threads inherit the CPUs of the thread that starts them: when two passes find no thread with other CPUs
/// that can be bound, none is left. A process that goes on starting threads is therefore done, too. Returns whether none is
/// left: otherwise it was interrupted.
pub fn bind_all(
    process: &Process,
    cpus: &CpuSet,
    intersect: bool,
    interrupted: &AtomicBool,
) -> Result<(Threads, bool), Box<dyn Error>> {
    /// One may have missed a thread, whose parent ended before it was bound.
    const PASSES_WITHOUT_NEWS: u32 = 2;
    let mut result = Threads { cpus: cpus.clone(), ..Threads::default() };
    let mut seen = BTreeSet::new();
    let mut without_news = 0;
    while without_news < PASSES_WITHOUT_NEWS && !interrupted.load(Relaxed) {
        let threads = process.threads().map_err(|error| unseen(process.pid(), &error))?;
        let (is_first, bound_before) = (seen.is_empty(), result.bound);
        let has_others = |thread: Tid| affinity(thread).is_ok_and(|own| !own.is_subset(cpus));
        for thread in threads.iter().filter(|thread| seen.insert(*thread)) {
            if is_first || has_others(thread) {
                bind(thread, process, intersect, &mut result);
            }
        }
        without_news = if result.bound > bound_before { 0 } else { without_news + 1 };
    }
    Ok((result, without_news == PASSES_WITHOUT_NEWS))
}

/// The CPUs of all threads of a process, for [`restore`].
pub fn affinities(process: &Process) -> BTreeMap<Tid, CpuSet> {
    let threads = process.threads().unwrap_or_default();
    threads.iter().filter_map(|thread| Some((thread, affinity(thread).ok()?))).collect()
}

/// Gives the threads of a process that were bound to some CPUs their former ones again. Threads that began since then
/// have inherited those of the bound threads, and get the former ones of the first. Those that have ended or cannot be
/// changed were not changed before either.
pub fn restore(process: &Process, former: &BTreeMap<Tid, CpuSet>, bound: &CpuSet) {
    /// More than a process needs that starts threads meanwhile.
    const MOST_PASSES: usize = 100;
    let of_first = former.get(&Tid(process.pid().0)).or_else(|| former.values().next());
    let mut seen = BTreeSet::new();
    for _ in 0..MOST_PASSES {
        let threads = process.threads().unwrap_or_default();
        let new: Vec<Tid> = threads.iter().filter(|thread| seen.insert(*thread)).collect();
        if new.is_empty() {
            return;
        }
        for thread in new {
            let inherits = || affinity(thread).is_ok_and(|own| own == *bound);
            if let Some(cpus) = former.get(&thread).or_else(|| of_first.filter(|_| inherits())) {
                let _ = set_affinity(thread, cpus);
            }
        }
    }
}

/// As [`bind_all`], for these of its threads only.
pub fn bind_these(
    process: &Process,
    cpus: &CpuSet,
    intersect: bool,
    wanted: &[u32],
) -> Result<Threads, Box<dyn Error>> {
    let mut result = Threads { cpus: cpus.clone(), ..Threads::default() };
    let threads = process.threads().map_err(|error| unseen(process.pid(), &error))?;
    if let Some(stranger) = wanted.iter().find(|thread| !threads.contains(Tid(**thread))) {
        return Err(UsageError::boxed(format!("process {} has no thread {stranger}", process.pid())));
    }
    for thread in wanted {
        bind(Tid(*thread), process, intersect, &mut result);
    }
    Ok(result)
}

/// Sets the CPUs of one thread, and notes the result.
pub fn bind(thread: Tid, process: &Process, intersect: bool, result: &mut Threads) {
    let wanted =
        if intersect { affinity(thread).map(|own| own.intersection(&result.cpus)) } else { Ok(result.cpus.clone()) };
    let refused = |why: String| RefusedThread { tid: thread.0, why };
    let error = match wanted {
        Ok(cpus) if cpus.is_empty() => {
            let why = format!("none of CPUs {} is among its current ones", result.cpus);
            return result.refused.push(refused(why));
        }
        Ok(cpus) => match set_affinity(thread, &cpus) {
            Ok(()) => return result.bound += 1,
            Err(error) => error,
        },
        Err(error) => error,
    };
    if error.raw_os_error() == Some(ESRCH) {
        result.ended += 1;
    } else {
        result.refused.push(refused(why(&error, &result.cpus, process)));
    }
}

fn why(error: &io::Error, cpus: &CpuSet, process: &Process) -> String {
    let errno = error.raw_os_error().unwrap_or_default();
    diagnose(Attempt::Run(cpus), errno, &SystemState::read(Some(process.pid()))).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Pid;
    use std::thread::{scope, spawn};

    /// Starts threads one after the other while something is done.
    fn while_threads_start<T>(work: impl FnOnce() -> T) -> T {
        let is_done = AtomicBool::new(false);
        scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    spawn(|| ()).join().unwrap();
                }
            });
            let result = work();
            is_done.store(true, Relaxed);
            result
        })
    }

    #[test]
    fn a_process_that_goes_on_starting_threads_is_bound_and_restored() {
        let own = Process::open(Pid(std::process::id())).unwrap();
        let cpus = affinity(Tid::CALLER).unwrap();
        let going_on = AtomicBool::new(false);
        let bound = while_threads_start(|| {
            let former = affinities(&own);
            let (bound, is_whole) = bind_all(&own, &cpus, false, &going_on).unwrap();
            assert!(is_whole);
            restore(&own, &former, &cpus);
            bound
        });
        assert!(bound.refused.is_empty() && bound.bound > 0, "{bound:?}");
        going_on.store(true, Relaxed);
        let (threads, is_whole) = bind_all(&own, &cpus, false, &going_on).unwrap();
        assert_eq!((threads.bound, is_whole), (0, false));
    }

    #[test]
    fn threads_that_began_while_others_were_bound_are_restored_too() {
        let own = Process::open(Pid(std::process::id())).unwrap();
        let cpus = affinity(Tid::CALLER).unwrap();
        let one: CpuSet = cpus.iter().take(1).collect();
        if one == cpus {
            return test_tools::skipped("there is one CPU only");
        }
        let former = affinities(&own);
        // A thread that began bound, as all that a bound thread starts.
        let restored = spawn(move || {
            set_affinity(Tid::CALLER, &one).unwrap();
            restore(&own, &former, &one);
            affinity(Tid::CALLER).unwrap()
        });
        assert_eq!(restored.join().unwrap(), cpus);
    }
}
