//! The simulated disk. The guest's files are the host's, and QEMU accesses them through calls that this library
//! interposes (it is in `LD_PRELOAD`): they take the time of the simulated disk, not the host's.

use crate::LAB;
use crate::host;
use crate::thread_role::{self, Role};
use libc::{c_int, c_long, iovec, off64_t, ssize_t};

/// Accounts for a file worker thread's transfer, or its failure.
fn moved(bytes: ssize_t) -> ssize_t {
    if let (Some(lab), Role::Worker) = (LAB.get(), thread_role::own()) {
        // SAFETY: the location is this thread's own.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let why = unsafe { *errno };
        lab.pace.transfer(host::thread_id(), u64::try_from(bytes).unwrap_or(0), &lab.model);
        // The caller reads why its call failed. SAFETY: as above.
        unsafe { *errno = why };
    }
    bytes
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv64(file: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
    // SAFETY: the caller's pointers go to the kernel, which checks them; offsets have 64 bits here.
    moved(unsafe { libc::syscall(libc::SYS_preadv, file, parts, c_long::from(count), offset, 0) } as ssize_t)
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(file: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
    // SAFETY: as above.
    moved(unsafe { libc::syscall(libc::SYS_pwritev, file, parts, c_long::from(count), offset, 0) } as ssize_t)
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(file: c_int) -> c_int {
    // SAFETY: the call takes no pointer.
    moved(unsafe { libc::syscall(libc::SYS_fsync, file) } as ssize_t) as c_int
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    // SAFETY: the call takes no pointer.
    moved(unsafe { libc::syscall(libc::SYS_fdatasync, file) } as ssize_t) as c_int
}
