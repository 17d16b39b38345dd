//! Whether a process and its children may use transparent huge pages.

use std::io;

/// Disables transparent huge pages for the calling process and for all that it starts or executes, whatever the system
/// setting; or enables them again. Since Linux 3.15. Needs no privileges.
pub fn forbid_huge_pages(forbid: bool) -> io::Result<()> {
    let unused: libc::c_ulong = 0;
    // SAFETY: PR_SET_THP_DISABLE takes integers.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(forbid), unused, unused, unused) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
