//! The lives of a program's objects, as the library `libnearside_preload.so` tells them from inside of it: the
//! recorder's side. Needs no rights but those to start the program.

mod folder;
mod obstacle;
mod owners;
mod process_rings;
mod ring_reader;

pub use obstacle::{Obstacle, obstacle};

use crate::{Event, Stacks, TickClock};
use folder::Folder;
use linux::Pid;
use owners::Owners;
use process_rings::ProcessRings;
use rings::{Clock, FOLDER_VARIABLE, SETTINGS_FILE, Settings};
use rustix::fs::{Mode, chmod};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The library's file.
pub const LIBRARY: &str = "libnearside_preload.so";
/// The environment variable with the library's path, where it is elsewhere than [`library`] looks.
pub const LIBRARY_VARIABLE: &str = "NEARSIDE_PRELOAD";
/// Options of the library of `-fsanitize=address`.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
const PID_NAMESPACE: &str = "/proc/self/ns/pid";

/// How objects are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Objects that take no more than this are counted by site, not told one by one, bytes: see [`What::Counted`]. 0 tells
    /// all.
    pub small_bytes: usize,
    /// Call chains have at most so many frames, 48 or less.
    pub frames: usize,
    /// How far a thread may be ahead of the recorder, bytes: 32 an event. A power of two from 64 KiB to 1 GiB.
    pub ring_bytes: usize,
    /// Threads of one process that can be followed at a time, up to 65,536.
    pub threads: usize,
    /// How long a thread that is further ahead waits for the recorder before it loses events, which are counted.
    pub patience: Duration,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        let patience = Duration::from_millis(100);
        Self { small_bytes: 0, frames: 32, ring_bytes: 1 << 20, threads: 4096, patience }
    }
}

/// Why objects cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The folder cannot be made.
    #[error("cannot make a folder for what programs tell of their objects in {}: {why}", place.display())]
    Folder {
        /// Where.
        place: PathBuf,
        /// What came back.
        why: io::Error,
    },
    /// The library is not where it should be.
    #[error("there is no {LIBRARY}: looked for {}; {LIBRARY_VARIABLE} can say where it is",
        places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "))]
    NoLibrary {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// The options cannot be kept.
    #[error(
        "objects cannot be recorded so: rings have 64 KiB to 1 GiB, a power of two; threads are 1 to 65536, frames 1 to 48"
    )]
    Options,
    /// What programs tell cannot be looked at.
    #[error("cannot read what programs tell of their objects in {}: {why}", place.display())]
    Read {
        /// Where.
        place: PathBuf,
        /// What came back.
        why: io::Error,
    },
}

/// What was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectLosses {
    /// Events that found a full ring, or no memory for one, or came in a signal handler in the middle of another.
    pub lost: u64,
    /// Forked processes that could make no file, as there was no room or they had none to open, so that they told nothing.
    pub silent: u64,
    /// Places of rings that said nothing that can be read: the program wrote into them.
    pub malformed: u64,
}

/// What programs tell of their objects while they run: the folder and its files, until it is dropped.
#[derive(Debug)]
pub struct ObjectRings {
    folder: Folder,
    settings: Settings,
    processes: BTreeMap<String, ProcessRings>,
    /// The programs that have told, by process and name.
    seen: BTreeSet<(Pid, Arc<str>)>,
    owners: Owners,
    /// Of processes that have ended, and of records.
    losses: ObjectLosses,
}

/// The library: beside this program, where it was built, or in `lib/nearside` beside the folder that this program is in,
/// where it was installed, or where [`LIBRARY_VARIABLE`] says.
pub fn library() -> Result<PathBuf, ObjectsError> {
    let named = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    let built = vec![folder.join(LIBRARY), folder.join("../lib/nearside").join(LIBRARY)];
    let places = named.map_or(built, |named| vec![named]);
    let found = places.iter().find_map(|place| fs::canonicalize(place).ok());
    found.ok_or(ObjectsError::NoLibrary { places })
}

