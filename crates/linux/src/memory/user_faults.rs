//! Page faults of this process that the process itself resolves (`userfaultfd`).

use crate::processes::threads::last_cpu;
use linux_raw_sys::general::{
    UFFD_API, UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_THREAD_ID, UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_MISSING,
    uffdio_api, uffdio_copy, uffdio_range, uffdio_register, uffdio_zeropage,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_COPY, UFFDIO_REGISTER, UFFDIO_ZEROPAGE};
use machine::{CpuId, SMALL_PAGE};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// Gives a descriptor to each process that may open the file. Since Linux 6.1.
const DEVICE: &str = "/dev/userfaultfd";
/// `_IO(UFFDIO, 0)` of `linux/userfaultfd.h`, missing from linux-raw-sys.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
/// Bytes of `struct uffd_msg`, and where a page fault's address and thread are in it.
const MESSAGE_BYTES: usize = 32;
const ADDRESS: usize = 16;
const THREAD: usize = 24;
/// How long to wait for memory when the kernel has none for a page: the thread that touched it waits too, as it does in
/// the kernel while memory is reclaimed.
const NO_MEMORY_WAIT: Duration = Duration::from_millis(1);

/// Whose faults are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Those of the program and of system calls that get the memory. Needs `CAP_SYS_PTRACE`, read access to
    /// `/dev/userfaultfd` (Linux 6.1), or `vm.unprivileged_userfaultfd` = 1.
    All,
    /// Those of the program only: a system call that gets a missing page fails with EFAULT. Needs no privileges. Since
    /// Linux 5.11.
    Program,
}

/// A page that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Its address.
    pub page: usize,
    thread: u32,
}

impl Fault {
    /// The CPU that the waiting thread ran on. `None`: it has ended.
    pub fn cpu(&self) -> Option<CpuId> {
        last_cpu(&std::fs::read_to_string(format!("/proc/{}/stat", self.thread)).ok()?)
    }
}

/// Resolves faults until it is dropped, which wakes all threads that wait.
#[derive(Debug)]
pub(crate) struct UserFaults {
    descriptor: OwnedFd,
}

impl UserFaults {
    /// Resolves faults in a range of whole base pages that is mapped and belongs to this process alone. EPERM: see
    /// [`Faults`]. ENOSYS: the kernel has no `userfaultfd`. EINVAL: it is older than Linux 4.14.
    pub fn new(range: &Range<usize>, whose: Faults) -> io::Result<Self> {
        let faults = Self { descriptor: open(whose)? };
        let features = u64::from(UFFD_FEATURE_THREAD_ID);
        let mut api = uffdio_api { api: u64::from(UFFD_API), features, ioctls: 0 };
        faults.order::<UFFDIO_API, _>(&mut api)?;
        let mode = u64::from(UFFDIO_REGISTER_MODE_MISSING);
        let mut register = uffdio_register { range: kernel_range(range.start, range.len()), mode, ioctls: 0 };
        faults.order::<UFFDIO_REGISTER, _>(&mut register)?;
        Ok(faults)
    }

    /// The next fault, if there is one.
    pub fn next(&self) -> Option<Fault> {
        let mut message = [0; MESSAGE_BYTES];
        loop {
            let length = rustix::io::read(&self.descriptor, &mut message).ok()?;
            if length == MESSAGE_BYTES && u32::from(message[0]) == UFFD_EVENT_PAGEFAULT {
                let address = u64::from_ne_bytes(message[ADDRESS..THREAD].try_into().ok()?) as usize;
                let thread = u32::from_ne_bytes(message[THREAD..THREAD + 4].try_into().ok()?);
                return Some(Fault { page: address - address % SMALL_PAGE as usize, thread });
            }
        }
    }

    /// Makes missing pages present with this contents, and wakes threads that wait for them. The memory policy of the
    /// calling thread says where they are. Pages that are present stay as they are.
    pub fn copy(&self, from: usize, to: usize, bytes: usize) -> io::Result<()> {
        fill(bytes, |done| {
            let (dst, src, len) = ((to + done) as u64, (from + done) as u64, (bytes - done) as u64);
            let mut copy = uffdio_copy { dst, src, len, mode: 0, copy: 0 };
            (self.order::<UFFDIO_COPY, _>(&mut copy), copy.copy)
        })
    }

    /// Makes a missing page read as zeros, as if it had never been written, and wakes threads that wait for it.
    pub fn zero(&self, page: usize) -> io::Result<()> {
        let bytes = SMALL_PAGE as usize;
        fill(bytes, |done| {
            let mut zero = uffdio_zeropage { range: kernel_range(page + done, bytes - done), mode: 0, zeropage: 0 };
            (self.order::<UFFDIO_ZEROPAGE, _>(&mut zero), zero.zeropage)
        })
    }

    fn order<const OPCODE: Opcode, T>(&self, value: &mut T) -> rustix::io::Result<()> {
        // SAFETY: the callers above pair each operation with its structure. It fills pages that nothing has written yet
        // since they went missing, so it changes no memory that a reference sees.
        unsafe { ioctl(&self.descriptor, Updater::<OPCODE, T>::new(value)) }
    }
}

impl AsFd for UserFaults {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Repeats a step until all bytes are done. A step gets the bytes that are done, and says how many it did.
fn fill(bytes: usize, mut step: impl FnMut(usize) -> (rustix::io::Result<()>, i64)) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        match step(done) {
            (Ok(()), _) => return Ok(()),
            // A part was done, or the address space was just changing.
            (Err(Errno::AGAIN), part) => done += usize::try_from(part).unwrap_or(0),
            // Another thread's fault has brought it.
            (Err(Errno::EXIST), _) => done += SMALL_PAGE as usize,
            (Err(Errno::NOMEM), _) => thread::sleep(NO_MEMORY_WAIT),
            (Err(error), _) => return Err(error.into()),
        }
    }
    Ok(())
}

fn kernel_range(start: usize, bytes: usize) -> uffdio_range {
    uffdio_range { start: start as u64, len: bytes as u64 }
}

fn open(whose: Faults) -> io::Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    let more = match whose {
        Faults::All => UserfaultfdFlags::empty(),
        Faults::Program => UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY),
    };
    // SAFETY: the descriptor stays within `UserFaults`.
    match unsafe { userfaultfd(flags | more) } {
        Err(refused @ Errno::PERM) => open_by_device(flags).map_err(|_| refused.into()),
        opened => Ok(opened?),
    }
}

fn open_by_device(flags: UserfaultfdFlags) -> io::Result<OwnedFd> {
    let device = File::open(DEVICE)?;
    // SAFETY: the operation takes flags, and returns a new descriptor.
    let descriptor = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags.bits()) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
