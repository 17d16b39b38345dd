//! NUMA memory policies: the nodes that memory may be on, and the node that it is on.

use crate::memory::mask::{BITS, mask, set};
use crate::processes::process::{MalformedLine, Pid};
use machine::{MemoryMode, MemoryPolicy, NodeId, NodeNumbering, NodeSet};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{null, null_mut};

/// Bits of the mask that the kernel fills: it accepts at most one page.
const MOST_NODES: usize = 4096 * 8;

/// From `linux/mempolicy.h`; libc does not define all of them. Flags of `get_mempolicy`: return a node, the node of an
/// address, or the nodes that the cpuset allows.
const MPOL_F_NODE: c_int = 1;
const MPOL_F_ADDR: c_int = 2;
const MPOL_F_MEMS_ALLOWED: c_int = 4;
/// Flags of `mbind`: fail if pages are on other nodes, move pages of this process only, move shared pages too.
const MPOL_MF_STRICT: c_int = 1;
const MPOL_MF_MOVE: c_int = 2;
const MPOL_MF_MOVE_ALL: c_int = 4;
const MPOL_PREFERRED_MANY: c_int = 5;
const MPOL_WEIGHTED_INTERLEAVE: c_int = 6;
const MODE_FLAGS: c_int = libc::MPOL_F_NUMA_BALANCING | libc::MPOL_F_RELATIVE_NODES | libc::MPOL_F_STATIC_NODES;

/// The kernel's number of a mode.
fn mode_number(mode: MemoryMode) -> c_int {
    match mode {
        MemoryMode::Default => libc::MPOL_DEFAULT,
        MemoryMode::Local => libc::MPOL_LOCAL,
        MemoryMode::Preferred => libc::MPOL_PREFERRED,
        MemoryMode::PreferredMany => MPOL_PREFERRED_MANY,
        MemoryMode::Bind => libc::MPOL_BIND,
        MemoryMode::Interleave => libc::MPOL_INTERLEAVE,
        MemoryMode::WeightedInterleave => MPOL_WEIGHTED_INTERLEAVE,
    }
}

/// The mode and flags of a policy, as the kernel's calls take them (`linux/mempolicy.h`).
pub fn mode_with_flags(policy: &MemoryPolicy) -> c_int {
    let numbering = match policy.numbering {
        NodeNumbering::Remapped => 0,
        NodeNumbering::Static => libc::MPOL_F_STATIC_NODES,
        NodeNumbering::Relative => libc::MPOL_F_RELATIVE_NODES,
    };
    mode_number(policy.mode) | numbering | if policy.balancing { libc::MPOL_F_NUMA_BALANCING } else { 0 }
}

fn from_kernel(mode: c_int, nodes: NodeSet) -> io::Result<MemoryPolicy> {
    let unknown = || io::Error::other(format!("the kernel has a memory policy {mode} that nearside does not know"));
    policy_with_number(mode, nodes).ok_or_else(unknown)
}

/// The policy with this mode and flags, as the kernel's calls take them, and these nodes. `None`: an unknown mode, or flags
/// that exclude each other.
pub fn policy_with_number(mode: c_int, nodes: NodeSet) -> Option<MemoryPolicy> {
    let known = MemoryMode::ALL.into_iter().find(|known| mode_number(*known) == mode & !MODE_FLAGS);
    let numbering = match mode & (libc::MPOL_F_STATIC_NODES | libc::MPOL_F_RELATIVE_NODES) {
        libc::MPOL_F_STATIC_NODES => NodeNumbering::Static,
        libc::MPOL_F_RELATIVE_NODES => NodeNumbering::Relative,
        0 => NodeNumbering::Remapped,
        _ => return None,
    };
    let balancing = mode & libc::MPOL_F_NUMA_BALANCING != 0;
    Some(MemoryPolicy { numbering, balancing, ..MemoryPolicy::new(known?, nodes) })
}

/// Reads a policy as the kernel writes it in `numa_maps`: `default`, `bind:0-1`, `interleave=static:0,2`.
pub fn parse_memory_policy(text: &str) -> Result<MemoryPolicy, MalformedLine> {
    let unknown = || MalformedLine(text.to_owned());
    let (how, nodes) = text.split_once(':').unwrap_or((text, ""));
    let (mode, flags) = how.split_once('=').unwrap_or((how, ""));
    let mode = match mode {
        "default" => MemoryMode::Default,
        "prefer" => MemoryMode::Preferred,
        "bind" => MemoryMode::Bind,
        "interleave" => MemoryMode::Interleave,
        "local" => MemoryMode::Local,
        "prefer (many)" => MemoryMode::PreferredMany,
        "weighted interleave" => MemoryMode::WeightedInterleave,
        _ => return Err(unknown()),
    };
    let mut policy = MemoryPolicy::new(mode, nodes.parse().map_err(|_| unknown())?);
    for flag in flags.split('|') {
        match flag {
            "static" => policy.numbering = NodeNumbering::Static,
            "relative" => policy.numbering = NodeNumbering::Relative,
            "balancing" => policy.balancing = true,
            // Newer kernels may add more.
            _ => {}
        }
    }
    Ok(policy)
}

