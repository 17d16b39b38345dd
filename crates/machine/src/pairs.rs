//! A value for each pair of nodes, some of which are unknown: the form of latencies in firmware tables and hwloc.

use crate::description::{Latency, Node};
use crate::numbers::{Checked, LATENCY};
use crate::source::Source;

/// Latency by pair of nodes, ns; rows are the accessing nodes.
pub(crate) struct LatencyPairs {
    nodes: usize,
    /// Row by row; NaN if unknown.
    latency_ns: Vec<f64>,
    checked: Checked,
}

impl LatencyPairs {
    pub fn new(nodes: usize) -> Self {
        Self { nodes, latency_ns: vec![f64::NAN; nodes * nodes], checked: Checked::new("latencies", LATENCY) }
    }

    /// Sets the latency from the `from`th node to the `to`th. One that no machine has stays unknown.
    pub fn set(&mut self, from: usize, to: usize, latency_ns: f64) {
        let cell = self.latency_ns.get_mut(from * self.nodes + to);
        if let Some((cell, latency_ns)) = cell.zip(self.checked.take(latency_ns)) {
            *cell = latency_ns;
        }
    }

    /// Which latencies were left out.
    pub fn warning(&self) -> Option<String> {
        self.checked.warning()
    }

    /// The whole matrix, if every pair that an access can take (from a node with CPUs to one with memory) is known.
    /// Every other unknown pair gets the latency of the opposite direction or, failing that, the largest of all.
    pub fn into_latency(self, nodes: &[Node], source: Option<Source>) -> Option<Latency> {
        let at =
            |from: usize, to: usize| self.latency_ns.get(from * self.nodes + to).copied().filter(|ns| !ns.is_nan());
        let largest = self.latency_ns.iter().copied().filter(|ns| !ns.is_nan()).max_by(f64::total_cmp)?;
        let mut matrix_ns = Vec::with_capacity(self.nodes);
        for (from, initiator) in nodes.iter().enumerate() {
            let mut row = Vec::with_capacity(self.nodes);
            for (to, target) in nodes.iter().enumerate() {
                let taken = !initiator.cpus.is_empty() && target.memory_bytes > 0;
                row.push(match at(from, to) {
                    Some(latency_ns) => latency_ns,
                    None if taken => return None,
                    None => at(to, from).unwrap_or(largest),
                });
            }
            matrix_ns.push(row);
        }
        Some(Latency { matrix_ns, source, ..Latency::default() })
    }
}
