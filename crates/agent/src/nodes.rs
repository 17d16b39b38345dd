//! Which node CPUs and physical addresses belong to, looked up for every sample.

use linux::memory_blocks;
use machine::{CpuId, Machine, NodeId};
use std::ops::Range;
use std::path::Path;

/// Which node CPUs and physical addresses belong to.
#[derive(Debug)]
pub(crate) struct NodeMap {
    cpus: Vec<Option<NodeId>>,
    /// Ascending.
    memory: Vec<(Range<u64>, NodeId)>,
}

impl NodeMap {
    /// For the CPUs of this machine and the memory that sysfs shows below this folder.
    pub fn new(machine: &Machine, sys: &Path) -> Self {
        let mut cpus = Vec::new();
        for (cpu, node) in machine.nodes.iter().flat_map(|node| node.cpus.iter().map(move |cpu| (cpu, node.id))) {
            let index = cpu.0 as usize;
            if cpus.len() <= index {
                cpus.resize(index + 1, None);
            }
            cpus[index] = Some(node);
        }
        Self { cpus, memory: memory_blocks(sys) }
    }

    pub fn of_cpu(&self, cpu: CpuId) -> Option<NodeId> {
        self.cpus.get(cpu.0 as usize).copied().flatten()
    }

    pub fn of_physical(&self, address: u64) -> Option<NodeId> {
        let after = self.memory.partition_point(|(row, _)| row.start <= address);
        let (row, node) = self.memory.get(after.checked_sub(1)?)?;
        row.contains(&address).then_some(*node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    #[test]
    fn cpus_and_memory_have_nodes() {
        let mut nodes = NodeMap::new(&presets::find("small-4x2").unwrap(), Path::new("/nowhere"));
        assert_eq!(
            [0, 1, 2, 7, 8].map(|cpu| nodes.of_cpu(CpuId(cpu))),
            [0, 0, 1, 3, 9].map(NodeId).map(|n| (n.0 < 9).then_some(n))
        );
        assert_eq!(nodes.of_physical(5), None);
        nodes.memory = vec![(10..20, NodeId(0)), (20..30, NodeId(1)), (40..50, NodeId(0))];
        let told = [9, 10, 19, 20, 30, 45, 50].map(|address| nodes.of_physical(address).map(|node| node.0));
        assert_eq!(told, [None, Some(0), Some(0), Some(1), None, Some(0), None]);
    }
}
