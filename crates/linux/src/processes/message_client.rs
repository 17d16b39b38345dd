//! A client of a server of messages.

use crate::processes::messages::{Message, receive, send};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Longest time that a timeout of a socket can have, as the kernel counts it in its clock's ticks: about ten years.
const MOST_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A connection to a server's socket (`SOCK_SEQPACKET`), closed on `exec`.
#[derive(Debug)]
pub struct MessageClient {
    socket: OwnedFd,
}

impl MessageClient {
    /// Connects. Needs permission to write to the socket's file.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Sends a message with open files, and waits for the answer, of at most `most_bytes`.
    pub fn ask(
        &self,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
        most_bytes: usize,
        patience: Duration,
    ) -> io::Result<Message> {
        for direction in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&self.socket, direction, Some(patience.min(MOST_TIMEOUT)))?;
        }
        // A client that is refused gets the reason before it has asked, and then cannot.
        let asked = send(&self.socket, bytes, files);
        let hear = || receive(&self.socket, most_bytes);
        let mut heard = hear();
        if heard.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::CONNRESET.raw_os_error())) {
            // The reset is reported first, and then the reason that was sent before it.
            heard = hear();
        }
        let received = heard?;
        if received.bytes.is_empty() {
            asked?;
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(received)
    }
}
