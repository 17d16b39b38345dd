//! The folder of a campaign's results: one file a run, which is complete or not there.

use super::results::Unit;
use machine::bounded;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder of results. Nothing but the files in it is state.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// Holds off other runs of a campaign into this folder, until it is dropped or the process ends.
#[derive(Debug)]
pub struct StoreLock {
    _files: Vec<File>,
}

/// Why results cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process runs a campaign into this folder.
    #[error("another nearside explore is running into {}: end it first, or use another folder", .0.display())]
    Busy(PathBuf),
}

/// The lock's file.
const LOCK: &str = "lock";
/// The ending of files that are not complete yet. Only one process at a time writes the results of a run.
const NEW: &str = "new";
/// The folder of results, with a folder for each cell.
const CELLS: &str = "cells";

/// Makes a folder and those above it. What programs print is for their owner, whatever the umask is.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

impl Store {
    /// The folder as it is, to read: a missing one has no results.
    pub fn existing(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The folder, which is created if missing.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        make_folder(&folder.join(CELLS)).map_err(failed("make the folder", folder))?;
        Ok(Self::existing(folder))
    }

    /// Excludes other processes that run campaigns. Those that run parts of one, each a number and how many there are, only
    /// exclude each other if they run the same part, or parts of another division.
    pub fn lock(&self, part: Option<(usize, usize)>) -> Result<StoreLock, StoreError> {
        let Some((index, count)) = part else {
            return Ok(StoreLock { _files: vec![self.locked(LOCK, FlockOperation::NonBlockingLockExclusive)?] });
        };
        let all = self.locked(LOCK, FlockOperation::NonBlockingLockShared)?;
        let division = format!("{LOCK}.of-{count}");
        let same = self.locked(&division, FlockOperation::NonBlockingLockShared)?;
        // Two divisions that begin at the same time both fail.
        for entry in fs::read_dir(&self.folder).map_err(failed("read", &self.folder))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&format!("{LOCK}.of-")) && *name != *division {
                self.locked(&name, FlockOperation::NonBlockingLockExclusive)?;
            }
        }
        let own = self.locked(&format!("{LOCK}.{index}-{count}"), FlockOperation::NonBlockingLockExclusive)?;
        Ok(StoreLock { _files: vec![all, same, own] })
    }

    fn locked(&self, name: &str, how: FlockOperation) -> Result<File, StoreError> {
        let path = self.folder.join(name);
        let file = File::options().create(true).append(true).mode(0o600).open(&path).map_err(failed("open", &path))?;
        match flock(&file, how) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Busy(self.folder.clone())),
            Err(error) => Err(failed("lock", &path)(error.into())),
        }
    }

    /// The file of a run.
    pub fn file(&self, id: &str, round: u32) -> PathBuf {
        self.folder.join(CELLS).join(id).join(format!("{round}.json"))
    }

    /// The result of a run, if it is there.
    pub fn find(&self, id: &str, round: u32) -> Option<Unit> {
        read_unit(&self.file(id, round)).ok().filter(|unit| unit.id == id && unit.round == round)
    }

    /// Keeps the result of a run. It is written beside its place and renamed, so that a kill or a full disk leaves no part
    /// of a result. What a kill leaves beside it is replaced when the run is repeated.
    pub fn keep(&self, unit: &Unit) -> Result<(), StoreError> {
        let path = self.file(&unit.id, unit.round);
        let folder = path.parent().unwrap_or(&self.folder);
        make_folder(folder).map_err(failed("make the folder", folder))?;
        let write = || {
            let new = folder.join(format!("{}.{NEW}", unit.round));
            let text = serde_json::to_string_pretty(unit)? + "\n";
            let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            let kept = written.and_then(|()| fs::rename(&new, &path));
            // On a full disk, there is nothing to keep of it.
            kept.inspect_err(|_| _ = fs::remove_file(&new))
        };
        write().map_err(failed("write", &path))
    }

    /// Removes a failed run, so that it is run again.
    pub fn forget(&self, unit: &Unit) -> Result<(), StoreError> {
        let path = self.file(&unit.id, unit.round);
        fs::remove_file(&path).map_err(failed("remove", &path))
    }

    /// All results, and a note on each file that is none.
    pub fn read(&self) -> Result<(Vec<Unit>, Vec<String>), StoreError> {
        let (mut units, mut notes) = (Vec::new(), Vec::new());
        for folder in list(&self.folder.join(CELLS))? {
            for path in list(&folder)? {
                if path.extension().is_none_or(|extension| extension != "json") {
                    // What a killed process was about to rename.
                    continue;
                }
                match read_unit(&path) {
                    Ok(unit) if self.file(&unit.id, unit.round) == path => units.push(unit),
                    Ok(_) => notes.push(format!("{} is the result of another run, and is not used", path.display())),
                    Err(error) => notes.push(format!("{} is no result, and is not used: {error}", path.display())),
                }
            }
        }
        Ok((units, notes))
    }
}

fn read_unit(path: &Path) -> Result<Unit, String> {
    let text = bounded::text(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// The paths in a folder, sorted; none if there is no folder.
fn list(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed("list", folder)(error)),
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(failed("list", folder))?;
    paths.sort();
    Ok(paths)
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::File { what, path: path.to_owned(), source }
}
