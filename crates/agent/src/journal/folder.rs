//! The folder of journals, writable only by its owner, and the locks on its files.

use crate::journal::JournalError;
use crate::journal::record::Header;
use linux::{Pid, PrivateFolder, Process};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Upper bound of a header's length.
const MOST_HEADER_BYTES: u64 = 4096;
/// How long another process may look at a journal whose own process has ended, or has not begun it.
const MOST_LOOK: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(5);

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

/// Creates the folder if needed. It must belong to the caller and not be writable by others, nor exchangeable by them:
/// what a journal says is done with the caller's privileges.
pub(super) fn prepare(folder: &Path) -> Result<PrivateFolder, JournalError> {
    // Root's also holds the socket, which members of a group may use.
    let mode = if geteuid().is_root() { 0o755 } else { 0o700 };
    Ok(PrivateFolder::create(folder, mode)?)
}

/// The names of the journals of a folder.
pub(super) fn journals(folder: &PrivateFolder) -> Result<Vec<String>, JournalError> {
    let mut names = folder.names().map_err(JournalError::system("list", folder.path()))?;
    names.retain(|name| Path::new(name).extension().is_some_and(|end| end == "journal" || end == "journal-new"));
    Ok(names)
}

/// Opens or creates a journal and locks it.
pub(super) fn take(folder: &PrivateFolder, name: &str) -> Result<File, JournalError> {
    let began = Instant::now();
    loop {
        let file = folder.file(name, 0o600)?;
        let path = folder.path().join(name);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let process = writer(&file);
                // Another process that begins looks for what killed ones have left, and holds each journal for a moment.
                if process.is_none_or(|pid| Process::open(pid).is_err()) && began.elapsed() < MOST_LOOK {
                    sleep(AGAIN);
                    continue;
                }
                return Err(JournalError::InUse { path, process });
            }
            Err(error) => return Err(JournalError::system("lock", &path)(error.into())),
        }
        // The previous holder of the lock may have removed or replaced the file.
        if folder.has(name, &file) {
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
