//! Memory policies of the calling thread and of ranges.

use crate::error::{EINVAL, EPERM, Error};
use linux::{Attempt, MemoryPolicy, Misplaced, NodeId, SystemState, Whose, allowed_memory_nodes, nodes_in_the_way};
use std::ops::Range;

/// Sets the policy of the calling thread for pages that it touches first; threads and programs that it starts later
/// inherit it. All or nothing: if a node does not exist, has no memory or is outside the cpuset, which the kernel would
/// ignore beside others, the policy stays as it was. Needs no privileges.
pub fn set_policy(policy: &MemoryPolicy) -> Result<(), Error> {
    let attempt = || format!("set the memory policy `{policy}` of the calling thread");
    check(policy, "set_mempolicy", &attempt)?;
    linux::set_memory_policy(policy)
        .map_err(|answer| Error::of_kernel(attempt(), "set_mempolicy", &answer, None, Attempt::Policy(policy)))
}

/// The policy of the calling thread. Needs no privileges.
pub fn policy() -> Result<MemoryPolicy, Error> {
    let attempt = "read the memory policy of the calling thread";
    let nothing = MemoryPolicy::default();
    linux::memory_policy()
        .map_err(|answer| Error::of_kernel(attempt, "get_mempolicy", &answer, None, Attempt::Policy(&nothing)))
}

/// Sets the policy of a range of this process, from the base page that holds its start to the one that holds its last
/// byte. `present` says what happens to pages that are present already. All or nothing, as [`set_policy`]. Needs no
/// privileges, but [`Whose::All`] needs `CAP_SYS_NICE`.
pub fn bind(range: &Range<usize>, policy: &MemoryPolicy, present: Misplaced) -> Result<(), Error> {
    let attempt = || format!("set the memory policy `{policy}` of {}", named(range));
    let whole = whole_pages(range, &attempt)?;
    check(policy, "mbind", &attempt)?;
    linux::bind_range(whole.start, whole.len(), policy, present).map_err(|answer| {
        let moves_all = present.moved == Some(Whose::All) && answer.raw_os_error() == Some(EPERM);
        let to = &policy.nodes;
        let what = if moves_all { Attempt::Move { to, whose: Whose::All } } else { Attempt::Policy(policy) };
        Error::of_kernel(attempt(), "mbind", &answer, None, what)
    })
}

/// Sets the node from which the kernel searches for the nearest allowed node of a range that has a policy `bind` or
/// `preferred-many`. Since Linux 5.17. Needs no privileges.
pub fn set_home_node(range: &Range<usize>, node: NodeId) -> Result<(), Error> {
    let attempt = || format!("make node {node} the home of {}", named(range));
    let whole = whole_pages(range, &attempt)?;
    let policy = MemoryPolicy::bind(node);
    linux::set_home_node(whole.start, whole.len(), node).map_err(|answer| {
        Error::of_kernel(attempt(), "set_mempolicy_home_node", &answer, None, Attempt::Policy(&policy))
    })
}

/// The policy at an address of this process: the range's own or, without one, the calling thread's. Needs no privileges.
pub fn policy_at(address: usize) -> Result<MemoryPolicy, Error> {
    linux::memory_policy_at(address)
        .map_err(|answer| Error::plain(format!("read the memory policy at {address:#x}"), "get_mempolicy", &answer))
}

/// The kernel drops nodes that it cannot use as long as one is left; a program that asks for them has to know.
pub(crate) fn check(policy: &MemoryPolicy, call: &'static str, attempt: &impl Fn() -> String) -> Result<(), Error> {
    let is_relative = policy.numbering == linux::NodeNumbering::Relative;
    let Ok(allowed) = allowed_memory_nodes() else { return Ok(()) };
    if is_relative || policy.nodes.is_subset(&allowed) {
        return Ok(());
    }
    match nodes_in_the_way(&policy.nodes, &SystemState::read(None)) {
        Some(diagnosis) => Err(Error::refused(attempt(), call, EINVAL, diagnosis)),
        None => Ok(()),
    }
}

/// The base pages of a range.
pub(crate) fn whole_pages(range: &Range<usize>, attempt: &impl Fn() -> String) -> Result<Range<usize>, Error> {
    let small = machine::SMALL_PAGE as usize;
    let end = range.end.checked_next_multiple_of(small);
    match end {
        Some(end) if range.start < range.end => Ok(range.start / small * small..end),
        _ if range.start == range.end => Err(Error::argument(attempt(), "the range is empty")),
        _ => Err(Error::argument(attempt(), "the range ends beyond the address space")),
    }
}

pub(crate) fn named(range: &Range<usize>) -> String {
    format!("{:#x}-{:#x}", range.start, range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryMode, NodeMemory, NodeSet};

    fn first_node() -> Option<NodeId> {
        let nodes = allowed_memory_nodes().ok();
        if nodes.is_none() {
            test_tools::skipped("memory policies may not be read here");
        }
        nodes?.first()
    }

    #[test]
    fn nodes_beyond_the_machine_are_refused_as_a_whole() {
        let Some(node) = first_node() else { return };
        std::thread::spawn(move || {
            let before = policy().unwrap();
            let nodes: NodeSet = [node, NodeId(1000)].into_iter().collect();
            let wrong = MemoryPolicy::new(MemoryMode::Interleave, nodes);
            let error = set_policy(&wrong).unwrap_err();
            assert!(error.to_string().contains("there is no node 1000"), "{error}");
            assert_eq!((policy().unwrap(), error.errno()), (before, EINVAL));
            let empty = set_policy(&MemoryPolicy::new(MemoryMode::Bind, NodeSet::new())).unwrap_err();
            assert!(empty.to_string().ends_with("the policy needs a node, and got none"), "{empty}");
            set_policy(&MemoryPolicy::bind(node)).unwrap();
            assert_eq!(policy().unwrap(), MemoryPolicy::bind(node));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_misaligned_range_is_its_whole_pages_and_hostile_ones_are_refused() {
        let Some(node) = first_node() else { return };
        let memory = NodeMemory::reserve(3 << 12).unwrap();
        let start = memory.range().start;
        let (bound, stay) = (MemoryPolicy::bind(node), Misplaced::default());
        bind(&(start + 4095..start + 4097), &bound, stay).unwrap();
        assert_eq!(policy_at(start).unwrap(), bound);
        assert_eq!(policy_at(start + 4096).unwrap(), bound);
        assert_ne!(policy_at(start + 8192).unwrap(), bound);
        for (range, why) in [
            (start..start, "the range is empty"),
            (start..usize::MAX, "the range ends beyond the address space"),
            (start + 1..start, "the range ends beyond the address space"),
        ] {
            let error = bind(&range, &bound, stay).unwrap_err();
            assert!(error.to_string().ends_with(why) && error.errno() == EINVAL, "{error}");
        }
        drop(memory);
        assert!(bind(&(0..4096), &bound, stay).unwrap_err().to_string().contains("mbind"));
        assert!(policy_at(0).is_err() && policy_at(usize::MAX).is_err());
    }
}
