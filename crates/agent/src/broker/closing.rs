//! Files of other processes are closed by threads of their own: where this is the last copy of one, its close may take as
//! long as its sender likes, as that of a socket that lingers.

use linux::receive;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Most closes of a user's files at a time. Beyond them, the user is not served.
const MOST: usize = 8;

/// Most messages that wait in a connection: its buffer of some 200 KiB has room for fewer.
const MOST_UNREAD: usize = 300;

/// Closes that are not finished, by user.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<Mutex<BTreeMap<u32, usize>>>);

impl Closing {
    /// Closes files that a user sent.
    pub fn close(&self, uid: u32, files: Vec<OwnedFd>) {
        if files.is_empty() {
            return;
        }
        self.change(uid, |count| count + 1);
        let all = self.clone();
        // Without a thread they are closed here.
        let closer = thread::Builder::new().name("close".to_owned()).spawn(move || {
            drop(files);
            all.change(uid, |count| count - 1);
        });
        if closer.is_err() {
            self.change(uid, |count| count - 1);
        }
    }

    /// Closes the files in messages that will not be read: the kernel would do so where the connection is closed.
    pub fn close_unread(&self, stream: &UnixStream, uid: u32) {
        let _ = stream.shutdown(Shutdown::Both);
        // An empty message looks like the end.
        let mut unread: Vec<OwnedFd> = Vec::new();
        for _ in 0..MOST_UNREAD {
            let Ok(message) = receive(stream, 0) else { break };
            unread.extend(message.files);
        }
        self.close(uid, unread);
    }

    /// Whether too many files of a user are being closed.
    pub fn is_full(&self, uid: u32) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).is_some_and(|count| *count >= MOST)
    }

    fn change(&self, uid: u32, to: impl Fn(usize) -> usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = to(counts.get(&uid).copied().unwrap_or(0));
        if count > 0 {
            counts.insert(uid, count)
        } else {
            counts.remove(&uid)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_linger;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_socket_that_lingers_delays_no_other_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lingering = || {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stream.set_nonblocking(true).unwrap();
            while stream.write(&[0; 1 << 13]).is_ok() {}
            set_socket_linger(&stream, Some(Duration::from_secs(20))).unwrap();
            OwnedFd::from(stream)
        };
        let closing = Closing::default();
        for _ in 0..MOST {
            assert!(!closing.is_full(7));
            closing.close(7, vec![lingering()]);
        }
        // None is finished, and none was waited for.
        assert!(closing.is_full(7) && !closing.is_full(8));
        drop(listener);
    }

    #[test]
    fn files_that_are_not_read_are_closed_too() {
        let (here, there) = linux::message_pair().unwrap();
        let (kept, handle) = linux::message_pair().unwrap();
        linux::send(&here, b"", &[]).unwrap();
        linux::send(&here, b"", &[handle.as_fd()]).unwrap();
        drop(handle);
        rustix::io::ioctl_fionbio(&kept, true).unwrap();
        Closing::default().close_unread(&UnixStream::from(there), 7);
        // Its other end has hung up.
        let began = Instant::now();
        while linux::receive(&kept, 1).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }
}
