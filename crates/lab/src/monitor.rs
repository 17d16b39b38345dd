//! QEMU's monitor, by which the state of a booted machine is saved. The protocol is QMP: lines of JSON.

use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Interval between questions how far the saving is, and whether to go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

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

    /// Writes the machine's state to a file that QEMU has inherited, for which it stops the machine, and lets it continue,
    /// also where the state cannot be written. Returns the host's monotonic time, which the guest's clock has not passed
    /// in that state, ns.
    pub(crate) fn save(&mut self, state: &OwnedFd, go_on: &dyn Fn() -> bool) -> io::Result<u64> {
        self.execute("qmp_capabilities", &json!({}), go_on)?;
        let saved = self.write_state(state, go_on);
        let clock_ns = linux::monotonic_ns();
        self.execute("cont", &json!({}), go_on)?;
        saved.map(|()| clock_ns)
    }

    fn write_state(&mut self, state: &OwnedFd, go_on: &dyn Fn() -> bool) -> io::Result<()> {
        let uri = format!("file:/proc/self/fd/{}", state.as_raw_fd());
        self.execute("migrate", &json!({ "uri": uri }), go_on)?;
        loop {
            let progress = self.execute("query-migrate", &json!({}), go_on)?;
            match progress["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") | None => return Err(io::Error::other(progress.to_string())),
                Some(_) => thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// Executes a command, and returns its result.
    fn execute(&mut self, command: &str, arguments: &Value, go_on: &dyn Fn() -> bool) -> io::Result<Value> {
        let text = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.socket.get_mut().write_all(text.as_bytes())?;
        loop {
            // The greeting and events have neither.
            let mut answer = self.next_line(go_on)?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("QEMU refuses `{command}`: {error}")));
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
