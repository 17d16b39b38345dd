//! Memory of nodes, processes and control groups at one point in time, and its rates of change.

use crate::nodes::HugetlbReport;
use linux::{CgroupMemory, Counters, Mapping, NodeFiles, PageKind, Residence};
use machine::NodeId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// The result of `nearside memory` at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryReport {
    /// Seconds since 1970.
    pub time_s: f64,
    /// Seconds since the previous reading, to which all rates refer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
    /// Online nodes, by number.
    pub nodes: Vec<NodeMemory>,
    /// Events of NUMA balancing and migration since boot, by the kernel's names.
    pub events: Counters,
    /// Likewise, per second.
    #[serde(skip_serializing_if = "Rates::is_empty")]
    pub events_per_s: Rates,
    /// The requested processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessMemory>,
    /// The requested control groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupReport>,
    /// Notes for the reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Growth of counters per second.
pub type Rates = BTreeMap<String, f64>;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeMemory {
    /// Its number.
    pub node: u32,
    /// Memory usage, bytes, by the kernel's names in meminfo.
    pub memory_bytes: Counters,
    /// Its hugetlb pages, by size.
    pub hugetlb: Vec<HugetlbReport>,
    /// Pages allocated from it since boot, by the kernel's names in numastat.
    pub allocated_pages: Counters,
    /// Likewise, per second.
    #[serde(skip_serializing_if = "Rates::is_empty")]
    pub allocated_pages_per_s: Rates,
    /// Events of its pages since boot, by the kernel's names in vmstat.
    pub events: Counters,
    /// Likewise, per second.
    #[serde(skip_serializing_if = "Rates::is_empty")]
    pub events_per_s: Rates,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// Its PID.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// Memory on each node, by use. Includes nodes that had any at an earlier reading.
    pub nodes: Vec<NodeUses>,
}

/// Memory on one node, by use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeUses {
    /// The node.
    pub node: NodeId,
    /// Bytes per use.
    pub bytes: BTreeMap<Use, u64>,
    /// Growth per second since the previous reading; negative if it shrinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown_bytes_per_s: Option<i64>,
}

/// A use of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Use {
    /// Memory from brk.
    Heap,
    /// The first thread's stack.
    Stack,
    /// Other private memory: from mmap, and other threads' stacks.
    Private,
    /// Files.
    File,
    /// Shared memory.
    Shared,
    /// Hugetlb pages.
    Hugetlb,
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupReport {
    /// Its path from the root of the hierarchy.
    pub cgroup: String,
    /// Memory usage on each node, by the kernel's names in `memory.numa_stat`.
    pub nodes: BTreeMap<NodeId, Counters>,
}

impl Use {
    /// Its name, as in JSON.
    pub fn word(self) -> &'static str {
        self.into()
    }

    fn new(mapping: &Mapping) -> Self {
        let is_memory =
            |path: &str| ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"].iter().any(|start| path.starts_with(start));
        match mapping.name.as_str() {
            "[heap]" => Self::Heap,
            "[stack]" => Self::Stack,
            path if mapping.shared && is_memory(path) => Self::Shared,
            path if path.starts_with('/') && !is_memory(path) => Self::File,
            _ if mapping.shared => Self::Shared,
            _ => Self::Private,
        }
    }
}

/// Whether a vmstat event is shown: balancing, migration, promotion and demotion.
pub fn is_numa_event(name: &str) -> bool {
    // For a node, numastat has these too.
    let of_numastat = ["numa_hit", "numa_miss", "numa_foreign", "numa_interleave", "numa_local", "numa_other"];
    let starts = ["numa_", "pgpromote_", "pgdemote_", "pgmigrate_", "thp_migration_"];
    starts.iter().any(|start| name.starts_with(start)) && !of_numastat.contains(&name)
}

