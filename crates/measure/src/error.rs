//! Why nothing, or something, could not be measured.

use machine::{CpuId, MachineError, NodeId, SysfsError, size};
use std::io;

/// Why a measurement failed, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// Linux does not show this machine.
    #[error("cannot find out what machine this is: {0}")]
    Machine(#[from] SysfsError),
    /// The kernel would not tell the affinity.
    #[error("cannot read the CPUs this process may run on (sched_getaffinity: {0})")]
    Affinity(io::Error),
    /// No node can be used.
    #[error("nothing can be measured here:\n{why}")]
    Nothing {
        /// What is wrong with each node, one line each.
        why: String,
    },
    /// The kernel would not run a thread on a CPU.
    #[error(
        "cannot run a thread on CPU {cpu} (sched_setaffinity: {source}): was it taken offline or out of the cpuset?"
    )]
    Pin {
        /// Where the thread should have run.
        cpu: CpuId,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; look at `ulimit -u` and at the limits of the container")]
    Thread(io::Error),
    /// The system gave no memory.
    #[error(
        "cannot get {} of memory on node {node} ({source}): ask for a smaller --size, or look at `ulimit -v`",
        size::format(*bytes)
    )]
    Memory {
        /// How much.
        bytes: u64,
        /// Where.
        node: NodeId,
        /// What the kernel answered.
        source: io::Error,
    },
    /// Memory lies elsewhere than was asked for.
    #[error("memory for node {wanted} lies on node {found}: {why}")]
    Misplaced {
        /// Where it should lie.
        wanted: NodeId,
        /// Where it lies.
        found: NodeId,
        /// Why that may be.
        why: &'static str,
    },
    /// There was nothing to measure with: too few cores or lines for this step.
    #[error("there is no memory on node {0} to measure with")]
    NoMemory(NodeId),
    /// It was asked to end.
    #[error("interrupted before it was complete")]
    Interrupted,
    /// A number's spread is above the limit, so it is not told.
    #[error(
        "repeats spread by up to {:.0} %, above the limit of {:.0} %: end other programs (load average {load}), or raise \
         --max-spread",
        spread * 100.0,
        limit * 100.0
    )]
    Spread {
        /// The distance between the quartiles over the median.
        spread: f64,
        /// The most that is told.
        limit: f64,
        /// The kernel's load average of the last minute, as text.
        load: String,
    },
    /// The calibrated machine breaks a rule, or cannot be written.
    #[error("the measured machine makes no machine file: {0}")]
    File(#[from] MachineError),
}
