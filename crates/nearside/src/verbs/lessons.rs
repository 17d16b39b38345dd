//! What runs of `nearside place` taught about the programs that they placed, kept for the next run of the same command.

use crate::options::user_configuration::xdg_folder;
use linux::{PrivateFolder, Trust, program_file};
use machine::{Machine, bounded, chain, system_words};
use object::Object;
use object::read::ReadCache;
use placement::Lesson;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file's name.
const NAME: &str = "lessons.json";
/// The file that a run locks while it changes the other one.
const LOCK: &str = "lessons.lock";
/// Most commands that are remembered: those that were run last.
const MOST: usize = 500;
/// Longest command that is remembered, bytes.
const MOST_COMMAND: usize = 1000;
/// Longest build ID, bytes: linkers write 8 to 32.
const MOST_BUILD_ID: usize = 64;
/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 4 << 20;

/// A command on a machine. A lesson about another build of the program, other arguments or other nodes does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    /// The program and its arguments.
    words: Vec<String>,
    /// Build ID of the program, else its size and time of change.
    build: String,
    /// CPUs of each node with its distances, and whether it has memory.
    machine: String,
}

impl Command {
    /// Whether it runs the same program, on the same machine.
    fn is_of_program(&self, other: &Self) -> bool {
        self.words.first() == other.words.first() && self.build == other.build && self.machine == other.machine
    }
}

/// What is known about a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    command: Command,
    /// None if runs of it taught nothing, while those of other commands of the program did.
    lesson: Option<Lesson>,
}

/// The lessons about one command, and the file of all.
pub struct Lessons {
    command: Command,
    path: PathBuf,
}

impl Lessons {
    /// None if this command cannot be remembered: its program is missing, or its words are too long or no text.
    pub fn of(words: &[OsString], machine: &Machine) -> Option<Self> {
        let path = std::env::var_os("PATH");
        let file = program_file(words.first()?, path.as_deref())?;
        let words: Vec<String> = words.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
        if words.iter().map(String::len).sum::<usize>() > MOST_COMMAND {
            return None;
        }
        let command = Command { words, build: build(&file)?, machine: shape(machine) };
        Some(Self { command, path: xdg_folder("XDG_STATE_HOME", ".local/state")?.join("nearside").join(NAME) })
    }

    /// What was learned about this command; about one that was not run yet, that all others of the same program had one
    /// thread that works. Fails if the file cannot be read, or is not one of nearside's.
    pub fn read(&self) -> Result<Option<Lesson>, Box<dyn Error>> {
        let entries = self.entries()?;
        if let Some(known) = entries.iter().find(|entry| entry.command == self.command) {
            return Ok(known.lesson);
        }
        let mut of_program = entries.iter().filter(|entry| entry.command.is_of_program(&self.command)).peekable();
        let first = of_program.peek().and_then(|entry| entry.lesson);
        Ok(first.filter(|_| of_program.all(|entry| entry.lesson.is_some_and(Lesson::is_of_one_thread))))
    }

    /// Whether there are only lessons about these words with another build of the program, or on another machine.
    pub fn are_of_another(&self) -> bool {
        let entries = self.entries().unwrap_or_default();
        let mut same = entries.iter().filter(|entry| entry.command.words == self.command.words).peekable();
        same.peek().is_some() && same.all(|entry| entry.command != self.command)
    }

    /// Keeps what is known about this command now. A damaged file is replaced.
    fn keep(&self, lesson: Option<Lesson>) -> Result<(), Box<dyn Error>> {
        if lesson.is_none() && !self.path.exists() {
            return Ok(());
        }
        self.write(|others| {
            let is_asked_for = || others.iter().any(|entry| entry.command.is_of_program(&self.command));
            (lesson.is_some() || is_asked_for()).then_some(lesson)
        })
    }

    /// Keeps what a run taught whose program ended so. Returns what the next run is to begin with, as far as that is kept.
    pub fn keep_of_run(
        &self,
        lesson: Option<Lesson>,
        exit_status: Option<i32>,
    ) -> Result<Option<Lesson>, Box<dyn Error>> {
        // A program that failed may have done so before it made its threads.
        if lesson == Some(Lesson::NoThreads) && exit_status != Some(0) {
            return Ok(None);
        }
        self.keep(lesson)?;
        Ok(lesson)
    }

    /// Forgets what is known about this command. A damaged file is replaced.
    pub fn forget(&self) -> Result<(), Box<dyn Error>> {
        if self.path.exists() { self.write(|_| None) } else { Ok(()) }
    }

