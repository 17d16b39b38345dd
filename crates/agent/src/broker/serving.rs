//! The broker's thread: it waits for calls, for handles whose last holder is gone, for the ends of leases and of partitions.

use crate::broker::book::Book;
use crate::broker::closing::Closing;
use crate::broker::usage::Usage;
use crate::control::{accept, no_slot};
use linux::{MOST_FILES, Peer, peer, receive, send};
use reserve::GrantId;
use reserve::protocol::{Answer, Call, MOST_CALL_BYTES, Message, message, read_message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Most requests that wait, of a user and in all.
const MOST_WAITS_OF_A_USER: usize = 8;
const MOST_WAITS: usize = 128;
/// How long a connection may be silent.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time between two tries of what waits: grants that other processes carry out end without a word.
const RETRY: Duration = Duration::from_secs(1);
/// Stands for the user of a connection that the kernel does not name: no user has this number.
const NO_USER: u32 = u32::MAX;
/// Longest wait for a grant, s: ten years.
const MOST_WAIT_S: u64 = 10 * 365 * 24 * 3600;

pub(super) struct Serving {
    listener: UnixListener,
    stopped: UnixStream,
    book: Book,
    clients: Vec<Client>,
    closing: Closing,
    /// No client is accepted before.
    closed_until: Option<Instant>,
    /// How often the book had changed when what waits was tried, and when it is tried again anyway.
    tried: (u64, Instant),
    /// Requests that have waited so far.
    waits: u64,
}

/// A connection.
struct Client {
    stream: UnixStream,
    peer: Peer,
    /// The end of its wait, or of its silence.
    deadline: Instant,
    waiting: Option<Waiting>,
}

/// A request that waits until it can be granted.
struct Waiting {
    call: Call,
    /// Its number, in order.
    number: u64,
}

/// What `poll` found.
struct Ready {
    is_stopped: bool,
    has_client: bool,
    abandoned: Vec<GrantId>,
}

impl Serving {
    pub fn new(listener: UnixListener, stopped: UnixStream, book: Book) -> Self {
        let (clients, closing) = (Vec::new(), Closing::new());
        Self { listener, stopped, book, clients, closing, closed_until: None, tried: (0, Instant::now()), waits: 0 }
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
            self.book.end_empty();
            let now = Instant::now();
            self.book.look_at_partitions(now);
            self.book.correct_limits(now);
            self.book.count_silence(now);
            self.book.count_usage(now);
            self.closed_until = self.closed_until.filter(|until| now < *until);
            if ready.has_client && self.closed_until.is_none() {
                self.let_in(now);
            }
            let waited = self.waits;
            let is_waiting = |client: &&Client| client.waiting.is_some();
            let users = self.clients.iter().filter(is_waiting).map(|client| client.peer.uid).collect();
            let mut queue = Queue { number: waited, users };
            let (book, closing) = (&mut self.book, &self.closing);
            let is_over = |client: &mut Client| !client.go_on(now, book, &mut queue, closing);
            for client in self.clients.extract_if(.., is_over) {
                closing.hang_up(client.peer.uid, client.stream);
            }
            self.waits = queue.number;
            self.try_waiting(self.waits != waited);
        }
        for client in self.clients {
            self.closing.hang_up(client.peer.uid, client.stream);
        }
        self.book.end_all();
    }

    fn wait(&self) -> Ready {
        let now = Instant::now();
        let deadlines = self.clients.iter().map(|client| client.deadline).chain(self.closed_until);
        let lease = self.book.next_end_s().map(|s| now + Duration::from_secs(s));
        let is_waiting = self.clients.iter().any(|client| client.waiting.is_some());
        let retry = is_waiting.then_some(self.tried.1);
        let look = self.book.has_to_look().then(|| now + RETRY);
        let (partitions, lost) = self.book.partitions();
        let limits = self.book.shared.next_correction().into_iter().chain(self.book.next_silence());
        let usage = self.book.usage.as_ref().map(Usage::next);
        let timeout =
            deadlines.chain(lease).chain(retry).chain(look).chain(lost).chain(limits).chain(usage).min().map(|next| {
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
        fds.extend(partitions.map(|file| PollFd::from_borrowed_fd(file, PollFlags::PRI)));
        // After an interruption nothing is ready, and the next wait finds what is.
        let polled = poll(&mut fds, timeout.as_ref()).is_ok();
        let is_ready = |at: usize| polled && fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Ready {
            is_stopped: is_ready(0),
            has_client: is_ready(1),
            abandoned: handles.iter().enumerate().filter(|(at, _)| is_ready(2 + at)).map(|(_, (id, _))| *id).collect(),
        }
    }

    /// Grants what waits and can be granted, in order: behind a request that other grants are in the way of, none is tried.
    fn try_waiting(&mut self, has_new: bool) {
        let now = Instant::now();
        let is_over = |client: &Client| client.waiting.is_some() && client.deadline <= now;
        let has_changed = self.book.changes != self.tried.0 || now >= self.tried.1;
        if !has_new && !has_changed && !self.clients.iter().any(is_over) {
            return;
        }
        self.tried = (self.book.changes, now + RETRY);
        let number = |client: &Client| client.waiting.as_ref().map(|waiting| waiting.number);
        let mut order: Vec<(u64, usize)> =
            self.clients.iter().enumerate().filter_map(|(at, client)| Some((number(client)?, at))).collect();
        order.sort_unstable();
        let (mut is_blocked, mut gone) = (false, Vec::new());
        for (_, at) in order {
            let client = &mut self.clients[at];
            let Some(Waiting { call, .. }) = &client.waiting else { continue };
            let (answer, handles) = if is_blocked {
                let text = "refused: requests that have waited for longer are in the way\n".to_owned();
                let document = serde_json::json!({ "granted": false, "refusal": "behind_others" });
                (Answer::NotAdmitted { text, document, is_of_user: false }, Vec::new())
            } else {
                self.book.answer(&Message::Call(call.clone()), &[], &client.peer)
            };
            match answer {
                Answer::NotAdmitted { is_of_user, .. } if now < client.deadline => is_blocked |= !is_of_user,
                answer => {
                    client.waiting = None;
                    if !client.send(&answer, &handles) {
                        gone.push(at);
                    }
                }
            }
        }
        for at in gone {
            self.clients[at].deadline = now;
        }
    }

    fn let_in(&mut self, now: Instant) {
        if self.closing.is_full_for_all() {
            self.closed_until = Some(now + RETRY);
            return;
        }
        for stream in accept(&self.listener, &mut self.closed_until, now) {
            let Ok(peer) = stream.set_nonblocking(true).and_then(|()| peer(&stream)) else {
                self.closing.hang_up(NO_USER, stream);
                continue;
            };
            // Those that wait for a grant have places of their own: the calls that they wait for must get in.
            let busy = self.clients.iter().filter(|client| client.waiting.is_none());
            let is_closing = self.closing.is_full(peer.uid).map(str::to_owned);
            if let Some(why) = is_closing.or_else(|| no_slot(busy.map(|client| client.peer.uid), peer.uid)) {
                let _ = send(&stream, &message(&later(&why)), &[]);
                self.closing.hang_up(peer.uid, stream);
            } else {
                self.clients.push(Client { stream, peer, deadline: now + SILENCE_TIMEOUT, waiting: None });
            }
        }
    }
}

/// The answer to a client that cannot be served now.
fn later(why: &str) -> Answer {
    Answer::Refused(format!("{why}: try again later"))
}

/// The requests that wait.
struct Queue {
    /// The number of the last one.
    number: u64,
    /// Whose they are.
    users: Vec<u32>,
}

impl Queue {
    /// Why another request of a user may not wait.
    fn is_full(&self, uid: u32) -> Option<String> {
        let of_user = self.users.iter().filter(|&&other| other == uid).count();
        if of_user >= MOST_WAITS_OF_A_USER {
            Some(format!("{of_user} requests of user {uid} wait already"))
        } else if self.users.len() >= MOST_WAITS {
            Some(format!("{MOST_WAITS} requests wait already"))
        } else {
            None
        }
    }
}

impl Client {
    /// Answers at most one call, as other clients wait for theirs. Returns whether the connection stays open.
    fn go_on(&mut self, now: Instant, book: &mut Book, queue: &mut Queue, closing: &Closing) -> bool {
        // Unread, a call's files take no numbers here.
        if let Some(why) = closing.is_full(self.peer.uid).filter(|_| self.has_call()) {
            self.send(&later(why), &[]);
            return false;
        }
        let received = match receive(&self.stream, MOST_CALL_BYTES) {
            Ok(received) => received,
            Err(error) => {
                return error.kind() == ErrorKind::WouldBlock && (self.waiting.is_some() || now < self.deadline);
            }
        };
        if received.bytes.is_empty() {
            closing.close(self.peer.uid, received.files);
            return false;
        }
        let call = if self.waiting.is_some() {
            Err(Answer::Wrong("a client that waits for a grant sends nothing".to_owned()))
        } else if received.is_cut {
            Err(Answer::Wrong(format!("a call has at most {MOST_CALL_BYTES} bytes")))
        } else if received.has_too_many_files {
            Err(Answer::Wrong(format!("a call has at most {MOST_FILES} descriptors")))
        } else {
            read_message(&received.bytes)
        };
        let goes_on = match call {
            Err(answer) => {
                self.send(&answer, &[]);
                false
            }
            Ok(Message::Call(call @ Call::Create { wait_s: Some(wait_s), .. })) => {
                let full = || queue.is_full(self.peer.uid).map(Answer::Refused);
                if let Some(answer) = book.never(&call, &self.peer).or_else(full) {
                    self.send(&answer, &[])
                } else {
                    queue.number += 1;
                    queue.users.push(self.peer.uid);
                    self.waiting = Some(Waiting { call, number: queue.number });
                    self.deadline = now + Duration::from_secs(wait_s.min(MOST_WAIT_S));
                    true
                }
            }
            Ok(message) => {
                let (answer, handles) = book.answer(&message, &received.files, &self.peer);
                self.send(&answer, &handles)
            }
        };
        closing.close(self.peer.uid, received.files);
        goes_on
    }

    /// Whether there is something to read.
    fn has_call(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Returns whether the client has the answer. One that is gone, or does not read its answers, gets none; its handles are
    /// closed with it, and so its grants end.
    fn send(&mut self, answer: &Answer, handles: &[OwnedFd]) -> bool {
        self.deadline = Instant::now() + SILENCE_TIMEOUT;
        let files: Vec<_> = handles.iter().map(AsFd::as_fd).collect();
        send(&self.stream, &message(answer), &files).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_waits_eight_times_and_others_still_may() {
        let queue = |users: Vec<u32>| Queue { number: 0, users };
        assert_eq!(queue(vec![7; 7]).is_full(7), None);
        assert_eq!(queue(vec![7; 8]).is_full(7).unwrap(), "8 requests of user 7 wait already");
        assert_eq!(queue(vec![7; 8]).is_full(8), None);
        assert_eq!(queue((0..128).collect()).is_full(500).unwrap(), "128 requests wait already");
    }
}
