//! CPU affinities of a process's threads.

use crate::options::usage_error::UsageError;
use crate::process::target::unseen;
use linux::{Attempt, Process, SystemState, Tid, affinity, diagnose, set_affinity};
use machine::CpuSet;
use report::{RefusedThread, Threads};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;

/// The error number for a thread that has ended.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Restricts all threads of a process to these CPUs or, with `intersect`, to those of their current CPUs that are in
/// the set. New threads inherit the CPUs of the thread that starts them: when a pass finds no new thread, none is left.
pub fn bind_all(process: &Process, cpus: &CpuSet, intersect: bool) -> Result<Threads, Box<dyn Error>> {
    let mut result = Threads { cpus: cpus.clone(), ..Threads::default() };
    let mut seen = BTreeSet::new();
    loop {
        let threads = process.threads().map_err(|error| unseen(process.pid(), &error))?;
        let new: Vec<Tid> = threads.iter().filter(|thread| seen.insert(*thread)).collect();
        if new.is_empty() {
            return Ok(result);
        }
        for thread in new {
            bind(thread, process, intersect, &mut result);
        }
    }
}

/// The CPUs of all threads of a process, for [`restore`].
pub fn affinities(process: &Process) -> BTreeMap<Tid, CpuSet> {
    let threads = process.threads().unwrap_or_default();
    threads.iter().filter_map(|thread| Some((thread, affinity(thread).ok()?))).collect()
}

/// Gives threads their former CPUs again. Those that have ended or cannot be changed were not changed before either.
pub fn restore(affinities: &BTreeMap<Tid, CpuSet>) {
    for (thread, cpus) in affinities {
        let _ = set_affinity(*thread, cpus);
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
