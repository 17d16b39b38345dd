//! A client of the control socket, as the server sees it. The server never blocks on a client.

use crate::control::protocol::{Answer, MOST_REQUEST_BYTES, Request, request};
use crate::json_line::line;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Time limit for a request, its answer, and the wait for the next request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: UnixStream,
    /// Its user.
    pub(super) uid: u32,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When it is closed, unless it gets an answer before.
    pub(super) deadline: Instant,
    /// Whether it is closed after its answer.
    ends: bool,
}

impl Client {
    /// The stream must be non-blocking.
    pub(super) fn new(stream: UnixStream, uid: u32, now: Instant) -> Self {
        Self { stream, uid, input: Vec::new(), output: Vec::new(), deadline: now + REQUEST_TIMEOUT, ends: false }
    }

    /// Whether to poll for writing rather than reading.
    pub(super) fn is_writing(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether a request is read but not answered.
    pub(super) fn has_request(&self) -> bool {
        !self.is_writing() && self.input.contains(&b'\n')
    }

    /// Sends this refusal, then closes.
    pub(super) fn refuse(&mut self, why: impl Into<String>) {
        self.output = line(&Answer::Refused(why.into()));
        self.ends = true;
    }

    /// Proceeds as far as possible without blocking, by at most one answer, as other clients wait for theirs. Returns
    /// whether the connection stays open.
    pub(super) fn go_on(&mut self, now: Instant, answer: &impl Fn(Request) -> Answer) -> bool {
        if now >= self.deadline {
            return false;
        }
        let mut piece = [0; MOST_REQUEST_BYTES];
        let mut has_answered = false;
        loop {
            if self.is_writing() {
                match self.stream.write(&self.output) {
                    Ok(0) => return false,
                    Ok(written) => drop(self.output.drain(..written)),
                    Err(error) => return is_for_now(error.kind()),
                }
                if self.is_writing() {
                    continue;
                }
                if self.ends {
                    return false;
                }
                self.deadline = now + REQUEST_TIMEOUT;
                has_answered = true;
            }
            if has_answered {
                return true;
            }
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.take(&line, answer);
                continue;
            }
            if self.input.len() > MOST_REQUEST_BYTES {
                self.refuse(format!("a request has at most {MOST_REQUEST_BYTES} bytes"));
                continue;
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(read) => self.input.extend_from_slice(piece.get(..read).unwrap_or_default()),
                Err(error) => return is_for_now(error.kind()),
            }
        }
    }

    fn take(&mut self, request_line: &[u8], answer: &impl Fn(Request) -> Answer) {
        match request(request_line) {
            Ok(request) => self.output = line(&answer(request)),
            Err(refusal) => {
                self.output = line(&refusal);
                self.ends = true;
            }
        }
    }
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
