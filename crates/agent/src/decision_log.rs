//! The decision log: lines of JSON in a file, as they happen.

use placement::LogLine;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file of [`LogLine`]s.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
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
        Ok(Self { path: path.to_owned(), file, bytes: 0 })
    }

    pub fn add(&mut self, line: &LogLine) -> Result<(), LogError> {
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.bytes += text.len() as u64;
            self.file.write_all(&text)
        });
        written.map_err(|source| LogError { path: self.path.clone(), source })
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps it as FILE.1, in place of the one before, and begins another one.
    pub fn into_next(self) -> Result<Self, LogError> {
        let path = self.path.clone();
        self.finish()?;
        let mut kept = path.clone().into_os_string();
        kept.push(".1");
        fs::rename(&path, kept).map_err(|source| LogError { path: path.clone(), source })?;
        Self::begin(&path)
    }

    pub fn finish(mut self) -> Result<(), LogError> {
        self.file.flush().map_err(|source| LogError { path: self.path.clone(), source })
    }
}
