//! Whether a process gets transparent huge pages, for itself and what it starts.

use std::io;

/// Keeps transparent huge pages from the calling process and from all that it starts or executes, whatever the switch
/// says; or no longer does. Since Linux 3.15. Needs no rights.
pub fn forbid_huge_pages(forbid: bool) -> io::Result<()> {
    let unused: libc::c_ulong = 0;
    // SAFETY: PR_SET_THP_DISABLE takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(forbid), unused, unused, unused) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
