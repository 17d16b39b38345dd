//! The usable part of this machine: its nodes, with the CPUs and the memory that this process is allowed to use.

use crate::error::MeasureError;
use crate::missing::Missing;
use machine::{CacheKind, CpuId, CpuSet, Machine, NodeId, NodeSet, size};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// This machine, as far as this process may use it.
#[derive(Clone, Debug)]
pub struct Host {
    /// Linux's description.
    pub machine: Machine,
    /// Instructions that a core executes in a cycle while nothing waits, where that is known: in the lab, where those that
    /// wait for another take no longer.
    pub instructions_per_cycle: Option<f64>,
    /// Each node, in the machine's order.
    pub(crate) nodes: Vec<Usable>,
    /// What a cpuset or an affinity hides.
    pub(crate) hidden: Vec<Missing>,
    /// Bytes that all nodes together may provide, if a control group limits them.
    pub(crate) memory_limit: Option<u64>,
    /// The kernel's load average of the last minute, as text.
    pub(crate) load: String,
}

/// The usable part of a node.
#[derive(Clone, Debug)]
pub(crate) struct Usable {
    pub id: NodeId,
    /// One CPU of each core, ascending.
    pub cores: Vec<CpuId>,
    /// Bytes; 0 if there is none or it is forbidden.
    pub free_bytes: u64,
    /// Total size of all data caches of the node's CPUs, bytes.
    pub cache_bytes: u64,
}

impl Host {
    /// Examines this machine.
    pub fn find() -> Result<Self, MeasureError> {
        let machine = Machine::from_sysfs(Path::new("/sys"))?;
        let cpus = linux::affinity(linux::Tid::CALLER).map_err(MeasureError::Affinity)?;
        // A kernel without NUMA has no such call, and some containers forbid it: then no node counts as hidden.
        let nodes = linux::allowed_memory_nodes().ok();
        let mut host = Self::new(machine, &cpus, nodes.as_ref(), free_bytes);
        host.memory_limit = memory_limit();
        host.load = fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|text| text.split_whitespace().next().map(str::to_owned))
            .unwrap_or_else(|| "unknown".to_owned());
        Ok(host)
    }

    /// The usable part for a process that may run on `cpus` and allocate memory on `memory` (on all nodes if unknown).
    pub(crate) fn new(
        machine: Machine,
        cpus: &CpuSet,
        memory: Option<&NodeSet>,
        free_bytes: impl Fn(NodeId) -> u64,
    ) -> Self {
        let node_of: HashMap<CpuId, usize> =
            machine.nodes.iter().enumerate().flat_map(|(i, node)| node.cpus.iter().map(move |cpu| (cpu, i))).collect();
        let mut cores = vec![Vec::new(); machine.nodes.len()];
        for core in machine.cores() {
            let usable = core.iter().find(|&cpu| cpus.contains(cpu));
            if let Some((cpu, &node)) = usable.and_then(|cpu| Some((cpu, node_of.get(&cpu)?))) {
                cores[node].push(cpu);
            }
        }
        let mut cache_bytes = vec![0_u64; machine.nodes.len()];
        for cache in machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction) {
            for instance in machine.cache_instances(cache) {
                // A cache that several nodes share counts for each of them.
                let nodes: BTreeSet<usize> = instance.iter().filter_map(|cpu| node_of.get(&cpu).copied()).collect();
                for node in nodes {
                    cache_bytes[node] = cache_bytes[node].saturating_add(cache.size_bytes);
                }
            }
        }
        let mut hidden = Vec::new();
        let mut nodes = Vec::with_capacity(machine.nodes.len());
        for ((node, cores), cache_bytes) in machine.nodes.iter().zip(cores).zip(cache_bytes) {
            if !node.cpus.is_empty() && cores.is_empty() {
                let why = format!("this process may not run on CPUs {}: a cpuset or an affinity hides them", node.cpus);
                hidden.push(Missing::new(format!("everything from CPUs of node {}", node.id), why));
            }
            let may = memory.is_none_or(|nodes| nodes.contains(node.id));
            if node.memory_bytes > 0 && !may {
                let why = "this process may not allocate memory on it: its cpuset (cpuset.mems) excludes it";
                hidden.push(Missing::new(format!("everything in memory of node {}", node.id), why));
            }
            let free_bytes = if node.memory_bytes > 0 && may { free_bytes(node.id) } else { 0 };
            nodes.push(Usable { id: node.id, cores, free_bytes, cache_bytes });
        }
        let load = "unknown".to_owned();
        Self { machine, instructions_per_cycle: None, nodes, hidden, memory_limit: None, load }
    }

    /// The usable node with this ID.
    pub(crate) fn node(&self, id: NodeId) -> Option<&Usable> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// One CPU of each core of a node; empty if there is no such node.
    pub(crate) fn cores(&self, id: NodeId) -> &[CpuId] {
        self.node(id).map_or(&[], |node| &node.cores)
    }
}

