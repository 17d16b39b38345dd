//! Processor events that sample memory accesses with their addresses, the level that served them and their latency.

use super::pmu::Config;
use linux::CpuSet;

/// Minimum latency of sampled loads on Intel's processors, and of loads and stores on Arm's, in cycles. It leaves out
/// hits of the first-level caches.
pub(super) const LEAST_LATENCY: u32 = 30;

/// An event that samples memory accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryEvent {
    /// The event in perf's notation.
    pub name: String,
    pub config: Config,
    /// An event that has to lead the group.
    pub leader: Option<Config>,
    /// Required precision: `precise_ip`.
    pub precise: u32,
    /// The CPUs that have the event; `None` for all.
    pub cpus: Option<CpuSet>,
    /// The kind of counter.
    pub kind: Kind,
}

/// Capabilities of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ordinary counter: it can exclude the kernel, and takes any period.
    Counter,
    /// AMD's instruction-based sampling, with the configuration that excludes the kernel (since Linux 6.14). Its
    /// periods are multiples of 16.
    Ibs(Option<Config>),
    /// Arm's SPE, which writes into an AUX area, with the configuration that adds physical addresses, and its
    /// shortest period.
    Spe(Config, u64),
}