impl ObjectRings {
    /// Makes the folder, in shared memory where there is some; programs tell times in ticks of this clock. The superuser's can be written to by all users, so that
    /// programs that drop their rights can go on, but not listed.
    pub fn create(options: &ObjectOptions, clock: &TickClock) -> Result<Self, ObjectsError> {
        let settings = Settings {
            clock: if clock.is_tsc() { Clock::Tsc } else { Clock::Monotonic },
            ring_bytes: options.ring_bytes,
            rings: options.threads,
            patience_ns: u64::try_from(options.patience.as_nanos()).unwrap_or(u64::MAX),
            small_bytes: options.small_bytes,
            frames: options.frames,
            namespace: fs::metadata(PID_NAMESPACE).map_or(0, |metadata| metadata.ino()),
        };
        let words = settings.to_words();
        let settings = Settings::from_words(words).map_err(|_| ObjectsError::Options)?;
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let make = || {
            let folder = Folder::create(&place)?;
            let file = folder.path().join(SETTINGS_FILE);
            fs::write(&file, words.map(u64::to_le_bytes).concat())?;
            if rustix::process::geteuid().is_root() {
                chmod(&file, Mode::from_raw_mode(0o644))?;
                chmod(folder.path(), Mode::from_raw_mode(0o1733))?;
            }
            Ok(folder)
        };
        let folder = make().map_err(|why| ObjectsError::Folder { place: place.clone(), why })?;
        let (processes, seen) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { folder, settings, processes, seen, owners: Owners::new(), losses: ObjectLosses::default() })
    }

    /// What the program needs in its environment: the library, before those of `LD_PRELOAD` that it has already, the
    /// folder, and, beside the options that this process has for it, that the library of `-fsanitize=address` need not
    /// be the first.
    pub fn environment(&self, library: &Path, preloaded: Option<&OsStr>) -> [(&'static str, OsString); 3] {
        let mut libraries = library.as_os_str().to_owned();
        if let Some(others) = preloaded.filter(|others| !others.is_empty()) {
            libraries.push(":");
            libraries.push(others);
        }
        let mut sanitizer = std::env::var_os(SANITIZER_VARIABLE).unwrap_or_default();
        if !sanitizer.is_empty() {
            sanitizer.push(":");
        }
        sanitizer.push("verify_asan_link_order=0");
        let folder = self.folder.path().as_os_str().to_owned();
        [("LD_PRELOAD", libraries), (FOLDER_VARIABLE, folder), (SANITIZER_VARIABLE, sanitizer)]
    }

    /// Looks how far programs have told, which is what [`drain`](Self::drain) takes.
    pub fn look(&mut self, clock: &mut TickClock) -> Result<(), ObjectsError> {
        self.find_files()?;
        for process in self.processes.values_mut() {
            process.look();
        }
        // What is written so far has times before this moment.
        clock.look();
        Ok(())
    }

    /// What was told from the last time until it was [looked](Self::look): the events of a thread in the order of their
    /// times, one thread after the other. To be called often, and again at once while there is much: a thread at full speed
    /// fills a ring of 1 MiB in two milliseconds. A mapping that the program asked for is [`What::Mapped`] and then
    /// [`What::Allocated`], as its call chain is known; [`What::Unmapped`] ends both.
    pub fn drain(&mut self, clock: &TickClock, stacks: &mut Stacks, events: &mut Vec<Event>) {
        for process in self.processes.values_mut() {
            process.drain(clock, stacks, &mut self.losses, events);
        }
        self.clear(clock, stacks, events);
    }

    /// What was told from the last time until it was looked, and the small objects of processes that still run.
    pub fn finish(&mut self, clock: &TickClock, stacks: &mut Stacks, events: &mut Vec<Event>) {
        self.drain(clock, stacks, events);
        for (_, process) in std::mem::take(&mut self.processes) {
            process.finish(clock, stacks, &mut self.losses, events);
        }
    }

    /// What could not be told so far.
    pub fn losses(&self) -> ObjectLosses {
        let lost: u64 = self.processes.values().map(ProcessRings::lost).sum();
        ObjectLosses { lost: self.losses.lost.saturating_add(lost), ..self.losses }
    }

    /// Whether the library has been in a process while that ran a program of this name: it cannot be in static or setuid
    /// ones, see [`obstacle`].
    pub fn has_been_in(&self, pid: Pid, program: &str) -> bool {
        self.seen.contains(&(pid, program.into()))
    }

    /// Looks for new files. Names are `PID.NUMBER`, and a process has a further one for each program that it executes.
    fn find_files(&mut self) -> Result<(), ObjectsError> {
        let failed = |why| ObjectsError::Read { place: self.folder.path().to_owned(), why };
        for entry in fs::read_dir(self.folder.path()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name == SETTINGS_FILE || self.processes.contains_key(&name) {
                continue;
            }
            // One that is not complete yet is looked at again the next time.
            let known = |pid| self.processes.values().any(|process| process.pid == pid);
            let Some(process) = ProcessRings::open(&entry.path(), &self.settings, known, &mut self.owners) else {
                continue;
            };
            self.seen.insert((process.pid, process.program.clone()));
            self.processes.insert(name, process);
        }
        Ok(())
    }

    /// Lets go of processes that have ended, once all they told is read.
    fn clear(&mut self, clock: &TickClock, stacks: &mut Stacks, events: &mut Vec<Event>) {
        let ended = self.processes.iter().filter(|(_, process)| process.has_ended());
        let gone: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(mut process) = self.processes.remove(&name) {
                if process.is_drained() {
                    let _ = fs::remove_file(self.folder.path().join(&name));
                    process.finish(clock, stacks, &mut self.losses, events);
                } else {
                    self.processes.insert(name, process);
                }
            }
        }
    }
}

/// The name that a process has, from 16 bytes with zeroes at the end.
fn text(words: impl IntoIterator<Item = u64>) -> Arc<str> {
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into()
}
