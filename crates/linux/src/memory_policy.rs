//! NUMA memory policies: on which nodes memory may lie, and where it lies. Nodes are plain numbers, any of them.

use crate::affinity::{ids, mask};
use std::ffi::c_void;
use std::io;
use std::ptr::null;

/// Bits of the mask that the kernel fills: one page of them is the most that it takes.
const MOST_NODES: usize = 4096 * 8;

/// Flags of `get_mempolicy` (`linux/mempolicy.h`), which libc has not: a node is asked for, that of an address, the
/// nodes that the cpuset allows.
const MPOL_F_NODE: libc::c_int = 1;
const MPOL_F_ADDR: libc::c_int = 2;
const MPOL_F_MEMS_ALLOWED: libc::c_int = 4;

/// Where the kernel takes pages from (`linux/mempolicy.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum MemoryPolicy {
    /// From these nodes only; when they are full, the process is out of memory.
    Bind = libc::MPOL_BIND,
    /// From these nodes in turn, page by page.
    Interleave = libc::MPOL_INTERLEAVE,
}

/// Sets the policy of an address range, for pages that are not there yet. The range begins at a page.
pub(crate) fn bind_range(start: *mut c_void, bytes: usize, policy: MemoryPolicy, nodes: &[u32]) -> io::Result<()> {
    let words = mask(nodes);
    // The kernel takes one bit less than it is told.
    let bits = words.len() * libc::c_ulong::BITS as usize + 1;
    // SAFETY: mbind changes no memory content; the kernel checks the range and reads `bits - 1` bits of `words`.
    let result = unsafe { libc::syscall(libc::SYS_mbind, start, bytes, policy as i32, words.as_ptr(), bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The nodes that the calling thread's cpuset lets it have memory of, ascending.
pub fn allowed_memory_nodes() -> io::Result<Vec<u32>> {
    let mut words: Vec<libc::c_ulong> = vec![0; MOST_NODES / libc::c_ulong::BITS as usize];
    // SAFETY: the kernel writes no more than `MOST_NODES` bits, which `words` has; the mode is not asked for.
    let result = unsafe {
        let (no_mode, nowhere) = (null::<libc::c_int>(), null::<c_void>());
        let allowed = MPOL_F_MEMS_ALLOWED;
        libc::syscall(libc::SYS_get_mempolicy, no_mode, words.as_mut_ptr(), MOST_NODES, nowhere, allowed)
    };
    if result == 0 { Ok(ids(&words)) } else { Err(io::Error::last_os_error()) }
}

/// The node that the page of this value lies on. A page that was not touched yet is touched.
pub fn node_of<T>(place: &T) -> io::Result<u32> {
    let mut node: libc::c_int = 0;
    let flags = MPOL_F_NODE | MPOL_F_ADDR;
    // SAFETY: the kernel writes one int to `node`; the address is only looked up.
    let result = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, null::<c_void>(), 0, std::ptr::from_ref(place), flags)
    };
    if result == 0 { Ok(node.cast_unsigned()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Containers may forbid the calls.
    fn forbidden(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
    }

    #[test]
    fn memory_lies_on_a_node_that_is_allowed() {
        let nodes = match allowed_memory_nodes() {
            Err(error) if forbidden(&error) => return,
            nodes => nodes.unwrap(),
        };
        assert!(nodes.contains(&node_of(&Box::new(7)).unwrap()), "{nodes:?}");
    }
}
