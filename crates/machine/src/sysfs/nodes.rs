//! Nodes, their memory, distances and performance.

use super::tree::{NODES, Tree};
use super::{SysfsError, source};
use crate::description::{Distances, Machine, Node};
use crate::ids::{CpuId, NodeId};
use crate::numbers::{BANDWIDTH, Checked};
use crate::pairs::LatencyPairs;
use crate::set::{CpuSet, NodeSet};
use crate::validate::MAX_NODES;
use std::io::ErrorKind;

impl Tree {
    /// The nodes, with the CPUs that are online. A CPU of several nodes is the first one's: with `numa=fake`, Linux gives
    /// each part of a node all its CPUs. A node that goes away meanwhile is left out, and so is one without anything of
    /// its own.
    pub fn nodes(&mut self, ids: &NodeSet, online: Option<&CpuSet>) -> Result<Vec<Node>, SysfsError> {
        if ids.is_empty() || ids.len() > MAX_NODES {
            let why = format!("a machine has 1 to {MAX_NODES} nodes");
            return Err(self.wrong(&format!("{NODES}/online"), &ids.to_string(), &why));
        }
        let mut nodes = Vec::new();
        let mut seen = CpuSet::new();
        for id in ids.iter() {
            let folder = format!("{NODES}/node{id}");
            let Some(listed) = self.set::<CpuId>(&folder, &["cpulist", "cpumap"])? else {
                self.warn(format!("node {id} is left out: it is online, but has no list of CPUs"));
                continue;
            };
            let listed = online.map_or_else(|| listed.clone(), |online| listed.intersection(online));
            let cpus = listed.difference(&seen);
            let meminfo = format!("{folder}/meminfo");
            let text = self.text(&meminfo)?.unwrap_or_default();
            let memory_bytes = self.memory_bytes(&meminfo, &text)?;
            if cpus != listed {
                let theirs = listed.difference(&cpus);
                if cpus.is_empty() && memory_bytes.is_none_or(|bytes| bytes == 0) {
                    self.warn(format!("node {id} is left out: its CPUs, {theirs}, are another node's too"));
                    continue;
                }
                self.warn(format!("CPUs {theirs} are another node's too: node {id} is without them"));
            }
            seen.extend(cpus.iter());
            nodes.push(node(id, cpus, memory_bytes));
        }
        if nodes.is_empty() {
            return Err(SysfsError::Read { path: self.root.join(NODES), source: ErrorKind::NotFound.into() });
        }
        Ok(nodes)
    }

    /// The only node of a kernel without NUMA: every CPU and the whole memory.
    pub fn only_node(&self, online: &CpuSet) -> Result<Node, SysfsError> {
        let meminfo = "../proc/meminfo";
        let text = self.text(meminfo)?.unwrap_or_default();
        Ok(node(NodeId(0), online.clone(), self.memory_bytes(meminfo, &text)?))
    }

    /// The total in a `meminfo`, of a node (`Node 0 MemTotal: 123 kB`) or of the machine (`MemTotal: 123 kB`).
    fn memory_bytes(&self, path: &str, text: &str) -> Result<Option<u64>, SysfsError> {
        let Some(line) = text.lines().find(|line| line.split_whitespace().any(|word| word == "MemTotal:")) else {
            return Ok(None);
        };
        let number = line.split_whitespace().skip_while(|word| *word != "MemTotal:").nth(1);
        let kib = number.and_then(|number| number.parse::<u64>().ok());
        let bytes = kib.and_then(|kib| kib.checked_mul(1024));
        bytes.map(Some).ok_or_else(|| self.wrong(path, line, &"MemTotal is followed by a number of kB"))
    }

    /// The firmware's distances, if every node has a row. Rows that are none are a mistake of the firmware, or of a
    /// tree that was cut: then the machine has no distances.
    pub fn distances(&mut self, ids: &NodeSet, nodes: &[Node]) -> Result<Option<Distances>, SysfsError> {
        let mut matrix = Vec::with_capacity(ids.len());
        for (index, id) in ids.iter().enumerate() {
            let Some(text) = self.text(&format!("{NODES}/node{id}/distance"))? else { return Ok(None) };
            let row: Option<Vec<u32>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
            match row.filter(|row| Distances::is_row(row, index, ids.len())) {
                Some(row) if nodes.len() == ids.len() => matrix.push(row),
                Some(_) => return Ok(None),
                None => {
                    let text: String = text.chars().take(60).collect();
                    self.warn(format!("the distances are left out: those of node {id} are `{text}`"));
                    return Ok(None);
                }
            }
        }
        Ok(Some(Distances { matrix, source: source() }))
    }

    /// Reads the HMAT's values for the nearest initiators of each node's memory.
    pub fn read_performance(&mut self, machine: &mut Machine) -> Result<(), SysfsError> {
        let mut pairs = LatencyPairs::new(machine.nodes.len());
        let mut bandwidths = Checked::new("bandwidths", BANDWIDTH);
        for to in 0..machine.nodes.len() {
            let node = format!("{NODES}/node{}", machine.nodes[to].id);
            // The nearest initiators of any kind, or else the nearest CPUs.
            let classes = ["access0", "access1"].map(|class| format!("{node}/{class}/initiators"));
            let known = |folder: &&String| self.files.has(&format!("{folder}/read_latency"));
            let folder = classes.iter().find(known).unwrap_or(&classes[0]);
            // Megabytes; 0 if the firmware does not provide it.
            let bandwidth: Option<u64> = self.parsed(&format!("{folder}/read_bandwidth"))?;
            let bandwidth = bandwidth.filter(|&mb| mb > 0).and_then(|mb| bandwidths.take(mb as f64 * 1e6));
            machine.nodes[to].bandwidth_bytes_per_s = bandwidth;
            let latency: Option<u64> = self.parsed(&format!("{folder}/read_latency"))?;
            if let Some(latency_ns) = latency.filter(|&ns| ns > 0) {
                for (from, node) in machine.nodes.iter().enumerate() {
                    if self.files.has(&format!("{folder}/node{}", node.id)) {
                        pairs.set(from, to, latency_ns as f64);
                    }
                }
            }
        }
        [pairs.warning(), bandwidths.warning()].into_iter().flatten().for_each(|warning| self.warn(warning));
        machine.latency = pairs.into_latency(&machine.nodes, source());
        Ok(())
    }
}

fn node(id: NodeId, cpus: CpuSet, memory_bytes: Option<u64>) -> Node {
    Node {
        id,
        cpus,
        memory_bytes: memory_bytes.unwrap_or(0),
        bandwidth_bytes_per_s: None,
        write_cost: None,
        source: source(),
    }
}
