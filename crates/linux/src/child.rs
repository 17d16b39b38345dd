//! What a child process does between fork and exec.

use crate::affinity::set_affinity_words;
use crate::mask::mask;
use crate::memory_policy::{MemoryPolicy, set_memory_policy_words};
use machine::CpuSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Who a child runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Additions to [`Command`] that need code between fork and exec.
pub trait ChildSetup {
    /// The child gets SIGKILL when the thread that started it ends, however it ends: nothing is left behind even by
    /// SIGKILL.
    fn die_with_parent(&mut self) -> &mut Self;

    /// The child leads a session of its own. With `terminal`, its standard input becomes the session's terminal.
    fn new_session(&mut self, terminal: bool) -> &mut Self;

    /// The child, and all that it starts, may run on these CPUs only, and takes memory by this policy: each where it is
    /// told. What is wrong with them is the error of starting it.
    fn place(&mut self, cpus: Option<&CpuSet>, memory: Option<&MemoryPolicy>) -> &mut Self;

    /// The child runs as somebody else. Needs `CAP_SETUID` and `CAP_SETGID`.
    fn run_as(&mut self, who: Credentials) -> &mut Self;
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
                // The parent may have gone before the request was in place.
                if libc::getppid().cast_unsigned() == parent { Ok(()) } else { Err(io::Error::other("parent is gone")) }
            })
        }
    }

    fn new_session(&mut self, terminal: bool) -> &mut Self {
        // SAFETY: setsid and ioctl are async-signal-safe; TIOCSCTTY takes a plain number.
        unsafe {
            self.pre_exec(move || {
                checked(libc::setsid())?;
                if terminal { checked(libc::ioctl(0, libc::TIOCSCTTY, 0)) } else { Ok(()) }
            })
        }
    }

    fn place(&mut self, cpus: Option<&CpuSet>, memory: Option<&MemoryPolicy>) -> &mut Self {
        let cpus = cpus.map(mask);
        let memory = memory.map(|policy| (policy.mode_with_flags(), mask(&policy.nodes)));
        // SAFETY: both calls are async-signal-safe; the masks were allocated before the fork and are only read.
        unsafe {
            self.pre_exec(move || {
                cpus.as_ref().map_or(Ok(()), |cpus| set_affinity_words(crate::Tid::CALLER, cpus))?;
                memory.as_ref().map_or(Ok(()), |(mode, nodes)| set_memory_policy_words(*mode, nodes))
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
}
