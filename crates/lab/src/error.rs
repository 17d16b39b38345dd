//! Why a run in the lab failed.

use crate::setup::SetupError;
use crate::shape::ShapeError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a run in the lab failed. Whatever it was, the virtual machine is gone and nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// QEMU or the kernel is missing, or too old.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The preset cannot be built as asked.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A file of the host.
    #[error("cannot {what} {}: {why}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the kernel answered.
        why: io::Error,
    },
    /// The plugin's library is not where this program looks for it.
    #[error(
        "the lab's plugin is missing: looked for {name} in {}\nbuild it with `make install` (or `cargo build --release --workspace`), or name it in {variable}",
        folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" and ")
    )]
    NoPlugin {
        /// The library's file name.
        name: &'static str,
        /// Where it was looked for.
        folders: Vec<PathBuf>,
        /// The environment variable that can name it.
        variable: &'static str,
    },
    /// The host has too little memory.
    #[error(
        "the virtual machine would have {asked} of memory, and this host has {available} available: ask for less with --memory-per-node, or choose a machine with fewer nodes"
    )]
    HostMemory {
        /// Of the virtual machine.
        asked: String,
        /// Of the host.
        available: String,
    },
    /// QEMU ended before its time.
    #[error("QEMU ended {when} ({status}){advice}{}", quoted("QEMU", said))]
    Qemu {
        /// At what point.
        when: &'static str,
        /// How.
        status: String,
        /// What to do.
        advice: &'static str,
        /// Its last words.
        said: String,
    },
    /// The guest's kernel gave up.
    #[error(
        "the guest's kernel panicked {when}: {reason}\nthis may be too little memory: try --memory-per-node with more{}",
        quoted("the guest", console)
    )]
    Panic {
        /// At what point.
        when: &'static str,
        /// The kernel's reason.
        reason: String,
        /// The console's last lines.
        console: String,
    },
    /// The guest's own part of the lab failed.
    #[error("the guest could not {what}{}", quoted("the guest", console))]
    Guest {
        /// What it says it could not do.
        what: String,
        /// The console's last lines.
        console: String,
    },
    /// The command's working directory is not in the guest.
    #[error(
        "the working directory {} is not there in the guest: {why}\nfolders below /dev, /proc, /run and /sys are the guest's own; start from another one",
        path.display()
    )]
    NoDirectory {
        /// It.
        path: PathBuf,
        /// What the guest's kernel answered.
        why: io::Error,
    },
    /// The disk of `--out` is full, or the like.
    #[error(
        "cannot keep what the command wrote to {}: {why}\nit did end, but files there are not complete; free some room, or name another folder with --out",
        path.display()
    )]
    NotKept {
        /// The folder.
        path: PathBuf,
        /// What the host's kernel answered.
        why: io::Error,
    },
    /// The command could not be started.
    #[error("cannot run `{command}` in the lab: {why}")]
    NotStarted {
        /// The command's name.
        command: String,
        /// Why.
        why: io::Error,
    },
    /// It took too long.
    #[error("the guest {state} within {} s of host time{advice}{}", limit.as_secs(), quoted("the guest", console))]
    Timeout {
        /// What it did not do.
        state: &'static str,
        /// The limit.
        limit: Duration,
        /// What to do.
        advice: &'static str,
        /// The console's last lines.
        console: String,
    },
    /// A signal asked this program to end.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// Something between host and guest broke.
    #[error("cannot {what}: {why}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// What came back.
        why: io::Error,
    },
}

impl LabError {
    pub(crate) fn file(what: &'static str, path: &Path, why: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), why }
    }

    pub(crate) fn host<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::Host { what, why: why.into() }
    }

    /// The exit status that says so, as shells and `timeout` have it.
    pub fn status(&self) -> i32 {
        match self {
            Self::NotStarted { why, .. } if why.kind() == io::ErrorKind::NotFound => 127,
            Self::NotStarted { .. } => 126,
            Self::Timeout { .. } => 124,
            Self::Interrupted(signal) => 128 + signal,
            _ => 125,
        }
    }
}

fn quoted(who: &str, text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = text.lines().map(|line| format!("  | {}", line.trim_end())).collect();
    format!("\n{who}'s last lines:\n{}", lines.join("\n"))
}
