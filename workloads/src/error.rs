//! Errors of workloads.

use machine::CpuSet;
use machine::size;
use std::fmt;

/// Why a workload could not run, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A requested CPU is not available to this process.
    #[error(
        "{option} {wanted}: CPU {refused} does not exist or this process may not run on it; it may run on CPUs {allowed}"
    )]
    NotAllowed {
        /// The option with the CPUs.
        option: &'static str,
        /// The requested CPUs.
        wanted: CpuSet,
        /// Those of them that are not allowed.
        refused: CpuSet,
        /// The allowed CPUs.
        allowed: CpuSet,
    },
    /// The environment has no list of places.
    #[error("OMP_PLACES")]
    Places(#[source] machine::PlacesError),
    /// The environment has no number of threads.
    #[error("OMP_NUM_THREADS is `{0}`, which is no number from 1 to 1000000")]
    Threads(String),
    /// Some threads would have no CPU.
    #[error("{threads} threads but only {} CPUs in --pin {pins}: name more CPUs or ask for --threads {}", pins.0.len(), pins.0.len())]
    FewerPins {
        /// Requested number of threads.
        threads: usize,
        /// The CPUs to pin them to.
        pins: machine::Places,
    },
    /// Some threads would have less than a page to work on.
    #[error(
        "--size {} is less than a page for each of {threads} threads: ask for at least --size {least}, or fewer --threads",
        size::format(*bytes)
    )]
    SmallerThanThreads {
        /// Requested size.
        bytes: u64,
        /// Number of threads that share it.
        threads: usize,
        /// The smallest size that works, in bytes.
        least: u64,
    },
    /// An allocation failed.
    #[error("cannot get {} of memory from the system: ask for a smaller --size, or look at `ulimit -v`", size::format(*bytes))]
    Memory {
        /// Size of one array.
        bytes: u64,
    },
    /// Reading the affinity failed.
    #[error("cannot read the CPUs this process may run on (sched_getaffinity: {0})")]
    Affinity(rustix::io::Errno),
    /// Setting the affinity failed.
    #[error(
        "cannot run a thread on CPU {cpus} (sched_setaffinity: {error}): was it taken offline or out of the cpuset?"
    )]
    Pin {
        /// The CPUs for the thread.
        cpus: CpuSet,
        /// The kernel's error.
        error: rustix::io::Errno,
    },
    /// Restoring the affinity failed.
    #[error("cannot run a thread on every CPU again (sched_setaffinity: {0})")]
    Unpin(rustix::io::Errno),
    /// A thread could not be started.
    #[error("cannot start thread {thread} of {threads}: {error}; ask for fewer --threads, or look at `ulimit -u`")]
    Thread {
        /// Index, from 0.
        thread: usize,
        /// Total number.
        threads: usize,
        /// The system's error.
        error: std::io::Error,
    },
    /// The sum of an array differs from the sum of everything added.
    #[error("writes were lost: the sum is {found:#x} and should be {expected:#x}")]
    WritesLost {
        /// The sum of everything added.
        expected: u64,
        /// The sum of the array.
        found: u64,
    },
    /// The size exceeds the range of a workload's numbers.
    #[error("--size {} is more than this workload counts: ask for at most --size {most}", size::format(*bytes))]
    TooLarge {
        /// Requested size.
        bytes: u64,
        /// The largest size that works, in bytes.
        most: u64,
    },
    /// The times of passes cannot be written.
    #[error("cannot write the times of passes to {}: {error}", path.display())]
    Passes {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A workload's result differs from that of a sequential check.
    #[error("the result is wrong: {what} is {found} and should be {expected}")]
    Wrong {
        /// The checked value.
        what: &'static str,
        /// Its expected value.
        expected: String,
        /// Its actual value.
        found: String,
    },
    /// Too few threads for a verb whose threads work together.
    #[error("{threads} threads are too few: ask for at least --threads {least}")]
    TooFewThreads {
        /// Requested number of threads, or the number of CPUs.
        threads: usize,
        /// The required number.
        least: usize,
    },
    /// A verb needs another number of threads.
    #[error("{threads} threads: this takes {wanted}, as --threads {wanted}, or as many CPUs in --pin")]
    OtherThreads {
        /// Requested number of threads, or the number of CPUs.
        threads: usize,
        /// The required number.
        wanted: usize,
    },
    /// Memory could not be allocated or moved as requested.
    #[error("the system refused")]
    System(#[source] std::io::Error),
    /// The result could not be written.
    #[error("cannot write the result")]
    Output(#[from] std::io::Error),
}

/// Rejects a size with more elements than 32-bit numbers can count, one of which stands for none.
pub fn check_count(bytes: usize, bytes_of_one: usize) -> Result<(), Error> {
    let most = u64::from(u32::MAX / 2).saturating_mul(bytes_of_one as u64);
    if bytes as u64 <= most { Ok(()) } else { Err(Error::TooLarge { bytes: bytes as u64, most }) }
}

/// Rejects a result that differs from that of a sequential check.
pub fn check<T: Copy + PartialEq + fmt::Debug>(what: &'static str, expected: T, found: T) -> Result<(), Error> {
    if expected == found {
        Ok(())
    } else {
        Err(Error::Wrong { what, expected: format!("{expected:?}"), found: format!("{found:?}") })
    }
}
