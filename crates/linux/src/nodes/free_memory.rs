//! Whether requested memory is available, checked before the kernel's OOM killer acts: control group limits, and the
//! free memory of nodes.

use crate::file::parsed;
use crate::nodes::node_files::{Counters, nodes, parse_node_meminfo};
use crate::processes::cgroup::{Cgroups, MemoryLimit};
use crate::processes::process::{Pid, Process};
use crate::refusals::diagnosis::wider;
use crate::refusals::refusal::{Cause, Diagnosis};
use machine::{NodeId, NodeSet};
use std::collections::BTreeMap;
use std::path::Path;

/// Memory that is free on a node, or that the kernel can reclaim: page cache and its own caches.
const GIVEN_BACK: [&str; 4] = ["MemFree", "Active(file)", "Inactive(file)", "SReclaimable"];

/// How much more memory a process may allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// The limits of its control group and the group's ancestors.
    pub limits: Vec<MemoryLimit>,
    /// Available bytes on each node.
    pub nodes: BTreeMap<NodeId, u64>,
    /// Free swap in bytes.
    pub swap_bytes: u64,
}

impl FreeMemory {
    /// The free memory of the calling process. Anything that cannot be read does not limit it. Needs no privileges.
    pub fn for_caller() -> Self {
        Process::open(Pid(std::process::id())).map(|own| Self::for_process(&own)).unwrap_or_default()
    }

    /// The free memory of this process, likewise.
    pub fn for_process(process: &Process) -> Self {
        let sum = |memory: &Counters, names: &[&str]| names.iter().filter_map(|name| memory.get(*name)).sum::<u64>();
        let nodes = nodes(Path::new("/sys")).unwrap_or_default();
        let swap = parsed(Path::new("/proc/meminfo"), parse_node_meminfo).ok().flatten();
        Self {
            limits: limits(process).unwrap_or_default(),
            nodes: nodes.iter().map(|node| (node.node, sum(&node.memory, &GIVEN_BACK))).collect(),
            swap_bytes: swap.map_or(0, |memory| sum(&memory, &["SwapFree"])),
        }
    }

    /// What prevents the allocation of this many more bytes, if anything: a control group's limit, or the nodes to which they
    /// are restricted, else all nodes.
    pub fn in_the_way(&self, wanted_bytes: u64, nodes: Option<&NodeSet>) -> Option<Diagnosis> {
        let full = |limit: &&MemoryLimit| {
            let swap = limit.swap_bytes.min(self.swap_bytes);
            limit.max_bytes.saturating_sub(limit.used_bytes).saturating_add(swap) < wanted_bytes
        };
        if let Some(limit) = self.limits.iter().find(full) {
            let wanted = limit.used_bytes.saturating_add(wanted_bytes).to_string();
            let remedy = Some(wider(&limit.cgroup, "memory.max", &wanted));
            return Some(Diagnosis { cause: Cause::MemoryLimit { limit: limit.clone(), wanted_bytes }, remedy });
        }
        let all: NodeSet = self.nodes.keys().copied().collect();
        let nodes = nodes.unwrap_or(&all);
        if nodes.is_empty() || !nodes.iter().all(|node| self.nodes.contains_key(&node)) {
            return None;
        }
        let free_bytes = nodes.iter().filter_map(|node| self.nodes.get(&node)).sum::<u64>() + self.swap_bytes;
        let cause = Cause::NodesFull { nodes: nodes.clone(), free_bytes, wanted_bytes };
        (free_bytes < wanted_bytes).then(|| cause.into())
    }
}

fn limits(process: &Process) -> Option<Vec<MemoryLimit>> {
    let cgroups = Cgroups::find().ok()?;
    cgroups.memory_limits(&cgroups.of(process).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_memory(swap_bytes: u64) -> FreeMemory {
        let limit = |cgroup: &str, max_bytes| MemoryLimit {
            cgroup: cgroup.to_owned(),
            max_bytes,
            used_bytes: 1 << 20,
            swap_bytes: 4 << 20,
        };
        let nodes = [(NodeId(0), 16 << 20), (NodeId(2), 2 << 20)].into();
        FreeMemory { limits: vec![limit("/a/b", 64 << 20), limit("/a.slice", 8 << 20)], nodes, swap_bytes }
    }

    fn told(wanted_bytes: u64, nodes: Option<&str>, swap_bytes: u64) -> Option<String> {
        let nodes = nodes.map(|nodes| nodes.parse().unwrap());
        free_memory(swap_bytes).in_the_way(wanted_bytes, nodes.as_ref()).map(|diagnosis| diagnosis.to_string())
    }

    #[test]
    fn the_group_and_its_limit_are_named() {
        assert_eq!(told(7 << 20, None, 0), None);
        let told = told(8 << 20, Some("0"), 0).unwrap();
        let wanted = "8 MiB more do not fit control group /a.slice, which may have 8 MiB (memory.max) and uses 1 MiB; to \
                      widen it: sudo systemctl set-property --runtime a.slice MemoryMax=9437184";
        assert_eq!(told, wanted);
    }

    #[test]
    fn nodes_that_are_full_are_named_and_swap_is_room() {
        assert_eq!(told(3 << 20, Some("2"), 0).unwrap(), "3 MiB more do not fit node 2, which has room for 2 MiB");
        assert_eq!(told(3 << 20, Some("0,2"), 0), None);
        assert_eq!(told(3 << 20, Some("2"), 1 << 20), None);
        assert_eq!(told(9 << 20, Some("0"), 8 << 20), None);
        // The node is unknown: the kernel decides.
        assert_eq!(told(3 << 20, Some("2,5"), 0), None);
        let without_limits = FreeMemory { limits: Vec::new(), ..free_memory(0) };
        let told = |wanted_bytes| without_limits.in_the_way(wanted_bytes, None).map(|why| why.to_string());
        assert_eq!(told(18 << 20), None);
        assert_eq!(told(19 << 20).unwrap(), "19 MiB more do not fit nodes 0,2, which have room for 18 MiB");
        assert_eq!(FreeMemory::default().in_the_way(u64::MAX, None), None, "nothing is known");
    }

    #[test]
    fn this_process_has_room() {
        assert_eq!(FreeMemory::for_caller().in_the_way(4096, None), None);
    }
}
