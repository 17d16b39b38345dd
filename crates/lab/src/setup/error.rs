//! Errors of setup, each with a remedy.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::KernelVersion;
use super::requirements::{KERNEL_FOLDER_VARIABLE, KERNEL_MINIMUM, NEEDED_MIB, QEMU_MINIMUM, QEMU_VARIABLE};

/// Why QEMU or a kernel is missing, or could not be fetched.
#[derive(Debug, Error)]
pub enum SetupError {
    /// It was never fetched, or the fetched one is no longer usable.
    #[error("no usable {what}: {}\nrun: nearside lab setup{options}", tried.join("; "))]
    NotSetUp {
        /// QEMU or kernel.
        what: String,
        /// The places searched, with the problem of each.
        tried: Vec<String>,
        /// The options of the command that fetches it.
        options: String,
    },

    /// The user's choice is unusable.
    #[error("{variable}={}: {reason}\nset it to {expected}, or unset it and run: nearside lab setup", path.display())]
    Variable {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
        /// The problem.
        reason: String,
        /// What the variable should name.
        expected: String,
    },

    /// Neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
    #[error("nowhere to keep QEMU and the kernel: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoCacheFolder,

    /// A path that neither apt's configuration nor a dynamic loader can handle.
    #[error("cannot keep QEMU and the kernel in {}: apt and the loader cannot handle a quote, a colon, a \
             semicolon, a line break or bytes that are not UTF-8\nset XDG_CACHE_HOME to another folder", path.display())]
    CacheFolder {
        /// The path.
        path: PathBuf,
    },

    /// This host's apt cannot provide them, or they do not run.
    #[error(
        "cannot provide QEMU and a kernel: {reason}\n\
         `lab setup` fetches from Debian's own archive, for amd64. Elsewhere provide, and name by variables:\n  \
         {QEMU_VARIABLE}=PROGRAM       qemu-system-x86_64 {QEMU_MINIMUM} or newer built with plugins (one on PATH is found by itself)\n  \
         {KERNEL_FOLDER_VARIABLE}=FOLDER  boot/vmlinuz-VERSION and lib/modules/VERSION of a kernel {KERNEL_MINIMUM} or newer, such as a\n  \
         {:26}Debian linux-image-VERSION-amd64 package unpacked by `dpkg-deb -x PACKAGE FOLDER`",
        ""
    )]
    Unavailable {
        /// The obstacle.
        reason: String,
    },

    /// The archive has no version that is new enough.
    #[error(
        "no {package} {minimum} or newer in this host's Debian archive or its backports: {}\n\
             set {QEMU_VARIABLE} and {KERNEL_FOLDER_VARIABLE} to use your own",
        offer(offered, apt)
    )]
    TooOld {
        /// The package.
        package: &'static str,
        /// The oldest usable version.
        minimum: super::Version,
        /// The available versions.
        offered: Vec<String>,
        /// The last lines of the preceding `apt-get update`.
        apt: String,
    },

    /// The archive has only other kernels.
    #[error(
        "no kernel {wanted} that is {minimum} or newer in this host's Debian archive or in backports: {}\n\
             ask for one of these, or set {KERNEL_FOLDER_VARIABLE} to use your own",
        offer(&offered.iter().map(ToString::to_string).collect::<Vec<_>>(), apt)
    )]
    NoSuchKernel {
        /// The requested version.
        wanted: KernelVersion,
        /// The oldest usable version.
        minimum: super::Version,
        /// The newest release of each usable series.
        offered: Vec<super::Version>,
        /// The last lines of the preceding `apt-get update`.
        apt: String,
    },

    /// The archive has no headers of the kernel.
    #[error("cannot fetch the headers of the guest's kernel: {reason}\n{}", advice_on_headers(kernel.as_deref()))]
    Headers {
        /// The cached kernel's folder; none if the kernel is the user's.
        kernel: Option<PathBuf>,
        /// The obstacle.
        reason: String,
    },

    /// A program that setup needs is not installed.
    #[error("cannot run `{program}`: {error}{}", advice(error))]
    Program {
        /// Its name.
        program: String,
        /// The system's error.
        error: io::Error,
    },

    /// A program failed.
    #[error("`{command}` failed ({status}):\n{output}")]
    Command {
        /// The command line, quoted for a shell.
        command: String,
        /// Its exit status.
        status: String,
        /// The last lines of its output.
        output: String,
    },

    /// Ctrl-C.
    #[error("interrupted: what had been fetched as a whole is kept")]
    Interrupted,

    /// No handler for Ctrl-C could be installed.
    #[error("cannot handle SIGINT")]
    Signal(#[source] io::Error),

    /// Too little disk space.
    #[error("the disk with {} is full: free {} MiB there, or set XDG_CACHE_HOME to a folder with more room", folder.display(), NEEDED_MIB)]
    DiskFull {
        /// The cache folder.
        folder: PathBuf,
    },

    /// The kernel refused a file operation.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// A verb: read, create, ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },

    /// A module that is neither in the folder nor built in, or that cannot be decompressed.
    #[error("kernel module {name}: {reason} (looked for {name}.ko and {name}.ko.xz in {})", folder.display())]
    Module {
        /// Its path without suffix.
        name: String,
        /// The folder of the kernel's modules.
        folder: PathBuf,
        /// The problem.
        reason: String,
    },
}

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

fn advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound { ": it is not installed, or not on PATH" } else { "" }
}

fn offer(offered: &[String], apt: &str) -> String {
    match (offered, apt) {
        ([], "") => "none found".to_string(),
        ([], apt) => format!("none found; `apt-get update` ended with\n{apt}"),
        (offered, "") => format!("only {}", offered.join(", ")),
        (offered, apt) => format!("only {}; `apt-get update` ended with\n{apt}", offered.join(", ")),
    }
}

fn advice_on_headers(cached: Option<&Path>) -> String {
    match cached {
        Some(kernel) => {
            let kernel = kernel.display();
            format!("remove {kernel} and run the same command again, which fetches a kernel and its headers")
        }
        None => format!("build the module with the headers of that kernel, or without {KERNEL_FOLDER_VARIABLE}"),
    }
}
