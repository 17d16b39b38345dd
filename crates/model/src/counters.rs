//! What the model counted, for people and programs to read.

use machine::NodeId;
use serde::{Deserialize, Serialize};

/// What happened since the measurement began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// How long it took, simulated, s.
    pub time_s: f64,
    /// Accesses that read data.
    pub loads: u64,
    /// Accesses that wrote data.
    pub stores: u64,
    /// Accesses that fetched instructions.
    pub instruction_fetches: u64,
    /// Accesses that L1 caches served.
    pub l1_hits: u64,
    /// Accesses that L2 caches served.
    pub l2_hits: u64,
    /// Accesses that L3 caches served.
    pub l3_hits: u64,
    /// Accesses that missed L1 and went on with a sequential stream.
    pub stream_misses: u64,
    /// Accesses that memory served.
    pub dram_accesses: u64,
    /// Accesses that caches of other cores or nodes served.
    pub peer_hits: u64,
    /// Accesses to pages that no TLB knew.
    pub page_walks: u64,
    /// Lines that were written and left the last cache for memory.
    pub write_backs: u64,
    /// Mean latency of accesses that memory served, queues included, ns; none without accesses.
    pub dram_latency_mean_ns: Option<f64>,
    /// The share of accesses to memory that went to the node of the CPU; none without accesses.
    pub local_access_ratio: Option<f64>,
    /// Standard deviation (n - 1) of the controllers' accesses, over their mean; none without accesses or with one
    /// controller.
    pub imbalance: Option<f64>,
    /// The machine's nodes, ascending: the order of rows and columns.
    pub nodes: Vec<NodeId>,
    /// Accesses that memory served: rows are the CPU's node, columns the memory's.
    pub dram_accesses_by_node: Vec<Vec<u64>>,
    /// The controller of each node that has memory.
    pub controllers: Vec<ControllerCounters>,
    /// Each direction of each link.
    pub links: Vec<LinkCounters>,
    /// Each CPU, ascending. [`crate::Measured`] has them with what the plugin counted.
    #[serde(skip)]
    pub cpus: Vec<CpuCounters>,
}

/// What served the accesses of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCounters {
    /// Accesses that its L1 caches served.
    pub l1_hits: u64,
    /// Accesses that its L2 cache served.
    pub l2_hits: u64,
    /// Accesses that its L3 cache served.
    pub l3_hits: u64,
    /// Accesses that a cache of another core or node served, which had the line as memory has it.
    pub peer_clean_hits: u64,
    /// Accesses that a cache of another core or node served, which had modified the line.
    pub peer_modified_hits: u64,
    /// Accesses that memory served, by its node, in the order of [`Counters::nodes`].
    pub dram_accesses_by_node: Vec<u64>,
}

/// What one controller did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerCounters {
    /// Its node.
    pub node: NodeId,
    /// The load.
    #[serde(flatten)]
    pub load: Load,
}

/// What one direction of a link did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// The end that accesses came from; their data went there.
    pub from: NodeId,
    /// The end that accesses went to; their data came from there.
    pub to: NodeId,
    /// The load.
    #[serde(flatten)]
    pub load: Load,
}

/// The load of something with a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Data that it carried, bytes.
    pub bytes: u64,
    /// That over what it could have carried in the time.
    pub utilisation: f64,
    /// Mean time that a line waited for it, ns.
    pub queue_delay_mean_ns: f64,
}

/// Sample standard deviation (n - 1) over the mean; none for fewer than two values or where all are 0.
pub fn imbalance(values: &[u64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().map(|&value| value as f64).sum::<f64>() / count;
    let squares: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
    (values.len() > 1 && mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c22_c23_imbalance_is_over_n_minus_1() {
        assert_eq!(imbalance(&[100; 4]), Some(0.0));
        assert_eq!(imbalance(&[400, 0, 0, 0]), Some(2.0));
        assert_eq!(imbalance(&[0; 4]), None);
        assert_eq!(imbalance(&[7]), None);
        assert_eq!(imbalance(&[]), None);
    }
}
