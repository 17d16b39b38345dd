//! Memory on nodes: allocated, moved, and found again.

use crate::error::{ESRCH, Error, subject};
use crate::policies::{check, named, whole_pages};
use linux::{
    Attempt, MemoryMode, MemoryPolicy, MigrateError, Migration, Misplaced, NodeMemory, Pid, Process, ProcessError,
    RangeNodes, Route, SystemState, Tally, Whose, diagnose, diagnose_process,
};
use machine::NodeSet;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// Allocates memory with a policy of its own, in whole base pages of 4 KiB. Pages are allocated when they are touched
/// first. [`MemoryMode::Default`] leaves the policy to the thread that touches. The weights of
/// [`MemoryMode::WeightedInterleave`] are the system's (`/sys/kernel/mm/mempolicy/weighted_interleave`): a policy
/// that carries its own is refused. Needs no privileges.
pub fn allocate(bytes: usize, policy: &MemoryPolicy) -> Result<NodeMemory, Error> {
    let attempt = || format!("allocate {bytes} bytes with the memory policy `{policy}`");
    if bytes == 0 {
        return Err(Error::argument(attempt(), "0 bytes have no page and so no node"));
    }
    if !policy.weights.is_empty() {
        return Err(Error::argument(attempt(), "the kernel has one weight a node for the whole system"));
    }
    check(policy, "mbind", &attempt)?;
    let memory = NodeMemory::reserve(bytes)
        .map_err(|answer| Error::of_kernel(attempt(), "mmap", &answer, None, Attempt::Look))?;
    if policy.mode != MemoryMode::Default {
        let range = memory.range();
        linux::bind_range(range.start, range.len(), policy, Misplaced::default())
            .map_err(|answer| Error::of_kernel(attempt(), "mbind", &answer, None, Attempt::Policy(policy)))?;
    }
    Ok(memory)
}

/// Moves the present pages of a range of a process: of the first node of `from` to the first of `to`, and so on; without
/// `from`, pages that are on no node of `to` are spread over those. Pages that cannot move stay, and the tally says how
/// many and why; that is not an error. Needs the process's user, or `CAP_SYS_PTRACE`; pages that other processes map
/// too move with [`Whose::All`], which needs `CAP_SYS_NICE`.
pub fn migrate(
    pid: Pid,
    range: &Range<usize>,
    from: Option<&NodeSet>,
    to: &NodeSet,
    whose: Whose,
) -> Result<Tally, Error> {
    let attempt = || format!("move {} of process {pid} to node {to}", named(range));
    let pages = whole_pages(range, &attempt)?;
    let route = Route::new(from.cloned(), to).ok_or_else(|| Error::argument(attempt(), "a set of nodes is empty"))?;
    let system = SystemState::read(subject(pid));
    let missing = from.and_then(|from| linux::missing_nodes(from, &system));
    if let Some(diagnosis) = missing.or_else(|| linux::nodes_in_the_way(to, &system)) {
        return Err(Error::refused(attempt(), "move_pages", crate::error::EINVAL, diagnosis));
    }
    let migration = Migration {
        ranges: std::iter::once(pages.start as u64..pages.end as u64).collect(),
        route,
        whose,
        budget_bytes_per_s: None,
        most_bytes: None,
        most_time: None,
    };
    let process = Process::open(pid).map_err(|error| refused_process(attempt(), &error, &system))?;
    migration.run(&process, &AtomicBool::new(false), |_| ()).map_err(|error| match error {
        MigrateError::Process(error) => refused_process(attempt(), &error, &system),
        MigrateError::Move(answer) => {
            let errno = answer.raw_os_error().unwrap_or(crate::error::EIO);
            let diagnosis = diagnose(Attempt::Move { to, whose }, errno, &system);
            Error::refused(attempt(), "move_pages", errno, diagnosis)
        }
        MigrateError::Find(answer) => Error::plain(attempt(), "read /proc/PID/pagemap", &answer),
        MigrateError::Thread(answer) => Error::plain(attempt(), "clone", &answer),
    })
}

