//! Memory statistics of each node from /sys: sizes by kind, and allocation counters.

use crate::file::{FileError, parsed};
use crate::processes::process::MalformedLine;
use machine::{CpuSet, NodeId, NodeSet};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the nodes in /sys.
pub(crate) const NODES: &str = "devices/system/node";

/// Why a node's files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The kernel exposes no nodes.
    #[error("{} is not there: this kernel was built without NUMA, or /sys is hidden, or is not among saved files", .0.display())]
    NoNodes(PathBuf),
    /// A file of a node cannot be read or parsed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Values by the kernel's own names, which vary between kernels.
pub type Counters = BTreeMap<String, u64>;

/// A node and its data from /sys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFiles {
    /// The node.
    pub node: NodeId,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// The firmware's distances from it to each of the nodes that were read, in the order of their IDs.
    pub distances: Vec<u32>,
    /// meminfo: bytes, by names such as `MemTotal` and `MemFree`; names that begin with `HugePages_` count pages of the
    /// default size. Since Linux 2.6.
    pub memory: Counters,
    /// numastat: pages allocated from the node since boot, by names such as `numa_hit` and `other_node`. Since Linux
    /// 2.6.
    pub allocations: Counters,
    /// vmstat: gauges (`nr_…`, pages) and events since boot, by name. Since Linux 2.6.18.
    pub events: Counters,
    /// Hugetlb pools by page size, ascending.
    pub hugetlb: Vec<HugetlbPool>,
}

/// A node's hugetlb pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HugetlbPool {
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub pages: u64,
    /// Free pages.
    pub free_pages: u64,
}

/// Reads all online nodes from `sys`, the /sys directory. Needs no privileges.
pub fn nodes(sys: &Path) -> Result<Vec<NodeFiles>, NodeError> {
    let folder = |node| sys.join(format!("{NODES}/node{node}"));
    let online = online_nodes(sys)?;
    // A node may go offline during the read: skip nodes without meminfo.
    let read: Result<Vec<NodeFiles>, NodeError> =
        online.iter().filter_map(|node| of_node(&folder(node), node).transpose()).collect();
    let mut nodes = read?;
    let is_kept: Vec<bool> = online.iter().map(|node| nodes.iter().any(|kept| kept.node == node)).collect();
    for node in nodes.iter_mut().filter(|node| node.distances.len() == is_kept.len()) {
        let mut columns = is_kept.iter();
        node.distances.retain(|_| columns.next() == Some(&true));
    }
    Ok(nodes)
}

/// The online nodes. Needs no privileges.
pub fn online_nodes(sys: &Path) -> Result<NodeSet, NodeError> {
    parsed(&sys.join(NODES).join("online"), str::parse)?.ok_or_else(|| NodeError::NoNodes(sys.join(NODES)))
}

/// System-wide counters of NUMA balancing and migration since boot, by name, from /proc/vmstat. Needs no privileges.
pub fn system_events(proc: &Path) -> Result<Counters, NodeError> {
    // A saved system may lack it.
    Ok(parsed(&proc.join("vmstat"), parse_counters)?.unwrap_or_default())
}

fn of_node(folder: &Path, node: NodeId) -> Result<Option<NodeFiles>, NodeError> {
    let counters = |name: &str| parsed(&folder.join(name), parse_counters);
    let Some(memory) = parsed(&folder.join("meminfo"), parse_node_meminfo)? else { return Ok(None) };
    let distances = |text: &str| text.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>();
    Ok(Some(NodeFiles {
        node,
        cpus: parsed(&folder.join("cpulist"), str::parse)?.unwrap_or_default(),
        distances: parsed(&folder.join("distance"), distances)?.unwrap_or_default(),
        memory,
        allocations: counters("numastat")?.unwrap_or_default(),
        events: counters("vmstat")?.unwrap_or_default(),
        hugetlb: hugetlb_pools(&folder.join("hugepages"))?,
    }))
}

