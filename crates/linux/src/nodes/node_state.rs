//! Which nodes exist, and which of them have memory and CPUs.

use crate::file::parsed;
use crate::nodes::node_files::{NODES, NodeError, online_nodes};
use machine::{CpuId, CpuSet, IdSet, NodeId, NodeSet};
use std::collections::BTreeMap;
use std::path::Path;

/// The nodes of a system, by what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Online nodes.
    pub online: NodeSet,
    /// Nodes with memory.
    pub with_memory: NodeSet,
    /// The CPUs of each online node; empty for memory-only nodes.
    pub cpus: BTreeMap<NodeId, CpuSet>,
}

impl NodeState {
    /// Reads `sys`, the /sys directory. Needs no privileges. A kernel without NUMA has no nodes.
    pub fn read(sys: &Path) -> Result<Self, NodeError> {
        let folder = sys.join(NODES);
        let online = online_nodes(sys)?;
        let with_memory = parsed(&folder.join("has_memory"), str::parse)?.unwrap_or_else(|| online.clone());
        let mut cpus = BTreeMap::new();
        for node in online.iter() {
            // A node may go offline meanwhile.
            cpus.extend(parsed(&folder.join(format!("node{node}/cpulist")), str::parse)?.map(|set| (node, set)));
        }
        Ok(Self { online, with_memory, cpus })
    }

    /// The nodes of a system that shows none: its kernel was built without NUMA, or /sys is hidden, as in containers.
    /// Node 0 has all CPUs that are online or, if that cannot be read, those of `own_cpus`; memory is on `own_nodes` or,
    /// if these are empty, on node 0.
    pub fn of_hidden(sys: &Path, own_cpus: &CpuSet, own_nodes: &NodeSet) -> Self {
        const FIRST: NodeId = NodeId(0);
        let online_cpus = parsed(&sys.join("devices/system/cpu/online"), str::parse).ok().flatten();
        let cpus = BTreeMap::from([(FIRST, online_cpus.unwrap_or_else(|| own_cpus.clone()))]);
        let first = NodeSet::from_iter([FIRST]);
        let with_memory = if own_nodes.is_empty() { first.clone() } else { own_nodes.clone() };
        Self { online: with_memory.iter().chain(first.iter()).collect(), with_memory, cpus }
    }

    /// Leaves only memory of these nodes, and these CPUs. The nodes stay.
    pub fn restrict(&mut self, with_memory: &NodeSet, cpus: &CpuSet) {
        self.with_memory = self.with_memory.intersection(with_memory);
        self.cpus.values_mut().for_each(|own| *own = own.intersection(cpus));
    }

    /// The CPUs of these nodes.
    pub fn cpus_of(&self, nodes: &NodeSet) -> CpuSet {
        nodes.iter().filter_map(|node| self.cpus.get(&node)).flat_map(IdSet::iter).collect()
    }

    /// The nodes of these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        self.cpus.iter().filter(|(_, own)| !own.intersection(cpus).is_empty()).map(|(node, _)| *node).collect()
    }

    /// The node of each CPU.
    pub fn of_cpus(&self) -> BTreeMap<CpuId, NodeId> {
        self.cpus.iter().flat_map(|(node, cpus)| cpus.iter().map(|cpu| (cpu, *node))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileError;
    use saved_files::SavedFiles;

    #[test]
    fn nodes_without_memory_and_without_cpus_are_reported() {
        let root = SavedFiles::new();
        assert!(matches!(NodeState::read(root.path()), Err(NodeError::NoNodes(_))));
        let put = |name: &str, text: &str| root.put(&format!("devices/system/node/{name}"), text);
        put("online", "0,2-3\n");
        put("has_memory", "0,3\n");
        put("node0/cpulist", "0-1\n");
        put("node2/cpulist", "2,4\n");
        put("node3/cpulist", "\n");
        let state = NodeState::read(root.path()).unwrap();
        let nodes = |text: &str| text.parse::<NodeSet>().unwrap();
        assert_eq!((state.with_memory.clone(), state.cpus_of(&nodes("2-3"))), (nodes("0,3"), "2,4".parse().unwrap()));
        assert_eq!(state.nodes_of(&"1,4".parse().unwrap()), nodes("0,2"));
        assert_eq!((state.of_cpus().len(), state.of_cpus().get(&CpuId(4))), (4, Some(&NodeId(2))));
        put("online", "x\n");
        let malformed = NodeState::read(root.path()).unwrap_err();
        assert!(matches!(malformed, NodeError::File(FileError::Malformed { .. })));
    }

    #[test]
    fn a_system_that_shows_no_nodes_has_all_cpus_on_node_0() {
        let root = SavedFiles::new();
        let hidden = |own_nodes: &str| {
            let state = NodeState::of_hidden(root.path(), &"1-2".parse().unwrap(), &own_nodes.parse().unwrap());
            [state.cpus_of(&state.online).to_string(), state.online.to_string(), state.with_memory.to_string()]
        };
        assert_eq!(hidden(""), ["1-2", "0", "0"]);
        root.put("devices/system/cpu/online", "0-3\n");
        assert_eq!(hidden("0"), ["0-3", "0", "0"]);
        assert_eq!(hidden("1"), ["0-3", "0-1", "1"]);
    }
}
