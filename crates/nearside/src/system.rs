//! The system that a command looks at: this one, or one that was saved.

use clap::Args;
use linux::{Pid, Process, ProcessError};
use std::path::{Path, PathBuf};

/// Which system to look at.
#[derive(Clone, Debug, Args)]
pub struct System {
    /// Look at a saved system: a folder with copies of its /proc and /sys
    #[arg(long, value_name = "FOLDER", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// What keeps a process from being looked at.
#[derive(Debug, thiserror::Error)]
pub enum UnseenError {
    /// It cannot be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Its memory is for its user and for root.
    #[error(
        "process {pid} ({name}) is user {uid}'s, and its memory is for that user and for root to see (the kernel refused {file}: ptrace access \
         check): run this as user {uid} or as root, or give nearside the capability CAP_SYS_PTRACE"
    )]
    Forbidden {
        /// The process.
        pid: Pid,
        /// Its program.
        name: String,
        /// Its user.
        uid: u32,
        /// What was tried.
        file: &'static str,
    },
    /// It has ended, and its parent has not asked how.
    #[error("process {pid} ({name}) is a zombie: it has ended, and has no memory until its parent asks how it ended")]
    Zombie {
        /// The process.
        pid: Pid,
        /// Its program.
        name: String,
    },
    /// It is the kernel's own.
    #[error("process {pid} ({name}) is a kernel thread: it has no memory of its own")]
    KernelThread {
        /// The process.
        pid: Pid,
        /// Its name.
        name: String,
    },
}

impl System {
    /// This one.
    pub fn live() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// Its /proc.
    pub fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// Its /sys.
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// Its root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the kernel can be asked about it, and not only what was saved.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Takes hold of one of its processes that has memory.
    pub fn process(&self, pid: Pid) -> Result<Process, UnseenError> {
        let process = Process::open_in(&self.proc(), pid)?;
        let status = process.status()?;
        match (status.has_memory, status.state) {
            (true, _) => Ok(process),
            (false, Some('Z' | 'X')) => Err(UnseenError::Zombie { pid, name: status.name }),
            (false, _) => Err(UnseenError::KernelThread { pid, name: status.name }),
        }
    }
}

/// A refused read, as what it comes from.
pub fn explained(process: &Process, error: ProcessError) -> UnseenError {
    let ProcessError::Read { pid, file, source } = &error else { return error.into() };
    match (source.raw_os_error(), process.status()) {
        (Some(rustix_code), Ok(status)) if is_refusal(rustix_code) => {
            UnseenError::Forbidden { pid: *pid, name: status.name, uid: status.uids[0], file }
        }
        _ => error.into(),
    }
}

fn is_refusal(errno: i32) -> bool {
    [rustix::io::Errno::ACCESS, rustix::io::Errno::PERM].iter().any(|refusal| refusal.raw_os_error() == errno)
}
