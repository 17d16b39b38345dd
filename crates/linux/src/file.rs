//! Small files of the kernel that are there or not, and that are as it writes them or not.

use crate::process::MalformedLine;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a file of the kernel tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// It is not as the kernel writes it.
    #[error("{} is {source}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line.
        source: MalformedLine,
    },
}

impl FileError {
    /// A file that should be there and is not.
    pub(crate) fn missing(path: &Path) -> Self {
        Self::Read { path: path.to_owned(), source: ErrorKind::NotFound.into() }
    }
}

/// What a file says; nothing where there is none, it is a controller's that is off, or its node went offline just now
/// (ENODEV).
pub(crate) fn parsed<T, E>(path: &Path, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<Option<T>, FileError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        Err(source) => return Err(FileError::Read { path: path.to_owned(), source }),
    };
    let line = || MalformedLine(text.lines().next().unwrap_or_default().to_owned());
    let malformed = |_| FileError::Malformed { path: path.to_owned(), source: line() };
    parse(text.trim_end()).map(Some).map_err(malformed)
}
