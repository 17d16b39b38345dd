//! What can stand in the way of a workload.

use machine::size;
use machine::{CpuId, CpuSet};
use std::fmt;

/// Why a workload could not run, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A CPU was asked for that this process may not run on.
    #[error(
        "{option} {wanted}: CPU {refused} does not exist or this process may not run on it; it may run on CPUs {allowed}"
    )]
    NotAllowed {
        /// The option that asked.
        option: &'static str,
        /// What it asked for.
        wanted: CpuSet,
        /// The part of it that is not allowed.
        refused: CpuSet,
        /// What is.
        allowed: CpuSet,
    },
    /// `--pin` without a CPU in it.
    #[error("--pin names no CPU: give a list such as 0-3,5")]
    NoPin,
    /// Some threads would have no CPU.
    #[error("{threads} threads but only {} CPUs in --pin {pins}: name more CPUs or ask for --threads {}", pins.len(), pins.len())]
    FewerPins {
        /// How many threads were asked for.
        threads: usize,
        /// The CPUs to pin them to.
        pins: CpuSet,
    },
    /// Some threads would have less than a page to work on.
    #[error(
        "--size {} is less than a page for each of {threads} threads: ask for at least --size {least}, or fewer --threads",
        size::format(*bytes)
    )]
    SmallerThanThreads {
        /// What was asked for.
        bytes: u64,
        /// How many threads share it.
        threads: usize,
        /// The least that would do, in bytes.
        least: u64,
    },
    /// The allocator refused.
    #[error("cannot get {} of memory from the system: ask for a smaller --size, or look at `ulimit -v`", size::format(*bytes))]
    Memory {
        /// What one array needs.
        bytes: u64,
    },
    /// The kernel would not tell the affinity.
    #[error("cannot read the CPUs this process may run on (sched_getaffinity: {0})")]
    Affinity(rustix::io::Errno),
    /// The kernel would not set the affinity.
    #[error(
        "cannot run a thread on CPU {cpu} (sched_setaffinity: {source}): was it taken offline or out of the cpuset?"
    )]
    Pin {
        /// Where the thread should have run.
        cpu: CpuId,
        /// What the kernel answered.
        source: rustix::io::Errno,
    },
    /// The kernel would not set the affinity back.
    #[error("cannot run a thread on every CPU again (sched_setaffinity: {0})")]
    Unpin(rustix::io::Errno),
    /// A thread could not be started.
    #[error("cannot start thread {thread} of {threads}: {source}; ask for fewer --threads, or look at `ulimit -u`")]
    Thread {
        /// Which, from 0.
        thread: usize,
        /// Of how many.
        threads: usize,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The sum of an array is not that of what was added to it.
    #[error("writes were lost: the sum is {found:#x} and should be {expected:#x}")]
    WritesLost {
        /// What was added.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// More than a workload's numbers can count.
    #[error("--size {} is more than this workload counts: ask for at most --size {most}", size::format(*bytes))]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The most that would do, in bytes.
        most: u64,
    },
    /// What a workload computed is not what a sequential check comes to.
    #[error("the result is wrong: {what} is {found} and should be {expected}")]
    Wrong {
        /// What was checked.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A verb whose threads work together has too few.
    #[error("{threads} threads are too few: ask for at least --threads {least}")]
    TooFewThreads {
        /// How many threads were asked for, or came from the CPUs.
        threads: usize,
        /// How many it takes.
        least: usize,
    },
    /// A verb takes another number of threads.
    #[error("{threads} threads: this takes {wanted}, as --threads {wanted}, or as many CPUs in --pin")]
    OtherThreads {
        /// How many threads were asked for, or came from the CPUs.
        threads: usize,
        /// How many it takes.
        wanted: usize,
    },
    /// Memory could not be got or moved as it was asked for.
    #[error("the system refused: {0}")]
    System(std::io::Error),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] std::io::Error),
}

/// Refuses a size of more elements than numbers of 32 bits count, one of which stands for none.
pub fn check_count(bytes: usize, bytes_of_one: usize) -> Result<(), Error> {
    let most = u64::from(u32::MAX / 2).saturating_mul(bytes_of_one as u64);
    if bytes as u64 <= most { Ok(()) } else { Err(Error::TooLarge { bytes: bytes as u64, most }) }
}

/// Refuses a result that is not what a sequential check comes to.
pub fn check<T: Copy + PartialEq + fmt::Debug>(what: &'static str, expected: T, found: T) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(Error::Wrong { what, expected: format!("{expected:?}"), found: format!("{found:?}") })
    }
}
