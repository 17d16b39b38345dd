//! Why a measurement failed, in whole or in part.

use machine::{CpuId, MachineError, NodeId, SysfsError, size};
use std::io;

/// Why a measurement failed, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// Linux does not describe this machine.
    #[error("cannot find out what machine this is")]
    Machine(#[from] SysfsError),
    /// The kernel refused to return the affinity.
    #[error("cannot read the CPUs this process may run on (sched_getaffinity: {0})")]
    Affinity(io::Error),
    /// No node is usable.
    #[error("nothing can be measured here:\n{why}")]
    Nothing {
        /// What is wrong with each node, one line each.
        why: String,
    },
    /// The kernel refused to run a thread on a CPU.
    #[error(
        "cannot run a thread on CPU {cpu} (sched_setaffinity: {error}): was it taken offline or out of the cpuset?"
    )]
    Pin {
        /// The CPU.
        cpu: CpuId,
        /// The error.
        error: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; look at `ulimit -u` and at the limits of the container")]
    Thread(io::Error),
    /// The memory could not be allocated.
    #[error(
        "cannot get {} of memory on node {node} ({error}): ask for a smaller --size, or look at `ulimit -v`",
        size::format(*bytes)
    )]
    Memory {
        /// The size.
        bytes: u64,
        /// The node.
        node: NodeId,
        /// The error.
        error: io::Error,
    },
    /// Memory is on another node than requested.
    #[error("memory for node {wanted} is on node {found}: {why}")]
    Misplaced {
        /// The requested node.
        wanted: NodeId,
        /// The actual node.
        found: NodeId,
        /// A possible reason.
        why: &'static str,
    },
    /// Nothing to measure with: too few cores or lines for this step.
    #[error("there is no memory on node {0} to measure with")]
    NoMemory(NodeId),
    /// The measurement was interrupted.
    #[error("interrupted before it was complete")]
    Interrupted,
    /// A number's spread is above the limit, so it is not reported.
    #[error(
        "repeats spread by more than {:.0} %: end other programs (load average {load}), or raise --max-spread",
        limit * 100.0
    )]
    Spread {
        /// The largest interquartile range over the median that is accepted.
        limit: f64,
        /// The kernel's load average of the last minute, as text.
        load: String,
    },
    /// The calibrated machine breaks a rule, or cannot be written.
    #[error("the measured machine cannot be written as a machine file")]
    File(#[from] MachineError),
}
