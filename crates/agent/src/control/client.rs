//! The client: sends requests to a running agent.

use crate::control::protocol::{Answer, MOST_ANSWER_BYTES, Request};
use crate::json_line::line;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of each part of the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no socket, or no agent listens on it.
    #[error("no agent is running: {why}; `nearside agent` runs one, or as a service `systemctl start nearside`")]
    NotRunning {
        /// What was found.
        why: String,
    },
    /// The caller may not use the socket.
    #[error("{} is restricted to its owner and group (connect: {error}): use sudo, or join the group", path.display())]
    Forbidden {
        /// The socket.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
    /// The agent refused.
    #[error("the agent refused: {0}")]
    Refused(String),
    /// The system refused, or the agent does not answer.
    #[error("cannot {what} the agent at {}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The agent does not answer.
    #[error("the agent at {} does not answer within {} s: it is stopped, or hangs", path.display(), ANSWER_TIMEOUT.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// The answer cannot be parsed.
    #[error("the agent at {} gave an answer that cannot be parsed ({why}): is it another version?", path.display())]
    NotUnderstood {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// Sends a request to the agent at a socket. Requires the owner of the socket, a member of its group, or root. Waits at
/// most 10 s for each part of the answer.
pub fn ask(path: &Path, request: &Request) -> Result<Answer, AskError> {
    let failed = |what| {
        move |source: io::Error| match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => AskError::Silent { path: path.to_owned() },
            _ => AskError::System { what, path: path.to_owned(), source },
        }
    };
    let mut stream = connected(path).map_err(|error| not_connected(path, error))?;
    let asked = stream.write_all(&line(request));
    let mut told = Vec::new();
    let mut reader = BufReader::new(stream.take(MOST_ANSWER_BYTES));
    let heard = reader.read_until(b'\n', &mut told);
    // A refused client gets the reason before it has sent its request, and writing to or reading from the closed
    // connection may then fail.
    if told.last() != Some(&b'\n') {
        asked.map_err(failed("ask"))?;
        heard.map_err(failed("hear"))?;
        return Err(failed("hear")(ErrorKind::UnexpectedEof.into()));
    }
    let not_understood = |why: String| AskError::NotUnderstood { path: path.to_owned(), why };
    match serde_json::from_slice(&told).map_err(|error| not_understood(error.to_string()))? {
        Answer::Refused(why) => Err(AskError::Refused(why)),
        answer => Ok(answer),
    }
}

/// Connects within the timeout, even if the server does not accept.
fn connected(path: &Path) -> Result<UnixStream, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(ANSWER_TIMEOUT))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

fn not_connected(path: &Path, error: Errno) -> AskError {
    let not_running = |why: &str| AskError::NotRunning { why: format!("{why} {}", path.display()) };
    match error {
        Errno::NOENT => not_running("there is no socket"),
        Errno::CONNREFUSED if !is_socket(path) => not_running("there is a file, but no socket, at"),
        Errno::CONNREFUSED => not_running("an agent was killed and left its socket"),
        Errno::ACCESS | Errno::PERM => AskError::Forbidden { path: path.to_owned(), error: error.into() },
        error => AskError::System { what: "reach", path: path.to_owned(), source: error.into() },
    }
}
