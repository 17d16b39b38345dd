//! The cache folder of fetched files: entries are complete or absent, and one process writes at a time.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::io::Errno;

use super::SetupError;
use super::hashes::{self, Check};
use super::requirements::NEEDED_MIB;

/// The folder that the user's configuration names, if it does.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Keeps fetched files in this folder, for the life of the process.
pub fn keep_in(folder: PathBuf) {
    // The configuration is read once.
    let _ = FOLDER.set(folder);
}

pub struct Cache {
    folder: PathBuf,
    check: Check,
}

/// Work in progress; dropping it removes the folder.
pub struct Scratch(PathBuf);

impl Cache {
    /// The folder of [`keep_in`]; or else `$XDG_CACHE_HOME/nearside`, or `~/.cache/nearside`. A relative path counts as unset, as the XDG specification
    /// requires.
    pub fn of_this_user(check: Check) -> Result<Cache, SetupError> {
        if let Some(folder) = FOLDER.get() {
            return Ok(Cache { folder: folder.clone(), check });
        }
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        Ok(Cache { folder: base.ok_or(SetupError::NoCacheFolder)?.join("nearside"), check })
    }

    #[cfg(test)]
    pub fn in_folder(folder: &Path) -> Cache {
        Cache { folder: folder.to_owned(), check: Check::Quick }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Refuses an entry with a damaged file.
    pub fn undamaged(&self, entry: &Path) -> Result<(), String> {
        hashes::damage(entry, self.check).map_or(Ok(()), Err)
    }

    /// Waits for the lock. It is released when the returned file is closed, so also when the process ends.
    pub fn lock(&self, progress: &dyn Fn(&str)) -> Result<File, SetupError> {
        create_folder(&self.folder)?;
        let path = self.path("lock");
        let file = File::options().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(SetupError::io("create", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                progress("waiting for another setup to end");
                retry_on_interrupt(|| flock(&file, FlockOperation::LockExclusive))
            }
            done => done,
        }
        .map_err(|errno| SetupError::io("lock", &path)(errno.into()))?;
        Ok(file)
    }

    /// An empty folder on the same file system. Requires the lock: leftovers of an interrupted setup are removed.
    pub fn scratch(&self) -> Result<Scratch, SetupError> {
        if !is_plain(&self.folder) {
            return Err(SetupError::CacheFolder { path: self.folder.clone() });
        }
        let scratch = Scratch(self.path("unpacking"));
        remove(scratch.path())?;
        create_folder(scratch.path())?;
        // Checked first, because apt hangs if the disk fills up during a download.
        let disk = statvfs(scratch.path())
            .map_err(|errno| SetupError::io("ask for the free space of", scratch.path())(errno.into()))?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) >> 20 < NEEDED_MIB {
            return Err(SetupError::DiskFull { folder: self.folder.clone() });
        }
        Ok(scratch)
    }

    /// Replaces `name`, which the holder of the lock found unusable, by `whole`.
    pub fn replace(&self, name: &str, whole: &Path) -> Result<(), SetupError> {
        let place = self.path(name);
        place.parent().map_or(Ok(()), create_folder)?;
        remove(&place)?;
        fs::rename(whole, &place).map_err(SetupError::io("create", &place))
    }
}

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed now is retried, and then reported, by the next setup.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether apt's configuration and the dynamic loader can handle the path.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains(['"', ':', ';', '\n']))
}

pub fn create_folder(path: &Path) -> Result<(), SetupError> {
    // What is executed must not be other users' to change, whatever the umask is; apt's own user reads.
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(SetupError::io("create", path))
}

/// Removes a folder, if it exists.
pub fn remove(path: &Path) -> Result<(), SetupError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SetupError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn retry_on_interrupt(call: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let cache = Cache::in_folder(&folder.path().join("nearside"));
        (folder, cache)
    }

    #[test]
    fn knows_paths_that_apt_cannot_take() {
        for path in ["/a b/c%20", "/é,'x"] {
            assert!(is_plain(Path::new(path)), "{path}");
        }
        for path in [&b"/a\"b"[..], b"/a:b", b"/a;b", b"/a\nb", b"/a\xff"] {
            assert!(!is_plain(Path::new(OsStr::from_bytes(path))), "{path:?}");
        }
    }

    #[test]
    fn what_an_interrupted_setup_left_is_removed() {
        let (_folder, cache) = cache();
        create_folder(&cache.path("unpacking/lists")).expect("a left-over");
        let scratch = cache.scratch().expect("a scratch folder");
        assert_eq!(fs::read_dir(scratch.path()).expect("a folder").count(), 0);
        drop(scratch);
        assert!(!cache.path("unpacking").exists());
    }

    #[test]
    fn the_new_takes_the_place_of_the_old_as_a_whole() {
        let (_folder, cache) = cache();
        create_folder(&cache.path("qemu/old")).expect("the old");
        create_folder(&cache.path("unpacking/qemu/new")).expect("the new");
        cache.replace("qemu", &cache.path("unpacking/qemu")).expect("a rename");
        assert!(cache.path("qemu/new").exists() && !cache.path("qemu/old").exists());
        create_folder(&cache.path("unpacking/kernels/7.3")).expect("another");
        cache.replace("kernels/7.3", &cache.path("unpacking/kernels/7.3")).expect("a rename");
        assert!(cache.path("kernels/7.3").exists());
    }

    #[test]
    fn a_second_setup_waits_for_the_first() {
        let (_folder, cache) = cache();
        let first = cache.lock(&|_| panic!("the lock is free")).expect("a lock");
        std::thread::scope(|scope| {
            let (waits, waiting) = std::sync::mpsc::channel();
            let cache = &cache;
            let second =
                scope.spawn(move || cache.lock(&|line| waits.send(line.to_string()).expect("a listener")).map(drop));
            assert!(waiting.recv().expect("a line").contains("another setup"));
            drop(first);
            second.join().expect("a thread").expect("a lock");
        });
    }
}
