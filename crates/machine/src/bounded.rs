//! The one reader of files from outside: those that a user names, and those of a system that another user may have
//! prepared. `/dev/zero` and pipes have no end, so each read has a limit; a named pipe may have no writer, so the wait for
//! one has, too.

use crate::size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read};
use std::path::Path;

/// Maximum length of a file that is read as a whole, in bytes. The longest that are real are the /proc/PID/smaps of
/// processes with 170,000 mappings, and hwloc XML of 8,192 CPUs, which takes about 10 MB.
pub const MOST_BYTES: u64 = 128 << 20;

/// A file has more bytes than are read of its kind. The source of an [`io::Error`], whose context names the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is longer than {}, the fixed limit for files of this kind: check that it is the right file, and that it ends (devices and pipes may not)",
    size::format(self.0)
)]
pub struct TooLong(pub u64);

impl From<TooLong> for io::Error {
    fn from(too_long: TooLong) -> Self {
        Self::new(ErrorKind::FileTooLarge, too_long)
    }
}

/// Longest wait for the first bytes of a named pipe, s. Shells start the writer of `<(COMMAND)` at once.
const MOST_WAIT_S: u32 = 10;

/// A named pipe had no writer, or one that wrote nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is a pipe, and no process has written to it for {0} s: check that it is the right file")]
pub struct NoWriter(pub u32);

/// Opens a file for reading. Of a named pipe it waits for the first bytes, but at most 10 s: opening one otherwise waits
/// for a writer without a limit.
pub fn open(path: &Path) -> io::Result<File> {
    open_within(path, MOST_WAIT_S)
}

fn open_within(path: &Path, most_s: u32) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    ready_within(File::from(rustix::fs::open(path, flags, Mode::empty())?), most_s)
}

/// Like [`open`], for a file that was opened for reading with `O_NONBLOCK`.
pub fn ready(file: File) -> io::Result<File> {
    ready_within(file, MOST_WAIT_S)
}

fn ready_within(file: File, most_s: u32) -> io::Result<File> {
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if kind == FileType::Fifo {
        let most = Timespec { tv_sec: most_s.into(), tv_nsec: 0 };
        if poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&most))? == 0 {
            return Err(io::Error::new(ErrorKind::TimedOut, NoWriter(most_s)));
        }
    }
    // Regular files never wait. They are opened by the thousand, and spared the two calls.
    if kind != FileType::RegularFile {
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

/// The bytes of a file of at most `most` bytes.
pub fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes_of(open(path)?, most)
}

/// The text of a file of at most [`MOST_BYTES`], without zeros at its end: kernel files are shorter than they claim to
/// be, and tar fills them with zeros when it saves them.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = bytes(path.as_ref(), MOST_BYTES)?;
    bytes.truncate(bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// What is left of an open file, if it is at most `most` bytes.
pub fn bytes_of(file: impl Read, most: u64) -> io::Result<Vec<u8>> {
    // Most files are shorter: one read for the contents, and one that finds the end.
    let mut bytes = Vec::with_capacity(4096);
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(TooLong(most).into()) } else { Ok(bytes) }
}

/// The next line of an open file, with its end, if it is at most `most` bytes; `None` at the end of the file.
pub fn line(reader: &mut impl BufRead, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(most.saturating_add(1)).read_until(b'\n', &mut line)?;
    if line.len() as u64 > most {
        return Err(TooLong(most).into());
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_their_limit() {
        assert_eq!(bytes_of(&b"1234"[..], 4).unwrap(), b"1234");
        let error = bytes_of(&b"12345"[..], 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().starts_with("it is longer than 4 B, the fixed limit "), "{error}");
        let mut lines = &b"123\n1234\n"[..];
        assert_eq!(line(&mut lines, 4).unwrap().unwrap(), b"123\n");
        assert!(line(&mut lines, 4).is_err());
        assert_eq!(line(&mut &b""[..], 4).unwrap(), None);
    }

    #[test]
    fn a_pipe_is_read_where_it_has_a_writer_and_refused_where_it_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = open_within(&path, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("it is a pipe, and no process has written to it for 1 s"), "{error}");
        let text = vec![b'x'; 1 << 20];
        let written = text.clone();
        let to = path.clone();
        let writer = std::thread::spawn(move || std::fs::write(to, written).unwrap());
        assert_eq!(bytes(&path, 1 << 20).unwrap(), text);
        writer.join().unwrap();
    }

    #[test]
    fn zeros_at_the_end_are_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpulist");
        for (bytes, read) in [(&b"0-3\n\0\0"[..], "0-3\n"), (b"\0\0", ""), (b"0\0-3", "0\0-3"), (b"", "")] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(text(&path).unwrap(), read);
        }
    }

    #[test]
    fn files_without_an_end_are_refused() {
        assert_eq!(bytes(Path::new("/dev/zero"), 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(text("/dev/zero").unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