impl NodeMemory {
    /// Reads a node from its files.
    pub fn new(files: NodeFiles) -> Self {
        let is_bytes = |name: &String, _: &mut u64| !name.starts_with("HugePages_");
        let mut memory_bytes = files.memory;
        memory_bytes.retain(is_bytes);
        let mut events = files.events;
        events.retain(|name, _| is_numa_event(name));
        Self {
            node: files.node.0,
            memory_bytes,
            hugetlb: files.hugetlb.iter().map(HugetlbReport::new).collect(),
            allocated_pages: files.allocations,
            events,
            ..Self::default()
        }
    }

    /// Bytes of a use; 0 if the kernel does not report it.
    pub fn bytes(&self, name: &str) -> u64 {
        self.memory_bytes.get(name).copied().unwrap_or(0)
    }
}

impl ProcessMemory {
    /// A process, from its mappings.
    pub fn new(pid: u32, name: String, mappings: &[Residence]) -> Self {
        let mut nodes: BTreeMap<NodeId, BTreeMap<Use, u64>> = BTreeMap::new();
        for residence in mappings {
            let used = Use::new(&residence.mapping);
            for pages in &residence.pages {
                let used = if pages.kind == PageKind::Hugetlb { Use::Hugetlb } else { used };
                let bytes = nodes.entry(pages.node).or_default().entry(used).or_default();
                *bytes = bytes.saturating_add(pages.bytes());
            }
        }
        let of_node = |(node, bytes)| NodeUses { node, bytes, grown_bytes_per_s: None };
        Self { pid, name, nodes: nodes.into_iter().map(of_node).collect() }
    }

    /// Computes growth per second since an earlier reading. Nodes that it left stay in the list.
    fn since(&mut self, before: &Self, elapsed_s: f64) {
        let is_left = |node: &&NodeUses| self.nodes.iter().all(|now| now.node != node.node);
        let left: Vec<NodeId> = before.nodes.iter().filter(is_left).map(|of_node| of_node.node).collect();
        let nothing = |node| NodeUses { node, bytes: BTreeMap::new(), grown_bytes_per_s: None };
        self.nodes.extend(left.into_iter().map(nothing));
        self.nodes.sort_by_key(|of_node| of_node.node);
        for now in &mut self.nodes {
            let then = before.nodes.iter().find(|then| then.node == now.node).map_or(0, NodeUses::total_bytes);
            now.grown_bytes_per_s = Some(((now.total_bytes() as f64 - then as f64) / elapsed_s) as i64);
        }
    }
}

impl NodeUses {
    /// Bytes of all uses.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }
}

impl CgroupReport {
    /// A group, from its `memory.numa_stat`.
    pub fn new(cgroup: String, kinds: Vec<CgroupMemory>) -> Self {
        let mut nodes: BTreeMap<NodeId, Counters> = BTreeMap::new();
        for CgroupMemory { kind, by_node } in kinds {
            for (node, bytes) in by_node {
                nodes.entry(node).or_default().insert(kind.clone(), bytes);
            }
        }
        Self { cgroup, nodes }
    }
}

