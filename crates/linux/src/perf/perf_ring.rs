//! Perf events that write into a shared ring.

use std::io;
use std::os::fd::AsRawFd;

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
