//! Small kernel files that may be missing or malformed.

use crate::processes::process::MalformedLine;
use machine::bounded;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a kernel file gives no information.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// It is not in the kernel's format.
    #[error("{} is {line}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line.
        line: MalformedLine,
    },
}

impl FileError {
    /// The error for a missing file that should exist.
    pub(crate) fn missing(path: &Path) -> Self {
        Self::Read { path: path.to_owned(), source: ErrorKind::NotFound.into() }
    }
}

/// The parsed contents of a file. `None` if it does not exist, its controller is off, or its node has just gone offline
/// (ENODEV).
pub(crate) fn parsed<T, E>(path: &Path, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, FileError> {
    let text = match bounded::text(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(source) => return Err(FileError::Read { path: path.to_owned(), source }),
    };
    let line = || MalformedLine(text.lines().next().unwrap_or_default().to_owned());
    let malformed = |_| FileError::Malformed { path: path.to_owned(), line: line() };
    parse(text.trim_end()).map(Some).map_err(malformed)
}
