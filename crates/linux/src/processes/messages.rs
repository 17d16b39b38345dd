//! Messages with open files over Unix sockets that keep the bounds of messages (`SOCK_SEQPACKET`).

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::{cmsg_space, io::Errno};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most open files in a message.
pub const MOST_FILES: usize = 8;
/// What the kernel allows (`SCM_MAX_FD`).
const KERNELS_MOST_FILES: usize = 253;

/// A message.
#[derive(Debug, Default)]
pub struct Message {
    /// Its content; empty at the end of the connection.
    pub bytes: Vec<u8>,
    /// All files that came with it, closed on `exec`.
    pub files: Vec<OwnedFd>,
    /// Whether it had more bytes than were asked for, which are lost.
    pub is_cut: bool,
    /// Whether it had more than [`MOST_FILES`] files.
    pub has_too_many_files: bool,
}

/// Receives a message of at most `most_bytes`. Blocks unless the socket is non-blocking. Needs no privileges.
pub fn receive(socket: impl AsFd, most_bytes: usize) -> io::Result<Message> {
    let mut bytes = vec![0; most_bytes];
    // The kernel would close what there is no space for here and now, which may take long.
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(KERNELS_MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut files = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            files.extend(passed);
        }
    }
    bytes.truncate(received.bytes);
    let is_cut = received.flags.contains(ReturnFlags::TRUNC);
    let has_too_many_files = received.flags.contains(ReturnFlags::CTRUNC) || files.len() > MOST_FILES;
    Ok(Message { bytes, files, is_cut, has_too_many_files })
}

/// Sends a message with at most [`MOST_FILES`] files, all or nothing. Blocks unless the socket is non-blocking. Needs no
/// privileges.
pub fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if files.len() > MOST_FILES || !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// Two connected sockets for messages, closed on `exec`. Needs no privileges.
pub fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::socket_cookie;

    #[test]
    fn messages_keep_their_bounds_and_bring_files() {
        let (here, there) = message_pair().unwrap();
        let (handle, _other) = message_pair().unwrap();
        send(&here, b"one", &[handle.as_fd()]).unwrap();
        send(&here, b"second", &[]).unwrap();
        let one = receive(&there, 100).unwrap();
        assert_eq!((&one.bytes[..], one.files.len(), one.is_cut), (&b"one"[..], 1, false));
        // A copy of a socket is the same socket.
        assert_eq!(socket_cookie(&one.files[0]).unwrap(), socket_cookie(&handle).unwrap());
        let cut = receive(&there, 3).unwrap();
        assert_eq!((&cut.bytes[..], cut.is_cut, cut.has_too_many_files), (&b"sec"[..], true, false));
        drop(here);
        assert_eq!(receive(&there, 100).unwrap().bytes, b"");
    }

    #[test]
    fn too_many_files_are_known() {
        let (here, there) = message_pair().unwrap();
        let many = [here.as_fd(); MOST_FILES + 1];
        assert!(send(&here, b"x", &many).is_err());
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST_FILES + 1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&here, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        let received = receive(&there, 10).unwrap();
        assert!(received.has_too_many_files && received.files.len() == MOST_FILES + 1);
    }
}
