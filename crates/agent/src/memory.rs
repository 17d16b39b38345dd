//! Conversion between the kernel's memory policies and those of [`placement`].

use linux::{MemoryMode as KernelMode, MemoryPolicy as KernelPolicy};
use machine::{CpuSet, NodeId};
use placement::{MemoryMode, MemoryPlacement, MemoryPolicy};

/// The policy that a program or its owner set, if any. A policy that is not understood counts as set.
pub(crate) fn asked_for(words: &str) -> Option<MemoryPolicy> {
    let Ok(KernelPolicy { mode, nodes, .. }) = words.parse() else {
        return Some(MemoryPolicy::plain(MemoryMode::Bind));
    };
    let mode = match mode {
        KernelMode::Default => return None,
        KernelMode::Local => MemoryMode::Local,
        KernelMode::Preferred | KernelMode::PreferredMany => MemoryMode::Preferred,
        KernelMode::Bind => MemoryMode::Bind,
        KernelMode::Interleave => MemoryMode::Interleave,
        KernelMode::WeightedInterleave => MemoryMode::WeightedInterleave,
    };
    Some(MemoryPolicy::on(mode, nodes))
}

/// The policy to start a program with, which its children inherit. A preferred node becomes local allocation if all
/// CPUs of the program are on it, so that children that run elsewhere allocate locally too.
pub(crate) fn to_start_with(
    policy: &MemoryPolicy,
    cpus: Option<&CpuSet>,
    node_of: impl Fn(machine::CpuId) -> Option<NodeId>,
) -> KernelPolicy {
    let node = policy.nodes.first();
    let is_at_home = cpus.is_some_and(|cpus| cpus.iter().all(|cpu| node_of(cpu) == node));
    let mode = match policy.mode {
        MemoryMode::Default => KernelMode::Default,
        MemoryMode::Local => KernelMode::Local,
        MemoryMode::Preferred if is_at_home => return KernelPolicy::new(KernelMode::Local, machine::NodeSet::new()),
        MemoryMode::Preferred => KernelMode::Preferred,
        MemoryMode::Bind => KernelMode::Bind,
        MemoryMode::Interleave => KernelMode::Interleave,
        MemoryMode::WeightedInterleave => KernelMode::WeightedInterleave,
    };
    KernelPolicy::new(mode, policy.nodes.clone())
}

/// Why a policy gives a program this initial memory policy.
pub(crate) fn why(placement: &MemoryPlacement) -> &'static str {
    match placement {
        MemoryPlacement::Default | MemoryPlacement::Carrefour => "the program's own policy applies",
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
        let preferred = MemoryPolicy::on(MemoryMode::Preferred, "1".parse().unwrap());
        let start = |cpus: Option<&str>| {
            let cpus: Option<CpuSet> = cpus.map(|cpus| cpus.parse().unwrap());
            to_start_with(&preferred, cpus.as_ref(), node_of).to_string()
        };
        assert_eq!([start(Some("2-3")), start(Some("1-2")), start(None)], ["local", "preferred: 1", "preferred: 1"]);
    }
}