impl Usable {
    /// Free memory, for messages.
    pub(crate) fn free(&self) -> String {
        size::format(self.free_bytes >> 20 << 20)
    }
}

/// Memory that a node can provide without the OOM killer: free pages, and inactive page cache.
fn free_bytes(node: NodeId) -> u64 {
    let of_node = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"));
    if let Ok(text) = of_node {
        return sum_of(&text, &["MemFree:", "Inactive(file):"]);
    }
    sum_of(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), &["MemAvailable:"])
}

/// The sum of these fields of a `meminfo`, bytes.
fn sum_of(text: &str, names: &[&str]) -> u64 {
    let value = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| !names.contains(word));
        words.nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    };
    text.lines().filter_map(value).fold(0, u64::saturating_add)
}

/// What the memory controllers of this process's control group and its ancestors still allow.
fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    memory_groups(&groups)
        .filter_map(|(folder, [limit, used])| {
            // `max`, for no limit, is not a number.
            Some(number(folder.join(limit))?.saturating_sub(number(folder.join(used))?))
        })
        .min()
}

/// The folders of a process's groups that may limit memory, with the names of the limit and of what is used: those of
/// version 2, or of version 1, which keeps the memory controller on hybrid systems. In a container, only the topmost
/// folder may exist.
fn memory_groups(groups: &str) -> impl Iterator<Item = (PathBuf, [&'static str; 2])> + '_ {
    groups.lines().flat_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (root, files) = match words.next() {
            Some("") => ("/sys/fs/cgroup", ["memory.max", "memory.current"]),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"])
            }
            _ => return Vec::new(),
        };
        let group = Path::new(root).join(words.next().unwrap_or_default().trim_start_matches('/'));
        group.ancestors().take_while(|folder| folder.starts_with(root)).map(|folder| (folder.into(), files)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    #[test]
    fn a_cpuset_hides_nodes_and_that_is_said() {
        let machine = presets::find("small-4x2").unwrap();
        let memory: NodeSet = "0-2".parse().unwrap();
        let host = Host::new(machine, &"0-1,3,4".parse().unwrap(), Some(&memory), |_| 1 << 30);
        let cores: Vec<Vec<u32>> = host.nodes.iter().map(|node| node.cores.iter().map(|cpu| cpu.0).collect()).collect();
        assert_eq!(cores, [vec![0, 1], vec![3], vec![4], vec![]]);
        let free: Vec<u64> = host.nodes.iter().map(|node| node.free_bytes).collect();
        assert_eq!(free, [1 << 30, 1 << 30, 1 << 30, 0]);
        let said: Vec<String> =
            host.hidden.iter().map(|missing| format!("{}: {}", missing.what, missing.why)).collect();
        assert!(said.len() == 2 && said[0].contains("CPUs 6-7") && said[1].contains("memory of node 3"), "{said:?}");
        // Two cores with 64 KiB and 512 KiB each, and 5 MiB for both.
        assert_eq!(host.nodes[0].cache_bytes, (2 * (64 + 512) + 5120) << 10);
    }

    #[test]
    fn memory_is_limited_by_groups_of_both_versions() {
        let folders = |groups: &str| -> Vec<String> {
            memory_groups(groups).map(|(folder, [limit, _])| folder.join(limit).display().to_string()).collect()
        };
        assert_eq!(
            folders("0::/a/b\n"),
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        assert_eq!(
            folders("4:cpu,cpuacct:/x\n3:hugetlb,memory:/c\n2:name=systemd:/y\n"),
            ["/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert_eq!(folders("no group"), [""; 0]);
    }

    #[test]
    fn free_memory_is_read_in_both_forms() {
        let node = "Node 0 MemTotal: 100 kB\nNode 0 MemFree:  7 kB\nNode 0 Inactive(file):  3 kB\n";
        assert_eq!(sum_of(node, &["MemFree:", "Inactive(file):"]), 10 << 10);
        assert_eq!(sum_of("MemAvailable:   5 kB\n", &["MemAvailable:"]), 5 << 10);
        assert_eq!(sum_of("MemFree: a kB\nMemFree:\nMemFree: 99999999999999999999 kB", &["MemFree:"]), 0);
    }
}
