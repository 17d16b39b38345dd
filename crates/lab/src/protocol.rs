//! Messages between host and guest over the machine's one serial port: frames of a length and a postcard value.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::time::Duration;

/// The port's name, by which the guest finds it.
pub const PORT: &str = "nearside";
/// Path in the guest's first file system of the kernel modules that it needs before it has other files: a list of
/// [`GuestModule`] in loading order.
pub const MODULES_FILE: &str = "nearside-modules";
/// Maximum number of stream bytes in one frame.
pub const CHUNK: usize = 64 << 10;

/// Messages of one direction.
pub trait Message: Serialize + DeserializeOwned {
    /// Upper limit of a frame's length, bytes.
    const LENGTH_MAX: u32;
}

/// The host does not trust the guest.
impl Message for ToHost {
    const LENGTH_MAX: u32 = 1 << 20;
}

/// The user's kernel modules are among them.
impl Message for ToGuest {
    const LENGTH_MAX: u32 = 1 << 30;
}

/// What the guest does once it has booted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Its task.
    pub task: Task,
    /// Kernel modules of the user, in loading order.
    pub modules: Vec<GuestModule>,
    /// The host's time since 1970.
    pub time: Duration,
    /// Random bytes: guests that continue from one saved boot would draw the same numbers otherwise.
    pub entropy: [u8; 32],
}

/// The guest's task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory. Not a path: serde rejects paths that are not UTF-8.
    pub directory: OsString,
    /// Its file mode creation mask.
    pub umask: u32,
    /// User, group and supplementary groups it runs as.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// See `uid`.
    pub groups: Vec<u32>,
    /// Rows and columns of its terminal, or `None` for three streams.
    pub terminal: Option<(u16, u16)>,
    /// The simulated machine, as a machine file.
    pub machine: String,
    /// The folder whose files come back to the host.
    pub out: Option<OsString>,
    /// The kernel's own NUMA balancing; `None` keeps its default.
    pub numa_balancing: Option<bool>,
    /// `always`, `madvise` or `never`; `None` keeps the kernel's default.
    pub transparent_huge_pages: Option<String>,
    /// Divisor of the periods of kernel services that work in seconds.
    pub time_scale: u32,
    /// One in this many first-level misses is sampled for the host; with 0 none is, and programs of the guest may take
    /// samples.
    pub sample_period: u64,
    /// Whether samples carry thread names.
    pub sample_names: bool,
    /// Moves threads between nodes, and pages, by this seed.
    pub shake: Option<u64>,
}

/// A kernel module that the guest loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestModule {
    /// Its name, for messages.
    pub name: String,
    /// Its parameters, as for `insmod`.
    pub parameters: String,
    /// Its code.
    pub contents: Vec<u8>,
}

/// What `lab run --shake` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaken {
    /// Rounds, each with its own decisions.
    pub rounds: u64,
    /// Threads confined to another set of CPUs for a round.
    pub thread_moves: u64,
    /// Pages moved to another node, of any size.
    pub pages_moved: u64,
}

/// Messages from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToGuest {
    /// The first message, once the guest has booted and its state is saved.
    Continue,
    /// The answer to [`ToHost::Preparing`].
    Start(Box<Start>),
    /// The requested next part of the standard input; empty at its end.
    Input(Vec<u8>),
    /// The reader of the command's output has closed it: writing must fail, as it would on the host.
    OutputClosed,
    /// The same for its error stream.
    ErrorClosed,
    /// The terminal's new rows and columns.
    Resize(u16, u16),
    /// A signal for the command.
    Signal(i32),
}

/// Messages from the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToHost {
    /// The guest has booted and waits for [`ToGuest::Continue`].
    Booted,
    /// It has received that, and waits for [`ToGuest::Start`].
    Preparing,
    /// The command is about to start.
    Started,
    /// The command can take more standard input. The host sends it only then, so that a command that reads nothing does
    /// not block the port.
    WantInput,
    /// Standard output.
    Output(Vec<u8>),
    /// Standard error.
    Error(Vec<u8>),
    /// The command could not be started: error number and attempted operation.
    NotStarted(i32, String),
    /// The command's working directory cannot be entered: error number.
    NoDirectory(i32),
    /// What was moved. The end of the command follows.
    Shaken(Shaken),
    /// A process was killed while it wrote to the output folder, and what it wrote last may be missing. The end of the
    /// command follows.
    WriterKilled,
    /// The command has ended, its output is sent and its files are written.
    Ended(Ended),
    /// The command has ended, but not all its files in the output folder could be written: error number.
    NotKept(i32),
    /// The guest failed.
    Failed(String),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// The exit status that a shell would report.
    pub fn status(self) -> i32 {
        match self {
            Self::Exit(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Sends one value.
pub fn send<T: Message>(to: &mut impl Write, value: &T) -> io::Result<()> {
    let invalid = |why: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let body = postcard::to_stdvec(value).map_err(|why| invalid(&why))?;
    let length = u32::try_from(body.len()).ok().filter(|&length| length <= T::LENGTH_MAX);
    let length = length.ok_or_else(|| invalid(&format!("a frame of {} bytes is too long", body.len())))?;
    // A single write, so that frames of several threads do not mix.
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend(length.to_le_bytes());
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}

/// Receives one value; `None` at the end of the stream, even within a frame: the sender has ended.
pub fn receive<T: Message>(from: &mut impl Read) -> io::Result<Option<T>> {
    match receive_frame(from, T::LENGTH_MAX) {
        Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(why) => Err(why),
        Ok(body) => {
            let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, format!("cannot decode a frame: {why}"));
            postcard::from_bytes(&body).map(Some).map_err(invalid)
        }
    }
}

fn receive_frame(from: &mut impl Read, length_max: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > length_max {
        let why = format!("a frame says it has {length} bytes; at most {length_max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_sent_is_received() -> io::Result<()> {
        let messages = [ToHost::Started, ToHost::Output(vec![0; CHUNK]), ToHost::Ended(Ended::Signal(9))];
        let mut wire = Vec::new();
        for message in &messages {
            send(&mut wire, message)?;
        }
        let mut wire = wire.as_slice();
        for message in messages {
            assert_eq!(receive(&mut wire)?, Some(message));
        }
        assert_eq!(receive::<ToHost>(&mut wire)?, None);
        Ok(())
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_has_ended() -> io::Result<()> {
        let mut wire = Vec::new();
        send(&mut wire, &ToHost::Output(vec![0; 100]))?;
        for length in [0, 3, 4, 50, wire.len() - 1] {
            assert_eq!(receive::<ToHost>(&mut &wire[..length])?, None, "{length} bytes");
        }
        Ok(())
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        let refused = receive::<ToHost>(&mut [0xff_u8; 8].as_slice());
        assert!(refused.is_err_and(|why| why.to_string().contains("4294967295 bytes")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = receive::<ToHost>(&mut bytes.as_slice());
            let _ = receive::<ToGuest>(&mut bytes.as_slice());
        }
    }
}
