//! What a node has, and how far nodes are from each other.

use crate::error::Error;
use crate::places::{SYS, no_such_node, node_state};
use linux::{HugetlbPool, NodeFiles};
use machine::{CpuSet, Machine, NodeId, NodeSet, Routes};
use std::path::Path;

/// What a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its memory, bytes; 0 for a node without memory.
    pub total_bytes: u64,
    /// Its free memory, bytes. File pages that the kernel would drop are not free.
    pub free_bytes: u64,
    /// Its online CPUs; none for a node without CPUs.
    pub cpus: CpuSet,
    /// Its pools of huge pages, by page size.
    pub huge_pages: Vec<HugetlbPool>,
}

/// What a node has now. Needs no privileges. A node that does not exist is an error.
pub fn node_facts(node: NodeId) -> Result<NodeFacts, Error> {
    let (all, place) = found(node, &|| format!("read the facts of node {node}"))?;
    let files = &all[place];
    let bytes = |name: &str| files.memory.get(name).copied().unwrap_or_default();
    Ok(NodeFacts {
        total_bytes: bytes("MemTotal"),
        free_bytes: bytes("MemFree"),
        cpus: files.cpus.clone(),
        huge_pages: files.hugetlb.clone(),
    })
}

/// The firmware's distance from a node to the memory of another one: 10 is local, and 20 claims to take twice as long.
/// Firmware often errs: see [`Latencies`]. Needs no privileges. A node that does not exist is an error.
pub fn distance(from: NodeId, to: NodeId) -> Result<u32, Error> {
    let attempt = || format!("read the distance from node {from} to node {to}");
    let (all, row) = found(from, &attempt)?;
    // The row of a node is in the order of the online nodes.
    let column = place_of(to, &all, &attempt)?;
    let unknown = || Error::Unknown { attempt: attempt(), why: "the kernel gives no distances".to_owned() };
    all[row].distances.get(column).copied().ok_or_else(unknown)
}

/// All nodes' files, and the place of one of them.
fn found(node: NodeId, attempt: &impl Fn() -> String) -> Result<(Vec<NodeFiles>, usize), Error> {
    let all = all_nodes(attempt)?;
    let place = place_of(node, &all, attempt)?;
    Ok((all, place))
}

/// All nodes' files, sorted by their numbers.
pub(crate) fn all_nodes(attempt: &impl Fn() -> String) -> Result<Vec<NodeFiles>, Error> {
    linux::nodes(Path::new(SYS)).map_err(|why| Error::Unknown { attempt: attempt(), why: machine::chain(&why) })
}

fn place_of(node: NodeId, all: &[NodeFiles], attempt: &impl Fn() -> String) -> Result<usize, Error> {
    match all.iter().position(|files| files.node == node) {
        Some(place) => Ok(place),
        None => Err(no_such_node(attempt(), [node].into_iter().collect(), &node_state(attempt)?)),
    }
}

/// Latencies of a machine from a machine file, such as `nearside measure --output` writes.
#[derive(Clone, Debug)]
pub struct Latencies {
    machine: Machine,
    routes: Routes,
}

impl Latencies {
    /// Reads a machine file. Needs no privileges but to read the file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let machine = Machine::load(path).map_err(|error| Error::Machine(Box::new(error)))?;
        // A machine file is checked when it is read, its links too.
        let no_routes = |why| Error::Unknown { attempt: format!("find the routes of {}", path.display()), why };
        let routes = Routes::new(&machine).map_err(|violations| no_routes(violations.to_string()))?;
        Ok(Self { machine, routes })
    }

    /// Latency of a load by a CPU of one node from the memory of another on the idle machine of the file, ns.
    pub fn idle_ns(&self, from: NodeId, to: NodeId) -> Result<f64, Error> {
        let unknown = || Error::Unknown {
            attempt: format!("find the latency from node {from} to node {to}"),
            why: format!("the machine file has none; it has nodes {}", self.nodes()),
        };
        self.routes.latency_ns(&self.machine, from, to).ok_or_else(unknown)
    }

    fn nodes(&self) -> NodeSet {
        self.machine.nodes.iter().map(|node| node.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::NodeState;

    #[test]
    fn each_node_has_facts_and_distances() {
        let Ok(state) = NodeState::read(Path::new(SYS)) else {
            return test_tools::skipped("this kernel has no nodes in /sys");
        };
        for node in state.online.iter() {
            let facts = node_facts(node).unwrap();
            assert_eq!(facts.cpus, state.cpus[&node]);
            assert!(facts.free_bytes <= facts.total_bytes);
            // Claim 19 of the specification.
            assert_eq!(distance(node, node).unwrap(), 10);
        }
        let nowhere = NodeId(1 << 20);
        let first = state.online.first().unwrap();
        for error in [
            node_facts(nowhere).unwrap_err(),
            distance(nowhere, first).unwrap_err(),
            distance(first, nowhere).unwrap_err(),
        ] {
            assert!(error.to_string().contains("there is no node 1048576: this machine has"), "{error}");
        }
    }

    #[test]
    fn latencies_are_those_of_the_file() {
        let preset = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/small-4x2.toml"));
        let latencies = Latencies::load(preset).unwrap();
        let (local, remote) = (latencies.idle_ns(NodeId(0), NodeId(0)), latencies.idle_ns(NodeId(0), NodeId(1)));
        assert!(local.unwrap() < remote.unwrap());
        let error = latencies.idle_ns(NodeId(0), NodeId(9)).unwrap_err();
        assert!(error.to_string().ends_with("it has nodes 0-3"), "{error}");
        let error = Latencies::load(Path::new("/nowhere.toml")).unwrap_err();
        assert!(error.to_string().starts_with("cannot read a machine file: "), "{error}");
    }
}
