//! The current state of a machine's nodes: CPUs, memory and distances.

use crate::Table;
use crate::devices::devices_table;
use crate::layout::Layout;
use linux::{HugetlbPool, NodeFiles};
use machine::number::counted;
use machine::{CpuSet, NodeId, PciDevice, size};
use serde::Serialize;
use std::fmt;

/// Most nodes for which the matrix of distances fits a terminal.
const MOST_COLUMNS: usize = 32;

/// The machine, for `nearside show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodesReport {
    /// Its online nodes, by number.
    pub nodes: Vec<NodeReport>,
    /// The kernel's NUMA balancing: 0, 1, or 2 for memory tiering; none if not supported.
    pub numa_balancing: Option<String>,
    /// Transparent huge pages: `always`, `madvise` or `never`; none if not supported.
    pub transparent_huge_pages: Option<String>,
    /// Its devices, in the order of their addresses.
    pub devices: Vec<PciDevice>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: NodeId,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Free memory, bytes.
    pub free_bytes: u64,
    /// Anonymous memory, bytes.
    pub anonymous_bytes: u64,
    /// Page cache, including shared memory, bytes.
    pub file_bytes: u64,
    /// Its hugetlb pages, by size.
    pub hugetlb: Vec<HugetlbReport>,
    /// The firmware's distances to the nodes, in order.
    pub distances: Vec<u32>,
}

/// The hugetlb pages of one size that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HugetlbReport {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages.
    pub pages: u64,
    /// Free pages.
    pub free_pages: u64,
}

impl HugetlbReport {
    pub(crate) fn new(&HugetlbPool { page_bytes, pages, free_pages }: &HugetlbPool) -> Self {
        Self { page_bytes, pages, free_pages }
    }
}

impl NodeReport {
    /// A node, from its files.
    pub fn new(node: &NodeFiles) -> Self {
        let bytes = |name: &str| node.memory.get(name).copied().unwrap_or(0);
        Self {
            node: node.node,
            cpus: node.cpus.clone(),
            memory_bytes: bytes("MemTotal"),
            free_bytes: bytes("MemFree"),
            anonymous_bytes: bytes("AnonPages"),
            file_bytes: bytes("FilePages"),
            hugetlb: node.hugetlb.iter().map(HugetlbReport::new).collect(),
            distances: node.distances.clone(),
        }
    }
}

impl fmt::Display for NodesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: usize = self.nodes.iter().map(|node| node.cpus.len()).sum();
        let memory = self.nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.memory_bytes));
        let nodes = counted(self.nodes.len(), "node");
        let switch = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
        let (balancing, huge) = (switch(&self.numa_balancing), switch(&self.transparent_huge_pages));
        let layout = Layout::of(f);
        let sum = format!("{nodes}, {}, {}", counted(cpus, "CPU"), size::rounded(memory));
        f.write_str(&layout.wrapped("", &sum))?;
        let switches = format!("NUMA balancing: {balancing}; transparent huge pages: {huge}");
        writeln!(f, "{}", layout.wrapped("", &switches))?;
        let mut table = Table::new(["node", "CPUs", "memory", "free", "anonymous", "files", "hugetlb pages, free"]);
        for node in &self.nodes {
            let NodeReport { node, cpus, memory_bytes, free_bytes, anonymous_bytes, file_bytes, hugetlb, .. } = node;
            let bytes = [memory_bytes, free_bytes, anonymous_bytes, file_bytes].map(|bytes| size::rounded(*bytes));
            let pools = hugetlb.iter().filter(|pool| pool.pages > 0);
            let pools =
                pools.map(|pool| format!("{} of {}, {}", pool.pages, size::format(pool.page_bytes), pool.free_pages));
            let pools = pools.collect::<Vec<_>>().join("; ");
            let cpus = if cpus.is_empty() { "-".to_owned() } else { cpus.to_string() };
            let pools = if pools.is_empty() { "-".to_owned() } else { pools };
            table.row([vec![node.to_string(), cpus], bytes.to_vec(), vec![pools]].concat());
        }
        fmt::Display::fmt(&table, f)?;
        if (2..=MOST_COLUMNS).contains(&self.nodes.len()) {
            let title = "Firmware distances (10 is local; rows access, columns hold the memory)";
            write!(f, "\n{}", layout.wrapped("", title))?;
            let heading = self.nodes.iter().map(|node| node.node.to_string());
            let mut table = Table::new(std::iter::once("node".to_owned()).chain(heading));
            for node in &self.nodes {
                table.row(std::iter::once(node.node.to_string()).chain(node.distances.iter().map(ToString::to_string)));
            }
            fmt::Display::fmt(&table, f)?;
        }
        if self.devices.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nDevices")?;
        fmt::Display::fmt(&devices_table(&self.devices), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_cpus_or_memory_are_shown_as_they_are() {
        let node = |node: u32, cpus: &str, memory_bytes: u64| NodeReport {
            node: NodeId(node),
            cpus: cpus.parse().unwrap(),
            memory_bytes,
            free_bytes: memory_bytes / 2,
            anonymous_bytes: memory_bytes / 4,
            file_bytes: memory_bytes / 8,
            hugetlb: vec![
                HugetlbReport { page_bytes: 2 << 20, pages: u64::from(node) * 4, free_pages: 1 },
                HugetlbReport { page_bytes: 1 << 30, pages: u64::from(node), free_pages: 0 },
            ],
            distances: vec![10, 16, 255],
        };
        let nodes = vec![node(0, "0-3", 0), node(1, "4-7", 4 << 30), node(4, "", 1 << 30)];
        let transparent_huge_pages = Some("madvise".to_owned());
        insta::assert_snapshot!(NodesReport {
            nodes,
            numa_balancing: None,
            transparent_huge_pages,
            devices: Vec::new()
        });
    }
}
