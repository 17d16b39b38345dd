//! The system that a command looks at: this one, or one that was saved.

use clap::Args;
use linux::{Cause, Pid, Process, ProcessError, Situation, diagnose_process, without_memory};
use std::path::{Path, PathBuf};

/// Which system to look at.
#[derive(Clone, Debug, Args)]
pub struct System {
    /// Look at a saved system: a folder with copies of its /proc and /sys
    #[arg(long, value_name = "FOLDER", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// Why a process cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("cannot look at process {pid}: {why}")]
pub struct UnseenError {
    /// The process.
    pub pid: Pid,
    /// Why, and what to do about it.
    pub why: String,
    /// Whether it has ended or is ending, and nothing else is wrong.
    pub is_gone: bool,
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
        let unseen = |error| self.unseen(pid, &error);
        let process = Process::open_in(&self.proc(), pid).map_err(unseen)?;
        self.check_memory(&process)?;
        Ok(process)
    }

    /// Refuses a process that has no memory: a kernel thread, or one that has ended and is still there.
    pub fn check_memory(&self, process: &Process) -> Result<(), UnseenError> {
        let pid = process.pid();
        let status = process.status().map_err(|error| self.unseen(pid, &error))?;
        without_memory(pid, &status).map_or(Ok(()), |cause| {
            // Of a process that is killed, the first thread may end before the others.
            let is_gone = matches!(cause, Cause::Zombie(_) | Cause::Gone(_) | Cause::FirstThreadEnded(_));
            Err(UnseenError { pid, why: cause.to_string(), is_gone })
        })
    }

    /// Why a process could not be read.
    pub fn unseen(&self, pid: Pid, error: &ProcessError) -> UnseenError {
        let is_gone = matches!(error, ProcessError::Gone(_));
        let why = match error {
            ProcessError::Read { .. } | ProcessError::Gone(_) if self.is_live() => {
                diagnose_process(error, &Situation::of(Some(pid))).to_string()
            }
            _ => error.to_string(),
        };
        UnseenError { pid, why, is_gone }
    }
}
