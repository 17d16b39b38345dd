//! Saved boots: the state of a virtual machine that has booted and waits for its task. It depends on the machine and its
//! devices, QEMU, the plugin, the kernel and nearside, but not on the task: the next run of the same machine continues from
//! it.

use crate::monitor::Monitor;
use crate::passed_files::memory;
use crate::setup;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstatvfs, linkat, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit};
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;
use zstd::{Decoder, Encoder};

/// Their folder in the cache folder.
const FOLDER: &str = "boots";
/// Most bytes of all saved boots together. Those that were used least recently are removed first.
const MOST_BYTES: u64 = 2 << 30;
/// zstd's level: the fastest of its usual ones.
const LEVEL: i32 = 1;
/// So much of the end of a state is withheld from QEMU until all of it has been checked. The machine begins once QEMU has
/// read the mark at the end.
const WITHHELD: usize = 64 << 10;
const AT_ONCE: usize = 1 << 20;
/// Least free space of the disk, bytes: a saved boot takes 35 to 55 MB.
const LEAST_FREE: u64 = 256 << 20;

/// What a saved boot depends on.
#[derive(Debug)]
pub(crate) struct Key(Sha256);

impl Key {
    pub(crate) fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        // With its length, so that no two lists of values look alike.
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds the identity of a file, which changes with its contents.
    pub(crate) fn add_file(&mut self, file: &Path) -> io::Result<()> {
        let metadata = fs::metadata(file)?;
        let numbers = [
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime().cast_unsigned(),
            metadata.mtime_nsec().cast_unsigned(),
        ];
        for number in numbers {
            self.add(&number.to_le_bytes());
        }
        Ok(())
    }

    fn name(self) -> String {
        setup::hexadecimal(&self.0.finalize())
    }
}

/// Where the state of a machine that boots will be saved.
pub(crate) struct Saving {
    monitor: Monitor,
    /// What QEMU writes.
    state: File,
    /// What is kept of it, without a name so far: an interrupted process leaves nothing.
    file: File,
    slot: Slot,
}

impl Saving {
    /// By this end of the socket to QEMU's monitor. `None` where a saved boot cannot be kept.
    pub(crate) fn new(monitor: UnixStream, slot: Slot) -> Option<Self> {
        let file = slot.new_file().ok()?;
        let state = memory("nearside-boot", 0, &[]).ok()?;
        Some(Self { monitor: Monitor::new(monitor).ok()?, state: state.into(), file, slot })
    }

    /// Saves the state of the machine. Returns the thread that compresses it; without that, the next run boots, too. After an
    /// error the machine may stand still.
    pub(crate) fn save(mut self, go_on: &dyn Fn() -> bool) -> io::Result<Option<JoinHandle<()>>> {
        let clock_ns = self.monitor.save(&self.state, go_on)?;
        let compress = move || {
            if let Some(clock_ns) = clock_ns {
                let _ = self.slot.save(&self.file, &mut self.state, clock_ns);
            }
            // QEMU keeps it open, too.
            let _ = self.state.set_len(0);
        };
        Ok(thread::Builder::new().name("saved boot".into()).spawn(compress).ok())
    }
}

/// The place of one saved boot.
#[derive(Debug)]
pub(crate) struct Slot {
    folder: PathBuf,
    name: String,
}

/// A saved boot.
pub(crate) struct SavedBoot {
    state: Decoder<'static, BufReader<File>>,
    /// The guest's clock, ns.
    pub(crate) clock_ns: u64,
    /// Device and inode of its file.
    pub(crate) identity: (u64, u64),
}

