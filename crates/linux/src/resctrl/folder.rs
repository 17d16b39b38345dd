//! The files of resctrl.

use machine::bounded;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest file, in bytes: `schemata` of some hundred domains, and `tasks` of a group with some ten thousand threads.
const MOST_BYTES: u64 = 1 << 20;
/// Longest wait for another process's lock: any user can take it, and may keep it.
const LOCKED: Duration = Duration::from_secs(1);
/// The folder of a group's monitoring groups.
pub(super) const MONITORING: &str = "mon_groups";
/// Directories that are not groups.
pub(super) const NO_GROUPS: [&str; 3] = ["info", "mon_data", MONITORING];

/// Access to the files of resctrl, by their paths in it. The topmost group has no name.
pub trait ResctrlFiles: Debug + Send + Sync {
    /// The text of a file.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Writes to a file, which must exist.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
    /// Makes a group.
    fn make_group(&self, name: &str) -> io::Result<()>;
    /// Removes a group. What was in it is in the topmost group then.
    fn remove_group(&self, name: &str) -> io::Result<()>;
    /// The names of all groups but the topmost.
    fn groups(&self) -> io::Result<Vec<String>>;
    /// The names of the monitoring groups of a group.
    fn monitoring_groups(&self, group: &str) -> io::Result<Vec<String>>;
    /// Keeps other processes that do the same from changing groups until it is dropped.
    fn lock(&self) -> io::Result<Option<File>>;
}

/// The folder where it is mounted.
#[derive(Clone, Debug)]
pub(super) struct Folder(pub PathBuf);

impl ResctrlFiles for Folder {
    fn read(&self, path: &str) -> io::Result<String> {
        let path = self.0.join(path);
        if !fs::metadata(&path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
        }
        let bytes = bounded::bytes(&path, MOST_BYTES)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).truncate(true).open(self.0.join(path))?.write_all(text.as_bytes())
    }

    fn make_group(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }

    fn remove_group(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))
    }

    fn groups(&self) -> io::Result<Vec<String>> {
        let mut groups = folders(&self.0)?;
        groups.retain(|name| !NO_GROUPS.contains(&name.as_str()));
        Ok(groups)
    }

    fn monitoring_groups(&self, group: &str) -> io::Result<Vec<String>> {
        folders(&self.0.join(group).join(MONITORING))
    }

    fn lock(&self) -> io::Result<Option<File>> {
        let (folder, began) = (File::open(&self.0)?, Instant::now());
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(folder)),
                Err(Errno::WOULDBLOCK) if began.elapsed() < LOCKED => thread::sleep(LOCKED / 100),
                Err(Errno::WOULDBLOCK) => {
                    let why = format!("another process has locked {} for {LOCKED:?}", self.0.display());
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The names of the folders in a folder.
fn folders(folder: &Path) -> io::Result<Vec<String>> {
    let folders = fs::read_dir(folder)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_users_lock_holds_nothing_up() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder(root.path().to_owned());
        let others = File::open(root.path()).unwrap();
        flock(&others, FlockOperation::LockShared).unwrap();
        let error = folder.lock().unwrap_err();
        assert!(error.to_string().ends_with(" for 1s"), "{error}");
        drop(others);
        assert!(folder.lock().unwrap().is_some());
    }
}
