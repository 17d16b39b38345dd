//! Events of perf that write into one ring.

use std::io;
use std::os::fd::AsRawFd;

/// `PERF_EVENT_IOC_SET_OUTPUT` of the kernel's `include/uapi/linux/perf_event.h`.
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// Its `PERF_EVENT_IOC_PERIOD`, of a number of 8 bytes.
const SET_PERIOD: libc::c_ulong = 0x4008_2404;

/// Has an event of perf write its records into the ring of another one, which is of the same CPU: the memory that a
/// user may lock for rings is little. Since Linux 2.6.35. EINVAL where the two are of different CPUs or clocks.
pub fn share_perf_ring(event: &impl AsRawFd, ring: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both files are borrowed, so that they are open; the call takes no pointer and changes no memory of ours
    // but what the kernel writes into the ring's own pages. Of what is no event of perf, the kernel answers ENOTTY or
    // EINVAL.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.as_raw_fd()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How often an event of perf samples from now on: its period, or its frequency where it was opened with one. Since
/// Linux 2.6.31. EINVAL of what does not sample, and of more than `kernel.perf_event_max_sample_rate`.
pub fn set_perf_period(event: &impl AsRawFd, period: u64) -> io::Result<()> {
    // SAFETY: the file is borrowed, so that it is open; the call reads one number, which outlives it.
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
