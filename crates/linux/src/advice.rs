//! Advice on memory: page sizes and presence. None of it changes what memory holds.

use crate::process::Pid;
use rustix::process::PidfdFlags;
use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// What the kernel is told of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Use huge pages here where the switch says `madvise`. Since Linux 2.6.38; EINVAL without transparent huge pages.
    HugePages = libc::MADV_HUGEPAGE,
    /// Use none here. Since Linux 2.6.38.
    NoHugePages = libc::MADV_NOHUGEPAGE,
    /// Not used for some time: take these pages first when memory is short. Since Linux 5.4.
    Cold = libc::MADV_COLD,
    /// Write these pages to swap now. Since Linux 5.4.
    PageOut = libc::MADV_PAGEOUT,
    /// Make all pages present as if they were read. Since Linux 5.14.
    PopulateRead = libc::MADV_POPULATE_READ,
    /// Make all pages present as if they were written, by the range's policy. Since Linux 5.14; EFAULT where the range
    /// may not be written.
    PopulateWrite = libc::MADV_POPULATE_WRITE,
    /// Make huge pages of what is there, now, whatever the switch says. Since Linux 6.1; EAGAIN when memory is short
    /// for the moment, EBUSY when pages are in use elsewhere, ENOMEM when no huge page is free, EINVAL where there is no
    /// room for a whole one or [`NoHugePages`](Self::NoHugePages) was advised.
    Collapse = MADV_COLLAPSE,
}

const MADV_COLLAPSE: c_int = 25; // of linux/mman.h; libc has it not

/// Advises on a range of this process, which begins at a page. Needs no rights. ENOMEM: part of it is not mapped.
pub fn advise(range: &Range<usize>, advice: Advice) -> io::Result<()> {
    let bytes = range.end.saturating_sub(range.start);
    // SAFETY: none of the advice that `Advice` names changes what memory holds; the kernel checks the range.
    let result = unsafe { libc::madvise(range.start as *mut libc::c_void, bytes, advice as c_int) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A process to advise on, held: it never becomes another one that got the same number.
#[derive(Debug)]
pub struct AdvisedProcess(OwnedFd);

impl AdvisedProcess {
    /// Takes hold of a process. Since Linux 5.3. ESRCH: it is no more.
    pub fn open(pid: Pid) -> io::Result<Self> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
        Ok(Self(rustix::process::pidfd_open(number, PidfdFlags::empty())?))
    }

    /// Advises on ranges of it, up to 1,024 at a call, and returns how many bytes the kernel got to. Since Linux 5.10
    /// for [`Advice::Cold`] and [`Advice::PageOut`], 6.1 for [`Advice::Collapse`]; other advice is EINVAL. Needs to be
    /// the process's user or `CAP_SYS_PTRACE` (EACCES), and `CAP_SYS_NICE` (EPERM) unless it is the caller itself.
    pub fn advise(&self, ranges: &[Range<usize>], advice: Advice) -> io::Result<usize> {
        let part = |range: &Range<usize>| libc::iovec {
            iov_base: range.start as *mut libc::c_void,
            iov_len: range.end.saturating_sub(range.start),
        };
        let parts: Vec<libc::iovec> = ranges.iter().map(part).collect();
        let (descriptor, flags) = (self.0.as_raw_fd(), 0);
        // SAFETY: the kernel reads as many iovecs as there are. Their addresses are the other process's, and none of
        // the advice changes what its memory holds.
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
