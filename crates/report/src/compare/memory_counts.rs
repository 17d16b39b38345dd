//! Memory accesses of the machine during a run.

use machine::NodeId;
use model::Measured;
use serde::{Deserialize, Serialize};

/// Counts of the machine's memory accesses between two points in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryCounts {
    /// The machine's nodes, ascending: the order of rows and columns.
    pub nodes: Vec<NodeId>,
    /// Accesses that memory served: rows are the CPU's node, columns the memory's.
    pub accesses_by_node: Vec<Vec<u64>>,
    /// The nodes that have memory.
    pub controllers: Vec<NodeId>,
    /// Mean latency of these accesses, ns; none without any.
    pub latency_mean_ns: Option<f64>,
}

impl MemoryCounts {
    /// The difference of two cumulative counts. None if they are of different machines.
    pub fn between(before: &Measured, after: &Measured) -> Option<Self> {
        let (before, after) = (&before.counters, &after.counters);
        if before.nodes != after.nodes {
            return None;
        }
        let rows = before.dram_accesses_by_node.iter().zip(&after.dram_accesses_by_node);
        let more = |(before, after): (&Vec<u64>, &Vec<u64>)| {
            before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
        };
        let waited = |counters: &model::Counters| {
            counters.dram_latency_mean_ns.map_or(0.0, |mean| mean * counters.dram_accesses as f64)
        };
        let accesses = after.dram_accesses.saturating_sub(before.dram_accesses);
        Some(Self {
            nodes: after.nodes.clone(),
            accesses_by_node: rows.map(more).collect(),
            controllers: after.controllers.iter().map(|controller| controller.node).collect(),
            latency_mean_ns: (accesses > 0).then(|| (waited(after) - waited(before)) / accesses as f64),
        })
    }

    /// The sum of several runs on one machine; none if there are none.
    pub(super) fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut all = all.into_iter();
        let mut sum = all.next()?.clone();
        let mut waited = sum.waited_ns();
        for counts in all {
            waited += counts.waited_ns();
            for (row, more) in sum.accesses_by_node.iter_mut().zip(&counts.accesses_by_node) {
                row.iter_mut().zip(more).for_each(|(cell, more)| *cell = cell.saturating_add(*more));
            }
        }
        let accesses = sum.accesses();
        sum.latency_mean_ns = (accesses > 0).then(|| waited / accesses as f64);
        Some(sum)
    }

    fn waited_ns(&self) -> f64 {
        self.latency_mean_ns.unwrap_or(0.0) * self.accesses() as f64
    }

    /// Accesses that memory served.
    pub fn accesses(&self) -> u64 {
        self.accesses_by_node.iter().flatten().fold(0, |sum: u64, cell| sum.saturating_add(*cell))
    }

    /// The share of local accesses; none without accesses.
    pub fn local_access_ratio(&self) -> Option<f64> {
        let local = self.accesses_by_node.iter().enumerate().filter_map(|(index, row)| row.get(index));
        let local = local.fold(0, |sum: u64, cell| sum.saturating_add(*cell));
        self.share(local)
    }

    /// Standard deviation (n - 1) of the accesses to each node with memory, over their mean; none with one such node.
    pub fn imbalance(&self) -> Option<f64> {
        machine::imbalance(self.by_controller().into_iter().map(|accesses| accesses as f64))
    }

    /// The share of accesses that the busiest node served; none without any.
    pub fn busiest_share(&self) -> Option<f64> {
        self.share(self.by_controller().into_iter().max()?)
    }

    fn share(&self, part: u64) -> Option<f64> {
        let all = self.accesses();
        (all > 0).then(|| part as f64 / all as f64)
    }

    fn by_controller(&self) -> Vec<u64> {
        let has_memory = |(_, node): &(usize, &NodeId)| self.controllers.contains(node);
        let column = |index: usize| {
            let cells = self.accesses_by_node.iter().filter_map(move |row| row.get(index));
            cells.fold(0, |sum: u64, cell| sum.saturating_add(*cell))
        };
        self.nodes.iter().enumerate().filter(has_memory).map(|(index, _)| column(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ControllerCounters, Counters, Load};

    fn measured(accesses: [[u64; 2]; 2], latency_ns: f64) -> Measured {
        let controller = |node| ControllerCounters {
            node: NodeId(node),
            load: Load { bytes: 0, utilisation: 0.0, queue_delay_mean_ns: 0.0 },
        };
        let all = accesses.iter().flatten().sum();
        let counters = Counters {
            time_s: 1.0,
            loads: 0,
            stores: 0,
            instruction_fetches: 0,
            l1_hits: 0,
            l2_hits: 0,
            l3_hits: 0,
            stream_misses: 0,
            dram_accesses: all,
            peer_hits: 0,
            page_walks: 0,
            write_backs: 0,
            dram_latency_mean_ns: (all > 0).then_some(latency_ns),
            local_access_ratio: None,
            imbalance: None,
            nodes: vec![NodeId(0), NodeId(2)],
            dram_accesses_by_node: accesses.map(|row| row.to_vec()).to_vec(),
            controllers: vec![controller(0), controller(2)],
            links: vec![],
            cpus: vec![],
        };
        Measured {
            instructions: 0,
            clock_releases: 0,
            cpu_time_s: 0.0,
            memory_wait_s: 0.0,
            per_cpu: vec![],
            tasks: vec![],
            tasks_uncounted: 0,
            counters,
        }
    }

    #[test]
    fn what_a_run_did_is_what_was_counted_more() {
        let before = measured([[100, 0], [0, 0]], 100.0);
        let after = measured([[170, 10], [20, 0]], 150.0);
        let counts = MemoryCounts::between(&before, &after).unwrap();
        assert_eq!(counts.accesses_by_node, [[70, 10], [20, 0]]);
        assert_eq!((counts.local_access_ratio(), counts.busiest_share()), (Some(0.7), Some(0.9)));
        assert_eq!(counts.latency_mean_ns, Some(200.0));
        assert!((counts.imbalance().unwrap() - 1.1314).abs() < 1e-3);
        let twice = MemoryCounts::sum([&counts, &counts]).unwrap();
        assert_eq!((twice.accesses(), twice.latency_mean_ns), (200, Some(200.0)));
        assert_eq!(MemoryCounts::sum([]), None);
        let idle = MemoryCounts::between(&after, &after).unwrap();
        assert_eq!((idle.local_access_ratio(), idle.latency_mean_ns, idle.imbalance()), (None, None, None));
    }
}
