//! Setup of a child process between fork and exec.

use crate::memory::mask::mask;
use crate::memory::memory_policy::{mode_with_flags, set_memory_policy_words};
use crate::processes::affinity::set_affinity_words;
use crate::processes::file_limit;
use crate::processes::signals::pipe_was_ignored;
use machine::{CpuSet, MemoryPolicy};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, setrlimit};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

/// The user and groups that a child runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Supplementary group IDs.
    pub groups: Vec<u32>,
}

/// Additions to [`Command`] that run code between fork and exec.
pub trait ChildSetup {
    /// Sends the child SIGKILL when the thread that started it exits for any reason, so that no child is left behind
    /// even after SIGKILL.
    fn die_with_parent(&mut self) -> &mut Self;

    /// The child leads its own session. With `terminal`, its standard input becomes the session's controlling terminal.
    fn new_session(&mut self, terminal: bool) -> &mut Self;

    /// Restricts the child, and all that it starts, to these CPUs and this memory policy; `None` leaves either
    /// unchanged. Invalid values make starting the child fail.
    fn place(&mut self, cpus: Option<&CpuSet>, memory: Option<&MemoryPolicy>) -> &mut Self;

    /// The child joins a control group before it runs: [`CgroupGroup::processes_file`](crate::CgroupGroup).
    fn join(&mut self, processes: File) -> &mut Self;

    /// The child runs as another user. Needs `CAP_SETUID` and `CAP_SETGID`.
    fn run_as(&mut self, who: Credentials) -> &mut Self;

    /// Notes when the child begins its program. Comes last: what else is asked for takes no time of the program then.
    fn note_begin(&mut self, begin: &BeginTime) -> io::Result<&mut Self>;

    /// The child inherits what this process was started with: whether SIGPIPE is ignored, which Rust's standard library
    /// would reset, and the limit of open files, if this process [raised](crate::raise_file_limit) its own.
    fn with_own_inheritance(&mut self) -> &mut Self;
}

/// When a child begins its program, as it says itself: how long its parent waits for a CPU meanwhile does not show.
#[derive(Debug)]
pub struct BeginTime {
    read: OwnedFd,
    write: OwnedFd,
}

impl BeginTime {
    /// Makes the pipe that the child writes to.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { read, write })
    }

    /// The time by `CLOCK_MONOTONIC`, ns. Fails unless a child with this has been started since the last call.
    pub fn ns(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let read = rustix::io::read(&self.read, &mut bytes)?;
        if read == bytes.len() { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Waits for a child. Returns its exit status and the peak of its resident memory in bytes, or of a child of its own if
/// that is higher.
pub fn wait_with_peak(child: Child) -> io::Result<(ExitStatus, u64)> {
    let pid = child.id().cast_signed();
    // It must not be waited for again: its number may be another process's then.
    drop(child);
    let mut status = 0;
    // SAFETY: all bytes zero are a `rusage`.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both are valid for writes.
        match checked(unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok((ExitStatus::from_raw(status), used.ru_maxrss.cast_unsigned() << 10)),
        }
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl ChildSetup for Command {
    fn die_with_parent(&mut self) -> &mut Self {
        let parent = std::process::id();
        // SAFETY: prctl and getppid are async-signal-safe and touch no memory of ours.
        unsafe {
            self.pre_exec(move || {
                checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
                // The parent may have exited before the request took effect.
                if libc::getppid().cast_unsigned() == parent { Ok(()) } else { Err(io::Error::other("parent is gone")) }
            })
        }
    }

    fn new_session(&mut self, terminal: bool) -> &mut Self {
        // SAFETY: setsid and ioctl are async-signal-safe; TIOCSCTTY takes an integer.
        unsafe {
            self.pre_exec(move || {
                checked(libc::setsid())?;
                if terminal { checked(libc::ioctl(0, libc::TIOCSCTTY, 0)) } else { Ok(()) }
            })
        }
    }

    fn place(&mut self, cpus: Option<&CpuSet>, memory: Option<&MemoryPolicy>) -> &mut Self {
        let cpus = cpus.map(mask);
        let memory = memory.map(|policy| (mode_with_flags(policy), mask(&policy.nodes)));
        // SAFETY: both calls are async-signal-safe; the masks were allocated before the fork and are only read.
        unsafe {
            self.pre_exec(move || {
                cpus.as_ref().map_or(Ok(()), |cpus| set_affinity_words(crate::Tid::CALLER, cpus))?;
                memory.as_ref().map_or(Ok(()), |(mode, nodes)| set_memory_policy_words(*mode, nodes))
            })
        }
    }

    fn join(&mut self, processes: File) -> &mut Self {
        // SAFETY: write is async-signal-safe; the file stays open in the closure, and the text is constant.
        unsafe {
            self.pre_exec(move || {
                let written = libc::write(processes.as_raw_fd(), c"0".as_ptr().cast(), 1);
                if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
            })
        }
    }

    fn run_as(&mut self, who: Credentials) -> &mut Self {
        // SAFETY: the three calls are async-signal-safe; the group list was allocated before the fork and is only read.
        unsafe {
            self.pre_exec(move || {
                checked(libc::setgroups(who.groups.len(), who.groups.as_ptr()))?;
                checked(libc::setgid(who.gid))?;
                checked(libc::setuid(who.uid))
            })
        }
    }

    fn note_begin(&mut self, begin: &BeginTime) -> io::Result<&mut Self> {
        let write = begin.write.try_clone()?;
        // SAFETY: clock_gettime and write are async-signal-safe; the pipe stays open in the closure, and is empty.
        Ok(unsafe {
            self.pre_exec(move || {
                let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
                let ns = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
                // Without the note the program begins all the same.
                libc::write(write.as_raw_fd(), (&raw const ns).cast(), 8);
                Ok(())
            })
        })
    }

    fn with_own_inheritance(&mut self) -> &mut Self {
        let (ignores_pipe, file_limit) = (pipe_was_ignored(), file_limit::to_restore());
        // SAFETY: signal and setrlimit are async-signal-safe; the limit was read before the fork.
        unsafe {
            self.pre_exec(move || {
                if let Some(limit) = &file_limit {
                    setrlimit(Resource::Nofile, *limit)?;
                }
                if ignores_pipe && libc::signal(libc::SIGPIPE, libc::SIG_IGN) == libc::SIG_ERR {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic_ns;

    #[test]
    fn a_child_notes_when_it_begins() {
        let begin = BeginTime::new().unwrap();
        assert!(begin.ns().is_err(), "no child has been started");
        let before = monotonic_ns();
        Command::new("true").note_begin(&begin).unwrap().status().unwrap();
        assert!((before..=monotonic_ns()).contains(&begin.ns().unwrap()));
    }
}
