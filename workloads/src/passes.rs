//! Times of single passes, written while a program runs.

use crate::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A file with a line for each pass: its time in seconds. Without a file, nothing is written.
pub struct Passes(Option<Mutex<Written>>);

struct Written {
    path: PathBuf,
    file: File,
    /// When the pass that is under way began.
    began: Option<Instant>,
    failed: Option<io::Error>,
}

impl Passes {
    pub fn create(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = File::create(path).map_err(|error| Error::Passes { path: path.to_owned(), error })?;
        Ok(Self(Some(Mutex::new(Written { path: path.to_owned(), file, began: None, failed: None }))))
    }

    /// A pass begins, and the one before has ended. One thread calls this, at a barrier.
    pub fn next(&self) {
        let Some(written) = &self.0 else { return };
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(began) = written.began.replace(now) {
            // One write a line, so that readers never see a part of one.
            let line = format!("{:.9}\n", (now - began).as_secs_f64());
            let done = written.file.write_all(line.as_bytes());
            written.failed = written.failed.take().or(done.err());
            written.began = Some(Instant::now());
        }
    }

    /// The last pass has ended, before the program does.
    pub fn stop(&self) {
        self.next();
        if let Some(written) = &self.0 {
            written.lock().unwrap_or_else(PoisonError::into_inner).began = None;
        }
    }

    /// The last pass has ended, unless they have stopped before. Fails if a line could not be written.
    pub fn end(self) -> Result<(), Error> {
        self.next();
        let written = self.0.map(|written| written.into_inner().unwrap_or_else(PoisonError::into_inner));
        match written {
            Some(Written { path, failed: Some(error), .. }) => Err(Error::Passes { path, error }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_has_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passes");
        let passes = Passes::create(Some(&path)).unwrap();
        for _ in 0..3 {
            passes.next();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        passes.stop();
        passes.end().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let times: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(times.len() == 3 && times.iter().all(|time| *time >= 0.002), "{text}");
        Passes::create(None).unwrap().end().unwrap();
        assert!(Passes::create(Some(&path.join("x"))).is_err());
        let full = Passes::create(Some(Path::new("/dev/full"))).unwrap();
        full.next();
        assert!(full.end().unwrap_err().to_string().contains("/dev/full"));
    }
}
