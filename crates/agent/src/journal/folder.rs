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
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_absolute()) {
        Some(folder) => Path::new(&folder).join("nearside"),
        None => env::temp_dir().join(format!("nearside-{}", user.as_raw())),
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
