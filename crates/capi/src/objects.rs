//! Objects of any size on nodes.

use crate::boundary::{ErrorOut, call_for};
use heap::{MAX_NODES, Place};
use library::{Error, NodeId};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `NS_HEAP_LOCAL` and `NS_HEAP_INTERLEAVED` of the header.
const LOCAL: c_int = -1;
const INTERLEAVED: c_int = -2;

/// Allocates an object of the heap.
#[unsafe(no_mangle)]
pub extern "C" fn ns_heap_alloc(bytes: usize, alignment: usize, place: c_int, error: ErrorOut<'_>) -> *mut c_void {
    call_for(error, || {
        let attempt = || format!("allocate {bytes} bytes, aligned to {alignment}, at place {place}");
        let wrong = |why: &str| Error::Argument { attempt: attempt(), why: why.to_owned() };
        if !alignment.is_power_of_two() {
            return Err(wrong("an alignment is a power of two"));
        }
        let place = match (place, usize::try_from(place)) {
            (LOCAL, _) => Place::Local,
            (INTERLEAVED, _) => Place::Interleaved,
            (_, Ok(node)) if node < MAX_NODES && exists(node) => Place::On(node),
            _ => return Err(wrong("it is no node of this machine, NS_HEAP_LOCAL or NS_HEAP_INTERLEAVED")),
        };
        let object = heap::allocate(bytes, alignment, place);
        if object.is_null() {
            let diagnosis = linux::Cause::Other("there is no memory, or no address space, for it".to_owned());
            let diagnosis = Box::new(diagnosis.into());
            return Err(Error::Refused { attempt: attempt(), call: "mmap", errno: libc::ENOMEM, diagnosis });
        }
        Ok(object.cast())
    })
}

/// Whether a node below [`MAX_NODES`] exists. What once was so is not asked again.
fn exists(node: usize) -> bool {
    // No lock, which a child would have for ever that was forked while another thread held it.
    static KNOWN: [AtomicU64; MAX_NODES / 64] = [const { AtomicU64::new(0) }; MAX_NODES / 64];
    let (known, bit) = (&KNOWN[node / 64], 1 << (node % 64));
    if known.load(Relaxed) & bit != 0 {
        return true;
    }
    // Where that cannot be read, the object is placed as the kernel can.
    let Ok(nodes) = linux::NodeState::read(Path::new("/sys")) else { return true };
    let is_there = u32::try_from(node).is_ok_and(|node| nodes.online.contains(NodeId(node)));
    if is_there {
        known.fetch_or(bit, Relaxed);
    }
    is_there
}

/// Frees an object of the heap, in any thread; null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_heap_free(object: *mut c_void) {
    // SAFETY: by the contract of all calls it comes from `ns_heap_alloc`; the heap ends the process otherwise.
    unsafe { heap::free(object.cast()) };
}
