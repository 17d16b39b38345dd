//! The CPUs that threads may run on: of the caller, and of live processes.

use crate::error::{EBUSY, EINVAL, Error, subject};
use linux::{Attempt, Cause, Pid, Process, ProcessError, SystemState, Tid, cpus_in_the_way, diagnose, set_affinity};
use machine::{CpuSet, IdSet};
use std::collections::BTreeMap;
use std::io;

/// How a set of CPUs changes the affinity of a thread that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The CPUs in both sets.
    Intersect,
    /// The new set.
    Overwrite,
}

/// Longest series of looks at the threads of a process that starts threads all the time.
const MOST_ROUNDS: usize = 64;

/// The CPUs that a thread may run on; [`Tid::CALLER`] is the calling one. Needs no privileges.
pub fn affinity(thread: Tid) -> Result<CpuSet, Error> {
    linux::affinity(thread).map_err(|answer| {
        let attempt = format!("read the affinity of {}", named(thread));
        Error::of_kernel(attempt, "sched_getaffinity", &answer, pid(thread), Attempt::Run(&CpuSet::new()))
    })
}

/// Restricts a thread to these CPUs, and the threads that it starts later. When the call returns to the thread itself, it
/// runs on one of them. All or nothing: if a CPU of the set does not exist or is outside the cpuset, which the kernel
/// would ignore, the affinity stays as it was. Needs the thread's user, or `CAP_SYS_NICE`.
pub fn run_on(thread: Tid, cpus: &CpuSet) -> Result<(), Error> {
    let attempt = || format!("run {} on CPUs {cpus}", named(thread));
    if cpus.is_empty() {
        return Err(Error::argument(format!("run {} on no CPU", named(thread)), "the set is empty"));
    }
    let before = affinity(thread)?;
    let refused =
        |answer: &io::Error| Error::of_kernel(attempt(), "sched_setaffinity", answer, pid(thread), Attempt::Run(cpus));
    set_affinity(thread, cpus).map_err(|answer| refused(&answer))?;
    let after = affinity(thread)?;
    if after == *cpus {
        return Ok(());
    }
    set_affinity(thread, &before).map_err(|answer| refused(&answer))?;
    let system = SystemState::read(pid(thread));
    let changed = || Cause::Other(format!("the kernel only took CPUs {after}")).into();
    let diagnosis = cpus_in_the_way(cpus, &system).unwrap_or_else(changed);
    Err(Error::refused(attempt(), "sched_setaffinity", EINVAL, diagnosis))
}

/// Changes the affinity of every thread of a process, until all have it: also of threads that are started meanwhile,
/// which inherit the affinity of their creator. Returns the number of threads changed. If the intersection of a thread's
/// CPUs with the new ones is empty, or a CPU does not exist, no thread is changed; for one that was started meanwhile, those
/// before it are. Needs the process's user, or
/// `CAP_SYS_NICE`. Linux has no call for the memory policy of another process: [`migrate_process`](crate::migrate_process)
/// moves its pages.
pub fn run_process_on(pid: Pid, cpus: &CpuSet, combine: Combine) -> Result<usize, Error> {
    let attempt = || format!("run process {pid} on CPUs {cpus}");
    if cpus.is_empty() {
        return Err(Error::argument(format!("run process {pid} on no CPU"), "the set is empty"));
    }
    let system = SystemState::read(subject(pid));
    let process = |error: ProcessError| {
        let diagnosis = linux::diagnose_process(&error, &system);
        let errno = match &error {
            ProcessError::Gone(_) => crate::error::ESRCH,
            ProcessError::Read { source, .. } => source.raw_os_error().unwrap_or(crate::error::EPERM),
            ProcessError::Malformed { .. } => crate::error::EPERM,
        };
        Error::refused(attempt(), "read /proc/PID/task", errno, diagnosis)
    };
    let opened = Process::open(pid).map_err(process)?;
    if let Some(diagnosis) = cpus_in_the_way(cpus, &system) {
        return Err(Error::refused(attempt(), "sched_setaffinity", EINVAL, diagnosis));
    }
    let mut done: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for _ in 0..MOST_ROUNDS {
        let all = opened.threads().map_err(process)?;
        let new: IdSet<Tid> = all.iter().filter(|thread| !done.contains_key(&thread.0)).collect();
        if new.is_empty() {
            return Ok(done.len());
        }
        for (thread, wanted) in wanted(&new, cpus, combine, &attempt)? {
            match set_affinity(thread, &wanted) {
                // It ended meanwhile.
                Err(answer) if answer.raw_os_error() == Some(crate::error::ESRCH) => {}
                Err(answer) => {
                    let diagnosis = diagnose(Attempt::Run(&wanted), answer.raw_os_error().unwrap_or(EINVAL), &system);
                    let errno = answer.raw_os_error().unwrap_or(EINVAL);
                    return Err(Error::refused(attempt(), "sched_setaffinity", errno, diagnosis));
                }
                Ok(()) => {}
            }
            done.insert(thread.0, wanted);
        }
    }
    let why = Cause::Other("it starts threads faster than they can be looked at: stop it meanwhile".to_owned());
    Err(Error::refused(attempt(), "sched_setaffinity", EBUSY, why))
}

