//! The recorder's side of object tracking: lifecycles of a program's objects, as reported by the library
//! `libnearside_preload.so` inside it. Needs no privileges beyond starting the program.

mod error;
mod folder;
mod obstacle;
mod owners;
mod process_rings;
mod ring_reader;

pub use error::ObjectsError;
pub use obstacle::{Obstacle, obstacle};

use crate::TickClock;
use folder::{Folder, MOST_NEW, is_left_incomplete};
use linux::{Pid, monotonic_ns};
use owners::Owners;
use process_rings::ProcessRings;
use rings::{Clock, FOLDER_VARIABLE, SETTINGS_FILE, Settings};
use rustix::fs::{Mode, chmod};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use trace::{Event, Stacks};

/// File name of the library.
pub const LIBRARY: &str = "libnearside_preload.so";
/// Environment variable with the library's path, if it is not where [`library`] searches.
pub const LIBRARY_VARIABLE: &str = "NEARSIDE_PRELOAD";
/// Environment variable with the options of `AddressSanitizer`.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
/// How long after an event a thread may report it, ns: the host may stop a thread between the two.
const MOST_LATE_NS: u64 = 60_000_000_000;
const PID_NAMESPACE: &str = "/proc/self/ns/pid";

/// How objects are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Objects up to this size, in bytes, are counted by site instead of being reported one by one: see
    /// [`Counted`](trace::What::Counted). 0 reports all.
    pub small_bytes: usize,
    /// Maximum number of frames in a call chain, at most 48.
    pub frames: usize,
    /// Size of a thread's ring, in bytes, which bounds how far it may be ahead of the recorder; an event takes 32. A
    /// power of two from 64 KiB to 1 GiB.
    pub ring_bytes: usize,
    /// Maximum number of threads of one process that are followed at a time, up to 65,536.
    pub threads: usize,
    /// How long a thread with a full ring waits for the recorder before it drops events, which are counted.
    pub patience: Duration,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        let patience = Duration::from_millis(100);
        Self { small_bytes: 0, frames: 32, ring_bytes: 1 << 20, threads: 4096, patience }
    }
}

/// Missing object events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectLosses {
    /// Events dropped because a ring was full.
    pub lost: u64,
    /// Events dropped because their thread got no ring, or because a signal handler interrupted another event.
    pub outside: u64,
    /// Forked processes that reported nothing, because they could not create their file: no space, or no file
    /// descriptor.
    pub silent: u64,
    /// Malformed records: the program overwrote its ring.
    pub malformed: u64,
    /// Files, and single reports, of other users about processes that were not seen as living descendants of the
    /// program under that user: they were ignored.
    pub unbelieved: u64,
    /// Reads of rings that were full: their threads waited.
    pub full: u64,
    /// Whether the folder was closed to other users, because they filled it: their programs reported nothing since.
    pub closed: bool,
}

/// The object events of running programs: the shared folder and its files, which are removed on drop.
#[derive(Debug)]
pub struct ObjectRings {
    folder: Folder,
    settings: Settings,
    processes: BTreeMap<String, ProcessRings>,
    /// How many programs have reported, by process and name.
    seen: BTreeMap<(Pid, Arc<str>), usize>,
    owners: Owners,
    /// Losses of ended processes, and of records.
    losses: ObjectLosses,
    /// When the last two looks began, ns of `CLOCK_MONOTONIC`.
    looked_ns: [u64; 2],
}

/// Finds the library: next to this program, as built; in `lib/nearside` beside this program's folder, as installed;
/// or where [`LIBRARY_VARIABLE`] says.
pub fn library() -> Result<PathBuf, ObjectsError> {
    installed(LIBRARY, LIBRARY_VARIABLE)
}

/// Likewise for another of nearside's libraries, whose path `variable` may have.
pub fn installed(library: &'static str, variable: &'static str) -> Result<PathBuf, ObjectsError> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new("/"));
    let built = vec![folder.join(library), folder.join("../lib/nearside").join(library)];
    let places = named.map_or(built, |named| vec![named]);
    let found = places.iter().find_map(|place| fs::canonicalize(place).ok());
    found.ok_or(ObjectsError::NoLibrary { library, variable, places })
}

/// The environment variable of a program that has one of nearside's libraries in `LD_PRELOAD`: the `AddressSanitizer`
/// options of this process, with one that lets its runtime come second.
pub fn sanitizer_options() -> (&'static str, OsString) {
    let mut options = std::env::var_os(SANITIZER_VARIABLE).unwrap_or_default();
    if !options.is_empty() {
        options.push(":");
    }
    options.push("verify_asan_link_order=0");
    (SANITIZER_VARIABLE, options)
}

