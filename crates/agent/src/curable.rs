//! Which huge pages of a process can be cured: those whose users' nodes may have its memory.

use linux::{NodeState, NumaMapping, Process, parse_numa_maps, policy_may_be_cut};
use machine::NodeSet;
use placement::MisplacedHugePage;
use std::path::Path;

/// Where memory of a process may be.
#[derive(Debug, Default)]
pub(crate) struct Curable {
    /// Nodes with memory that its cpuset allows; none if unknown.
    nodes: Option<NodeSet>,
    /// Ascending by address.
    mappings: Vec<NumaMapping>,
}

impl Curable {
    /// Reads what is known of a process. What cannot be read restricts nothing: the kernel refuses what it does not allow.
    pub fn new(process: &Process) -> Self {
        let state = NodeState::read(Path::new("/sys")).ok();
        let allowed = process.status().ok().map(|status| status.nodes);
        let nodes = state.zip(allowed).map(|(state, allowed)| state.with_memory.intersection(&allowed));
        let text = process.text("numa_maps").ok();
        let mut mappings = text.and_then(|text| parse_numa_maps(&text).ok()).unwrap_or_default();
        mappings.sort_by_key(|mapping| mapping.start);
        Self { nodes, mappings }
    }

    /// Why a page has to stay as it is, if it has to.
    pub fn obstacle(&self, page: &MisplacedHugePage) -> Option<String> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= page.address);
        let mapping = after.checked_sub(1).and_then(|at| self.mappings.get(at));
        if mapping.is_some_and(|mapping| mapping.hugetlb) {
            return Some("pages of hugetlb pools are left: the kernel does not split them".to_owned());
        }
        let owners = || page.owners.iter().map(|(_, node)| *node);
        let lacks = |allowed: &Option<NodeSet>| {
            owners().find(|node| allowed.as_ref().is_some_and(|allowed| !allowed.contains(*node)))
        };
        if let Some(node) = lacks(&self.nodes) {
            return Some(format!(
                "node {node} uses a part, and has no memory, or none that the process's cpuset allows"
            ));
        }
        let bound = mapping.and_then(|mapping| bound_to(&mapping.policy));
        lacks(&bound).map(|node| format!("node {node} uses a part of memory that the program's policy binds to others"))
    }
}

/// The nodes of a strict policy, as `numa_maps` has it: `bind:0-1` or `bind=static:0-1`.
fn bound_to(policy: &str) -> Option<NodeSet> {
    if policy_may_be_cut(policy) {
        return None;
    }
    policy.strip_prefix("bind").and_then(|rest| rest.rsplit_once(':')).and_then(|(_, nodes)| nodes.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{HUGE_PAGE, NodeId, Pid};

    #[test]
    fn pages_stay_whose_users_nodes_may_not_have_them() {
        let numa = "100000000 default anon=512 N0=512 kernelpagesize_kB=4\n\
                    200000000 bind:0 anon=512 N0=512 kernelpagesize_kB=4\n\
                    300000000 default file=/anon_hugepage\\040(deleted) huge anon=1 N0=1 kernelpagesize_kB=2048\n";
        let mappings = parse_numa_maps(numa).unwrap();
        let curable = Curable { nodes: Some("0-1".parse().unwrap()), mappings };
        let page = |address: u64, node| MisplacedHugePage {
            pid: Pid(7),
            address,
            owners: vec![(address..address + HUGE_PAGE, NodeId(node))],
            misplaced_pages: 512,
            saved_ns_per_s: None,
        };
        let why = |address, node| curable.obstacle(&page(address, node));
        assert_eq!(why(0x1_0000_0000, 1), None);
        assert!(why(0x1_0000_0000, 2).unwrap().contains("node 2 uses a part, and has no memory"));
        assert_eq!(why(0x2_0000_0000, 0), None);
        assert!(why(0x2_0000_0000, 1).unwrap().contains("binds to others"));
        assert!(why(0x3_0000_0000, 1).unwrap().contains("hugetlb"));
        assert_eq!(Curable::default().obstacle(&page(0x2_0000_0000, 9)), None, "nothing is known");
        assert_eq!(bound_to("bind=static:0-1"), Some("0-1".parse().unwrap()));
        assert_eq!(bound_to("interleave:0-1"), None);
    }
}
