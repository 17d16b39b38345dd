//! The decision log: a file of JSON lines, written as decisions are made.

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

/// The decision log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the decision log {}", path.display())]
pub struct LogError {
    /// The file.
    path: PathBuf,
    /// What the system answered.
    source: io::Error,
}

impl DecisionLog {
    /// Creates the file; an existing one is renamed to FILE.1, replacing the previous one.
    pub fn begin_after(path: &Path) -> Result<Self, LogError> {
        if fs::metadata(path).is_ok_and(|there| there.len() > 0) {
            keep(path)?;
        }
        Self::begin(path)
    }

    /// Creates the file; an existing one is overwritten.
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

    /// Size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Renames the file to FILE.1, replacing the previous one, and creates a new one.
    pub fn into_next(self) -> Result<Self, LogError> {
        let path = self.path.clone();
        self.finish()?;
        keep(&path)?;
        Self::begin(&path)
    }

    pub fn finish(mut self) -> Result<(), LogError> {
        self.file.flush().map_err(|source| LogError { path: self.path.clone(), source })
    }
}

/// Renames to FILE.1, replacing the previous one.
fn keep(path: &Path) -> Result<(), LogError> {
    let mut kept = path.to_owned().into_os_string();
    kept.push(".1");
    fs::rename(path, kept).map_err(|source| LogError { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_kept_where_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, kept) = (folder.path().join("log"), folder.path().join("log.1"));
        drop(DecisionLog::begin_after(&path).unwrap());
        assert!(!kept.exists());
        fs::write(&path, "of before\n").unwrap();
        drop(DecisionLog::begin_after(&path).unwrap());
        assert_eq!((fs::read_to_string(&kept).unwrap().as_str(), fs::read(&path).unwrap().len()), ("of before\n", 0));
        fs::write(&path, "of now\n").unwrap();
        drop(DecisionLog::begin(&path).unwrap());
        assert_eq!((fs::read_to_string(&kept).unwrap().as_str(), fs::read(&path).unwrap().len()), ("of before\n", 0));
    }
}
