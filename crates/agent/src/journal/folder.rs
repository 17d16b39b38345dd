//! The folder of journals, writable only by its owner, and the locks on its files.

use crate::journal::JournalError;
use crate::journal::record::Header;
use linux::Pid;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat};
use rustix::process::geteuid;
use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Upper bound of a header's length.
const MOST_HEADER_BYTES: u64 = 4096;

/// Where agents keep journals and sockets: /run/nearside for root, a folder per user otherwise.
pub fn default_folder() -> PathBuf {
    let user = geteuid();
    if user.is_root() {
        return "/run/nearside".into();
    }
    let user = user.as_raw();
    // Without the variable too, as under `su`: any user can take a name in the folder for temporary files first.
    let of_login = PathBuf::from(format!("/run/user/{user}"));
    let named = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    match named.or_else(|| Some(of_login).filter(|folder| owner(folder) == Some(user))) {
        Some(folder) => folder.join("nearside"),
        None => env::temp_dir().join(format!("nearside-{user}")),
    }
}

/// The owner of a file or folder that is there.
fn owner(path: &Path) -> Option<u32> {
    fs::symlink_metadata(path).ok().map(|found| found.uid())
}

/// Refuses a folder that another user has, with the cure.
fn refuse_taken(folder: &Path, user: u32) -> Result<(), JournalError> {
    match owner(folder) {
        Some(other) if other != user => {
            let why = format!(
                "it belongs to user {other}: set XDG_RUNTIME_DIR, or `folder` of the configuration, to a folder that only you \
                 may write to"
            );
            Err(JournalError::Unsafe { path: folder.to_owned(), why })
        }
        _ => Ok(()),
    }
}

/// Creates the folder if needed. It must belong to the caller and not be writable by others: what a journal says is
/// done with the caller's privileges.
pub(super) fn prepare(folder: &Path) -> Result<(), JournalError> {
    // Root's also holds the socket, which members of a group may use.
    let mode = if geteuid().is_root() { 0o755 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(JournalError::system("make the folder", folder)(error));
        }
        _ => {}
    }
    refuse_taken(folder, geteuid().as_raw())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty()).and_then(fstat);
    let found = opened.map_err(|error| JournalError::system("use the folder", folder)(error.into()))?;
    let unsafe_as = |why: String| Err(JournalError::Unsafe { path: folder.to_owned(), why });
    if found.st_uid != geteuid().as_raw() {
        return unsafe_as(format!("it belongs to user {}", found.st_uid));
    }
    if found.st_mode & 0o022 != 0 {
        return unsafe_as(format!("others may write to it: chmod go-w {}", folder.display()));
    }
    Ok(())
}

/// The journals of a folder.
pub(super) fn journals(folder: &Path) -> Vec<PathBuf> {
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal" || end == "journal-new");
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_journal).collect();
    found.sort();
    found
}

/// Opens or creates a journal and locks it.
pub(super) fn take(path: &Path) -> Result<File, JournalError> {
    loop {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(opened.map_err(|error| JournalError::system("open", path)(error.into()))?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(JournalError::InUse { path: path.to_owned(), process: writer(&file) });
            }
            Err(error) => return Err(JournalError::system("lock", path)(error.into())),
        }
        // The previous holder of the lock may have removed or replaced the file.
        let is_this = |there: fs::Metadata| file.metadata().is_ok_and(|held| held.ino() == there.ino());
        if fs::symlink_metadata(path).is_ok_and(is_this) {
            return Ok(file);
        }
    }
}

/// The PID of the agent that writes a journal.
fn writer(file: &File) -> Option<Pid> {
    let mut line = String::new();
    BufReader::new(file.take(MOST_HEADER_BYTES)).read_line(&mut line).ok()?;
    serde_json::from_str::<Header>(&line).ok().map(|header| header.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_name_that_another_user_took_is_refused_with_the_cure() {
        let place = tempfile::tempdir().unwrap();
        let user = geteuid().as_raw();
        let taken = place.path().join("nearside-1000");
        // The name may also be of a file, or of a link to a folder of this user.
        symlink(place.path(), &taken).unwrap();
        assert!(refuse_taken(&taken, user).is_ok() && refuse_taken(Path::new("/nowhere"), user).is_ok());
        let refused = refuse_taken(&taken, user + 1).unwrap_err().to_string();
        let wanted = format!("it belongs to user {user}: set XDG_RUNTIME_DIR");
        assert!(refused.contains(&wanted) && refused.contains("nearside-1000"), "{refused}");
    }
}
