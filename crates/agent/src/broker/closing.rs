//! Files of other processes are closed by threads of their own: where this is the last copy of one, its close may take as
//! long as its sender likes, as that of a socket that lingers. So are connections, in which files wait that were not read.

use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, VecDeque};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Most files of a user that wait to be closed: some calls with all that they may bring. Beyond them, the user is not served.
const MOST_OF_A_USER: usize = 64;
/// Most of all users, where this process may have enough files open.
const MOST: usize = 4096;
/// The part of the files that this process may have open that waits to be closed at most.
const PART_OF_FILES: usize = 4;

/// Files that are not closed yet.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    users: Arc<Mutex<BTreeMap<u32, OfUser>>>,
    most: usize,
}

/// Those of a user, which one thread closes in order: it delays no other user's.
#[derive(Debug, Default)]
struct OfUser {
    files: VecDeque<OwnedFd>,
    has_thread: bool,
}

impl Closing {
    pub fn new() -> Self {
        let may_be_open = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let most = MOST.min(may_be_open.unwrap_or(usize::MAX) / PART_OF_FILES);
        Self { users: Arc::default(), most }
    }

    /// Closes files that a user sent.
    pub fn close(&self, uid: u32, files: impl IntoIterator<Item = OwnedFd>) {
        let mut files = files.into_iter().peekable();
        if files.peek().is_none() {
            return;
        }
        let mut users = self.users();
        users.entry(uid).or_default().files.extend(files);
        // Where no thread could be started, the files wait for the next try.
        for (&uid, of_user) in users.iter_mut().filter(|(_, of_user)| !of_user.has_thread) {
            let all = self.clone();
            let closer = thread::Builder::new().name("close".to_owned()).spawn(move || all.close_all(uid));
            of_user.has_thread = closer.is_ok();
        }
    }

    /// Ends a connection. Messages in it are closed with it, as they are: those that are read could be too many.
    pub fn hang_up(&self, uid: u32, stream: UnixStream) {
        let _ = stream.shutdown(Shutdown::Both);
        self.close(uid, [stream.into()]);
    }

    /// Why a user is not served now.
    pub fn is_full(&self, uid: u32) -> Option<&'static str> {
        if self.users().get(&uid).is_some_and(|of_user| of_user.files.len() >= MOST_OF_A_USER) {
            Some("files of this user are still being closed")
        } else {
            self.is_full_for_all().then_some("files of other users are still being closed")
        }
    }

    /// Whether no connection should be accepted: only then is it known whose it is, and it has to be closed, too.
    pub fn is_full_for_all(&self) -> bool {
        // With what each thread closes now.
        let of_user = |of_user: &OfUser| of_user.files.len() + usize::from(of_user.has_thread);
        self.users().values().map(of_user).sum::<usize>() >= self.most
    }

    fn close_all(&self, uid: u32) {
        loop {
            let mut users = self.users();
            let Some(file) = users.get_mut(&uid).and_then(|of_user| of_user.files.pop_front()) else {
                users.remove(&uid);
                return;
            };
            drop(users);
            drop(file);
        }
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<u32, OfUser>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{message_pair, receive, send};
    use rustix::net::sockopt::set_socket_linger;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    /// A socket whose close takes 20 s.
    fn lingering(listener: &TcpListener) -> OwnedFd {
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 1 << 13]).is_ok() {}
        set_socket_linger(&stream, Some(Duration::from_secs(20))).unwrap();
        OwnedFd::from(stream)
    }

    /// As many files as a user may have closed at a time.
    fn many() -> Vec<OwnedFd> {
        (0..MOST_OF_A_USER).map(|_| message_pair().unwrap().0).collect()
    }

    #[test]
    fn a_socket_that_lingers_delays_no_other_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closing = Closing::new();
        closing.close(7, [lingering(&listener)]);
        assert_eq!((closing.is_full(7), closing.is_full(8)), (None, None));
        // The first is not finished, and none was waited for.
        closing.close(7, many());
        assert_eq!(closing.is_full(7), Some("files of this user are still being closed"));
        assert_eq!((closing.is_full(8), closing.is_full_for_all()), (None, false));
        closing.close(8, many());
        let began = Instant::now();
        while closing.users().contains_key(&8) {
            assert!(began.elapsed() < Duration::from_secs(10), "they were closed after the socket that lingers");
            thread::yield_now();
        }
        drop(listener);
    }

    #[test]
    fn a_connection_that_its_client_has_reset_is_not_closed_here_either() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, server) = message_pair().unwrap();
        send(&server, b"an answer", &[]).unwrap();
        send(&client, b"x", &[lingering(&listener).as_fd()]).unwrap();
        drop(client);
        // The reset comes first, and what waits stays.
        assert_eq!(receive(&server, 1).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let closing = Closing::new();
        closing.hang_up(7, UnixStream::from(server));
        closing.close(7, many());
        assert!(closing.is_full(7).is_some(), "the socket that lingers was closed by this thread");
        drop(listener);
    }

    #[test]
    fn files_of_some_users_keep_connections_of_all_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closing = Closing { most: MOST_OF_A_USER, ..Closing::new() };
        closing.close(7, [lingering(&listener)]);
        assert_eq!((closing.is_full(8), closing.is_full_for_all()), (None, false));
        closing.close(7, many());
        assert_eq!(closing.is_full(8), Some("files of other users are still being closed"));
        assert!(closing.is_full_for_all());
        drop(listener);
    }

    #[test]
    fn files_that_are_not_read_are_closed_too() {
        let (here, there) = message_pair().unwrap();
        let (kept, handle) = message_pair().unwrap();
        send(&here, b"", &[]).unwrap();
        send(&here, b"", &[handle.as_fd()]).unwrap();
        drop(handle);
        rustix::io::ioctl_fionbio(&kept, true).unwrap();
        Closing::new().hang_up(7, UnixStream::from(there));
        // Its other end has hung up.
        let began = Instant::now();
        while receive(&kept, 1).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }
}
