//! The server: one thread that polls all clients and uses no CPU time between requests.

use crate::control::clients::Client;
use crate::control::protocol::{Answer, Request};
use linux::{Peer, PrivateFolder, PrivateFolderError, Trust};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::process::geteuid;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most clients of other users at a time; further ones are refused.
const MOST_CLIENTS: usize = 16;
/// Most clients of one user at a time. Root and the agent's user have this number of slots of their own.
const MOST_OF_A_USER: usize = 8;
/// Most connections accepted at once: clients that connect all the time must not keep others from being answered.
const MOST_ACCEPTED: usize = 64;
/// How long no client is accepted after `accept` has failed.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Who may use the socket, besides root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// This user.
    pub owner: u32,
    /// Members of this group.
    pub group: u32,
}

impl Access {
    /// Whether a peer may use it.
    pub fn allows(self, peer: &Peer) -> bool {
        peer.uid == 0 || peer.uid == self.owner || peer.gid == self.group || peer.groups.contains(&self.group)
    }
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another agent answers there.
    #[error("an agent is running already: it answers at {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error("{} is not a socket: remove it, or choose another path", path.display())]
    NoSocket {
        /// The file.
        path: PathBuf,
    },
    /// Its folder cannot be used, for example because other users could exchange the socket.
    #[error(transparent)]
    Folder(#[from] PrivateFolderError),
    /// The system refused.
    #[error("cannot {what} {}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that clients can connect to, but that is not served yet. Removed when dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    folder: PrivateFolder,
    name: String,
    access: Access,
}

impl Listener {
    /// Creates the socket in an existing folder, replacing one that a killed agent left. Changing its owner or group
    /// needs `CAP_CHOWN`.
    pub fn bind(path: &Path, access: Access) -> Result<Self, ControlError> {
        let failed = |what| move |source: io::Error| ControlError::System { what, path: path.to_owned(), source };
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name = name.ok_or_else(|| failed("name a socket")(ErrorKind::InvalidInput.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = PrivateFolder::open(parent, Trust::Owners)?;
        remove_left(&folder, &name)?;
        // A client that connects before the owner is set is identified by the kernel's peer credentials all the same.
        let socket = folder.listen(&name, 0o660, (access.owner, access.group))?;
        Ok(Self { socket, folder, name, access })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The next agent removes a socket that is left.
        let _ = self.folder.remove(&self.name);
    }
}

/// Removes a socket that no agent listens on.
fn remove_left(folder: &PrivateFolder, name: &str) -> Result<(), ControlError> {
    let path = folder.path().join(name);
    let failed = |what, source| ControlError::System { what, path: path.clone(), source };
    match folder.kind(name).map_err(|error| failed("look at", error))? {
        None => return Ok(()),
        Some(FileType::Socket) => {}
        Some(_) => return Err(ControlError::NoSocket { path }),
    }
    match UnixStream::connect(&path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            folder.remove(name).map_err(|error| failed("remove", error))
        }
        Err(error) => Err(failed("try", error)),
        Ok(_) => Err(ControlError::InUse { path }),
    }
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    /// Closing it wakes the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves in a separate thread.
    pub fn start(listener: Listener, answer: impl Fn(Request) -> Answer + Send + 'static) -> io::Result<Self> {
        Self::start_with(listener, |stream| linux::peer(stream), answer)
    }

    /// Like [`start`](Self::start), with another way to tell who a client is.
    pub(super) fn start_with(
        listener: Listener,
        peer: impl Fn(&UnixStream) -> io::Result<Peer> + Send + 'static,
        answer: impl Fn(Request) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let mut serving = Serving { listener, stopped, clients: Vec::new(), closed_until: None };
        let serve = move || serving.until_stopped(&peer, &answer);
        let thread = std::thread::Builder::new().name("control".into()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported by the thread.
            let _ = thread.join();
        }
    }
}

struct Serving {
    listener: Listener,
    stopped: UnixStream,
    clients: Vec<Client>,
    /// No client is accepted before.
    closed_until: Option<Instant>,
}

impl Serving {
    fn until_stopped(&mut self, peer: &impl Fn(&UnixStream) -> io::Result<Peer>, answer: &impl Fn(Request) -> Answer) {
        while self.wait() {
            let now = Instant::now();
            if self.closed_until.is_none_or(|until| now >= until) {
                self.closed_until = None;
                self.let_in(now, peer);
            }
            self.clients.retain_mut(|client| client.go_on(now, answer));
        }
    }

    /// Waits for events. Returns whether to continue.
    fn wait(&self) -> bool {
        let now = Instant::now();
        let due = |client: &Client| if client.has_request() { now } else { client.deadline };
        let next = self.clients.iter().map(due).chain(self.closed_until).min();
        let timeout = next.map(|next| {
            let wait = next.saturating_duration_since(now);
            // Rounds up, so that the deadline has passed on wakeup.
            let wait = if wait.is_zero() { wait } else { wait + Duration::from_millis(1) };
            Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() }
        });
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        for client in &self.clients {
            let wanted = if client.is_writing() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&client.stream, wanted));
        }
        if self.closed_until.is_none() {
            fds.push(PollFd::from_borrowed_fd(self.listener.socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => fds.first().is_some_and(|stopped| stopped.revents().is_empty()),
            Err(error) => error == rustix::io::Errno::INTR,
        }
    }

    fn let_in(&mut self, now: Instant, peer: &impl Fn(&UnixStream) -> io::Result<Peer>) {
        for stream in accept(&self.listener.socket, &mut self.closed_until, now) {
            let Ok(peer) = stream.set_nonblocking(true).and_then(|()| peer(&stream)) else { continue };
            let mut client = Client::new(stream, peer.uid, now);
            if !self.listener.access.allows(&peer) {
                client.refuse(format!("user {} is neither the owner of the socket nor in its group", peer.uid));
            } else if let Some(why) = no_slot(self.clients.iter().map(|client| client.uid), peer.uid) {
                client.refuse(format!("{why}: try again later"));
            }
            if client.is_writing() {
                // A line fits into the send buffer of a new connection.
                client.go_on(now, &|_| Answer::Paused(false));
            } else {
                self.clients.push(client);
            }
        }
    }
}

/// The clients that wait, at most [`MOST_ACCEPTED`]. After a failure, for example with too many open files, none is
/// accepted for a while: they stay in the backlog.
pub(crate) fn accept(listener: &UnixListener, closed_until: &mut Option<Instant>, now: Instant) -> Vec<UnixStream> {
    let mut accepted = Vec::new();
    for _ in 0..MOST_ACCEPTED {
        match listener.accept() {
            Ok((stream, _)) => accepted.push(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => {
                *closed_until = Some(now + ACCEPT_PAUSE);
                break;
            }
        }
    }
    accepted
}

/// Why a further client of a user is refused; `connected` has the user of each client.
pub(crate) fn no_slot(connected: impl Iterator<Item = u32>, uid: u32) -> Option<String> {
    let has_own_slots = |uid: u32| uid == 0 || uid == geteuid().as_raw();
    let (mut of_user, mut of_others) = (0, 0);
    for other in connected {
        of_user += usize::from(other == uid);
        of_others += usize::from(!has_own_slots(other));
    }
    if of_user >= MOST_OF_A_USER {
        Some(format!("{MOST_OF_A_USER} clients of user {uid} are connected already"))
    } else if of_others >= MOST_CLIENTS && !has_own_slots(uid) {
        Some(format!("{MOST_CLIENTS} clients are connected already"))
    } else {
        None
    }
}
