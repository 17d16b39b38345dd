//! A client of the control socket, as the server sees it: never waited for.

use crate::control::protocol::{Answer, MOST_REQUEST_BYTES, Request, line, request};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A request, its answer, and the way to the next one may take so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// It is closed at this moment, unless it had an answer since.
    pub(super) deadline: Instant,
    /// Whether it is closed once it has its answer.
    ends: bool,
}

impl Client {
    /// Of a stream that does not block.
    pub(super) fn new(stream: UnixStream, now: Instant) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), deadline: now + PATIENCE, ends: false }
    }

    /// Whether it is to be asked next for room to write, and not for more to read.
    pub(super) fn is_writing(&self) -> bool {
        !self.output.is_empty()
    }

    /// Answers this, and ends.
    pub(super) fn refuse(&mut self, why: impl Into<String>) {
        self.output = line(&Answer::Refused(why.into()));
        self.ends = true;
    }

    /// Goes as far as it can without waiting. Whether the connection stays.
    pub(super) fn go_on(&mut self, now: Instant, answer: &impl Fn(Request) -> Answer) -> bool {
        if now >= self.deadline {
            return false;
        }
        let mut piece = [0; MOST_REQUEST_BYTES];
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
                self.deadline = now + PATIENCE;
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
