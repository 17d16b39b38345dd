//! The model's counters, for people and programs.

use machine::NodeId;
use serde::{Deserialize, Serialize};

/// Counts since the measurement began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Its duration in simulated time, s.
    pub time_s: f64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Instruction fetches.
    pub instruction_fetches: u64,
    /// Accesses served by L1 caches.
    pub l1_hits: u64,
    /// Accesses served by L2 caches.
    pub l2_hits: u64,
    /// Accesses served by L3 caches.
    pub l3_hits: u64,
    /// Accesses that missed L1 and continued a sequential stream.
    pub stream_misses: u64,
    /// Accesses served by memory.
    pub dram_accesses: u64,
    /// Accesses served by caches of other cores or nodes.
    pub peer_hits: u64,
    /// Accesses to pages that were in no TLB.
    pub page_walks: u64,
    /// Dirty lines evicted from the last-level cache to memory.
    pub write_backs: u64,
    /// Mean latency of accesses served by memory, queues included, ns; `None` without such accesses.
    pub dram_latency_mean_ns: Option<f64>,
    /// Share of memory accesses that went to the CPU's own node; `None` without such accesses.
    pub local_access_ratio: Option<f64>,
    /// Standard deviation (n - 1) of the controllers' accesses over their mean; `None` without accesses or with one
    /// controller.
    pub imbalance: Option<f64>,
    /// The machine's nodes, ascending: the order of rows and columns.
    pub nodes: Vec<NodeId>,
    /// Accesses served by memory: rows are the CPU's node, columns the memory's.
    pub dram_accesses_by_node: Vec<Vec<u64>>,
    /// The controller of each node that has memory.
    pub controllers: Vec<ControllerCounters>,
    /// Each direction of each link.
    pub links: Vec<LinkCounters>,
    /// Each CPU, ascending. [`crate::Measured`] combines them with the plugin's counts.
    #[serde(skip)]
    pub cpus: Vec<CpuCounters>,
}

/// The accesses of one CPU, by what served them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCounters {
    /// Accesses served by its L1 caches.
    pub l1_hits: u64,
    /// Accesses served by its L2 cache.
    pub l2_hits: u64,
    /// Accesses served by its L3 cache.
    pub l3_hits: u64,
    /// Accesses served by a clean line in a cache of another core or node.
    pub peer_clean_hits: u64,
    /// Accesses served by a modified line in a cache of another core or node.
    pub peer_modified_hits: u64,
    /// Accesses served by memory, by its node, in the order of [`Counters::nodes`].
    pub dram_accesses_by_node: Vec<u64>,
    /// Dirty lines that its accesses evicted to memory, by the memory's node.
    #[serde(default)]
    pub write_backs_by_node: Vec<u64>,
    /// Lines that other nodes' caches supplied, by their node.
    #[serde(default)]
    pub transfers_by_node: Vec<u64>,
}

/// One controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerCounters {
    /// Its node.
    pub node: NodeId,
    /// Its load.
    #[serde(flatten)]
    pub load: Load,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// The end that accesses came from; their data went there.
    pub from: NodeId,
    /// The end that accesses went to; their data came from there.
    pub to: NodeId,
    /// Its load.
    #[serde(flatten)]
    pub load: Load,
}

/// The load of a resource with a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Data carried, bytes.
    pub bytes: u64,
    /// Data carried, over the capacity in that time.
    pub utilisation: f64,
    /// Mean queueing time of a line, ns.
    pub queue_delay_mean_ns: f64,
}
