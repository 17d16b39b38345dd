//! Descriptors of processes (Linux 5.3), as a client passes them to a service.

use crate::processes::process::Pid;
use machine::bounded;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Why a descriptor names no process.
#[derive(Debug, thiserror::Error)]
pub enum PidfdError {
    /// Its record in /proc/self/fdinfo cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The record.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("the descriptor is no pidfd")]
    NoPidfd,
    /// The process has ended and was waited for, or is in a PID namespace that this process does not see.
    #[error("the process has ended")]
    Ended,
}

/// The process of a pidfd, in this process's PID namespace. Needs no privileges.
pub fn process_of(pidfd: impl AsFd) -> Result<Pid, PidfdError> {
    let path = PathBuf::from(format!("/proc/self/fdinfo/{}", pidfd.as_fd().as_raw_fd()));
    let text = bounded::text(&path).map_err(|source| PidfdError::Read { path, source })?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")).ok_or(PidfdError::NoPidfd)?;
    // The kernel writes -1 for a process that was waited for, and 0 for one of another namespace.
    pid.trim().parse().ok().filter(|pid| *pid > 0).map(Pid).ok_or(PidfdError::Ended)
}

/// Opens a process: what the kernel does with the file is done to this process, also after its number is another's. Needs
/// no privileges.
pub fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    let number = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(pidfd_open(number, PidfdFlags::empty())?)
}

/// A copy of an open file of this process, by its number (Linux 5.6). Fails if there is none.
pub fn copy_own_file(number: i32) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, number, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid as RawPid;
    use std::process::Command;

    #[test]
    fn a_pidfd_names_its_process_until_it_was_waited_for() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pidfd = pidfd_open(RawPid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert_eq!(process_of(&pidfd).unwrap(), Pid(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(process_of(&pidfd), Err(PidfdError::Ended)));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(process_of(&file), Err(PidfdError::NoPidfd)));
    }
}
