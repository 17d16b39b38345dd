//! The broker's thread: it waits for calls, for handles whose last holder is gone, and for the ends of leases.

use crate::broker::book::Book;
use crate::broker::protocol::{Answer, MOST_CALL_BYTES, message, read_call};
use crate::control::{accept, no_slot};
use linux::{MOST_FILES, Peer, peer, receive, send};
use reserve::GrantId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Serving {
    listener: UnixListener,
    stopped: UnixStream,
    book: Book,
    clients: Vec<Client>,
    /// No client is accepted before.
    closed_until: Option<Instant>,
}

/// A connection.
struct Client {
    stream: UnixStream,
    peer: Peer,
    deadline: Instant,
}

/// What `poll` found.
struct Ready {
    is_stopped: bool,
    has_client: bool,
    abandoned: Vec<GrantId>,
}

impl Serving {
    pub fn new(listener: UnixListener, stopped: UnixStream, book: Book) -> Self {
        Self { listener, stopped, book, clients: Vec::new(), closed_until: None }
    }

    /// Serves until the other end of `stopped` is closed, and then ends all grants.
    pub fn until_stopped(mut self) {
        loop {
            let ready = self.wait();
            if ready.is_stopped {
                break;
            }
            for id in ready.abandoned {
                self.book.end(id);
            }
            self.book.end_leases();
            let now = Instant::now();
            self.closed_until = self.closed_until.filter(|until| now < *until);
            if ready.has_client && self.closed_until.is_none() {
                self.let_in(now);
            }
            let book = &mut self.book;
            self.clients.retain_mut(|client| client.go_on(now, book));
        }
        self.book.end_all();
    }

    fn wait(&self) -> Ready {
        let now = Instant::now();
        let deadlines = self.clients.iter().map(|client| client.deadline).chain(self.closed_until);
        let lease = self.book.next_end_s().map(|s| now + Duration::from_secs(s));
        let timeout = deadlines.chain(lease).min().map(|next| {
            // Rounds up, so that the deadline has passed on wakeup.
            let wait = next.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() }
        });
        let handles: Vec<_> = self.book.handles().collect();
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        let wanted = if self.closed_until.is_none() { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), wanted));
        // The kernel reports the end of the last holder without being asked for events.
        fds.extend(handles.iter().map(|(_, end)| PollFd::from_borrowed_fd(end.as_fd(), PollFlags::empty())));
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
        // After an interruption nothing is ready, and the next wait finds what is.
        let polled = poll(&mut fds, timeout.as_ref()).is_ok();
        let is_ready = |at: usize| polled && fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ready {
            is_stopped: is_ready(0),
            has_client: is_ready(1),
            abandoned: handles.iter().enumerate().filter(|(at, _)| is_ready(2 + at)).map(|(_, (id, _))| *id).collect(),
        }
    }

    fn let_in(&mut self, now: Instant) {
        for stream in accept(&self.listener, &mut self.closed_until, now) {
            let Ok(peer) = stream.set_nonblocking(true).and_then(|()| peer(&stream)) else { continue };
            if let Some(why) = no_slot(self.clients.iter().map(|client| client.peer.uid), peer.uid) {
                let _ = send(&stream, &message(&Answer::Refused(format!("{why}: try again later"))), &[]);
            } else {
                self.clients.push(Client { stream, peer, deadline: now + PATIENCE });
            }
        }
    }
}

impl Client {
    /// Answers at most one call, as other clients wait for theirs. Returns whether the connection stays open.
    fn go_on(&mut self, now: Instant, book: &mut Book) -> bool {
        let received = match receive(&self.stream, MOST_CALL_BYTES) {
            Ok(received) => received,
            Err(error) => return error.kind() == ErrorKind::WouldBlock && now < self.deadline,
        };
        if received.bytes.is_empty() {
            return false;
        }
        let call = if received.is_cut {
            Err(Answer::Wrong(format!("a call has at most {MOST_CALL_BYTES} bytes")))
        } else if received.has_lost_files {
            Err(Answer::Wrong(format!("a call has at most {MOST_FILES} descriptors")))
        } else {
            read_call(&received.bytes)
        };
        let goes_on = call.is_ok();
        let (answer, handle) =
            call.map_or_else(|answer| (answer, None), |call| book.answer(&call, &received.files, &self.peer));
        self.deadline = Instant::now() + PATIENCE;
        // A client that is gone, or does not read its answers, gets none. Its handle is closed with it, and so the grant
        // ends.
        let files: Vec<_> = handle.iter().map(AsFd::as_fd).collect();
        send(&self.stream, &message(&answer), &files).is_ok() && goes_on
    }
}
