//! Read-mostly data with a copy on each node.

use crate::boundary::{ErrorOut, Out, call, free, give, given};
use crate::sets::{ids, ns_set};
use library::{Error, Replicated};
use std::ffi::{c_int, c_void};
use std::ptr::null;

/// Bytes with a copy on each of some nodes.
pub struct ns_replica(Replicated<u8>);

/// The caller's bytes.
///
/// # Safety
///
/// `data` is null, or has as many bytes for as long as `'a`.
unsafe fn bytes_at<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Error> {
    let wrong = |why: &str| Error::Argument { attempt: format!("copy {bytes} bytes"), why: why.to_owned() };
    if bytes == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(wrong("they are at null"));
    }
    if isize::try_from(bytes).is_err() {
        return Err(wrong("no memory has as many"));
    }
    // SAFETY: they are valid, and their length was checked.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), bytes) })
}

/// Copies bytes to each of these nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_replica_new(
    data: *const c_void,
    bytes: usize,
    nodes: Option<&ns_set>,
    replica: Out<'_, Box<ns_replica>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        // SAFETY: by the contract of all calls.
        let data = unsafe { bytes_at(data, bytes) }?;
        let copies = Replicated::new(data, &ids(nodes, "nodes")?)?;
        give(replica, "replica", ns_replica(copies))
    })
}

/// The copy of the node that the calling thread runs on; null for null. Never fails otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn ns_replica_read(replica: Option<&ns_replica>) -> *const c_void {
    replica.map_or(null(), |replica| replica.0.read().as_ptr().cast())
}

/// Replaces bytes from an offset on, in each copy. No thread may read meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_replica_write(
    replica: Option<&mut ns_replica>,
    offset: usize,
    data: *const c_void,
    bytes: usize,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        // SAFETY: by the contract of all calls.
        let data = unsafe { bytes_at(data, bytes) }?;
        let replica = &mut given(replica, "replica")?.0;
        // Bytes of `ns_replica_read` change with the first copy that is written.
        let is_own = replica.nodes().iter().any(|node| overlap(replica.on(node), data));
        let copied = if is_own { data.to_vec() } else { Vec::new() };
        replica.write(offset, if is_own { &copied } else { data }).map(|()| 0)
    })
}

/// Whether two slices have an address in common.
fn overlap(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (one.as_ptr_range(), other.as_ptr_range());
    one.start < other.end && other.start < one.end
}

/// Frees all copies; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_replica_free(replica: Option<Box<ns_replica>>) {
    free(replica);
}
