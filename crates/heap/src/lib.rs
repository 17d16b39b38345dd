//! A memory allocator that keeps each thread's objects on the node where the thread runs.
//!
//! The design is that of mimalloc (Leijen, Zorn, de Moura 2019) with a node for each heap:
//!
//! - A [`segment`] has 4 MiB and is aligned to 4 MiB, so that masking an address finds its header. The header names the
//!   owning heap. The kernel is asked to prefer the heap's node for the segment's pages.
//! - A segment has 64 slices of 64 KiB. A [`span`] is one or more slices with blocks of one [`size_class`].
//! - A [`heap`] has the spans of one thread on one node. A thread that moves to another node continues with another heap,
//!   of that node. A heap never changes its node, and a segment that is in use never changes its heap.
//! - A block that another thread frees goes home: to the lock-free list of the heap that owns it.
//! - The heaps of an ended thread wait, with all their segments, in a lock-free list of their node for another thread.
//!
//! Nothing here takes a lock or allocates by the C library, so that `fork` works at any moment, also in a signal handler.

mod calls;
mod fault;
mod global;
mod heap;
mod huge;
mod kept;
#[cfg(feature = "model")]
pub mod model;
mod place;
mod segment;
mod size_class;
mod slices;
mod span;
mod stack;
mod system;
mod thread;

pub use calls::{allocate, allocate_at_once, allocate_zeroed, free, home_node, reallocate, usable_size};
pub use global::NodeAllocator;
pub use place::{MAX_NODES, Place, place_all};
pub use segment::{borrowed_segments, mapped_bytes};
