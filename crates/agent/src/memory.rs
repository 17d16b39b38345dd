//! Memory policies of programs: those that they chose, and those that they start with.

use linux::parse_memory_policy;
use machine::{CpuSet, MemoryMode, MemoryPolicy, NodeId};
use placement::MemoryPlacement;

/// The policy that a program or its owner set, if any. A policy that is not understood counts as set. For placement,
/// several preferred nodes are as one.
pub(crate) fn asked_for(words: &str) -> Option<MemoryPolicy> {
    let Ok(MemoryPolicy { mode, nodes, .. }) = parse_memory_policy(words) else {
        return Some(MemoryPolicy::plain(MemoryMode::Bind));
    };
    match mode {
        MemoryMode::Default => None,
        MemoryMode::PreferredMany => Some(MemoryPolicy::new(MemoryMode::Preferred, nodes)),
        _ => Some(MemoryPolicy::new(mode, nodes)),
    }
}

/// The policy to start a program with, which its children inherit. A preferred node becomes local allocation if all
/// CPUs of the program are on it, so that children that run elsewhere allocate locally too.
pub(crate) fn to_start_with(
    policy: &MemoryPolicy,
    cpus: Option<&CpuSet>,
    node_of: impl Fn(machine::CpuId) -> Option<NodeId>,
) -> MemoryPolicy {
    let node = policy.nodes.first();
    let is_at_home = cpus.is_some_and(|cpus| cpus.iter().all(|cpu| node_of(cpu) == node));
    if policy.mode == MemoryMode::Preferred && is_at_home {
        return MemoryPolicy::plain(MemoryMode::Local);
    }
    MemoryPolicy::new(policy.mode, policy.nodes.clone())
}

/// Why a policy gives a program this initial memory policy.
pub(crate) fn why(placement: &MemoryPlacement) -> &'static str {
    match placement {
        MemoryPlacement::Default
        | MemoryPlacement::Carrefour
        | MemoryPlacement::CarrefourPublished
        | MemoryPlacement::Predict => "the program's own policy applies",
        MemoryPlacement::FirstTouch => "pages are to be on the node of the CPU that touches them first",
        MemoryPlacement::Local => "pages are to be on the node of the program's CPUs",
        MemoryPlacement::Remote => "pages are to be on the node that is farthest from the program's CPUs",
        MemoryPlacement::Interleave(_) => "the policy interleaves pages over these nodes",
        MemoryPlacement::WeightedInterleave(_) => "the policy interleaves pages over these nodes by bandwidth",
        MemoryPlacement::Bind(_) => "these nodes were asked for",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::CpuId;

    #[test]
    fn a_default_policy_is_none() {
        assert_eq!(asked_for("default"), None);
        assert_eq!(asked_for("bind:0-1").unwrap().to_string(), "bind: 0-1");
        assert_eq!(asked_for("interleave=static:0,2").unwrap().to_string(), "interleave: 0,2");
        assert_eq!(asked_for("prefer (many):1").unwrap().mode, MemoryMode::Preferred);
        assert_eq!(asked_for("something new").unwrap().mode, MemoryMode::Bind);
    }

    #[test]
    fn a_home_is_where_the_cpus_are() {
        let node_of = |cpu: CpuId| Some(NodeId(cpu.0 / 2));
        let preferred = MemoryPolicy::new(MemoryMode::Preferred, "1".parse().unwrap());
        let start = |cpus: Option<&str>| {
            let cpus: Option<CpuSet> = cpus.map(|cpus| cpus.parse().unwrap());
            to_start_with(&preferred, cpus.as_ref(), node_of).to_string()
        };
        assert_eq!([start(Some("2-3")), start(Some("1-2")), start(None)], ["local", "preferred: 1", "preferred: 1"]);
    }
}
