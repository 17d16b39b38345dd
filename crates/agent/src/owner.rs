//! Distinguishes settings that a program or its owner chose from those that the agent made.

use linux::parse_memory_policy;
use machine::{CpuSet, MemoryPolicy, NodeId};

/// CPUs that another process chose; none where the thread may run on its whole cpuset, or has CPUs that the agent gave.
/// Threads inherit their creator's CPUs, so CPUs that the agent gave to any thread of a process are not the owner's
/// choice.
pub(crate) fn bound_to(now: &CpuSet, allowed: &CpuSet, given: &[CpuSet]) -> Option<CpuSet> {
    let is_free = allowed.is_subset(now) || given.contains(now);
    (!is_free).then(|| now.clone())
}

/// The memory policy that another process chose.
pub(crate) fn asked_for(words: &str, given: Option<&MemoryPolicy>) -> Option<MemoryPolicy> {
    let is_given = given.is_some_and(|given| parse_memory_policy(words).is_ok_and(|now| same(&now, given)));
    if is_given { None } else { crate::memory::asked_for(words) }
}

/// Compares policies, ignoring nodes that the cpuset does not allow: the kernel leaves them out.
fn same(now: &MemoryPolicy, given: &MemoryPolicy) -> bool {
    let among = |node: NodeId| given.nodes.contains(node);
    (now.mode, now.numbering) == (given.mode, given.numbering)
        && now.nodes.iter().all(among)
        && now.nodes.is_empty() == given.nodes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{MemoryMode, NodeNumbering};

    #[test]
    fn settings_made_by_the_agent_are_not_the_owners_choice() {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let allowed = cpus("0-7");
        let given = [cpus("2-3"), cpus("5")];
        let told = |now: &str| bound_to(&cpus(now), &allowed, &given).map(|cpus| cpus.to_string());
        assert_eq!(["0-7", "0-15", "2-3", "5"].map(told), [None, None, None, None]);
        assert_eq!([told("2"), told("0-3")], [Some("2".to_owned()), Some("0-3".to_owned())]);
        let given = MemoryPolicy::new(MemoryMode::Interleave, "0-3".parse().unwrap());
        assert_eq!(asked_for("interleave:0-2", Some(&given)), None);
        assert_eq!(asked_for("default", Some(&given)), None);
        assert_eq!(asked_for("interleave:4", Some(&given)).unwrap().to_string(), "interleave: 4");
        // The program's own `numactl --interleave`, as against what is given before its first thread.
        let spread = MemoryPolicy { numbering: NodeNumbering::Static, ..given };
        assert_eq!(asked_for("interleave=static:0-3", Some(&spread)), None);
        assert_eq!(asked_for("interleave:0-3", Some(&spread)).unwrap().to_string(), "interleave: 0-3");
        assert_eq!(asked_for("bind:0", None).unwrap().to_string(), "bind: 0");
    }
}