/// The affinity that each thread gets; ended ones are left out.
fn wanted(
    threads: &IdSet<Tid>,
    cpus: &CpuSet,
    combine: Combine,
    attempt: &impl Fn() -> String,
) -> Result<Vec<(Tid, CpuSet)>, Error> {
    let mut wanted = Vec::with_capacity(threads.len());
    for thread in threads.iter() {
        let cpus = match combine {
            Combine::Overwrite => cpus.clone(),
            Combine::Intersect => {
                let Ok(own) = linux::affinity(thread) else { continue };
                let both = own.intersection(cpus);
                if both.is_empty() {
                    let why = format!("thread {thread} may only run on CPUs {own}: nothing would be left");
                    return Err(Error::argument(attempt(), why));
                }
                both
            }
        };
        wanted.push((thread, cpus));
    }
    Ok(wanted)
}

fn named(thread: Tid) -> String {
    if thread == Tid::CALLER { "the calling thread".to_owned() } else { format!("thread {thread}") }
}

/// The process whose state explains a refusal: /proc has a folder of each thread, too.
fn pid(thread: Tid) -> Option<Pid> {
    (thread != Tid::CALLER).then_some(Pid(thread.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuId;

    fn allowed() -> CpuSet {
        affinity(Tid::CALLER).unwrap()
    }

    #[test]
    fn a_set_with_a_cpu_that_does_not_exist_changes_nothing() {
        std::thread::spawn(|| {
            let before = allowed();
            let mut beyond = before.clone();
            beyond.insert(CpuId(100_000));
            let error = run_on(Tid::CALLER, &beyond).unwrap_err();
            assert!(error.to_string().contains("there is no CPU 100000"), "{error}");
            assert_eq!((allowed(), error.errno()), (before.clone(), EINVAL));
            assert!(run_on(Tid::CALLER, &CpuSet::new()).unwrap_err().to_string().ends_with("the set is empty"));
            let last: CpuSet = before.iter().last().into_iter().collect();
            run_on(Tid::CALLER, &last).unwrap();
            assert_eq!((Some(crate::here().unwrap().0), allowed()), (last.first(), last));
        })
        .join()
        .unwrap();
        let gone = run_on(Tid(u32::MAX >> 1), &allowed()).unwrap_err();
        assert_eq!(gone.errno(), crate::error::ESRCH);
        assert!(gone.to_string().contains("there is no process"), "{gone}");
    }

    /// Claim 3 of the specification: each existing thread has the intersection of its own CPUs and the new ones.
    #[test]
    fn threads_of_another_process_get_the_intersection_or_the_new_set() {
        let all = allowed();
        if all.len() < 2 {
            return test_tools::skipped("one CPU is too few");
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id());
        let one: CpuSet = all.first().into_iter().collect();
        let other: CpuSet = all.iter().last().into_iter().collect();
        assert_eq!(run_process_on(pid, &one, Combine::Intersect).unwrap(), 1);
        assert_eq!(affinity(Tid(pid.0)).unwrap(), one);
        let error = run_process_on(pid, &other, Combine::Intersect).unwrap_err();
        assert!(error.to_string().contains("nothing would be left"), "{error}");
        assert_eq!(affinity(Tid(pid.0)).unwrap(), one);
        assert_eq!(run_process_on(pid, &other, Combine::Overwrite).unwrap(), 1);
        assert_eq!(affinity(Tid(pid.0)).unwrap(), other);
        let beyond: CpuSet = [CpuId(100_000)].into_iter().collect();
        assert!(run_process_on(pid, &beyond, Combine::Overwrite).unwrap_err().to_string().contains("there is no CPU"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(run_process_on(pid, &one, Combine::Overwrite).unwrap_err().errno(), crate::error::ESRCH);
    }
}