    /// `own` has what is to be kept about this command beside these others, if anything.
    fn write(&self, own: impl FnOnce(&[Entry]) -> Option<Option<Lesson>>) -> Result<(), Box<dyn Error>> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        make_folder(folder.parent().unwrap_or(Path::new("/")))?;
        let folder = PrivateFolder::create(folder, 0o700)?;
        // Another run that ends now has its lesson, too.
        let lock = folder.file(LOCK, 0o600)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| self.failure(&error))?;
        let known = self.entries().unwrap_or_default();
        let others: Vec<Entry> = known.iter().filter(|entry| entry.command != self.command).cloned().collect();
        let own = own(&others).map(|lesson| Entry { command: self.command.clone(), lesson });
        let entries: Vec<Entry> = own.into_iter().chain(others).take(MOST).collect();
        if entries == known {
            Ok(())
        } else {
            Ok(folder.replace(NAME, 0o600, &serde_json::to_vec_pretty(&entries)?)?)
        }
    }

    fn entries(&self) -> Result<Vec<Entry>, Box<dyn Error>> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let file = PrivateFolder::existing_file(&self.path, Trust::Owners)?;
        let text = bounded::bytes_of(file, MOST_BYTES).map_err(|error| self.failure(&error))?;
        serde_json::from_slice(&text).map_err(|error| self.failure(&error))
    }

    /// An error that does not name the file.
    fn failure(&self, error: &(dyn Error + 'static)) -> Box<dyn Error> {
        format!("{}: {}", self.path.display(), chain(error)).into()
    }
}

/// Makes a folder and those above it. Root makes none in the home of another user, to whom it would not belong.
fn make_folder(folder: &Path) -> Result<(), Box<dyn Error>> {
    if !folder.is_dir() {
        let there = folder.ancestors().find(|there| there.exists()).unwrap_or(Path::new("/"));
        PrivateFolder::open(there, Trust::Owners)?;
        // As the XDG base directory specification wants it, whatever the umask is.
        let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|error| format!("cannot create {}: {}", folder.display(), system_words(&error)))?;
    }
    Ok(())
}

/// The build ID of a program; of scripts and programs without one the size and time of change.
fn build(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let parts = ReadCache::new(&file);
    let id = object::File::parse(&parts).ok().and_then(|elf| Some(elf.build_id().ok()??.to_vec()));
    Some(match id.filter(|id| id.len() <= MOST_BUILD_ID) {
        Some(id) => id.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        }),
        None => format!("{} bytes of {}.{:09}", metadata.size(), metadata.mtime(), metadata.mtime_nsec()),
    })
}

