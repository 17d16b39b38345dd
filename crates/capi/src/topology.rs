//! Where the caller is, and what the machine is like.

use crate::boundary::{self, ErrorOut, Out, call, free, give, given, store};
use library::{Error, Latencies, NodeId};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// What a node has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ns_facts {
    /// Its memory, bytes.
    pub total_bytes: u64,
    /// Its free memory, bytes.
    pub free_bytes: u64,
    /// The count of its online CPUs.
    pub cpus: u64,
}

/// Measured latencies of a machine file.
pub struct ns_latencies(Latencies);

/// The CPU and the node of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn ns_here(cpu: Out<'_, c_int>, node: Out<'_, c_int>, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        let (on_cpu, on_node) = library::here()?;
        store(cpu, on_cpu.0.cast_signed());
        store(node, on_node.0.cast_signed());
        Ok(0)
    })
}

/// The firmware's distance.
#[unsafe(no_mangle)]
pub extern "C" fn ns_distance(from: c_uint, to: c_uint, error: ErrorOut<'_>) -> c_int {
    call(error, || library::distance(NodeId(from), NodeId(to)).map(u32::cast_signed))
}

/// What a node has. `bytes` is the size of the structure that the caller was compiled with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_node_facts(node: c_uint, facts: *mut c_void, bytes: usize, error: ErrorOut<'_>) -> c_int {
    call(error, || {
        // Fields are only ever added at the end: a caller that was compiled with fewer gets fewer.
        let place = given(NonNull::new(facts.cast::<u8>()), "facts")?.as_ptr();
        let found = library::node_facts(NodeId(node))?;
        let found =
            ns_facts { total_bytes: found.total_bytes, free_bytes: found.free_bytes, cpus: found.cpus.len() as u64 };
        let known = bytes.min(size_of::<ns_facts>());
        // SAFETY: the caller's structure has `bytes` bytes, by the contract of all calls.
        unsafe {
            place.write_bytes(0, bytes);
            place.copy_from_nonoverlapping((&raw const found).cast(), known);
        }
        Ok(0)
    })
}

/// The pool of huge pages of one size on a node.
#[unsafe(no_mangle)]
pub extern "C" fn ns_huge_pages(
    node: c_uint,
    page_bytes: u64,
    pages: Out<'_, u64>,
    free_pages: Out<'_, u64>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let facts = library::node_facts(NodeId(node))?;
        let pool = facts.huge_pages.iter().find(|pool| pool.page_bytes == page_bytes);
        let no_pool = || Error::Unknown {
            attempt: format!("find the huge pages of {page_bytes} bytes on node {node}"),
            why: "the kernel has no pool of that size".to_owned(),
        };
        let pool = pool.ok_or_else(no_pool)?;
        store(pages, pool.pages);
        store(free_pages, pool.free_pages);
        Ok(0)
    })
}

/// Reads a machine file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_latencies_load(
    path: *const c_char,
    latencies: Out<'_, Box<ns_latencies>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        // SAFETY: by the contract of all calls.
        let path = unsafe { boundary::path(path, "path") }?;
        give(latencies, "latencies", ns_latencies(Latencies::load(path)?))
    })
}

/// Idle latency of a load, ns.
#[unsafe(no_mangle)]
pub extern "C" fn ns_latency_ns(
    latencies: Option<&ns_latencies>,
    from: c_uint,
    to: c_uint,
    latency_ns: Out<'_, f64>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let latency = given(latencies, "latencies")?.0.idle_ns(NodeId(from), NodeId(to))?;
        store(latency_ns, latency);
        Ok(0)
    })
}

/// Frees latencies; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_latencies_free(latencies: Option<Box<ns_latencies>>) {
    free(latencies);
}
