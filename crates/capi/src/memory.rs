//! Memory on nodes.

use crate::boundary::{ErrorOut, Out, call, call_for, store};
use crate::policies::{policy, range, whose};
use crate::sets::{ids, ns_set};
use crate::threads::process;
use library::{Amount, Error, NodeMemory};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

/// The result of moving pages. A huge page is one page.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ns_tally {
    /// Pages that moved.
    pub moved_pages: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Pages that were on the right node.
    pub there_pages: u64,
    /// Pages on nodes that were not to be left.
    pub elsewhere_pages: u64,
    /// Pages that could not be moved.
    pub stayed_pages: u64,
    /// Their bytes.
    pub stayed_bytes: u64,
}

/// Allocates memory with a policy.
#[unsafe(no_mangle)]
pub extern "C" fn ns_alloc(bytes: usize, mode: c_int, nodes: Option<&ns_set>, error: ErrorOut<'_>) -> *mut c_void {
    call_for(error, || {
        let memory = library::allocate(bytes, &policy(mode, nodes)?)?;
        Ok(memory.into_raw().as_ptr().cast())
    })
}

/// Releases memory of `ns_alloc`, with the size that was asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_free(memory: *mut c_void, bytes: usize, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        if !memory.is_null() {
            // SAFETY: by the contract of all calls it comes from `ns_alloc` with this size, and has not been freed.
            drop(unsafe { memory_of(memory, bytes, "free") }?);
        }
        Ok(0)
    })
}

/// Takes a memory of `ns_alloc` from its caller, who gave it to do this.
///
/// # Safety
///
/// It comes from `ns_alloc` with this size, and has not been freed.
pub(crate) unsafe fn memory_of(memory: *mut c_void, bytes: usize, to_do: &str) -> Result<NodeMemory, Error> {
    // SAFETY: as this function's.
    let taken = NonNull::new(memory.cast()).and_then(|start| unsafe { NodeMemory::from_raw(start, bytes) });
    taken.ok_or_else(|| Error::Argument {
        attempt: format!("{to_do} {bytes} bytes at {memory:?}"),
        why: "ns_alloc returns whole pages: this is none, or the size is wrong".to_owned(),
    })
}

/// Moves pages of a range of a process.
#[unsafe(no_mangle)]
pub extern "C" fn ns_migrate(
    pid: c_int,
    address: *mut c_void,
    bytes: usize,
    from: Option<&ns_set>,
    to: Option<&ns_set>,
    flags: c_uint,
    tally: Out<'_, ns_tally>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let from = from.map(ns_set::as_ids);
        let range = range(address, bytes)?;
        let found = library::migrate(process(pid)?, &range, from.as_ref(), &ids(to, "to")?, whose(flags)?)?;
        let (moved, stayed): (Amount, Amount) = (found.moved(), found.all_stayed());
        store(
            tally,
            ns_tally {
                moved_pages: moved.pages,
                moved_bytes: moved.bytes,
                there_pages: found.there.pages,
                elsewhere_pages: found.elsewhere.pages,
                stayed_pages: stayed.pages,
                stayed_bytes: stayed.bytes,
            },
        );
        Ok(0)
    })
}

/// Moves all pages of a process.
#[unsafe(no_mangle)]
pub extern "C" fn ns_migrate_process(
    pid: c_int,
    from: Option<&ns_set>,
    to: Option<&ns_set>,
    stayed_pages: Out<'_, u64>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let stayed = library::migrate_process(process(pid)?, &ids(from, "from")?, &ids(to, "to")?)?;
        store(stayed_pages, stayed);
        Ok(0)
    })
}

/// Counts the pages of a range by node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_where(
    address: *const c_void,
    bytes: usize,
    pages_by_node: *mut u64,
    nodes: usize,
    absent_pages: Out<'_, u64>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let found = library::where_is(&range(address, bytes)?)?;
        store(absent_pages, found.absent);
        if !pages_by_node.is_null() {
            // SAFETY: it has `nodes` numbers by the contract of all calls; they may be uninitialized before.
            unsafe { pages_by_node.write_bytes(0, nodes) };
            for (node, pages) in found.by_node.iter().filter(|(node, _)| (node.0 as usize) < nodes) {
                // SAFETY: the index is below `nodes`.
                unsafe { pages_by_node.add(node.0 as usize).write(*pages) };
            }
        }
        Ok(0)
    })
}
