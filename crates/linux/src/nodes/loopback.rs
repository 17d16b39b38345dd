//! The loopback interface, which is down after boot.

use std::io;
use std::os::fd::AsRawFd;

const UP: libc::c_short = 0x41; // IFF_UP and IFF_RUNNING, which libc defines with wider types

/// Brings `lo` up. Needs `CAP_NET_ADMIN`.
pub fn bring_loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: ifreq is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = UP;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