impl ObjectRings {
    /// Creates the folder, in shared memory if available. Programs stamp events with ticks of `clock`. If root
    /// creates it, all users may write to it but not list it, so that programs that drop their privileges can go on: what
    /// other users report is believed about living descendants of a [known process](Self::add_process) only.
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
            // Whatever the umask is.
            let [of_file, of_folder] = if geteuid().is_root() { [0o644, 0o1733] } else { [0o600, 0o700] };
            chmod(&file, Mode::from_raw_mode(of_file))?;
            chmod(folder.path(), Mode::from_raw_mode(of_folder))?;
            Ok(folder)
        };
        let folder = make().map_err(|why| ObjectsError::Folder { place: place.clone(), why })?;
        let (processes, seen) = (BTreeMap::new(), BTreeMap::new());
        let (owners, losses, looked_ns) = (Owners::default(), ObjectLosses::default(), [monotonic_ns(); 2]);
        Ok(Self { folder, settings, processes, seen, owners, losses, looked_ns })
    }

    /// The path by which programs load the library: its own, or that of a link in the folder if the dynamic linker would
    /// not take its own for one path.
    pub fn loadable(&self, library: PathBuf) -> Result<PathBuf, ObjectsError> {
        if is_one_path(&library) {
            return Ok(library);
        }
        let link = self.folder.path().join(LIBRARY);
        let made =
            if is_one_path(&link) { symlink(&library, &link) } else { Err(io::ErrorKind::InvalidFilename.into()) };
        match made {
            Ok(()) => Ok(link),
            Err(why) => Err(ObjectsError::Link { library, place: self.folder.path().to_owned(), why }),
        }
    }

    /// The program's environment variables: the library, in front of existing entries of `LD_PRELOAD`; the folder; and
    /// [`sanitizer_options`].
    pub fn environment(&self, library: &Path, preloaded: Option<&OsStr>) -> [(&'static str, OsString); 3] {
        let mut libraries = library.as_os_str().to_owned();
        if let Some(others) = preloaded.filter(|others| !others.is_empty()) {
            libraries.push(":");
            libraries.push(others);
        }
        let folder = self.folder.path().as_os_str().to_owned();
        [("LD_PRELOAD", libraries), (FOLDER_VARIABLE, folder), sanitizer_options()]
    }

    /// Adds a process of the recorded program: the program itself, or a descendant as reported by the kernel.
    pub fn add_process(&mut self, pid: Pid) {
        // Only root's folder has files of other users.
        if geteuid().is_root() {
            self.owners.add(pid);
        }
    }

    /// Notes how far programs have written, which is what [`drain`](Self::drain) reads.
    pub fn look(&mut self, clock: &mut TickClock) -> Result<(), ObjectsError> {
        self.looked_ns = [self.looked_ns[1], monotonic_ns()];
        self.find_files()?;
        for process in self.processes.values_mut() {
            process.look();
        }
        // All events written so far have times before this moment.
        clock.look();
        Ok(())
    }

    /// Returns the events from the last call up to the last [`look`](Self::look): thread by thread, each in time
    /// order. Call it often, and again at once while there are many events: a thread at full speed fills a ring of 1
    /// MiB in two milliseconds. A mapping requested by the program is reported as [`Mapped`](trace::What::Mapped) and then, with its
    /// call chain, as [`Allocated`](trace::What::Allocated); [`Unmapped`](trace::What::Unmapped) ends both.
    pub fn drain(&mut self, clock: &TickClock, stacks: &mut Stacks, events: &mut Vec<Event>) {
        let first = events.len();
        for process in self.processes.values_mut() {
            process.drain(clock, stacks, &mut self.owners, &mut self.losses, events);
        }
        self.clear(clock, stacks, events);
        self.bound_times(events.iter_mut().skip(first));
    }

    /// Programs write the times themselves. One that is far from when it was read would spread a file of the trace over
    /// all others, and a reader opens 256 files at a time at most.
    fn bound_times<'a>(&self, events: impl Iterator<Item = &'a mut Event>) {
        let (earliest, now) = (self.looked_ns[0].saturating_sub(MOST_LATE_NS), monotonic_ns());
        events.for_each(|event| event.time_ns = event.time_ns.clamp(earliest, now));
    }

    /// Like [`drain`](Self::drain), plus the small objects of processes that are still running.
    pub fn finish(&mut self, clock: &TickClock, stacks: &mut Stacks, events: &mut Vec<Event>) {
        self.drain(clock, stacks, events);
        let first = events.len();
        for (_, process) in std::mem::take(&mut self.processes) {
            process.finish(clock, stacks, &mut self.owners, &mut self.losses, events);
        }
        self.bound_times(events.iter_mut().skip(first));
    }

    /// Losses so far.
    pub fn losses(&self) -> ObjectLosses {
        let mut losses = self.losses;
        self.processes.values().for_each(|process| process.add_losses(&mut losses));
        losses
    }

    /// The folder of the programs' files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How often the library was loaded into a process for a program of this name. It cannot be in static or setuid
    /// programs, see [`obstacle`].
    pub fn times_in(&self, pid: Pid, program: &str) -> usize {
        self.seen.get(&(pid, program.into())).copied().unwrap_or(0)
    }

    /// Finds new files. Names are `PID.TIME`; a process has another file for each program that it executes.
    fn find_files(&mut self) -> Result<(), ObjectsError> {
        let failed = |why| ObjectsError::Read { place: self.folder.path().to_owned(), why };
        let is_known = |name: &str| [SETTINGS_FILE, LIBRARY].contains(&name) || self.processes.contains_key(name);
        let new = self.folder.new_files(is_known).map_err(failed)?;
        self.losses.closed |= new.len() == MOST_NEW && geteuid().is_root();
        for name in new {
            let path = self.folder.path().join(&name);
            // A file that is not complete yet is opened by a later call.
            let known = |pid| self.processes.values().any(|process| process.pid == pid);
            let Some(process) = ProcessRings::open(&path, &self.settings, known) else {
                if is_left_incomplete(&path) {
                    self.losses.unbelieved = self.losses.unbelieved.saturating_add(1);
                    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
                }
                continue;
            };
            if !self.owners.may_tell(process.user, process.pid) {
                self.losses.unbelieved = self.losses.unbelieved.saturating_add(1);
                // Once: the file is gone, and a process that wrote it writes no more.
                process.end();
                let _ = fs::remove_file(&path);
                continue;
            }
            *self.seen.entry((process.pid, process.program.clone())).or_default() += 1;
            self.processes.insert(name, process);
        }
        Ok(())
    }

    /// Drops ended processes, once all their events are read.
    fn clear(&mut self, clock: &TickClock, stacks: &mut Stacks, events: &mut Vec<Event>) {
        let ended = self.processes.iter().filter(|(_, process)| process.has_ended());
        let gone: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(mut process) = self.processes.remove(&name) {
                if process.is_drained() {
                    let _ = fs::remove_file(self.folder.path().join(&name));
                    process.finish(clock, stacks, &mut self.owners, &mut self.losses, events);
                } else {
                    self.processes.insert(name, process);
                }
            }
        }
    }
}

