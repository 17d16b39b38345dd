//! Facts about a machine for both text and picture, computed once and in time linear in its CPUs.

use super::map::Group;
use machine::number::{bandwidth, counted};
use machine::{Cache, CpuId, CpuSet, IdSet, Machine, Node, NodeSet, PackageId, Routes, Sharing, size};
use std::collections::{HashMap, HashSet};

/// The relations between a machine's parts. Lists by node are in the order of [`Machine::nodes`].
pub(super) struct Facts<'a> {
    pub machine: &'a Machine,
    /// The cores of each node; a core belongs to the node of its first CPU.
    pub cores: Vec<Vec<CpuSet>>,
    /// The packages of each node's CPUs.
    pub packages: Vec<IdSet<PackageId>>,
}

/// Nodes that look the same: equal numbers of CPUs and cores, equal memory and bandwidth.
pub(super) struct Alike {
    pub nodes: NodeSet,
    pub packages: IdSet<PackageId>,
    pub cpus: CpuSet,
    pub cores: usize,
    pub look: Look,
}

/// The criteria for nodes that look the same, as printed: real machines' memory differs by a few pages from node to
/// node.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Look {
    pub cpus: usize,
    pub cores: usize,
    pub memory: String,
    pub bandwidth: String,
}

impl<'a> Facts<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        let node_of: HashMap<CpuId, usize> =
            machine.nodes.iter().enumerate().flat_map(|(i, node)| node.cpus.iter().map(move |cpu| (cpu, i))).collect();
        let mut cores: Vec<Vec<CpuSet>> = vec![Vec::new(); machine.nodes.len()];
        for core in machine.cores() {
            let home = core.first().and_then(|cpu| node_of.get(&cpu));
            if let Some(cores) = home.and_then(|&home| cores.get_mut(home)) {
                cores.push(core);
            }
        }
        let package_of: HashMap<CpuId, PackageId> =
            machine.packages.iter().flat_map(|p| p.cpus.iter().map(|cpu| (cpu, p.id))).collect();
        let packages =
            machine.nodes.iter().map(|node| node.cpus.iter().filter_map(|cpu| package_of.get(&cpu).copied()).collect());
        Self { machine, packages: packages.collect(), cores }
    }

    /// Idle latency by pair of nodes, ns; rows are the accessing nodes. `None` if no pair is known.
    pub fn latency_ns(&self) -> Option<Vec<Vec<Option<f64>>>> {
        let machine = self.machine;
        let routes = Routes::new(machine).ok().filter(|_| machine.latency.is_some())?;
        // Nodes without CPUs access nothing.
        let latency =
            |from: &Node, to: &Node| routes.latency_ns(machine, from.id, to.id).filter(|_| !from.cpus.is_empty());
        let row = |from: &Node| machine.nodes.iter().map(|to| latency(from, to)).collect();
        let rows: Vec<Vec<Option<f64>>> = machine.nodes.iter().map(row).collect();
        rows.iter().flatten().any(Option::is_some).then_some(rows)
    }

    /// The caches that reach beyond one node, as `L3 32 MiB for nodes 0-1`: shape and count.
    pub fn caches_beyond_nodes(&self) -> Vec<String> {
        let within = |cpus: &CpuSet| self.machine.nodes.iter().any(|node| cpus.is_subset(&node.cpus));
        let beyond = |cache: &&Cache| matches!(cache.shared_by, Sharing::Package | Sharing::Cpus(_));
        let count = |cache: &Cache| {
            let count = self.machine.cache_instances(cache).iter().filter(|cpus| !within(cpus)).count();
            (count > 0).then(|| {
                format!("{count} x L{} {} shared by several nodes", cache.level, size::rounded(cache.size_bytes))
            })
        };
        self.machine.caches.iter().filter(beyond).filter_map(count).collect()
    }

    /// The groups of nodes in the picture: those of a package together, in the order of its first node; each other
    /// alone. A package has a frame unless every package holds just one node: then the node's own title names it.
    pub fn node_groups(&self) -> Vec<Group> {
        let framed = !self.nodes_name_packages();
        let mut groups: Vec<Group> = Vec::new();
        for (i, packages) in self.packages.iter().enumerate() {
            let package = packages.first().filter(|_| framed && packages.len() == 1);
            match groups.iter_mut().find(|group| package.is_some() && group.package == package) {
                Some(group) => group.nodes.push(i),
                None => groups.push(Group { package, nodes: vec![i] }),
            }
        }
        groups
    }

    /// Whether each node's title names its packages, because no package holds several whole nodes.
    pub fn nodes_name_packages(&self) -> bool {
        let mut seen = HashSet::new();
        let single = self.packages.iter().filter(|packages| packages.len() == 1).filter_map(IdSet::first);
        !single.map(|package| seen.insert(package)).any(|new| !new)
    }

    /// A one-line summary of the machine.
    pub fn summary(&self) -> String {
        let nodes = &self.machine.nodes;
        let cpus: usize = nodes.iter().map(|node| node.cpus.len()).sum();
        let cores: usize = self.cores.iter().map(Vec::len).sum();
        let mut parts = vec![counted(nodes.len(), "node"), counted(cpus, "CPU")];
        if cores != cpus {
            parts.push(counted(cores, "core"));
        }
        if !self.machine.packages.is_empty() {
            parts.push(counted(self.machine.packages.len(), "package"));
        }
        parts.push(size::rounded(nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.memory_bytes))));
        parts.join(", ")
    }

    /// The nodes, grouped if they look the same; each on its own if `apart`.
    pub fn alike(&self, apart: bool) -> Vec<Alike> {
        let mut indexes: HashMap<(Option<usize>, Look), usize> = HashMap::new();
        let mut groups: Vec<Alike> = Vec::new();
        for (i, ((node, cores), packages)) in self.machine.nodes.iter().zip(&self.cores).zip(&self.packages).enumerate()
        {
            let look = look(node, cores.len());
            let index = *indexes.entry((apart.then_some(i), look.clone())).or_insert(groups.len());
            if index == groups.len() {
                groups.push(Alike {
                    nodes: NodeSet::new(),
                    packages: IdSet::new(),
                    cpus: CpuSet::new(),
                    cores: 0,
                    look,
                });
            }
            if let Some(group) = groups.get_mut(index) {
                group.nodes.insert(node.id);
                group.cores += cores.len();
                node.cpus.iter().for_each(|cpu| {
                    group.cpus.insert(cpu);
                });
                packages.iter().for_each(|package| {
                    group.packages.insert(package);
                });
            }
        }
        groups
    }
}

fn look(node: &Node, cores: usize) -> Look {
    Look {
        cpus: node.cpus.len(),
        cores,
        memory: if node.memory_bytes == 0 { String::new() } else { size::rounded(node.memory_bytes) },
        bandwidth: node.bandwidth_bytes_per_s.map(bandwidth).unwrap_or_default(),
    }
}
