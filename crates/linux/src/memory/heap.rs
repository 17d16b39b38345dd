//! The arenas of the C library's `malloc`.

use std::io;

/// Limits `malloc` to one arena for all threads of this process that have not allocated yet, instead of one per thread,
/// like `MALLOC_ARENA_MAX=1` in the environment, a common setting to save memory. glibc 2.10. Needs no privileges.
pub fn share_one_heap() -> io::Result<()> {
    // SAFETY: M_ARENA_MAX takes an integer.
    let known = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    if known == 1 {
        Ok(())
    } else {
        Err(io::Error::other("the C library cannot limit its arenas (mallopt M_ARENA_MAX)"))
    }
}
