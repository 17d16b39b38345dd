//! The system calls of the heap. They leave `errno` alone and allocate nothing.

#[cfg(not(miri))]
mod kernel;
#[cfg(miri)]
#[path = "system/miri.rs"]
mod kernel;

pub use kernel::{
    allowed_nodes, cpu_and_node, discard, keep_small, map_aligned, move_pages, node_of_page, random_word, resize,
    set_policy, thread_policy, unmap,
};

/// Words of a set of [`crate::MAX_NODES`] nodes.
pub const NODE_WORDS: usize = crate::MAX_NODES / 64;
/// A set of nodes, a bit each.
pub type Nodes = [u64; NODE_WORDS];

/// `MPOL_*` of the kernel's `mempolicy.h`.
pub const DEFAULT: usize = 0;
pub const PREFERRED: usize = 1;
pub const INTERLEAVE: usize = 3;
