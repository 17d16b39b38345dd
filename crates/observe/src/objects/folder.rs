//! The folder shared by programs and the recorder. It is removed with its recorder or, if that was killed, by the
//! next one.

use rustix::fs::{FlockOperation, Mode, chmod, flock};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "nearside-objects-";

/// A folder in use. It is removed on drop.
#[derive(Debug)]
pub(super) struct Folder {
    folder: TempDir,
    /// The locked folder. If another recorder can lock it, its own recorder was killed.
    _lock: File,
}

impl Folder {
    /// Creates a folder in `place`, after removing those left there by killed recorders of this user.
    pub(super) fn create(place: &Path) -> io::Result<Self> {
        remove_abandoned(place);
        // Between creation and locking, another recorder may take the folder for abandoned and remove it: try again.
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
            // The umask may have removed what opening it takes.
            chmod(folder.path(), Mode::RWXU)?;
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

/// Folders that cannot be removed are left to the next recorder.
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
