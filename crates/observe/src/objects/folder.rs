//! The folder shared by programs and the recorder. It is removed with its recorder or, if that was killed, by the
//! next one.

use rustix::fs::{FlockOperation, Mode, chmod, flock};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const PREFIX: &str = "nearside-objects-";
/// How long another user's file may be incomplete, with the second that the kernel's time of its last change is cut to.
pub(super) const MOST_INCOMPLETE: Duration = Duration::from_secs(2);
/// How many new files one look at the folder takes. A user that makes files as fast as they are read would hold it up
/// for ever.
pub(super) const MOST_NEW: usize = 16_384;

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

    /// The names in it that are not known, at most [`MOST_NEW`]; with as many, it is closed.
    pub(super) fn new_files(&self, is_known: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut new = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if !is_known(&name) {
                new.push(name);
            }
            if new.len() == MOST_NEW {
                self.close()?;
                break;
            }
        }
        Ok(new)
    }

    /// Lets no other user make files here from now on.
    pub(super) fn close(&self) -> io::Result<()> {
        Ok(chmod(self.folder.path(), Mode::RWXU)?)
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

/// Whether another user has made this and not completed it within a second. Each such file costs every look an attempt to
/// open it, and the folder has no bound.
pub(super) fn is_left_incomplete(path: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    // The owner cannot set the time of the last change of a file's attributes.
    let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(found.ctime()).unwrap_or(0));
    let age = SystemTime::now().duration_since(changed).unwrap_or_default();
    found.uid() != 0 && found.uid() != geteuid().as_raw() && age >= MOST_INCOMPLETE
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
