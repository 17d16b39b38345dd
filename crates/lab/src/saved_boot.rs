//! Saved boots: the state of a virtual machine that has booted and waits for its task. It depends on the machine, QEMU, the
//! kernel and nearside only, so the next run of the same machine continues from it.

use crate::LabError;
use crate::monitor::Monitor;
use crate::passed_files::memory;
use crate::setup;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ftruncate, linkat, open};
use rustix::pipe::{PipeFlags, pipe_with};
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

/// Their folder in the cache folder.
const FOLDER: &str = "boots";
/// Most bytes of all saved boots together. Those that were used least recently are removed first.
const MOST_BYTES: u64 = 2 << 30;
/// zstd's level: the fastest of its usual ones.
const LEVEL: i32 = 1;
/// So much of the end of a state is withheld from QEMU until all of it has been checked.
const WITHHELD: usize = 64 << 10;

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

/// The state of a machine that boots, on its way to its place.
pub(crate) struct Saving {
    monitor: Monitor,
    state: OwnedFd,
    slot: Slot,
}

impl Saving {
    /// By this end of the socket to QEMU's monitor.
    pub(crate) fn new(monitor: UnixStream, slot: Slot) -> Result<Self, LabError> {
        let monitor = Monitor::new(monitor).map_err(LabError::host("prepare QEMU's monitor"))?;
        Ok(Self { monitor, state: memory("nearside-boot", 0, &[])?, slot })
    }

    /// Saves the state of the machine, which stands still meanwhile.
    pub(crate) fn save(&mut self, go_on: &dyn Fn() -> bool) -> Result<(), LabError> {
        let clock_ns = self.monitor.save(&self.state, go_on).map_err(LabError::host("save the booted machine"))?;
        let state = self.state.try_clone().map_err(LabError::host("save the booted machine"))?;
        // Without it, the next run boots, too.
        let _ = self.slot.save(File::from(state), clock_ns);
        // QEMU keeps it open, too.
        ftruncate(&self.state, 0).map_err(LabError::host("free the memory of a saved boot"))
    }
}

/// The place of one saved boot.
#[derive(Debug)]
pub(crate) struct Slot {
    folder: PathBuf,
    name: String,
}

/// A saved boot.
#[derive(Debug)]
pub(crate) struct SavedBoot {
    file: File,
    path: PathBuf,
    /// The guest's clock, ns.
    pub(crate) clock_ns: u64,
}

impl Slot {
    /// That of a key; `None` if this user has no cache folder.
    pub(crate) fn new(key: Key) -> Option<Self> {
        Some(Self { folder: setup::cache_folder()?.join(FOLDER), name: key.name() })
    }

    /// What was saved there. Files that cannot be used count as absent.
    pub(crate) fn find(&self) -> Option<SavedBoot> {
        let path = self.folder.join(&self.name);
        let mut file = File::open(&path).ok()?;
        let mut clock = [0; 8];
        file.read_exact(&mut clock).ok()?;
        // For `keep_within`.
        let _ = file.set_modified(SystemTime::now());
        Some(SavedBoot { file, path, clock_ns: u64::from_le_bytes(clock) })
    }

    /// Saves a state, at the end under its name: an interrupted process leaves nothing.
    pub(crate) fn save(&self, mut state: File, clock_ns: u64) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let unnamed = open(&self.folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(unnamed);
        file.write_all(&clock_ns.to_le_bytes())?;
        let mut encoder = zstd::Encoder::new(&file, LEVEL)?;
        encoder.include_checksum(true)?;
        io::copy(&mut state, &mut encoder)?;
        encoder.finish()?;
        keep_within(&self.folder, MOST_BYTES.saturating_sub(file.metadata()?.len()));
        let named = linkat(
            CWD,
            format!("/proc/self/fd/{}", file.as_raw_fd()),
            CWD,
            self.folder.join(&self.name),
            AtFlags::SYMLINK_FOLLOW,
        );
        // Another run may have saved the same.
        named.or_else(|error| if error == rustix::io::Errno::EXIST { Ok(()) } else { Err(error.into()) })
    }
}

impl SavedBoot {
    /// The reading end of a pipe, for QEMU to inherit, through which the state comes. Its end comes only if the state is
    /// undamaged.
    pub(crate) fn pipe(&self) -> io::Result<OwnedFd> {
        let file = self.file.try_clone()?;
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::fcntl_setfd(&reading, rustix::io::FdFlags::empty())?;
        thread::Builder::new().name("saved boot".into()).spawn(move || {
            let mut checked = Withholding { to: File::from(writing), withheld: Vec::new() };
            // QEMU reports a state that ends too early, and ends; if it has ended, there is no reader.
            let decoded = zstd::stream::copy_decode(BufReader::new(file), &mut checked);
            let _ = decoded.and_then(|()| checked.to.write_all(&checked.withheld));
        })?;
        Ok(reading)
    }

    /// Removes a saved boot that cannot be continued.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Passes on all but the last [`WITHHELD`] bytes.
struct Withholding {
    to: File,
    withheld: Vec<u8>,
}

impl Write for Withholding {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.withheld.extend(bytes);
        let passed = self.withheld.len().saturating_sub(WITHHELD);
        self.to.write_all(&self.withheld[..passed])?;
        self.withheld.drain(..passed);
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
        slot.save(file, 77).expect("a saved boot");
    }

    fn read(saved: &SavedBoot) -> Vec<u8> {
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
        assert_eq!(saved.clock_ns, 77);
        assert!(read(&saved) == state());
        assert_eq!(fs::read_dir(&slot.folder).expect("a folder").count(), 1);
        saved.remove();
        assert!(slot.find().is_none());
    }

    #[test]
    fn the_end_of_a_damaged_state_never_comes() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let slot = slot(folder.path());
        save(&slot);
        let path = slot.folder.join(&slot.name);
        let whole = fs::read(&path).expect("a saved boot");
        for at in [8, 9, 20, whole.len() / 2, whole.len() - 100, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("damage");
            assert!(read(&slot.find().expect("a saved boot")).len() < state().len(), "byte {at}");
            fs::write(&path, &whole[..at]).expect("a file that is cut off");
            assert!(read(&slot.find().expect("a saved boot")).len() < state().len(), "{at} bytes");
        }
        fs::write(&path, [0; 7]).expect("a file that is cut off");
        assert!(slot.find().is_none());
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
            values.iter().for_each(|value| key.add(value));
            key.name()
        };
        let keys = [name(&[b"a", b"bc"]), name(&[b"ab", b"c"]), name(&[b"abc"]), name(&[b"a", b"bd"])];
        assert!((0..4).all(|a| (0..a).all(|b| keys[a] != keys[b])), "{keys:?}");
        assert_eq!(name(&[b"a"]), name(&[b"a"]));
    }
}
