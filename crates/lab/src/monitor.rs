//! QEMU's monitor, by which the state of a booted machine is saved. The protocol is QMP: lines of JSON.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Interval between questions how far the saving is, and whether to go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// QEMU does not do what it is asked.
#[derive(Debug, thiserror::Error)]
#[error("QEMU refuses `{command}`: {error}")]
struct Refusal {
    command: String,
    error: String,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::other(refusal)
    }
}

/// A connected monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: BufReader<UnixStream>,
    /// The part of a line that has come so far.
    line: Vec<u8>,
}

impl Monitor {
    /// By this end of a socket, of which QEMU has the other.
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(LOOK_INTERVAL))?;
        Ok(Self { socket: BufReader::new(socket), line: Vec::new() })
    }

    /// Writes the machine's state to a file that QEMU has inherited, and lets the machine continue: QEMU stops it at the
    /// end of the state. Returns the host's monotonic time, ns, which the guest's clock has not passed in that state; `None`
    /// if QEMU could not write it. After an error the machine may stand still.
    pub(crate) fn save(&mut self, state: &File, go_on: &dyn Fn() -> bool) -> io::Result<Option<u64>> {
        self.execute("qmp_capabilities", &json!({}), go_on)??;
        let is_written = self.write_state(state, go_on)?;
        let clock_ns = linux::monotonic_ns();
        self.execute("cont", &json!({}), go_on)??;
        Ok(is_written.then_some(clock_ns))
    }

    fn write_state(&mut self, state: &File, go_on: &dyn Fn() -> bool) -> io::Result<bool> {
        let uri = format!("file:/proc/self/fd/{}", state.as_raw_fd());
        if self.execute("migrate", &json!({ "uri": uri }), go_on)?.is_err() {
            return Ok(false);
        }
        while go_on() {
            let progress = self.execute("query-migrate", &json!({}), go_on)??;
            match progress["status"].as_str() {
                Some("completed") => return Ok(true),
                Some("failed" | "cancelled") | None => return Ok(false),
                Some(_) => thread::sleep(LOOK_INTERVAL),
            }
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Executes a command, and returns its result, or QEMU's refusal.
    fn execute(
        &mut self,
        command: &str,
        arguments: &Value,
        go_on: &dyn Fn() -> bool,
    ) -> io::Result<Result<Value, Refusal>> {
        let text = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.socket.get_mut().write_all(text.as_bytes())?;
        loop {
            // The greeting and events have neither.
            let mut answer = self.next_line(go_on)?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(Ok(result.take()));
            }
            if let Some(error) = answer.get("error") {
                return Ok(Err(Refusal { command: command.to_owned(), error: error.to_string() }));
            }
        }
    }

    fn next_line(&mut self, go_on: &dyn Fn() -> bool) -> io::Result<Value> {
        loop {
            match self.socket.read_until(b'\n', &mut self.line) {
                Ok(_) if self.line.ends_with(b"\n") => {
                    return Ok(serde_json::from_slice(&std::mem::take(&mut self.line))?);
                }
                Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(why) => return Err(why),
            }
            if !go_on() {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }
}
