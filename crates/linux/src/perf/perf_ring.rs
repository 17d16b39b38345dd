//! Perf events that write into a shared ring.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `PERF_EVENT_IOC_SET_OUTPUT` of the kernel's `include/uapi/linux/perf_event.h`.
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// Its `PERF_EVENT_IOC_PERIOD`, with an 8-byte argument.
const SET_PERIOD: libc::c_ulong = 0x4008_2404;

/// Makes a perf event write its records into the ring of another event on the same CPU, as the memory that a user may
/// lock for rings is small. Since Linux 2.6.35. EINVAL if the two have different CPUs or clocks.
pub fn share_perf_ring(event: &impl AsRawFd, ring: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both files are borrowed, so they are open. The call takes no pointer, and changes no memory of ours
    // except what the kernel writes into the ring's own pages. For a file that is not a perf event the kernel returns
    // ENOTTY or EINVAL.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.as_raw_fd()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the sampling period of a perf event from now on, or its frequency if it was opened with one. Since Linux
/// 2.6.31. EINVAL if the event does not sample, or above `kernel.perf_event_max_sample_rate`.
pub fn set_perf_period(event: &impl AsRawFd, period: u64) -> io::Result<()> {
    // SAFETY: the file is borrowed, so it is open; the call reads one number, which outlives it.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_PERIOD, &raw const period) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A file that can be read, for `poll`, from the moment on in which the kernel has written as much into one of these rings
/// as their events' `wakeup_watermark` says. [`clear_perf_rings`] ends that.
pub fn watch_perf_rings<'a>(rings: impl Iterator<Item = &'a (impl AsRawFd + 'a)>) -> io::Result<OwnedFd> {
    let watch = epoll::create(CreateFlags::CLOEXEC)?;
    for ring in rings {
        // SAFETY: the file is borrowed, so it is open for the time of the call. The kernel forgets it when it is closed.
        let ring = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        // Edge-triggered: an event whose task has ended hangs up for ever.
        epoll::add(&watch, ring, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
    }
    Ok(watch)
}

/// Ends what [`watch_perf_rings`] has told so far.
pub fn clear_perf_rings(watch: &OwnedFd) {
    const AT_ONCE: usize = 64;
    let now = rustix::event::Timespec::default();
    let mut told = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; AT_ONCE];
    // More rings than that are reported at the next call.
    let _ = epoll::wait(watch, &mut told[..], Some(&now));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_event_has_no_ring_and_no_period() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let error = share_perf_ring(&file, &file).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)), "{error}");
        assert_eq!(set_perf_period(&file, 1).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
