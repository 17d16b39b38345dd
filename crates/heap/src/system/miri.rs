//! What the system calls do for a program that Miri interprets: it has no kernel. Memory is of std's allocator, all of it on
//! one node, and is never given back.

use super::Nodes;
use rustix::io::Errno;
use std::alloc::{Layout, alloc_zeroed};

pub fn map_aligned(bytes: usize, alignment: usize) -> Option<*mut u8> {
    let layout = Layout::from_size_align(bytes, alignment).ok()?;
    // SAFETY: the heap maps no ranges of 0 bytes.
    Some(unsafe { alloc_zeroed(layout) }).filter(|start| !start.is_null())
}

pub unsafe fn unmap(_start: *mut u8, _bytes: usize) {}

pub unsafe fn resize(_start: *mut u8, _old: usize, _new: usize) -> Result<(), Errno> {
    Err(Errno::NOMEM)
}

pub unsafe fn move_pages(_from: *mut u8, _old: usize, _new: usize, _to: *mut u8) -> bool {
    false
}

pub unsafe fn discard(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise: nothing uses the contents of this range any more.
    unsafe { start.write_bytes(0, bytes) };
    true
}

pub fn keep_small(_start: *mut u8, _bytes: usize) {}

pub fn set_policy(_start: *mut u8, _bytes: usize, _mode: usize, _nodes: &Nodes) -> bool {
    true
}

pub fn node_of_page(_address: *mut u8) -> Option<usize> {
    Some(0)
}

pub fn thread_policy() -> Option<usize> {
    Some(super::DEFAULT)
}

pub fn allowed_nodes() -> Option<Nodes> {
    let mut nodes = [0; super::NODE_WORDS];
    nodes[0] = 1;
    Some(nodes)
}

pub fn cpu_and_node() -> Option<(usize, usize)> {
    Some((0, 0))
}

pub fn random_word() -> usize {
    0x5eed
}
