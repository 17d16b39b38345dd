//! The client's end.

use linux::MessageClient;
use reserve::protocol::{Answer, Call, MOST_ANSWER_BYTES, SOCKET, message};
use rustix::io::Errno;
use serde::Serialize;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer: a grant moves the pages of the programs that are in its way.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection to the broker.
#[derive(Debug)]
pub struct Connection {
    socket: MessageClient,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No agent makes grants.
    #[error(
        "no agent makes grants on this machine: `nearside agent` does with `enabled = true` below [reserve] in its configuration, under systemd with lib/nearside/reserve.conf in nearside.service.d; root may use `nearside reserve run` without"
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
        let socket = MessageClient::connect(&folder.join(SOCKET)).map_err(|source| {
            let is_none = [Errno::NOENT, Errno::CONNREFUSED, Errno::ACCESS].map(Errno::raw_os_error);
            let is_none = source.raw_os_error().is_some_and(|errno| is_none.contains(&errno));
            if is_none { CallError::NoBroker } else { CallError::System { what: "reach", source } }
        })?;
        Ok(Self { socket })
    }

    /// Sends a call with open files, and waits for the answer and the handles of new grants.
    pub fn call(&self, call: &Call, files: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        let wait_s = if let Call::Create { wait_s, .. } = call { wait_s.unwrap_or(0) } else { 0 };
        self.ask(call, files, ANSWER_TIMEOUT.saturating_add(Duration::from_secs(wait_s)))
    }

    /// Sends calls of the study as one transaction, with the handles of the grants that they name.
    pub fn study(
        &self,
        calls: &[reserve::Call],
        handles: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        self.ask(&calls, handles, ANSWER_TIMEOUT)
    }

    fn ask(
        &self,
        what: &impl Serialize,
        files: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<(Answer, Vec<OwnedFd>), CallError> {
        let received = self.socket.ask(&message(what), files, MOST_ANSWER_BYTES, patience);
        let received = received.map_err(|source| CallError::System { what: "hear", source })?;
        match serde_json::from_slice(&received.bytes).map_err(|error| CallError::NotUnderstood(error.to_string()))? {
            Answer::Refused(why) => Err(CallError::Refused(why)),
            Answer::Wrong(why) => Err(CallError::Wrong(why)),
            answer => Ok((answer, received.files)),
        }
    }
}
