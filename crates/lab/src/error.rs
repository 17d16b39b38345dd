//! Why a run in the lab failed.

use crate::setup::{Assets, SetupError};
use crate::shape::ShapeError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a run in the lab failed. In each case the virtual machine has ended, and nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// QEMU or the kernel is missing or too old.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A fetched file is damaged, which may be why the run failed.
    #[error("{damage}, run `nearside lab setup`, which fetches it again; the lab failed")]
    Damaged {
        /// The file and what is wrong with it.
        damage: String,
        /// The failure.
        #[source]
        failed: Box<LabError>,
    },
    /// The preset cannot be built with these options.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A file operation on the host failed.
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        why: io::Error,
    },
    /// The plugin's library was not found.
    #[error(
        "the lab's plugin is missing: looked for {name} in {}\nbuild it with `make install` (or `cargo build --release --workspace`), or name it in {variable}",
        folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" and ")
    )]
    NoPlugin {
        /// The library's file name.
        name: &'static str,
        /// The folders searched.
        folders: Vec<PathBuf>,
        /// The environment variable that overrides the search.
        variable: &'static str,
    },
    /// The host has too little memory.
    #[error(
        "the virtual machine would have {asked} of memory and take {needed} with what the lab keeps of it, but this host has only {available} available: ask for less with --memory-per-node, or choose a machine with fewer nodes"
    )]
    HostMemory {
        /// Memory of the virtual machine.
        asked: String,
        /// Memory that it may take from the host.
        needed: String,
        /// Available memory of the host.
        available: String,
    },
    /// QEMU ended too early.
    #[error("QEMU ended {when} ({status}){advice}{}", quoted("QEMU", said))]
    Qemu {
        /// The phase of the run.
        when: &'static str,
        /// QEMU's exit status.
        status: String,
        /// What to do.
        advice: &'static str,
        /// The last lines of its output.
        said: String,
    },
    /// The guest's kernel panicked.
    #[error(
        "the guest's kernel panicked {when}: {reason}\nthis may be too little memory: try --memory-per-node with more{}",
        quoted("the guest", console)
    )]
    Panic {
        /// The phase of the run.
        when: &'static str,
        /// The kernel's reason.
        reason: String,
        /// The console's last lines.
        console: String,
    },
    /// The guest's part of the lab failed.
    #[error("the guest could not {what}{}", quoted("the guest", console))]
    Guest {
        /// The operation that failed.
        what: String,
        /// The console's last lines.
        console: String,
    },
    /// The command's working directory does not exist in the guest.
    #[error(
        "the working directory {} does not exist in the guest: {why}\nfolders below /dev, /proc, /run and /sys are the guest's own; start from another one",
        path.display()
    )]
    NoDirectory {
        /// The directory.
        path: PathBuf,
        /// The error of the guest's kernel.
        why: io::Error,
    },
    /// A file of `--out` could not be written, for example because the disk is full.
    #[error(
        "cannot keep what the command wrote to {}: {why}\nit did end, but files there are incomplete; free some space, or name another folder with --out",
        path.display()
    )]
    NotKept {
        /// The folder.
        path: PathBuf,
        /// The error of the host's kernel.
        why: io::Error,
    },
    /// The command could not be started.
    #[error("cannot run `{command}` in the lab")]
    NotStarted {
        /// The command's name.
        command: String,
        /// The reason.
        #[source]
        why: io::Error,
    },
    /// The time limit expired.
    #[error("the guest {state} within {} s of host time{advice}{}", limit.as_secs(), quoted("the guest", console))]
    Timeout {
        /// What was not reached in time.
        state: &'static str,
        /// The limit.
        limit: Duration,
        /// What to do.
        advice: &'static str,
        /// The console's last lines.
        console: String,
    },
    /// A signal asked nearside to end.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// A failure between host and guest.
    #[error("cannot {what}")]
    Host {
        /// The operation.
        what: &'static str,
        /// The error.
        #[source]
        why: io::Error,
    },
}

impl LabError {
    /// Exit status after `--timeout`, as of `timeout`.
    pub const TIMED_OUT: u8 = 124;

    /// Adds a damaged file of QEMU or the kernel, if one may have led to this.
    pub(crate) fn or_damage_of(self, assets: &Assets) -> Self {
        let others = matches!(
            self,
            Self::Interrupted(_) | Self::NotStarted { .. } | Self::NoDirectory { .. } | Self::NotKept { .. }
        );
        match if others { None } else { assets.damage() } {
            Some(damage) => Self::Damaged { damage, failed: Box::new(self) },
            None => self,
        }
    }

    pub(crate) fn file(what: &'static str, path: &Path, why: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), why }
    }

    pub(crate) fn host<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |why| Self::Host { what, why: why.into() }
    }

    /// The exit status for the error, following shells and `timeout`.
    pub fn status(&self) -> i32 {
        match self {
            Self::NotStarted { why, .. } if why.kind() == io::ErrorKind::NotFound => 127,
            Self::NotStarted { .. } => 126,
            Self::Timeout { .. } => Self::TIMED_OUT.into(),
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
