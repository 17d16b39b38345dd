//! This process's own streams, which are passed to the command.

use crate::protocol::{CHUNK, ToGuest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// A writable pipe takes this many bytes without blocking (`PIPE_BUF` of Linux).
const AT_ONCE: usize = 4096;
/// How long to wait for a reader before checking again whether to continue.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Why a stream takes no more data.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The reader has closed it.
    ByReader,
    /// A write error, such as a full disk.
    ByError(io::Error),
}

/// Writes all bytes, however slow the reader is, while `go_on` returns true.
pub(crate) fn write(to: BorrowedFd, mut bytes: &[u8], go_on: &dyn Fn() -> bool) -> Result<(), Closed> {
    while !bytes.is_empty() && go_on() {
        let mut ready = [PollFd::new(&to, PollFlags::OUT)];
        let written = match poll(&mut ready, Some(&POLL_INTERVAL)) {
            Ok(0) => continue,
            Ok(_) => rustix::io::write(to, &bytes[..bytes.len().min(AT_ONCE)]),
            Err(why) => Err(why),
        };
        match written {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::PIPE) => return Err(Closed::ByReader),
            // So does a terminal that has been closed.
            Err(Errno::IO) if is_device(to) => return Err(Closed::ByReader),
            Err(why) => return Err(Closed::ByError(why.into())),
        }
    }
    Ok(())
}

/// Whether it is a character device, as terminals are. One that has been closed does not say that it is a terminal.
fn is_device(file: BorrowedFd) -> bool {
    fstat(file).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice)
}

/// Sends standard input, one part for each request of the guest. `none_yet` is called with the number of requests so
/// far when it would have to wait for a part.
pub(crate) fn forward_input(wanted: &Receiver<()>, to_guest: &SyncSender<ToGuest>, none_yet: &dyn Fn(u64)) {
    let mut buffer = vec![0; CHUNK];
    for questions in 1.. {
        if wanted.recv().is_err() {
            break;
        }
        if in_background() || !is_ready(io::stdin().as_fd()) {
            none_yet(questions);
        }
        wait_for_foreground();
        let count = read(&mut buffer);
        if to_guest.send(ToGuest::Input(buffer[..count].to_vec())).is_err() || count == 0 {
            break;
        }
    }
}

/// Reads a part of standard input, 0 bytes at its end. Another program may have made it non-blocking.
fn read(buffer: &mut [u8]) -> usize {
    loop {
        match io::stdin().lock().read(buffer) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                // Interrupted or not, the next read tells.
                let _ = poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], None);
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            read => return read.unwrap_or(0),
        }
    }
}

/// A background process that reads from its terminal is stopped (SIGTTIN), and it is unknown whether the command will
/// read.
fn wait_for_foreground() {
    while in_background() {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn in_background() -> bool {
    rustix::termios::tcgetpgrp(io::stdin().as_fd()).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// Whether a stream can be read without blocking: it has data or is at its end.
fn is_ready(stream: BorrowedFd) -> bool {
    poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Rows and columns of the terminal on standard input, if it is one.
pub fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdin()).ok()?;
    Some((size.ws_row, size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::fd::OwnedFd;

    fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(rustix::pipe::pipe()?)
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_no_writer() -> io::Result<()> {
        let (_reader, writer) = pipe()?;
        let asked = Cell::new(0);
        let written = write(writer.as_fd(), &vec![0; 1 << 20], &|| {
            asked.set(asked.get() + 1);
            asked.get() < 30
        });
        assert!(written.is_ok());
        assert_eq!(asked.get(), 30, "it asked until it was stopped");
        Ok(())
    }

    #[test]
    fn a_stream_is_ready_when_there_is_something_or_its_end() -> io::Result<()> {
        let (reader, writer) = pipe()?;
        assert!(!is_ready(reader.as_fd()));
        rustix::io::write(&writer, b"x")?;
        assert!(is_ready(reader.as_fd()));
        rustix::io::read(&reader, &mut [0; 1])?;
        assert!(!is_ready(reader.as_fd()));
        drop(writer);
        assert!(is_ready(reader.as_fd()), "it has ended");
        Ok(())
    }

    #[test]
    fn a_terminal_that_has_been_closed_is_a_reader_that_has_gone() {
        let ours = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&ours).and_then(|()| rustix::pty::unlockpt(&ours)).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let terminal = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
        drop(ours);
        assert!(matches!(write(terminal.as_fd(), b"text", &|| true), Err(Closed::ByReader)));
    }

    #[test]
    fn a_reader_that_has_gone_is_distinguished_from_a_full_disk() -> io::Result<()> {
        let (reader, writer) = pipe()?;
        drop(reader);
        assert!(matches!(write(writer.as_fd(), b"x", &|| true), Err(Closed::ByReader)));
        let full = std::fs::File::options().write(true).open("/dev/full")?;
        let refused = write(full.as_fd(), b"x", &|| true);
        assert!(matches!(refused, Err(Closed::ByError(why)) if why.kind() == io::ErrorKind::StorageFull));
        Ok(())
    }
}
