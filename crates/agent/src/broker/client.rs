//! The client's end.

use crate::broker::SOCKET;
use crate::broker::protocol::{Answer, Call, MOST_ANSWER_BYTES, message};
use linux::{receive, send};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer: a grant moves the pages of the programs that are in its way.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to the broker.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No agent makes grants.
    #[error(
        "no agent makes grants on this machine: `nearside agent` does with `enabled = true` below [reserve] in its configuration; root may use `nearside reserve run` without"
    )]
    NoBroker,
    /// The system refused.
    #[error("cannot {what} the agent")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The answer cannot be parsed.
    #[error("the agent's answer cannot be parsed ({0}): is it another version?")]
    NotUnderstood(String),
    /// The broker refused. Nothing is changed.
    #[error("the agent refused: {0}")]
    Refused(String),
    /// The call breaks a rule that holds on every machine, or names what does not exist.
    #[error("{0}")]
    Wrong(String),
}

impl Connection {
    /// Connects to the broker whose socket is in this folder. Needs no privileges.
    pub fn open(folder: &Path) -> Result<Self, CallError> {
        let system = |what| move |error: Errno| CallError::System { what, source: error.into() };
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(system("reach"))?;
        for direction in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, direction, Some(PATIENCE)).map_err(system("reach"))?;
        }
        let address = SocketAddrUnix::new(folder.join(SOCKET)).map_err(system("reach"))?;
        match connect(&socket, &address) {
            Ok(()) => Ok(Self { socket }),
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::ACCESS) => Err(CallError::NoBroker),
            Err(error) => Err(system("reach")(error)),
        }
    }

    /// Sends a call with open files, and waits for the answer and the handle that may come with it.
    pub fn call(&self, call: &Call, files: &[BorrowedFd<'_>]) -> Result<(Answer, Option<OwnedFd>), CallError> {
        let system = |what| move |source: io::Error| CallError::System { what, source };
        // A client that is refused gets the reason before it has called, and then cannot.
        let asked = send(&self.socket, &message(call), files);
        let hear = || receive(&self.socket, MOST_ANSWER_BYTES);
        let mut heard = hear();
        if heard.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {
            // The reset is reported first, and then the reason that was sent before it.
            heard = hear();
        }
        let mut received = heard.map_err(system("hear"))?;
        if received.bytes.is_empty() {
            asked.map_err(system("ask"))?;
            return Err(system("hear")(ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_slice(&received.bytes).map_err(|error| CallError::NotUnderstood(error.to_string()))? {
            Answer::Refused(why) => Err(CallError::Refused(why)),
            Answer::Wrong(why) => Err(CallError::Wrong(why)),
            answer => Ok((answer, received.files.pop())),
        }
    }
}
