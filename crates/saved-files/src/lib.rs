//! Folders that stand for /proc, /sys or a whole system, for tests of code that reads those.

use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder of saved files, which is removed on drop.
#[derive(Debug)]
pub struct SavedFiles(TempDir);

impl Default for SavedFiles {
    fn default() -> Self {
        Self::new()
    }
}

impl SavedFiles {
    /// Creates an empty folder.
    ///
    /// # Panics
    /// If no temporary folder can be created.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Saves a file, replacing an earlier one.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn put(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.unwrap_or_else(|why| panic!("cannot write {}: {why}", path.display()));
    }
}