impl Drop for ObjectRings {
    /// Programs write no more: nothing reads it, and each ring that fills would hold up its thread.
    fn drop(&mut self) {
        self.processes.values().for_each(ProcessRings::end);
        // Or the files of a user that goes on making them would be left, and the folder with them.
        let _ = self.folder.close();
    }
}

/// Whether the dynamic linker takes this for one path: it ends paths at spaces and colons, and replaces `$LIB` and others.
pub fn is_one_path(path: &Path) -> bool {
    !path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :$".contains(byte))
}

/// Decodes the name of a process: 16 bytes, padded with zeros.
fn text(words: impl IntoIterator<Item = u64>) -> Arc<str> {
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use folder::MOST_INCOMPLETE;
    use linux::{ChildSetup, Credentials};
    use rings::{MAGIC, PAGE, VERSION, process, process_file};
    use std::collections::BTreeSet;
    use std::os::unix::fs::{FileExt, PermissionsExt, chown};
    use std::process::Command;

    const UNPRIVILEGED: u32 = 65_534;
    /// Set in the process of this test that has another umask.
    const AGAIN: &str = "NEARSIDE_TEST_AGAIN";

    fn rings() -> (ObjectRings, TickClock) {
        let clock = TickClock::new(false);
        (ObjectRings::create(&ObjectOptions::default(), &clock).unwrap(), clock)
    }

    fn sleep_as(user: u32) -> std::process::Child {
        let who = Credentials { uid: user, gid: user, groups: Vec::new() };
        Command::new("sleep").arg("60").run_as(who).spawn().unwrap()
    }

    /// What a user that knows the folder's name can write there.
    fn forge(rings: &ObjectRings, name: &str, user: u32, pid: Pid, parent: Pid) {
        let path = rings.folder.path().join(name);
        let file = fs::File::create(&path).unwrap();
        file.set_len(process_file(1, rings.settings.ring_bytes) as u64).unwrap();
        let words = [
            (process::MAGIC, MAGIC),
            (process::VERSION, VERSION),
            (process::PID, pid.0.into()),
            (process::PARENT, parent.0.into()),
            (process::RINGS, 1),
            (PAGE / 8 + rings::ring::WRITTEN, 0),
        ];
        for (word, value) in words {
            file.write_all_at(&value.to_le_bytes(), 8 * word as u64).unwrap();
        }
        chown(&path, Some(user), Some(user)).unwrap();
    }

    #[test]
    fn another_user_reports_only_on_living_processes_of_the_program_under_that_user() {
        if !geteuid().is_root() {
            return test_tools::skipped("only root can be another user");
        }
        let (mut rings, mut clock) = rings();
        let mut ended = sleep_as(0);
        ended.kill().and_then(|()| ended.wait()).unwrap();
        let (mut program, mut others) = (sleep_as(UNPRIVILEGED), sleep_as(UNPRIVILEGED));
        rings.add_process(Pid(program.id()));
        let own = Pid(std::process::id());
        // The first is the program's own; the second would have made the old recorder trust the user about the third.
        let pids = [Pid(program.id()), Pid(others.id()), Pid(ended.id()), own];
        for (number, pid) in pids.into_iter().enumerate() {
            forge(&rings, &format!("{pid}.{number}"), UNPRIVILEGED, pid, own);
        }
        let (mut stacks, mut events) = (Stacks::new(), Vec::new());
        let begun = monotonic_ns();
        rings.look(&mut clock).unwrap();
        rings.drain(&clock, &mut stacks, &mut events);
        // It says that it began at 0.
        let earliest = begun.saturating_sub(2 * MOST_LATE_NS);
        assert!(events.iter().all(|event| (earliest..=monotonic_ns()).contains(&event.time_ns)), "{events:?}");
        let told: BTreeSet<Pid> = events.iter().map(|event| event.pid).collect();
        let left = fs::read_dir(rings.folder.path()).unwrap().count();
        for child in [&mut program, &mut others] {
            child.kill().and_then(|()| child.wait()).unwrap();
        }
        assert_eq!((told, rings.losses().unbelieved), (BTreeSet::from([pids[0]]), 3));
        // The believed one, and the settings.
        assert_eq!(left, 2);
    }

    #[test]
    fn what_another_user_fills_the_folder_with_is_removed() {
        if !geteuid().is_root() {
            return test_tools::skipped("only root can be another user");
        }
        let (mut rings, mut clock) = rings();
        let at = |name: &str| rings.folder.path().join(name);
        let paths = [at("theirs"), at("their-folder"), at("own")];
        fs::write(&paths[0], "").unwrap();
        fs::create_dir(&paths[1]).unwrap();
        fs::write(&paths[2], "").unwrap();
        for path in &paths[..2] {
            chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        rings.look(&mut clock).unwrap();
        assert!(paths.iter().all(|path| path.exists()), "a process may still be writing it");
        std::thread::sleep(MOST_INCOMPLETE + Duration::from_millis(100));
        rings.look(&mut clock).unwrap();
        assert_eq!(paths.map(|path| path.exists()), [false, false, true]);
        assert_eq!(rings.losses().unbelieved, 2);
    }

    #[test]
    fn a_folder_that_another_user_fills_is_closed_and_removed() {
        if !geteuid().is_root() {
            return test_tools::skipped("only root can be another user");
        }
        let (mut rings, mut clock) = rings();
        let folder = rings.folder.path().to_owned();
        for number in 0..MOST_NEW {
            symlink("/dev/null", folder.join(number.to_string())).unwrap();
        }
        rings.look(&mut clock).unwrap();
        assert!(rings.losses().closed);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        drop(rings);
        assert!(!folder.exists());
    }

    #[test]
    fn no_umask_changes_who_may_use_the_folder() {
        if std::env::var_os(AGAIN).is_none() {
            for umask in ["0777", "0000"] {
                let this = "objects::tests::no_umask_changes_who_may_use_the_folder";
                let mut again = Command::new("sh");
                again.args(["-c", "umask $1; shift; exec \"$@\"", "sh", umask]);
                again.arg(std::env::current_exe().unwrap()).args(["--exact", this]).env(AGAIN, "1");
                let output = again.output().unwrap();
                assert!(output.status.success(), "{umask}: {}", String::from_utf8_lossy(&output.stdout));
            }
            return;
        }
        let (rings, _) = rings();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let modes = [mode(rings.folder.path()), mode(&rings.folder.path().join(SETTINGS_FILE))];
        assert_eq!(modes, if geteuid().is_root() { [0o1733, 0o644] } else { [0o700, 0o600] });
    }
}
