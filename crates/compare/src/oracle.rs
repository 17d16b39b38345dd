//! Static bindings to try: which CPUs, and whose memory.

use linux::{NodeId, NodeSet};
use std::ffi::OsString;
use std::fmt;

/// CPUs and memory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Only the CPUs of this node; all CPUs without one.
    pub cpus: Option<NodeId>,
    /// Only the memory of this node; without one, interleaved over all.
    pub memory: Option<NodeId>,
}

impl Binding {
    /// The options of `nearside run`.
    pub fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        if let Some(node) = self.cpus {
            options.extend(["--cpunodebind".into(), node.to_string().into()]);
        }
        match self.memory {
            Some(node) => options.extend(["--membind".into(), node.to_string().into()]),
            None => options.extend(["--interleave".into(), "all".into()]),
        }
        options
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cpus {
            Some(node) => write!(f, "CPUs of node {node}")?,
            None => f.write_str("all CPUs")?,
        }
        match self.memory {
            Some(node) => write!(f, ", memory of node {node}"),
            None => f.write_str(", memory interleaved over all nodes"),
        }
    }
}

/// Up to `most` bindings, the most promising first. Kinds take turns, so that a few runs try some of each: interleaved
/// over all nodes; a node's CPUs with its own memory; all CPUs with the memory of one node; a node's CPUs with all
/// memory; a node's CPUs with another node's memory.
pub fn bindings(with_cpus: &NodeSet, with_memory: &NodeSet, most: usize) -> Vec<Binding> {
    let of = |cpus, memory| Binding { cpus, memory };
    let local = with_cpus.intersection(with_memory).iter().map(|node| of(Some(node), Some(node))).collect();
    let one_memory = with_memory.iter().map(|node| of(None, Some(node))).collect();
    let one_node_cpus = with_cpus.iter().map(|node| of(Some(node), None)).collect();
    let pairs = || with_cpus.iter().flat_map(|cpus| with_memory.iter().map(move |memory| (cpus, memory)));
    let apart = pairs().filter(|(a, b)| a != b).map(|(cpus, memory)| of(Some(cpus), Some(memory))).collect();
    let kinds: [Vec<Binding>; 4] = [local, one_memory, one_node_cpus, apart];
    let longest = kinds.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|index| kinds.iter().filter_map(move |kind| kind.get(index).cloned()));
    std::iter::once(of(None, None)).chain(in_turn).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_take_turns_by_kind_and_are_all_there_in_the_end() {
        let nodes = |text: &str| text.parse::<NodeSet>().unwrap();
        let some: Vec<String> = bindings(&nodes("0-1"), &nodes("0-1"), 6).iter().map(ToString::to_string).collect();
        assert_eq!(
            some,
            [
                "all CPUs, memory interleaved over all nodes",
                "CPUs of node 0, memory of node 0",
                "all CPUs, memory of node 0",
                "CPUs of node 0, memory interleaved over all nodes",
                "CPUs of node 0, memory of node 1",
                "CPUs of node 1, memory of node 1",
            ]
        );
        let all = bindings(&nodes("0-3"), &nodes("0-3"), 1000);
        assert_eq!(all.len(), 1 + 4 + 4 + 4 + 12);
        assert!(all.iter().enumerate().all(|(at, binding)| !all[..at].contains(binding)));
        // Node 1 has no memory, node 2 no CPUs.
        let uneven = bindings(&nodes("0-1"), &nodes("0,2"), 1000);
        assert_eq!(uneven.len(), 1 + 1 + 2 + 2 + 3);
        assert_eq!(bindings(&nodes("0"), &nodes("0"), 0), []);
        assert_eq!(bindings(&nodes("1"), &nodes("1"), 2)[1].options(), ["--cpunodebind", "1", "--membind", "1"]);
    }
}
