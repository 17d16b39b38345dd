//! The folder of a campaign's results: one file a run, which is complete or not there.

use super::parts::Part;
use super::results::Unit;
use machine::bounded;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
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

/// Opens a folder in another one, which is made if missing; another user may have put a link in its place, which is not
/// followed. What programs print is for their owner, whatever the umask is.
fn folder_in(folder: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(&folder, name, Mode::RWXU) {
        Err(Errno::EXIST) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

impl Store {
    /// The folder as it is, to read: a missing one has no results.
    pub fn existing(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The folder, which is created if missing.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("make the folder", folder))?;
        Ok(Self::existing(folder))
    }

    /// Excludes other processes that run campaigns. Those that run parts of one only exclude each other if they run the same
    /// part, or parts of another division.
    pub fn lock(&self, part: Option<&Part>) -> Result<StoreLock, StoreError> {
        let Some(Part { index, count, of }) = part else {
            return Ok(StoreLock { _files: vec![self.locked(LOCK, FlockOperation::NonBlockingLockExclusive)?] });
        };
        let all = self.locked(LOCK, FlockOperation::NonBlockingLockShared)?;
        let division = format!("{LOCK}.of-{count}-{of}");
        let same = self.locked(&division, FlockOperation::NonBlockingLockShared)?;
        // Two divisions that begin at the same time both fail.
        for entry in fs::read_dir(&self.folder).map_err(failed("read", &self.folder))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&format!("{LOCK}.of-")) && *name != *division {
                self.locked(&name, FlockOperation::NonBlockingLockExclusive)?;
            }
        }
        let own = self.locked(&format!("{LOCK}.{index}-{count}-{of}"), FlockOperation::NonBlockingLockExclusive)?;
        Ok(StoreLock { _files: vec![all, same, own] })
    }

    fn locked(&self, name: &str, how: FlockOperation) -> Result<File, StoreError> {
        let path = self.folder.join(name);
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let opened = File::options().create(true).append(true).mode(0o600).custom_flags(no_link).open(&path);
        let file = opened.map_err(failed("open", &path))?;
        match flock(&file, how) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) => Err(StoreError::Busy(self.folder.clone())),
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
        let write = || {
            let folder = folder_in(folder_in(File::open(&self.folder)?, CELLS)?, &unit.id)?;
            let (new, name) = (format!("{}.{NEW}", unit.round), format!("{}.json", unit.round));
            let text = serde_json::to_string_pretty(unit)? + "\n";
            // What a kill has left, or another user has put there.
            let _ = unlinkat(&folder, &new, AtFlags::empty());
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let mut file = File::from(openat(&folder, &new, flags, Mode::RUSR | Mode::WUSR)?);
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            let kept = written.and_then(|()| Ok(renameat(&folder, &new, &folder, &name)?));
            // On a full disk, there is nothing to keep of it.
            kept.inspect_err(|_| _ = unlinkat(&folder, &new, AtFlags::empty()))
        };
        write().map_err(failed("write", &path))
    }

    /// Removes a failed run, so that it is run again.
    pub fn forget(&self, unit: &Unit) -> Result<(), StoreError> {
        let remove = || {
            let folder = folder_in(folder_in(File::open(&self.folder)?, CELLS)?, &unit.id)?;
            Ok(unlinkat(&folder, format!("{}.json", unit.round), AtFlags::empty())?)
        };
        remove().map_err(failed("remove", &self.file(&unit.id, unit.round)))
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
    let read = || {
        // Nothing waits for the writer of a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        bounded::bytes_of(file, bounded::MOST_BYTES)
    };
    let text = read().map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
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
