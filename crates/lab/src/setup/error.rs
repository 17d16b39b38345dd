//! What can go wrong before there is a machine to boot, and the way out of each.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::KernelVersion;
use super::kernel::{KERNEL_FOLDER_VARIABLE, KERNEL_MINIMUM};
use super::qemu::{QEMU_MINIMUM, QEMU_VARIABLE};

/// Why there is no QEMU or no kernel, or why they could not be fetched.
#[derive(Debug, Error)]
pub enum SetupError {
    /// It was never fetched, or what was fetched no longer serves.
    #[error("no usable {what}: {}\nrun: nearside lab setup{options}", tried.join("; "))]
    NotSetUp {
        /// QEMU or kernel.
        what: String,
        /// Each place looked at, and what was wrong there.
        tried: Vec<String>,
        /// What the command that fetches it takes.
        options: String,
    },

    /// The user named something that does not serve.
    #[error("{variable}={}: {reason}\nset it to {expected}, or unset it and run: nearside lab setup", path.display())]
    Variable {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
        /// What is wrong with that.
        reason: String,
        /// What it should name.
        expected: String,
    },

    /// Neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
    #[error("nowhere to keep QEMU and the kernel: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoCacheFolder,

    /// A path that neither apt's configuration nor a loader of libraries can take.
    #[error("cannot keep QEMU and the kernel in {}: apt and the loader have no way to write a quote, a colon, a \
             semicolon, a line break or bytes that are not UTF-8\nset XDG_CACHE_HOME to another folder", path.display())]
    CacheFolder {
        /// It.
        path: PathBuf,
    },

    /// This host's apt cannot provide them, or what it provides does not run.
    #[error(
        "cannot provide QEMU and a kernel: {reason}\n\
         `lab setup` fetches from Debian's own archive, for amd64. Elsewhere provide, and name by variables:\n  \
         {QEMU_VARIABLE}=PROGRAM       qemu-system-x86_64 {QEMU_MINIMUM} or newer built with plugins (one on PATH is found by itself)\n  \
         {KERNEL_FOLDER_VARIABLE}=FOLDER  boot/vmlinuz-VERSION and lib/modules/VERSION of a kernel {KERNEL_MINIMUM} or newer, such as a\n  \
         {:26}Debian linux-image-VERSION-amd64 package unpacked by `dpkg-deb -x PACKAGE FOLDER`",
        ""
    )]
    Unavailable {
        /// What stands in the way.
        reason: String,
    },

    /// The archive has nothing new enough.
    #[error(
        "no {package} {minimum} or newer in this host's Debian archive or its backports: {}\n\
             set {QEMU_VARIABLE} and {KERNEL_FOLDER_VARIABLE} to use your own",
        offer(offered, apt)
    )]
    TooOld {
        /// What was looked for.
        package: &'static str,
        /// The oldest version that serves.
        minimum: super::Version,
        /// The versions there are.
        offered: Vec<String>,
        /// The last lines of the `apt-get update` that went before.
        apt: String,
    },

    /// The archive has other kernels.
    #[error(
        "no kernel {wanted} that is {minimum} or newer in this host's Debian archive or in backports: {}\n\
             ask for one of these, or set {KERNEL_FOLDER_VARIABLE} to use your own",
        offer(&offered.iter().map(ToString::to_string).collect::<Vec<_>>(), apt)
    )]
    NoSuchKernel {
        /// What was asked for.
        wanted: KernelVersion,
        /// The oldest version that serves.
        minimum: super::Version,
        /// The newest release of each series that serves.
        offered: Vec<super::Version>,
        /// The last lines of the `apt-get update` that went before.
        apt: String,
    },

    /// A program that the setup needs is not installed.
    #[error("cannot run `{program}`: {source}{}", advice(source))]
    Program {
        /// Its name.
        program: String,
        /// What the kernel answered.
        source: io::Error,
    },

    /// A program failed.
    #[error("`{command}` failed ({status}):\n{output}")]
    Command {
        /// The command, as a shell would read it.
        command: String,
        /// How it ended.
        status: String,
        /// The last lines it wrote.
        output: String,
    },

    /// Ctrl-C.
    #[error("interrupted: nothing was changed")]
    Interrupted,

    /// Ctrl-C cannot be attended to.
    #[error("cannot handle SIGINT: {0}")]
    Signal(io::Error),

    /// No room for what is fetched.
    #[error("the disk with {} is full: free {} MiB there, or set XDG_CACHE_HOME to a folder with more room", folder.display(), NEEDED_MIB)]
    DiskFull {
        /// The cache folder.
        folder: PathBuf,
    },

    /// The kernel refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// A verb: read, create, ...
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it answered.
        source: io::Error,
    },

    /// A module that is neither there nor built in, or that cannot be unpacked.
    #[error("kernel module {name}: {reason} (looked for {name}.ko and {name}.ko.xz in {})", folder.display())]
    Module {
        /// Its path without suffix.
        name: String,
        /// The kernel's modules.
        folder: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Room that a setup takes while it runs, in MiB: package lists, archives and unpacked packages came to 371 on a
/// Debian 12 that had most libraries; the rest is for hosts that have few and for later releases.
pub(super) const NEEDED_MIB: u64 = 550;

impl SetupError {
    /// For `map_err` on file operations.
    pub(super) fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SetupError + 'a {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                SetupError::DiskFull { folder: path.to_path_buf() }
            }
            _ => SetupError::Io { action, path: path.to_path_buf(), source },
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::NotFound { ": it is not installed, or not on PATH" } else { "" }
}

fn offer(offered: &[String], apt: &str) -> String {
    match (offered, apt) {
        ([], "") => "it is not there".to_string(),
        ([], apt) => format!("it is not there; `apt-get update` ended with\n{apt}"),
        (offered, "") => format!("only {}", offered.join(", ")),
        (offered, apt) => format!("only {}; `apt-get update` ended with\n{apt}", offered.join(", ")),
    }
}
