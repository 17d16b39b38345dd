//! Whether a file is open for writing, by the kernel's own count of writers.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// From `fcntl.h`; libc does not define all of them.
const F_SETSIG: libc::c_int = 10;

/// Whether any process has the file open for writing, or has a writable shared mapping of it: the kernel grants no read
/// lease on such a file. Since Linux 2.4; the file must be open for reading. Needs the file's owner, or `CAP_LEASE`
/// (EACCES). EINVAL: its file system, such as a network one, does not support leases.
///
/// The lease is released at once. A process that opens the file for writing in that moment waits for the release, or
/// gets EWOULDBLOCK with `O_NONBLOCK`.
pub fn is_open_for_writing(file: &File) -> io::Result<bool> {
    // A process that opens the file for writing makes the kernel send this signal. The default SIGIO would terminate
    // us; SIGURG is ignored by default.
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    match fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: both commands take an integer.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn those_who_may_write_are_seen_and_readers_are_not() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || File::open(&path).unwrap();
        let is_open = || is_open_for_writing(&open());
        if is_open().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            return test_tools::skipped("the file system of temporary files has no leases");
        }
        let _reader = open();
        assert!(!is_open().unwrap());
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(is_open().unwrap());
        drop(writer);
        assert!(!is_open().unwrap());
    }
}