fn hugetlb_pools(folder: &Path) -> Result<Vec<HugetlbPool>, NodeError> {
    let mut pools = Vec::new();
    // Some kernels have no hugetlb pages.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(pools) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let size = name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let Some(kilobytes) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
        let number = |name: &str| {
            let path = entry.path().join(name);
            parsed(&path, str::parse)?.ok_or_else(|| FileError::missing(&path))
        };
        let page_bytes = kilobytes.saturating_mul(1024);
        pools.push(HugetlbPool { page_bytes, pages: number("nr_hugepages")?, free_pages: number("free_hugepages")? });
    }
    pools.sort_unstable();
    Ok(pools)
}

/// Parses lines such as `numa_hit 7`: the format of numastat and vmstat.
pub fn parse_counters(text: &str) -> Result<Counters, MalformedLine> {
    let counter = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        // Gauges that are summed over CPUs may read as negative.
        let value = value.trim();
        let value = if value.starts_with('-') { 0 } else { value.parse().ok()? };
        Some((name.to_owned(), value))
    };
    text.lines().map(|line| counter(line).ok_or_else(|| MalformedLine(line.to_owned()))).collect()
}

/// Parses lines such as `Node 1 MemTotal:  1029292 kB` to bytes; values without a unit are unchanged.
pub fn parse_node_meminfo(text: &str) -> Result<Counters, MalformedLine> {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let name = name.split_ascii_whitespace().last()?;
        let value = value.trim();
        let (value, unit) = value.strip_suffix(" kB").map_or((value, 1), |value| (value, 1024));
        Some((name.to_owned(), value.parse::<u64>().ok()?.checked_mul(unit)?))
    };
    text.lines().map(|line| value(line).ok_or_else(|| MalformedLine(line.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use saved_files::SavedFiles;

    /// Claims 18 and 19 of the specification: a kernel without NUMA has no nodes, and a node is at distance 10 from
    /// itself. Node 2's CPUs need not follow those of node 0 (claim 27).
    #[test]
    fn a_saved_system_tells_of_its_nodes() {
        let root = SavedFiles::new();
        let put = |path: &str, text: &str| root.put(&format!("devices/system/node/{path}"), text);
        assert!(matches!(nodes(root.path()), Err(NodeError::NoNodes(_))));
        put("online", "0,2\n");
        put(
            "node2/meminfo",
            "Node 2 MemTotal:       1029292 kB\nNode 2 Active(anon):    188 kB\nNode 2 HugePages_Total:     3\n",
        );
        put("node2/cpulist", "2-3\n");
        put("node2/distance", "16 10\n");
        put("node2/numastat", "numa_hit 267906530\nother_node 1\n");
        put("node2/vmstat", "nr_free_pages 2243304\nnr_zone_x -3\n");
        put("node2/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
        put("node2/hugepages/hugepages-1048576kB/free_hugepages", "0\n");
        put("node2/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        put("node2/hugepages/hugepages-2048kB/free_hugepages", "2\n");
        // Node 0 has just gone offline.
        let [node] = &nodes(root.path()).unwrap()[..] else { panic!("one node") };
        assert_eq!(
            (node.node, node.memory["MemTotal"], node.memory["Active(anon)"]),
            (NodeId(2), 1_053_995_008, 192_512)
        );
        assert_eq!((node.memory["HugePages_Total"], node.allocations["other_node"]), (3, 1));
        assert_eq!((node.events["nr_free_pages"], node.events["nr_zone_x"]), (2_243_304, 0));
        assert_eq!((node.cpus.to_string().as_str(), &node.distances[..]), ("2-3", &[10][..]));
        let pools = [(2 << 20, 3, 2), (1 << 30, 1, 0)];
        let pools = pools.map(|(page_bytes, pages, free_pages)| HugetlbPool { page_bytes, pages, free_pages });
        assert_eq!(node.hugetlb, pools);
        put("node2/numastat", "numa_hit\n");
        let error = nodes(root.path()).unwrap_err().to_string();
        assert!(error.ends_with("node2/numastat is not understood: `numa_hit`"), "{error}");
    }

    #[test]
    fn this_system_has_events() {
        assert!(system_events(Path::new("/proc")).unwrap().contains_key("pgfault"));
        assert!(system_events(Path::new("/nowhere")).unwrap().is_empty(), "a saved system may have none");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = (parse_counters(&text), parse_node_meminfo(&text));
        }
    }
}
