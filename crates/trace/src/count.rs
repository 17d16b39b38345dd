//! Counter values, beside single accesses.

use machine::{CpuId, NodeId};

/// A cumulative counter value of the whole machine, or of a CPU, at a moment. Counting may have started at any time: only the
/// difference of two values is meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Time, `CLOCK_MONOTONIC`, in ns. All values read at one moment have the same time.
    pub time_ns: u64,
    /// The counter.
    pub counter: Counter,
    /// Source node, for [`Counter::MemoryAccesses`] and [`Counter::LinkBytes`].
    pub from: Option<NodeId>,
    /// Destination node, for these and [`Counter::ControllerBytes`]. `None` if accesses are only known to have gone
    /// to another node.
    pub to: Option<NodeId>,
    /// The CPU, for [`Counter::SERVED`].
    pub cpu: Option<CpuId>,
    /// The value.
    pub value: u64,
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Counter {
    /// Instructions executed by CPUs.
    Instructions,
    /// Busy time of all CPUs together, in ns.
    #[strum(serialize = "cpu_time_ns")]
    CpuTime,
    /// The part of the busy time spent waiting for memory and caches beyond the first level, in ns.
    #[strum(serialize = "memory_wait_ns")]
    MemoryWait,
    /// Accesses by CPUs of one node served by the memory of a node.
    MemoryAccesses,
    /// Bytes read and written by the controller of a node.
    ControllerBytes,
    /// Bytes carried by a link, for CPUs at one end from memory at the other.
    LinkBytes,
    /// Threads that the scheduler moved to another CPU.
    ThreadMigrations,
    /// Threads that the kernel's NUMA balancing moved to another node.
    NumaMoves,
    /// Threads that it did not move although it had wanted to.
    NumaStays,
    /// Pairs of threads that it exchanged.
    NumaSwaps,
    /// A CPU's accesses that memory of its own node served.
    LocalDram,
    /// Those that memory of another node served.
    RemoteDram,
    /// Those that a modified line in another cache served.
    PeerModified,
    /// Those that a clean line in another cache served.
    PeerClean,
    /// Those that another cache served, where the processor does not say which kind of line it was.
    Peer,
}

impl Counter {
    /// Counters of what the kernel does with threads. They are read at other times than the rest.
    pub const SCHEDULING: [Self; 4] = [Self::ThreadMigrations, Self::NumaMoves, Self::NumaStays, Self::NumaSwaps];
    /// What served the accesses of a CPU, with the letters of Gachod 2024, 5.3.2. Each is a part of their sum.
    pub const SERVED: [(Self, &str); 5] = [
        (Self::LocalDram, "A"),
        (Self::RemoteDram, "B"),
        (Self::PeerModified, "C"),
        (Self::PeerClean, "D"),
        (Self::Peer, "CD"),
    ];
}
