//! Files of other processes are closed by threads of their own: where this is the last copy of one, its close may take as
//! long as its sender likes, as that of a socket that lingers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Most closes of a user's files at a time. Beyond them, the user is not served.
const MOST: usize = 8;

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
    use std::time::{Duration, Instant};

    #[test]
    fn a_socket_that_lingers_delays_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lingering = || {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stream.set_nonblocking(true).unwrap();
            while stream.write(&[0; 1 << 13]).is_ok() {}
            set_socket_linger(&stream, Some(Duration::from_secs(20))).unwrap();
            OwnedFd::from(stream)
        };
        let (closing, began) = (Closing::default(), Instant::now());
        for _ in 0..MOST {
            assert!(!closing.is_full(7));
            closing.close(7, vec![lingering()]);
        }
        assert!(closing.is_full(7) && !closing.is_full(8));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        drop(listener);
    }
}