/// How `mbind` treats present pages on other nodes; by default they stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misplaced {
    /// Return EIO if any page is on another node or cannot be moved.
    pub strict: bool,
    /// Move them.
    pub moved: Option<Whose>,
}

/// The pages that a move may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Pages mapped by this process only.
    Private,
    /// Also pages that other processes map. Needs `CAP_SYS_NICE`.
    All,
}

impl Whose {
    /// The flag of `mbind` and `move_pages`.
    pub(crate) fn flag(self) -> c_int {
        match self {
            Self::Private => MPOL_MF_MOVE,
            Self::All => MPOL_MF_MOVE_ALL,
        }
    }
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of bits to pass to the calls: the kernel uses one bit less than it is passed.
pub(crate) fn told_bits(words: &[libc::c_ulong]) -> usize {
    words.len() * BITS + 1
}

/// Sets the policy of the calling thread for pages that are not present yet. Threads and processes that it starts later
/// inherit it, also across exec. EINVAL: the kernel does not support the mode, or no node is left that the cpuset
/// allows and that has memory. Since Linux 2.6.7, as are all calls here unless noted. Needs no privileges. A kernel
/// without `CONFIG_NUMA` returns ENOSYS; container filters often return EPERM.
pub fn set_memory_policy(policy: &MemoryPolicy) -> io::Result<()> {
    set_memory_policy_words(mode_with_flags(policy), &mask(&policy.nodes))
}

/// Like [`set_memory_policy`], without allocating.
pub(crate) fn set_memory_policy_words(mode: c_int, words: &[libc::c_ulong]) -> io::Result<()> {
    let bits = told_bits(words);
    // SAFETY: the kernel reads `bits - 1` bits, which `words` has.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, words.as_ptr(), bits) })
}

/// Sets the policy of a page-aligned address range of this process for pages that are not present yet; `present` says
/// how pages that are already present are treated. For shared memory the policy belongs to the memory, and applies to
/// all processes that map it. The length is in bytes. EFAULT: part of the range is not mapped. EIO: pages are on other
/// nodes and the call was [strict](Misplaced::strict). EINVAL: as with [`set_memory_policy`]. EPERM: [`Whose::All`]
/// needs `CAP_SYS_NICE`.
pub fn bind_range(start: usize, bytes: usize, policy: &MemoryPolicy, present: Misplaced) -> io::Result<()> {
    let words = mask(&policy.nodes);
    let (mode, bits) = (mode_with_flags(policy), told_bits(&words));
    let strict = if present.strict { MPOL_MF_STRICT } else { 0 };
    let flags = strict | present.moved.map_or(0, Whose::flag);
    // SAFETY: mbind does not change the contents of memory; the kernel checks the range and reads `bits - 1` bits of
    // `words`.
    checked(unsafe { libc::syscall(libc::SYS_mbind, start, bytes, mode, words.as_ptr(), bits, flags) })
}

/// Sets the node from which a range's [`Bind`](MemoryMode::Bind) or [`PreferredMany`](MemoryMode::PreferredMany) policy
/// searches for the nearest of its nodes, instead of the CPU's own. The length is in bytes. Since Linux 5.17 (ENOSYS
/// before). ENOENT: the range has no such policy. EINVAL: the node does not exist. Needs no privileges.
pub fn set_home_node(start: usize, bytes: usize, node: NodeId) -> io::Result<()> {
    let (node, flags) = (libc::c_ulong::from(node.0), 0);
    // SAFETY: the call does not change the contents of memory, and the kernel checks the range.
    checked(unsafe { libc::syscall(libc::SYS_set_mempolicy_home_node, start, bytes, node, flags) })
}

fn get_memory_policy(address: *const c_void, flags: c_int) -> io::Result<MemoryPolicy> {
    let mut mode: c_int = 0;
    let mut words: Vec<libc::c_ulong> = vec![0; MOST_NODES / BITS];
    // SAFETY: the kernel writes one int and at most `MOST_NODES` bits, which `words` has; it only looks up the address.
    checked(unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, words.as_mut_ptr(), MOST_NODES, address, flags)
    })?;
    from_kernel(mode, set(&words))
}

/// The policy of the calling thread. Needs no privileges.
pub fn memory_policy() -> io::Result<MemoryPolicy> {
    get_memory_policy(null(), 0)
}

/// The policy at an address of this process: the range's own or, without one, the thread's. Needs no privileges.
/// EFAULT: nothing is mapped there.
pub fn memory_policy_at(address: usize) -> io::Result<MemoryPolicy> {
    get_memory_policy(address as *const c_void, MPOL_F_ADDR)
}

fn get_node(address: *const c_void, flags: c_int) -> io::Result<NodeId> {
    let mut node: c_int = 0;
    let no_mask = null_mut::<c_void>();
    // SAFETY: the kernel writes one int to `node` and no mask; it only looks up the address.
    checked(unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, no_mask, 0, address, flags | MPOL_F_NODE)
    })?;
    Ok(NodeId(node.cast_unsigned()))
}

