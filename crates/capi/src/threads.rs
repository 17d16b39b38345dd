//! The CPUs that threads may run on.

use crate::boundary::{ErrorOut, Out, call, give};
use crate::sets::{ids, ns_set};
use library::{Combine, Error, Pid, Tid};
use std::ffi::c_int;

/// Numbers of the header.
const NS_INTERSECT: c_int = 1;
const NS_OVERWRITE: c_int = 2;

/// A number of a process or thread; 0 is the caller. Negative ones are refused.
pub(crate) fn number(name: &str, number: c_int) -> Result<u32, Error> {
    let wrong = |_| Error::Argument { attempt: format!("use {number} as `{name}`"), why: "it is negative".to_owned() };
    u32::try_from(number).map_err(wrong)
}

pub(crate) fn process(pid: c_int) -> Result<Pid, Error> {
    Ok(match number("pid", pid)? {
        0 => Pid(std::process::id()),
        number => Pid(number),
    })
}

pub(crate) fn combine(how: c_int) -> Result<Combine, Error> {
    match how {
        NS_INTERSECT => Ok(Combine::Intersect),
        NS_OVERWRITE => Ok(Combine::Overwrite),
        _ => Err(Error::Argument {
            attempt: format!("use {how} as `how`"),
            why: "it is neither NS_INTERSECT nor NS_OVERWRITE".to_owned(),
        }),
    }
}

/// Runs the calling thread on these CPUs.
#[unsafe(no_mangle)]
pub extern "C" fn ns_run_on(cpus: Option<&ns_set>, error: ErrorOut<'_>) -> c_int {
    call(error, || library::run_on(Tid::CALLER, &ids(cpus, "cpus")?).map(|()| 0))
}

/// Runs the calling thread on the CPUs of these nodes.
#[unsafe(no_mangle)]
pub extern "C" fn ns_run_on_nodes(nodes: Option<&ns_set>, error: ErrorOut<'_>) -> c_int {
    call(error, || library::run_on(Tid::CALLER, &library::cpus_of(&ids(nodes, "nodes")?)?).map(|()| 0))
}

/// Runs a thread of any process on these CPUs.
#[unsafe(no_mangle)]
pub extern "C" fn ns_thread_run_on(tid: c_int, cpus: Option<&ns_set>, error: ErrorOut<'_>) -> c_int {
    call(error, || library::run_on(Tid(number("tid", tid)?), &ids(cpus, "cpus")?).map(|()| 0))
}

/// The CPUs that a thread may run on.
#[unsafe(no_mangle)]
pub extern "C" fn ns_affinity(tid: c_int, cpus: Out<'_, Box<ns_set>>, error: ErrorOut<'_>) -> c_int {
    call(error, || give(cpus, "cpus", ns_set::of(&library::affinity(Tid(number("tid", tid)?))?)))
}

/// Runs every thread of a process on these CPUs. Returns the number of threads.
#[unsafe(no_mangle)]
pub extern "C" fn ns_process_run_on(pid: c_int, cpus: Option<&ns_set>, how: c_int, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let threads = library::run_process_on(process(pid)?, &ids(cpus, "cpus")?, combine(how)?)?;
        Ok(c_int::try_from(threads).unwrap_or(c_int::MAX))
    })
}
