//! The peer of a Unix socket, as recorded by the kernel.

use crate::processes::process::Pid;
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of a group ID.
const GROUP_BYTES: usize = size_of::<libc::gid_t>();

/// The credentials of the peer at the time it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process.
    pub pid: Pid,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its groups, the effective one among them.
    pub groups: Vec<u32>,
}

/// The peer of a connected Unix socket: `SO_PEERCRED`, and `SO_PEERGROUPS` since Linux 4.13. Needs no privileges.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let socket = socket.as_fd();
    let who = socket_peercred(socket)?;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(groups.len() * GROUP_BYTES).unwrap_or(libc::socklen_t::MAX);
        let place = groups.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `bytes` bytes, the length of `groups`, and then the length that it needs.
        let result = unsafe {
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, place, &raw mut bytes)
        };
        let had = bytes as usize / GROUP_BYTES;
        if result == 0 {
            groups.truncate(had);
            groups.push(who.gid.as_raw());
            let (uid, gid) = (who.uid.as_raw(), who.gid.as_raw());
            return Ok(Peer { pid: Pid(who.pid.as_raw_nonzero().get().cast_unsigned()), uid, gid, groups });
        }
        let error = io::Error::last_os_error();
        // ERANGE: there are more groups, and `bytes` holds the needed length.
        if error.raw_os_error() != Some(libc::ERANGE) || had <= groups.len() {
            return Err(error);
        }
        groups.resize(had, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Gid;
    use std::os::unix::net::UnixStream;

    #[test]
    fn this_process_is_its_own_peer() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = peer(&here).unwrap();
        assert_eq!(peer.pid, Pid(std::process::id()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        let mut groups: Vec<u32> = rustix::process::getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
        groups.push(peer.gid);
        let mut told = peer.groups;
        groups.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, groups);
        assert!(super::peer(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
