//! Why a perf.data file cannot be read.

use std::io;
use std::path::PathBuf;

/// Why a perf.data file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PerfDataError {
    /// A system call failed.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be decoded.
    #[error("{} cannot be read: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: &'static str,
    },
}
