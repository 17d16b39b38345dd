//! Output in numactl's format.

use linux::{MemoryMode, MemoryPolicy, NodeFiles};
use machine::{CpuSet, IdSet, NodeId, NodeSet};
use std::fmt;

/// The settings of a program: the lines of `numactl --show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReport {
    /// The memory policy.
    pub policy: MemoryPolicy,
    /// The node of the next page, for interleaving policies.
    pub next: Option<NodeId>,
    /// The weights of the policy's nodes in their order, for weighted interleaving.
    pub weights: Vec<u8>,
    /// The CPUs to run on.
    pub cpus: CpuSet,
    /// The nodes of these CPUs.
    pub nodes: NodeSet,
    /// The nodes that the cpuset allows.
    pub memory_nodes: NodeSet,
}

impl fmt::Display for PolicyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, next, weights, cpus, nodes, memory_nodes } = self;
        // numactl's name has no space.
        let name = policy.mode.to_string().replace(' ', "-");
        let first = policy.nodes.first().map(|node| node.to_string());
        let next = next.map_or_else(String::new, |node| node.to_string());
        let balancing = if policy.balancing { " balancing" } else { "" };
        let preferred = match policy.mode {
            MemoryMode::Interleave | MemoryMode::WeightedInterleave => format!("{next} ({name} next)"),
            MemoryMode::PreferredMany => format!("{} (preferred-many)", first.unwrap_or_default()),
            MemoryMode::Preferred | MemoryMode::Bind => first.unwrap_or_else(|| "current".to_owned()),
            MemoryMode::Default | MemoryMode::Local => "current".to_owned(),
        };
        writeln!(f, "policy: {name}{balancing}\npreferred node: {preferred}")?;
        if let MemoryMode::Interleave | MemoryMode::WeightedInterleave = policy.mode {
            writeln!(f, "interleavemask: {}\ninterleavenode: {next}", spaced(&policy.nodes))?;
        }
        if !weights.is_empty() {
            writeln!(
                f,
                "interleaveweights: {}",
                weights.iter().map(|weight| format!("{weight} ")).collect::<Vec<_>>().concat()
            )?;
        }
        let bound = if policy.mode == MemoryMode::Bind { &policy.nodes } else { memory_nodes };
        let (cpus, nodes) = (spaced(cpus), spaced(nodes));
        writeln!(f, "physcpubind: {cpus}\ncpubind: {nodes}\nnodebind: {nodes}\nmembind: {}", spaced(bound))?;
        writeln!(f, "preferred: {}", spaced(&policy.nodes))
    }
}

/// The machine's nodes: the lines of `numactl --hardware`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareReport {
    /// The nodes that are online.
    pub nodes: Vec<NodeFiles>,
    /// Whether CPUs are shown as ranges, with their number.
    pub compressed: bool,
}

impl fmt::Display for HardwareReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: NodeSet = self.nodes.iter().map(|node| node.node).collect();
        writeln!(f, "available: {} nodes ({ids})", ids.len())?;
        for NodeFiles { node, cpus, memory, .. } in &self.nodes {
            // numactl calls a MiB MB, and scripts read its lines.
            let megabytes = |name| memory.get(name).copied().unwrap_or(0) >> 20;
            let listed = match (self.compressed, cpus.is_empty()) {
                (_, true) => String::new(),
                (true, false) => format!(" {cpus} ({})", cpus.len()),
                (false, false) => format!(" {}", spaced(cpus).trim_end()),
            };
            writeln!(f, "node {node} cpus:{listed}\nnode {node} size: {} MB", megabytes("MemTotal"))?;
            writeln!(f, "node {node} free: {} MB", megabytes("MemFree"))?;
        }
        let row = |values: &[u32]| values.iter().map(|value| format!("{value:3} ")).collect::<Vec<_>>().concat();
        writeln!(f, "node distances:\nnode {}", row(&ids.iter().map(u32::from).collect::<Vec<_>>()))?;
        self.nodes.iter().try_for_each(|node| writeln!(f, "{:3}: {}", node.node.0, row(&node.distances)))
    }
}

/// Each number followed by a space.
fn spaced<T: From<u32> + Into<u32> + Copy>(set: &IdSet<T>) -> String {
    set.iter().map(|id| format!("{} ", id.into())).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(mode: MemoryMode, nodes: &str, next: Option<u32>) -> String {
        PolicyReport {
            policy: MemoryPolicy::new(mode, nodes.parse().unwrap()),
            next: next.map(NodeId),
            weights: if mode == MemoryMode::WeightedInterleave { vec![3, 1] } else { Vec::new() },
            cpus: "3,5".parse().unwrap(),
            nodes: "1-2".parse().unwrap(),
            memory_nodes: "0-3".parse().unwrap(),
        }
        .to_string()
    }

    /// As numactl 2.0.16 prints it on such a machine.
    #[test]
    fn settings_are_printed_in_numactls_format() {
        let interleave = "policy: interleave\npreferred node: 0 (interleave next)\ninterleavemask: 0 2 \ninterleavenode: 0\n\
                          physcpubind: 3 5 \ncpubind: 1 2 \nnodebind: 1 2 \nmembind: 0 1 2 3 \npreferred: 0 2 \n";
        assert_eq!(report(MemoryMode::Interleave, "0,2", Some(0)), interleave);
        let bind = "policy: bind\npreferred node: 1\nphyscpubind: 3 5 \ncpubind: 1 2 \nnodebind: 1 2 \nmembind: 1 2 \n\
                    preferred: 1 2 \n";
        assert_eq!(report(MemoryMode::Bind, "1-2", None), bind);
        assert!(report(MemoryMode::Default, "", None).starts_with("policy: default\npreferred node: current\n"));
        assert!(report(MemoryMode::PreferredMany, "1,3", None).contains("node: 1 (preferred-many)\n"));
        // numactl 2.0.19.
        let weighted = "policy: weighted-interleave\npreferred node: 3 (weighted-interleave next)\ninterleavemask: 1 3 \n\
                        interleavenode: 3\ninterleaveweights: 3 1 \nphyscpubind: 3 5 \n";
        let told = report(MemoryMode::WeightedInterleave, "1,3", Some(3));
        assert!(told.starts_with(weighted), "{told}");
    }

    #[test]
    fn nodes_are_printed_in_numactls_format_also_without_cpus_or_memory() {
        let node = |node: u32, cpus: &str, kilobytes: u64| NodeFiles {
            node: NodeId(node),
            cpus: cpus.parse().unwrap(),
            distances: vec![10, 16],
            memory: [("MemTotal", kilobytes << 10), ("MemFree", kilobytes << 9)]
                .map(|(name, bytes)| (name.to_owned(), bytes))
                .into(),
            allocations: linux::Counters::new(),
            events: linux::Counters::new(),
            hugetlb: Vec::new(),
        };
        let nodes = vec![node(0, "0-2,4", 0), node(10, "", 2048)];
        let text = HardwareReport { nodes: nodes.clone(), compressed: false }.to_string();
        let wanted = "available: 2 nodes (0,10)\nnode 0 cpus: 0 1 2 4\nnode 0 size: 0 MB\nnode 0 free: 0 MB\n\
                      node 10 cpus:\nnode 10 size: 2 MB\nnode 10 free: 1 MB\nnode distances:\nnode   0  10 \n  \
                      0:  10  16 \n 10:  10  16 \n";
        assert_eq!(text, wanted);
        let text = HardwareReport { nodes, compressed: true }.to_string();
        assert!(text.contains("node 0 cpus: 0-2,4 (4)\nnode") && text.contains("node 10 cpus:\n"), "{text}");
    }
}