/// The node of the page at an address of this process. Touches the page if it is not present. Needs no privileges.
/// EFAULT: nothing is mapped there.
pub fn node_at(address: usize) -> io::Result<NodeId> {
    get_node(address as *const c_void, MPOL_F_ADDR)
}

/// The node of the page that holds this value. Touches the page if it is not present.
pub fn node_of<T>(place: &T) -> io::Result<NodeId> {
    node_at(std::ptr::from_ref(place) as usize)
}

/// The node of the next page under the calling thread's [`Interleave`](MemoryMode::Interleave) or
/// [`WeightedInterleave`](MemoryMode::WeightedInterleave) policy. Needs no privileges. EINVAL: it has another policy.
pub fn next_interleave_node() -> io::Result<NodeId> {
    get_node(null(), 0)
}

/// Moves all pages of a process in one kernel call: pages of the first source node go to the first target node, and so
/// on. Returns the number of pages that could not be moved, but not which or why: see [`Migration`](crate::Migration).
/// Since Linux 2.6.16. Needs the process's user, or `CAP_SYS_NICE` (EPERM); pages that other processes map always need
/// the latter. EINVAL: a node has no memory, or is outside the process's cpuset.
pub fn migrate_pages(pid: Pid, from: &NodeSet, to: &NodeSet) -> io::Result<u64> {
    let (mut from, mut to) = (mask(from), mask(to));
    let words = from.len().max(to.len());
    from.resize(words, 0);
    to.resize(words, 0);
    // SAFETY: the kernel reads no more bits of either mask than it has; memory contents do not change.
    let result = unsafe { libc::syscall(libc::SYS_migrate_pages, pid.0, told_bits(&from), from.as_ptr(), to.as_ptr()) };
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The nodes with memory that the calling thread's cpuset allows. Since Linux 2.6.24. Needs no privileges.
pub fn allowed_memory_nodes() -> io::Result<NodeSet> {
    let mut words: Vec<libc::c_ulong> = vec![0; MOST_NODES / BITS];
    // SAFETY: the kernel writes at most `MOST_NODES` bits, which `words` has; the mode is not requested.
    checked(unsafe {
        let (no_mode, nowhere) = (null_mut::<c_int>(), null::<c_void>());
        libc::syscall(libc::SYS_get_mempolicy, no_mode, words.as_mut_ptr(), MOST_NODES, nowhere, MPOL_F_MEMS_ALLOWED)
    })?;
    Ok(set(&words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HUGE_PAGE;
    use crate::memory::pages::Pages;

    /// The nodes, or `None` if a container forbids the calls: then the test is skipped.
    fn nodes() -> Option<NodeSet> {
        match allowed_memory_nodes() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                test_tools::skipped(format_args!("memory policies may not be read here: {error}"));
                None
            }
            nodes => Some(nodes.unwrap()),
        }
    }

    #[test]
    fn memory_lies_on_a_node_that_is_allowed() {
        let Some(nodes) = nodes() else { return };
        assert!(nodes.contains(node_of(&Box::new(7)).unwrap()), "{nodes:?}");
    }

    #[test]
    fn a_policy_is_read_as_it_was_set_and_is_the_threads_own() {
        let Some(nodes) = nodes() else { return };
        let before = memory_policy().unwrap();
        std::thread::spawn(move || {
            let mut policy = MemoryPolicy::new(MemoryMode::Interleave, nodes.clone());
            policy.numbering = NodeNumbering::Static;
            set_memory_policy(&policy).unwrap();
            assert_eq!(memory_policy().unwrap(), policy);
            assert!(nodes.contains(next_interleave_node().unwrap()));
            set_memory_policy(&MemoryPolicy::new(MemoryMode::Default, NodeSet::new())).unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(memory_policy().unwrap(), before);
    }

    #[test]
    fn a_process_is_moved_in_one_call() {
        let Some(nodes) = nodes() else { return };
        assert_eq!(migrate_pages(Pid(std::process::id()), &nodes, &nodes).unwrap(), 0);
        let nowhere = [NodeId(1000)].into_iter().collect();
        assert!(migrate_pages(Pid(std::process::id()), &nodes, &nowhere).is_err());
    }

    #[test]
    fn a_range_has_its_policy_and_a_wrong_one_is_refused() {
        let Some(node) = nodes().and_then(|nodes| nodes.first()) else { return };
        let mut pages = Pages::reserve(HUGE_PAGE).unwrap();
        pages.bind(&MemoryPolicy::bind(node)).unwrap();
        let words = pages.fill(|i| i);
        let start = words.as_ptr() as usize;
        assert_eq!(memory_policy_at(start).unwrap(), MemoryPolicy::bind(node));
        assert_eq!(node_at(start).unwrap(), node);
        let moved = Misplaced { strict: true, moved: Some(Whose::Private) };
        bind_range(start, HUGE_PAGE, &MemoryPolicy::bind(node), moved).unwrap();
        let nowhere = MemoryPolicy::bind(NodeId(100_000));
        assert_eq!(bind_range(start, HUGE_PAGE, &nowhere, moved).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(memory_policy_at(8).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }
}