impl Slot {
    /// That of a key; `None` if this user has no cache folder.
    pub(crate) fn new(key: Key) -> Option<Self> {
        Some(Self { folder: setup::cache_folder()?.join(FOLDER), name: key.name() })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// What was saved there. Files that cannot be used count as absent.
    pub(crate) fn find(&self) -> Option<SavedBoot> {
        let file = File::open(self.path()).ok()?;
        let metadata = file.metadata().ok()?;
        // For `keep_within`.
        let _ = file.set_modified(SystemTime::now());
        let identity = (metadata.dev(), metadata.ino());
        let opened = Decoder::new(file).and_then(|mut state| {
            let mut clock = [0; 8];
            state.read_exact(&mut clock)?;
            Ok(SavedBoot { state, clock_ns: u64::from_le_bytes(clock), identity })
        });
        opened.map_err(|_| self.remove(identity)).ok()
    }

    /// Removes what cannot be continued, unless something else is there by now.
    pub(crate) fn remove(&self, identity: (u64, u64)) {
        let path = self.path();
        if fs::metadata(&path).is_ok_and(|found| (found.dev(), found.ino()) == identity) {
            let _ = fs::remove_file(path);
        }
    }

    /// A file for [`Slot::save`].
    fn new_file(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&self.folder, flags, Mode::RUSR | Mode::WUSR)?;
        let disk = fstatvfs(&file)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_FREE {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // Of files, also those in memory: the kernel ends a program that exceeds it.
        if getrlimit(Resource::Fsize).current.is_some() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(file.into())
    }

    /// Saves a state, and at the end gives it its name.
    fn save(&self, file: &File, state: &mut File, clock_ns: u64) -> io::Result<()> {
        let mut encoder = Encoder::new(file, LEVEL)?;
        encoder.include_checksum(true)?;
        encoder.write_all(&clock_ns.to_le_bytes())?;
        io::copy(state, &mut encoder)?;
        encoder.finish()?;
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, unnamed, CWD, self.path(), AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => keep_within(&self.folder, MOST_BYTES),
            // Another run has saved the same.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl SavedBoot {
    /// The reading end of a pipe, for QEMU to inherit, through which the state comes. Its end comes only if the state is
    /// undamaged.
    pub(crate) fn pipe(mut self) -> io::Result<OwnedFd> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::fcntl_setfd(&reading, rustix::io::FdFlags::empty())?;
        thread::Builder::new().name("saved boot".into()).spawn(move || {
            let mut checked = Withholding { to: File::from(writing), withheld: Vec::new() };
            // QEMU reports a state that ends too early, and ends; if it has ended, there is no reader.
            let decoded = io::copy(&mut self.state, &mut checked);
            let _ = decoded.and_then(|_| checked.to.write_all(&checked.withheld));
        })?;
        Ok(reading)
    }
}

/// Passes on all but the last [`WITHHELD`] bytes, [`AT_ONCE`] at a time.
struct Withholding {
    to: File,
    withheld: Vec<u8>,
}

impl Write for Withholding {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.withheld.extend(bytes);
        if self.withheld.len() >= WITHHELD + AT_ONCE {
            let passed = self.withheld.len() - WITHHELD;
            self.to.write_all(&self.withheld[..passed])?;
            self.withheld.drain(..passed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes the files of a folder that were used least recently, until the others have at most this many bytes.
fn keep_within(folder: &Path, most_bytes: u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut left: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in files {
        if left <= most_bytes {
            break;
        }
        let _ = fs::remove_file(path);
        left -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom};
    use std::time::Duration;

    /// A state that hardly compresses.
    fn state() -> Vec<u8> {
        (0..200_000_u64).flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).to_le_bytes()).collect()
    }

    fn slot(folder: &Path) -> Slot {
        Slot { folder: folder.join("boots"), name: "a".to_owned() }
    }

    fn save(slot: &Slot) {
        let mut file = tempfile::tempfile().expect("a scratch file");
        file.write_all(&state()).and_then(|()| file.seek(SeekFrom::Start(0))).expect("a state");
        let unnamed = slot.new_file().expect("a file");
        slot.save(&unnamed, &mut file, 77).expect("a saved boot");
    }

    fn read(saved: SavedBoot) -> Vec<u8> {
        let mut all = Vec::new();
        File::from(saved.pipe().expect("a pipe")).read_to_end(&mut all).expect("its contents");
        all
    }

    #[test]
    fn what_is_saved_is_continued() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let slot = slot(folder.path());
        assert!(slot.find().is_none());
        save(&slot);
        // A second run that booted at the same time.
        save(&slot);
        let saved = slot.find().expect("a saved boot");
        let identity = saved.identity;
        assert_eq!(saved.clock_ns, 77);
        assert!(read(saved) == state());
        assert_eq!(fs::read_dir(&slot.folder).expect("a folder").count(), 1);
        slot.remove((identity.0, identity.1 + 1));
        assert!(slot.find().is_some(), "that of another run");
        slot.remove(identity);
        assert!(slot.find().is_none());
    }

    #[test]
    fn the_end_of_a_damaged_state_never_comes() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let slot = slot(folder.path());
        save(&slot);
        let path = slot.path();
        let whole = fs::read(&path).expect("a saved boot");
        let is_whole = || slot.find().is_some_and(|saved| saved.clock_ns == 77 && read(saved) == state());
        // The last four are the checksum's: all of the state can be read. A few in front mean nothing.
        for at in (0..30).chain([whole.len() / 2]).chain(whole.len() - 8..whole.len()) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            for damaged in [&damaged, &whole[..at]] {
                fs::write(&path, damaged).expect("damage");
                let is_cut_off = slot.find().is_none_or(|saved| read(saved).len() < state().len());
                assert!(is_cut_off || at < 30 && is_whole(), "byte {at} of {}", damaged.len());
            }
        }
        fs::write(&path, [0; 7]).expect("damage");
        assert!(slot.find().is_none() && !path.exists(), "what is no saved boot makes room for one");
        save(&slot);
        assert!(is_whole());
    }

    #[test]
    fn nothing_is_saved_where_there_can_be_no_folder() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let slot = slot(folder.path());
        fs::write(&slot.folder, "").expect("a file");
        assert!(slot.new_file().is_err() && slot.find().is_none());
    }

    #[test]
    fn what_was_used_least_recently_is_removed() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let now = SystemTime::now();
        for (name, age_s) in [("old", 300), ("older", 400), ("new", 100)] {
            let file = File::create(folder.path().join(name)).expect("a file");
            (&file)
                .write_all(&[0; 100])
                .and_then(|()| file.set_modified(now - Duration::from_secs(age_s)))
                .expect("a file");
        }
        let left = |most| {
            keep_within(folder.path(), most);
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(left(300), ["new", "old", "older"]);
        assert_eq!(left(299), ["new", "old"]);
        assert_eq!(left(100), ["new"]);
        assert!(left(0).is_empty());
    }

    #[test]
    fn keys_differ_where_a_value_does() {
        let name = |values: &[&[u8]]| {
            let mut key = Key::new();
            for value in values {
                key.add(value);
            }
            key.name()
        };
        let keys = [name(&[b"a", b"bc"]), name(&[b"ab", b"c"]), name(&[b"abc"]), name(&[b"a", b"bd"])];
        assert!((0..4).all(|a| (0..a).all(|b| keys[a] != keys[b])), "{keys:?}");
        assert_eq!(name(&[b"a"]), name(&[b"a"]));
    }
}
