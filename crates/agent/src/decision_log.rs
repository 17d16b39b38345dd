//! The decision log: lines of JSON in a file, as they happen.

use placement::LogLine;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file of [`LogLine`]s.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    path: PathBuf,
    file: BufWriter<File>,
}

/// Why there is no log any more.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the decision log {}: {source}", path.display())]
pub struct LogError {
    /// The file.
    path: PathBuf,
    /// What the system answered.
    source: io::Error,
}

impl DecisionLog {
    pub fn begin(path: &Path) -> Result<Self, LogError> {
        let failed = |source| LogError { path: path.to_owned(), source };
        let file = BufWriter::new(File::create(path).map_err(failed)?);
        Ok(Self { path: path.to_owned(), file })
    }

    pub fn add(&mut self, line: &LogLine) -> Result<(), LogError> {
        let written = serde_json::to_writer(&mut self.file, line).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|source| LogError { path: self.path.clone(), source })
    }

    pub fn finish(mut self) -> Result<(), LogError> {
        self.file.flush().map_err(|source| LogError { path: self.path.clone(), source })
    }
}
