//! What served the accesses of each CPU, as counters of cores say.

use super::text::{Lines, number, share};
use machine::{CpuId, NodeId};
use profile::Profile;
use serde::Serialize;
use std::collections::BTreeMap;
use trace::Counter;

/// What served the accesses of a node's CPUs beyond their own caches, of all programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeAccesses {
    /// The node.
    pub node: NodeId,
    /// Those of all its CPUs.
    #[serde(flatten)]
    pub served: ServedCounts,
    /// Those of each.
    pub cpus: Vec<CpuAccesses>,
}

/// What served the accesses of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuAccesses {
    /// The CPU.
    pub cpu: CpuId,
    /// Its accesses.
    #[serde(flatten)]
    pub served: ServedCounts,
}

/// Accesses by what served them. What the processor does not count is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedCounts {
    /// Memory of the CPU's node.
    pub local_dram: Option<u64>,
    /// Memory of another node.
    pub remote_dram: Option<u64>,
    /// A modified line in another cache.
    pub peer_modified: Option<u64>,
    /// A clean line in another cache.
    pub peer_clean: Option<u64>,
    /// Another cache, where its lines are counted as one kind.
    pub peer: Option<u64>,
}

impl ServedCounts {
    fn new(counts: &BTreeMap<Counter, u64>) -> Self {
        let of = |counter| counts.get(&counter).copied();
        Self {
            local_dram: of(Counter::LocalDram),
            remote_dram: of(Counter::RemoteDram),
            peer_modified: of(Counter::PeerModified),
            peer_clean: of(Counter::PeerClean),
            peer: of(Counter::Peer),
        }
    }

    /// Each kind as a part of all: `80.0 % local memory (A), ...`.
    fn text(&self) -> String {
        let kinds = [
            (self.local_dram, "local memory (A)"),
            (self.remote_dram, "remote memory (B)"),
            (self.peer_modified, "modified lines of other caches (C)"),
            (self.peer_clean, "clean ones (D)"),
            (self.peer, "other caches (C and D)"),
        ];
        let sum = kinds.iter().filter_map(|(count, _)| *count).fold(0, u64::saturating_add);
        let part = |count: u64| share((sum > 0).then(|| count as f64 / sum as f64));
        let parts: Vec<String> =
            kinds.iter().filter_map(|(count, what)| Some(format!("{} {what}", part((*count)?)))).collect();
        format!("{} accesses beyond a CPU's caches: {}", number(sum), parts.join(", "))
    }
}

/// Of a trace, by node: empty where they were not counted.
pub(super) fn by_node(profile: &Profile) -> Vec<NodeAccesses> {
    let mut nodes: BTreeMap<NodeId, (BTreeMap<Counter, u64>, Vec<CpuAccesses>)> = BTreeMap::new();
    for (cpu, counts) in profile.cpu_accesses() {
        let Some(node) = profile.node_of_cpu(cpu) else { continue };
        let (sums, cpus) = nodes.entry(node).or_default();
        for (counter, count) in &counts {
            let sum = sums.entry(*counter).or_insert(0);
            *sum = sum.saturating_add(*count);
        }
        cpus.push(CpuAccesses { cpu, served: ServedCounts::new(&counts) });
    }
    nodes
        .into_iter()
        .map(|(node, (sums, cpus))| NodeAccesses { node, served: ServedCounts::new(&sums), cpus })
        .collect()
}

/// One line a node.
pub(super) fn add_to(nodes: &[NodeAccesses], lines: &mut Lines) {
    for of in nodes {
        lines.add(&format!("node {}", of.node), &of.served.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_what_is_counted() {
        let amd = [(Counter::LocalDram, 60), (Counter::RemoteDram, 30), (Counter::Peer, 10)];
        assert_eq!(
            ServedCounts::new(&amd.into()).text(),
            "100 accesses beyond a CPU's caches: 60.0 % local memory (A), 30.0 % remote memory (B), 10.0 % other caches \
             (C and D)"
        );
        let none = ServedCounts::new(&[(Counter::LocalDram, 0), (Counter::PeerClean, 0)].into());
        assert_eq!(none.text(), "0 accesses beyond a CPU's caches: - local memory (A), - clean ones (D)");
        let all = ServedCounts { local_dram: Some(u64::MAX), remote_dram: Some(7), ..ServedCounts::default() };
        assert!(all.text().contains("100.0 % local memory (A), 0.0 % remote memory (B)"), "{}", all.text());
    }
}
