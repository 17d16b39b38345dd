//! Where the C library takes the memory of `malloc` from.

use std::io;

/// Has all threads of this process that have allocated nothing yet take what they allocate from one heap, instead of
/// one for each thread: so does `MALLOC_ARENA_MAX=1` in the environment, which some set to save memory. glibc 2.10.
/// Needs no rights.
pub fn share_one_heap() -> io::Result<()> {
    // SAFETY: M_ARENA_MAX takes a plain number.
    let known = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    if known == 1 { Ok(()) } else { Err(io::Error::other("the C library has no limit of heaps (mallopt M_ARENA_MAX)")) }
}
