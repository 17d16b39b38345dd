//! The usable part of this machine: its nodes, with the CPUs and the memory that this process is allowed to use.

use crate::error::MeasureError;
use crate::missing::Missing;
use linux::FreeMemory;
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
    /// Nodes of which it hides a part.
    pub(crate) notes: Vec<String>,
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
        let free = FreeMemory::for_caller();
        let of_node = |node| free.nodes.get(&node).copied().unwrap_or_else(available_bytes);
        let mut host = Self::new(machine, &cpus, nodes.as_ref(), of_node);
        let limits = free.limits.iter().map(|limit| limit.max_bytes.saturating_sub(limit.used_bytes));
        host.memory_limit = limits.chain(version_1_limits()).min();
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
        let mut all_cores = vec![0_usize; machine.nodes.len()];
        for core in machine.cores() {
            if let Some(&node) = core.first().and_then(|cpu| node_of.get(&cpu)) {
                all_cores[node] += 1;
            }
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
        let (mut hidden, mut partly_hidden) = (Vec::new(), Vec::new());
        let mut nodes = Vec::with_capacity(machine.nodes.len());
        for (((node, cores), all), cache_bytes) in machine.nodes.iter().zip(cores).zip(all_cores).zip(cache_bytes) {
            if (1..all).contains(&cores.len()) {
                partly_hidden.push(format!(
                    "{} of {all} cores of node {} are used: a cpuset or an affinity hides the others",
                    cores.len(),
                    node.id
                ));
            }
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
        Self { machine, instructions_per_cycle: None, nodes, hidden, notes: partly_hidden, memory_limit: None, load }
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
        size::rounded(self.free_bytes)
    }
}

/// Memory that the kernel says can be allocated: of a kernel without NUMA, which has no numbers for nodes.
fn available_bytes() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| field(&text, "MemAvailable:")?.checked_mul(1024))
        .unwrap_or(0)
}

/// What the memory controllers of version 1 still allow to this process, on systems that have them: its control group's
/// and its ancestors'. Page cache can be given back.
fn version_1_limits() -> Vec<u64> {
    let Ok(groups) = fs::read_to_string("/proc/self/cgroup") else { return Vec::new() };
    let left = |folder: PathBuf| {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        let stat = text("memory.stat")?;
        let cached = ["total_inactive_file", "total_active_file"].map(|name| field(&stat, name).unwrap_or(0));
        let used = number("memory.usage_in_bytes")?.saturating_sub(cached.iter().sum());
        Some(number("memory.limit_in_bytes")?.saturating_sub(used))
    };
    version_1_groups(&groups).into_iter().filter_map(left).collect()
}

/// The folders of a process's groups of version 1 that may limit memory. In a container, only the topmost folder may exist.
fn version_1_groups(groups: &str) -> Vec<PathBuf> {
    const ROOT: &str = "/sys/fs/cgroup/memory";
    let path = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let has_memory = controllers.split(',').any(|name| name == "memory");
        has_memory.then(|| Path::new(ROOT).join(path.trim_start_matches('/')))
    };
    let groups: Vec<PathBuf> = groups.lines().filter_map(path).collect();
    let within = |group: &PathBuf| group.ancestors().take_while(|f| f.starts_with(ROOT)).map(Path::to_owned).collect();
    groups.iter().flat_map(|group| -> Vec<PathBuf> { within(group) }).collect()
}

/// The number after a name, of lines such as `MemAvailable: 5 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let words = |line: &str| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(words)
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
        assert_eq!(
            host.notes,
            [
                "1 of 2 cores of node 1 are used: a cpuset or an affinity hides the others",
                "1 of 2 cores of node 2 are used: a cpuset or an affinity hides the others"
            ]
        );
        let said: Vec<String> =
            host.hidden.iter().map(|missing| format!("{}: {}", missing.what, missing.why)).collect();
        assert!(said.len() == 2 && said[0].contains("CPUs 6-7") && said[1].contains("memory of node 3"), "{said:?}");
        // Two cores with 64 KiB and 512 KiB each, and 5 MiB for both.
        assert_eq!(host.nodes[0].cache_bytes, (2 * (64 + 512) + 5120) << 10);
    }

    #[test]
    fn memory_is_limited_by_groups_of_version_1_too() {
        assert_eq!(
            version_1_groups("4:cpu,cpuacct:/x\n3:hugetlb,memory:/c\n2:name=systemd:/y\n0::/a\n"),
            [Path::new("/sys/fs/cgroup/memory/c"), Path::new("/sys/fs/cgroup/memory")]
        );
        assert!(version_1_groups("no group").is_empty());
    }

    #[test]
    fn a_number_follows_its_name() {
        let text = "total_cache 9\ntotal_active_file 7\nMemAvailable:   5 kB\nMemFree: a kB\nMemTotal:";
        let names = ["total_active_file", "MemAvailable:", "MemFree:", "MemTotal:", "none"];
        assert_eq!(names.map(|name| field(text, name)), [Some(7), Some(5), None, None, None]);
    }
}