impl MemoryReport {
    /// Computes rates since an earlier report; `elapsed` is from a monotonic clock. Counters that went back, as those
    /// of a node that came back online, have no rate.
    pub fn since(&mut self, before: &Self, elapsed: Duration) {
        if elapsed.is_zero() {
            return;
        }
        let elapsed_s = elapsed.as_secs_f64();
        self.elapsed_s = Some(elapsed_s);
        let rates = |now: &Counters, before: &Counters| -> Rates {
            let rate = |(name, now): (&String, &u64)| {
                let grown = now.checked_sub(*before.get(name)?)?;
                Some((name.clone(), grown as f64 / elapsed_s))
            };
            now.iter().filter_map(rate).collect()
        };
        self.events_per_s = rates(&self.events, &before.events);
        for node in &mut self.nodes {
            let Some(before) = before.nodes.iter().find(|before| before.node == node.node) else { continue };
            node.allocated_pages_per_s = rates(&node.allocated_pages, &before.allocated_pages);
            node.events_per_s = rates(&node.events, &before.events);
        }
        for process in &mut self.processes {
            if let Some(before) = before.processes.iter().find(|before| before.pid == process.pid) {
                process.since(before, elapsed_s);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_have_uses() {
        let maps = "\
1000-2000 rw-p 0 0:0 0 [heap]
2000-3000 rw-p 0 0:0 0 [stack]
3000-4000 rw-p 0 0:0 0
4000-5000 rw-p 0 0:0 1 /usr/bin/a
5000-6000 rw-s 0 0:0 1 /dev/shm/a
6000-7000 rw-s 0 0:0 1 /srv/data
7000-8000 rw-p 0 0:0 1 /dev/zero (deleted)
8000-9000 rw-p 0 0:0 0 [anon:glibc: malloc arena]
";
        let uses: Vec<_> = linux::parse_maps(maps).unwrap().iter().map(|mapping| Use::new(mapping).word()).collect();
        assert_eq!(uses, ["heap", "stack", "private", "file", "shared", "file", "private", "private"]);
        let words: Vec<_> = Use::VARIANTS.iter().map(|used| used.word()).collect();
        assert_eq!(serde_json::to_value(Use::VARIANTS).unwrap(), serde_json::to_value(words).unwrap());
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let counters = |hit| Counters::from([("numa_hit".to_owned(), hit)]);
        let look = |hit| MemoryReport {
            nodes: vec![NodeMemory { node: 1, allocated_pages: counters(hit), ..NodeMemory::default() }],
            events: counters(hit * 2),
            ..MemoryReport::default()
        };
        let (before, mut now) = (look(100), look(150));
        let elapsed = Duration::from_millis(2500);
        now.since(&before, elapsed);
        assert_eq!((now.elapsed_s, now.nodes[0].allocated_pages_per_s["numa_hit"]), (Some(2.5), 20.0));
        assert!((now.events_per_s["numa_hit"] - 40.0).abs() < 1e-9);
        let mut back = look(1);
        back.since(&now, elapsed);
        assert!(back.nodes[0].allocated_pages_per_s.is_empty());
        let mut same = look(150);
        same.since(&now, Duration::ZERO);
        assert_eq!(same.elapsed_s, None);
    }

    #[test]
    fn growth_of_a_process_is_reported_by_node() {
        let process = |nodes: &[(u32, u64)]| {
            let of_node = |&(node, bytes): &(u32, u64)| NodeUses {
                node: NodeId(node),
                bytes: BTreeMap::from([(Use::Heap, bytes)]),
                grown_bytes_per_s: None,
            };
            ProcessMemory { pid: 7, name: "a".into(), nodes: nodes.iter().map(of_node).collect() }
        };
        let look = |nodes: &[(u32, u64)]| MemoryReport { processes: vec![process(nodes)], ..MemoryReport::default() };
        let (before, mut now) = (look(&[(0, 8192), (2, 4096)]), look(&[(1, 6000), (2, 5096)]));
        now.since(&before, Duration::from_secs(2));
        let told = now.processes[0].nodes.iter().map(|of_node| (of_node.node.0, of_node.grown_bytes_per_s));
        assert_eq!(told.collect::<Vec<_>>(), [(0, Some(-4096)), (1, Some(3000)), (2, Some(500))]);
        let mut last = look(&[(2, 5096)]);
        last.since(&now, Duration::from_secs(1));
        assert_eq!(last.processes[0].nodes.len(), 3);
    }

    #[test]
    fn events_of_numa_are_distinguished_from_others() {
        let told = ["numa_hint_faults", "pgpromote_success", "pgmigrate_fail", "numa_hit", "pgfault", "nr_dirty"];
        assert_eq!(told.map(is_numa_event), [true, true, true, false, false, false]);
    }
}
