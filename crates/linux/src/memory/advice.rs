//! Memory advice (`madvise`): page sizes and presence. No advice here changes the contents of memory.

use crate::processes::process::Pid;
use rustix::process::PidfdFlags;
use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// Advice for a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Use huge pages here when the system setting is `madvise`. Since Linux 2.6.38; EINVAL without transparent huge
    /// pages.
    HugePages = libc::MADV_HUGEPAGE,
    /// Use no huge pages here. Since Linux 2.6.38.
    NoHugePages = libc::MADV_NOHUGEPAGE,
    /// Not used recently: reclaim these pages first under memory pressure. Since Linux 5.4.
    Cold = libc::MADV_COLD,
    /// Write these pages to swap now. Since Linux 5.4.
    PageOut = libc::MADV_PAGEOUT,
    /// Populate all pages as if they were read. Since Linux 5.14.
    PopulateRead = libc::MADV_POPULATE_READ,
    /// Populate all pages as if they were written, following the range's memory policy. Since Linux 5.14; EFAULT if the
    /// range is not writable.
    PopulateWrite = libc::MADV_POPULATE_WRITE,
    /// Collapse the present pages into huge pages now, whatever the system setting. Since Linux 6.1; EAGAIN when memory
    /// is temporarily short, EBUSY when pages are in use elsewhere, ENOMEM when no huge page is free, EINVAL if the
    /// range cannot hold a whole huge page or [`NoHugePages`](Self::NoHugePages) was advised.
    Collapse = MADV_COLLAPSE,
    /// Processes that are forked from now on do not have this memory. Since Linux 2.6.16.
    NotInForkedProcesses = libc::MADV_DONTFORK,
    /// They have it, as is the rule.
    InForkedProcesses = libc::MADV_DOFORK,
}

const MADV_COLLAPSE: c_int = 25; // linux/mman.h; missing from libc

/// Applies advice to a page-aligned range of this process. Needs no privileges. ENOMEM: part of it is not mapped.
pub fn advise(range: &Range<usize>, advice: Advice) -> io::Result<()> {
    let bytes = range.end.saturating_sub(range.start);
    // SAFETY: no `Advice` changes the contents of memory; the kernel checks the range.
    let result = unsafe { libc::madvise(range.start as *mut libc::c_void, bytes, advice as c_int) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A process to advise. It is held by a pidfd, so that a reused PID never refers to another process.
#[derive(Debug)]
pub struct AdvisedProcess(OwnedFd);

impl AdvisedProcess {
    /// Opens a process. Since Linux 5.3. ESRCH: it has exited.
    pub fn open(pid: Pid) -> io::Result<Self> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
        Ok(Self(rustix::process::pidfd_open(number, PidfdFlags::empty())?))
    }

    /// Applies advice to ranges of the process, up to 1,024 per call, and returns the number of bytes that the kernel
    /// processed. Since Linux 5.10 for [`Advice::Cold`] and [`Advice::PageOut`], 6.1 for [`Advice::Collapse`]; other
    /// advice is EINVAL. Needs the process's user or `CAP_SYS_PTRACE` (EACCES), and `CAP_SYS_NICE` (EPERM) unless it is
    /// the caller itself.
    pub fn advise(&self, ranges: &[Range<usize>], advice: Advice) -> io::Result<usize> {
        let part = |range: &Range<usize>| libc::iovec {
            iov_base: range.start as *mut libc::c_void,
            iov_len: range.end.saturating_sub(range.start),
        };
        let parts: Vec<libc::iovec> = ranges.iter().map(part).collect();
        let (descriptor, flags) = (self.0.as_raw_fd(), 0);
        // SAFETY: the kernel reads exactly as many iovecs as there are. Their addresses belong to the other process,
        // and no advice changes the contents of its memory.
        let result = unsafe {
            let advice = advice as c_int;
            libc::syscall(libc::SYS_process_madvise, descriptor, parts.as_ptr(), parts.len(), advice, flags)
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HUGE_PAGE, Pages};

    #[test]
    fn populated_pages_are_there_and_keep_what_they_hold() {
        let mut pages = Pages::reserve(HUGE_PAGE).unwrap();
        pages.touch(0);
        let start = usize::try_from(pages.range().start).unwrap();
        let range = start..start + HUGE_PAGE;
        match advise(&range, Advice::PopulateWrite) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            done => done.unwrap(),
        }
        assert_eq!(pages.fill(|_| 7_u8)[4096], 7);
        assert_eq!(advise(&(0..4096), Advice::PopulateWrite).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_advised() {
        for pid in [0, u32::MAX, u32::MAX >> 1] {
            assert!(AdvisedProcess::open(Pid(pid)).is_err());
        }
        let own = AdvisedProcess::open(Pid(std::process::id()));
        if let Ok(own) = own {
            assert!(own.advise(std::slice::from_ref(&(0..4096)), Advice::PopulateRead).is_err());
        }
    }
}
