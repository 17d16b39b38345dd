//! The folder that programs and recorder share: it goes with its recorder, and with the next one where it was killed.

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "nearside-objects-";

/// A folder in use, until it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    folder: TempDir,
    /// The folder itself, locked: who can lock it knows that its recorder was killed.
    _lock: File,
}

impl Folder {
    /// A new one in this place, after what killed recorders of this user left there is removed.
    pub(super) fn create(place: &Path) -> io::Result<Self> {
        remove_abandoned(place);
        // Between its making and its locking another recorder may take it for abandoned; then there is a next one.
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
            match File::open(folder.path()) {
                Ok(lock) if locked(&lock) && folder.path().exists() => {
                    return Ok(Self { folder, _lock: lock });
                }
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                _ => {}
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn locked(folder: &File) -> bool {
    flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// What cannot be removed is tried again by the next recorder.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|folder| folder.is_dir() && folder.uid() == geteuid().as_raw());
        if ours && File::open(entry.path()).is_ok_and(|folder| locked(&folder)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_recorders_left_is_removed_and_nothing_else() {
        let place = TempDir::new().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("nearside-objects-killed")).unwrap();
        fs::write(at("nearside-objects-killed/7.0"), "").unwrap();
        fs::create_dir(at("another")).unwrap();
        fs::write(at("nearside-objects-file"), "").unwrap();
        let first = Folder::create(place.path()).unwrap();
        assert!(!at("nearside-objects-killed").exists());
        let second = Folder::create(place.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        drop((first, second));
        let mut left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["another", "nearside-objects-file"]);
    }
}