/// The nodes, as far as a lesson depends on them.
fn shape(machine: &Machine) -> String {
    let node = |node: &machine::Node| {
        let memory = if node.memory_bytes > 0 { "" } else { " without memory" };
        format!("node {}: CPUs {}{memory}", node.id, node.cpus)
    };
    machine.nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn lessons(folder: &Path, words: &[&str], machine: &str) -> Lessons {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let machine = shape(&presets::find(machine).unwrap());
        let command = Command { words, build: "1".to_owned(), machine };
        Lessons { command, path: folder.join("nearside").join(NAME) }
    }

    #[test]
    fn folders_for_lessons_are_their_users() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".local/state");
        make_folder(&folder).unwrap();
        for folder in [&folder, &home.path().join(".local")] {
            assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_lesson_is_of_one_command_on_one_machine_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let own = lessons(folder.path(), &["a", "1"], "small-4x2");
        let others =
            [lessons(folder.path(), &["a", "2"], "small-4x2"), lessons(folder.path(), &["a", "1"], "small-2x2")];
        assert_eq!(own.read().unwrap(), None);
        own.keep(Some(Lesson::Spread)).unwrap();
        assert_eq!(own.read().unwrap(), Some(Lesson::Spread));
        assert!(others.iter().all(|other| other.read().unwrap().is_none()));
        let of_another = [&own, &others[0], &others[1]].map(Lessons::are_of_another);
        assert_eq!(of_another, [false, false, true], "other words are another command");
        others[0].keep(Some(Lesson::FirstTouch)).unwrap();
        own.forget().unwrap();
        assert_eq!((own.read().unwrap(), others[0].read().unwrap()), (None, Some(Lesson::FirstTouch)));
    }

    #[test]
    fn only_what_is_kept_is_what_the_next_run_begins_with() {
        let folder = tempfile::tempdir().unwrap();
        let own = lessons(folder.path(), &["a"], "small-4x2");
        let spread = Some(Lesson::Spread);
        assert_eq!((own.keep_of_run(spread, Some(1)).unwrap(), own.read().unwrap()), (spread, spread));
        for failed in [Some(1), None] {
            assert_eq!(own.keep_of_run(Some(Lesson::NoThreads), failed).unwrap(), None);
            assert_eq!(own.read().unwrap(), spread);
        }
        let alone = Some(Lesson::NoThreads);
        assert_eq!((own.keep_of_run(alone, Some(0)).unwrap(), own.read().unwrap()), (alone, alone));
        let nowhere = lessons(Path::new("/proc"), &["a"], "small-4x2");
        assert!(nowhere.keep_of_run(spread, Some(0)).is_err());
    }

    #[test]
    fn a_program_of_one_thread_begins_so_with_other_arguments_too() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, third] = ["1", "2", "3"].map(|word| lessons(folder.path(), &["a", word], "small-4x2"));
        first.keep(Some(Lesson::NoThreads)).unwrap();
        assert_eq!(second.read().unwrap(), Some(Lesson::NoThreads));
        assert_eq!(lessons(folder.path(), &["b", "1"], "small-4x2").read().unwrap(), None);
        assert_eq!(lessons(folder.path(), &["a", "1"], "small-2x2").read().unwrap(), None);
        second.keep(Some(Lesson::Spread)).unwrap();
        assert_eq!(third.read().unwrap(), None, "it may make threads");
        assert_eq!(first.read().unwrap(), Some(Lesson::NoThreads));
        // A run with threads that taught nothing is no reason to begin without a spread start the next time.
        second.forget().unwrap();
        assert_eq!(second.read().unwrap(), Some(Lesson::NoThreads));
        second.keep(None).unwrap();
        assert_eq!((second.read().unwrap(), third.read().unwrap()), (None, None));
    }

    #[test]
    fn runs_that_end_at_once_lose_no_lesson() {
        let folder = tempfile::tempdir().unwrap();
        let named = |number: usize| lessons(folder.path(), &[&number.to_string()], "small-4x2");
        std::thread::scope(|scope| {
            for first in (0..100).step_by(25) {
                let named = &named;
                scope.spawn(move || {
                    (first..first + 25).for_each(|number| named(number).keep(Some(Lesson::Spread)).unwrap());
                });
            }
        });
        assert!((0..100).all(|number| named(number).read().unwrap() == Some(Lesson::Spread)));
    }

    #[test]
    fn nothing_is_made_in_another_users_folder_nor_to_forget_nothing() {
        let folder = tempfile::tempdir().unwrap();
        lessons(&folder.path().join("state"), &["a"], "small-4x2").forget().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        if !rustix::process::geteuid().is_root() {
            return test_tools::skipped("only root can give a folder to another user");
        }
        std::os::unix::fs::chown(folder.path(), Some(65534), None).unwrap();
        let error = lessons(&folder.path().join("state"), &["a"], "small-4x2").keep(Some(Lesson::Spread)).unwrap_err();
        assert!(machine::chain(&*error).contains("belongs to another user"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_is_replaced_by_the_next_lesson() {
        let folder = tempfile::tempdir().unwrap();
        let own = lessons(folder.path(), &["a"], "small-4x2");
        own.keep(Some(Lesson::Spread)).unwrap();
        for damage in ["{", "[{}]", "[1, 2]", "\u{fffd}"] {
            std::fs::write(&own.path, damage).unwrap();
            assert!(own.read().is_err(), "{damage}");
        }
        own.keep(Some(Lesson::Spread)).unwrap();
        assert_eq!(own.read().unwrap(), Some(Lesson::Spread));
    }

    #[test]
    fn the_file_has_a_limit_and_keeps_the_last_commands() {
        let folder = tempfile::tempdir().unwrap();
        let named = |number: usize| lessons(folder.path(), &[&number.to_string()], "small-4x2");
        (0..MOST + 2).for_each(|number| named(number).keep(Some(Lesson::Spread)).unwrap());
        assert_eq!(named(1).read().unwrap(), None);
        assert_eq!(named(2).read().unwrap(), Some(Lesson::Spread));
    }

    #[test]
    fn programs_are_distinguished_by_their_build() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let first = build(&script).unwrap();
        std::fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
        assert_ne!(build(&script).unwrap(), first);
        assert_eq!(build(Path::new("/no/such/file")), None);
        assert_eq!(build(folder.path()), None);
        let own = build(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.chars().all(|digit| digit.is_ascii_hexdigit()), "{own}");
    }
}
