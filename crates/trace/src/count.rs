//! What is counted beside single accesses.

use machine::NodeId;

/// How much of something there had been by a moment, since whenever its counting began: what matters is the difference
/// of two. It is of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// When, `CLOCK_MONOTONIC`, ns. All that was counted by one moment has the same.
    pub time_ns: u64,
    /// What was counted.
    pub counter: Counter,
    /// The node that it came from, of [`Counter::MemoryAccesses`] and [`Counter::LinkBytes`].
    pub from: Option<NodeId>,
    /// The node that it went to, of these and [`Counter::ControllerBytes`]; nothing where all that is known of accesses
    /// is that they went to another node.
    pub to: Option<NodeId>,
    /// How much.
    pub value: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Instructions that CPUs executed.
    Instructions,
    /// How long CPUs ran, all together, ns.
    CpuTime,
    /// How much of that they waited for memory and for caches beyond the first, ns.
    MemoryWait,
    /// Accesses of CPUs of one node that memory of one node served.
    MemoryAccesses,
    /// Data that the controller of a node read and wrote, bytes.
    ControllerBytes,
    /// Data that came over a link for CPUs at its one end from memory at its other, bytes.
    LinkBytes,
}
