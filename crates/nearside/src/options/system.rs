//! The system that a command reads: this one, or a saved one.

use crate::options::process_name::process;
use crate::options::usage_error::UsageError;
use clap::Args;
use linux::{Cause, Pid, Process, ProcessError, SystemState, diagnose_process, without_memory};
use machine::chain;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Why a name cannot be looked up.
const NO_NAMES: &str = "the processes of a saved system have numbers only";

/// Which system to read.
#[derive(Clone, Debug, Args)]
pub struct System {
    /// Read a saved system: a folder with copies of its /proc and /sys
    #[arg(long, value_name = "FOLDER", default_value = "/", hide_default_value = true)]
    root: PathBuf,
}

/// Why a process cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot look at process {pid}: {why}")]
pub struct UnseenError {
    /// The process.
    pub pid: Pid,
    /// The cause, and what to do about it.
    pub why: String,
    /// Whether the only reason is that it has ended or is ending.
    pub is_gone: bool,
}

impl System {
    /// The live system.
    pub fn live() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// Its /proc folder.
    pub fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// Its /sys folder.
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// Its root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the system is live, so that the kernel can be queried.
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// A process by number or, on this system, by a name that only one process has.
    pub fn named(&self, text: &str) -> Result<Pid, Box<dyn Error>> {
        if self.is_live() {
            return process(text).map(Pid).map_err(UsageError::boxed);
        }
        text.parse().map(Pid).map_err(|_| UsageError::boxed(NO_NAMES))
    }

    /// Opens one of its processes that has memory.
    pub fn process(&self, pid: Pid) -> Result<Process, UnseenError> {
        let unseen = |error| self.unseen(pid, &error);
        let process = Process::open_in(&self.proc(), pid).map_err(unseen)?;
        self.check_memory(&process)?;
        Ok(process)
    }

    /// Rejects a process without memory: a kernel thread, or a zombie.
    pub fn check_memory(&self, process: &Process) -> Result<(), UnseenError> {
        let pid = process.pid();
        let status = process.status().map_err(|error| self.unseen(pid, &error))?;
        without_memory(pid, &status).map_or(Ok(()), |cause| {
            // When a process is killed, its first thread may end before the others.
            let is_gone = matches!(cause, Cause::Zombie(_) | Cause::Gone(_) | Cause::FirstThreadEnded(_));
            Err(UnseenError { pid, why: cause.to_string(), is_gone })
        })
    }

    /// Explains why a process could not be read.
    pub fn unseen(&self, pid: Pid, error: &ProcessError) -> UnseenError {
        let is_gone = matches!(error, ProcessError::Gone(_));
        let why = match error {
            ProcessError::Read { .. } | ProcessError::Gone(_) if self.is_live() => {
                diagnose_process(error, &SystemState::read(Some(pid))).to_string()
            }
            ProcessError::Gone(_) => format!(
                "{} has no process {pid}, or not all of its files: docs/show.md says which to save",
                self.proc().display()
            ),
            _ => chain(error),
        };
        UnseenError { pid, why, is_gone }
    }
}