/// Moves all pages of a process in one call of the kernel, as `migrate_pages` pairs the nodes. Returns the number of
/// pages that stayed; [`migrate`] says why. Needs the process's user, or `CAP_SYS_PTRACE`.
pub fn migrate_process(pid: Pid, from: &NodeSet, to: &NodeSet) -> Result<u64, Error> {
    let attempt = || format!("move process {pid} from node {from} to node {to}");
    if from.is_empty() || to.is_empty() {
        return Err(Error::argument(attempt(), "a set of nodes is empty"));
    }
    let system = SystemState::read(subject(pid));
    if let Some(diagnosis) = linux::missing_nodes(from, &system).or_else(|| linux::nodes_in_the_way(to, &system)) {
        return Err(Error::refused(attempt(), "migrate_pages", crate::error::EINVAL, diagnosis));
    }
    linux::migrate_pages(pid, from, to).map_err(|answer| {
        let what = Attempt::Move { to, whose: Whose::Private };
        Error::of_kernel(attempt(), "migrate_pages", &answer, subject(pid), what)
    })
}

fn refused_process(attempt: String, error: &ProcessError, system: &SystemState) -> Error {
    let errno = match error {
        ProcessError::Gone(_) => ESRCH,
        ProcessError::Read { source, .. } => source.raw_os_error().unwrap_or(crate::error::EIO),
        ProcessError::Malformed { .. } => crate::error::EIO,
    };
    Error::refused(attempt, "read /proc/PID", errno, diagnose_process(error, system))
}

/// The nodes of the pages of a range of this process, without touching any: 1 million pages of 4 KiB take about a
/// tenth of a second. Needs no privileges.
pub fn where_is(range: &Range<usize>) -> Result<RangeNodes, Error> {
    RangeNodes::of(range).map_err(|answer| {
        let attempt = format!("find the pages of {}", named(range));
        Error::of_kernel(attempt, "move_pages", &answer, None, Attempt::Look)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, error};
    use linux::allowed_memory_nodes;

    #[test]
    fn sizes_and_nodes_that_cannot_be_are_refused_with_the_reason() {
        let plain = MemoryPolicy::default();
        for (bytes, errno, says) in [
            (0, error::EINVAL, "0 bytes have no page"),
            (usize::MAX, 12, "mmap: Cannot allocate memory"),
            (usize::MAX >> 1, 12, "mmap: Cannot allocate memory"),
        ] {
            let error = allocate(bytes, &plain).unwrap_err();
            assert!(error.errno() == errno && error.to_string().contains(says), "{error}");
        }
        if allowed_memory_nodes().is_err() {
            return test_tools::skipped("memory policies may not be read here");
        }
        let error = allocate(1, &MemoryPolicy::bind(NodeId(1000))).unwrap_err();
        assert!(error.to_string().contains("there is no node 1000: this machine has"), "{error}");
        let own = Pid(std::process::id());
        let memory = allocate(1 << 20, &plain).unwrap();
        let nowhere: NodeSet = [NodeId(1000)].into_iter().collect();
        let error = migrate(own, &memory.range(), None, &nowhere, Whose::Private).unwrap_err();
        assert!(error.to_string().contains("there is no node 1000"), "{error}");
        assert!(migrate(own, &memory.range(), None, &NodeSet::new(), Whose::Private).is_err());
        assert!(migrate(own, &(5..5), None, &nowhere, Whose::Private).is_err());
        assert_eq!(migrate_process(own, &nowhere, &nowhere).unwrap_err().errno(), error::EINVAL);
        assert_eq!(migrate_process(own, &NodeSet::new(), &nowhere).unwrap_err().errno(), error::EINVAL);
        let gone = Pid(u32::MAX >> 1);
        let nodes = allowed_memory_nodes().unwrap();
        assert_eq!(migrate(gone, &memory.range(), None, &nodes, Whose::Private).unwrap_err().errno(), error::ESRCH);
    }

    #[test]
    fn memory_is_where_its_policy_says_and_can_be_found() {
        let Some(node) = allowed_memory_nodes().ok().and_then(|nodes| nodes.iter().last()) else {
            return test_tools::skipped("memory policies may not be read here");
        };
        let mut memory = allocate(100 << 12, &MemoryPolicy::bind(node)).unwrap();
        memory.contents_mut()[..60 << 12].fill(1);
        let found = where_is(&memory.range()).unwrap();
        assert_eq!((found.by_node.get(&node), found.absent), (Some(&60), 40));
        let to: NodeSet = [node].into_iter().collect();
        let tally = migrate(Pid(std::process::id()), &memory.range(), None, &to, Whose::Private).unwrap();
        assert_eq!((tally.there.pages, tally.moved().pages, tally.all_stayed().pages), (60, 0, 0));
    }
}
