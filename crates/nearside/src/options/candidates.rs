//! Values that shells complete: machines, policies, objects and sites of a trace.

use crate::open_trace::Reading;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use placement::POLICIES;
use profile::{Filter, Profile};
use rustix::fs::{Access, access};
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Larger traces would take seconds to read while the shell waits.
const LARGEST_TRACE: u64 = 64 << 20;
/// Most objects that are offered, the costliest first.
const MOST_OBJECTS: usize = 20;
/// Most programs that are offered.
const MOST_PROGRAMS: usize = 200;

/// Presets, and files.
pub fn machines(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = presets(current);
    found.extend(PathCompleter::any().complete(current));
    found
}

fn presets(current: &OsStr) -> Vec<CompletionCandidate> {
    let described = |name: &str| {
        let about = machine::presets::find(name).map(|machine| machine.description).unwrap_or_default();
        (name.to_owned(), about)
    };
    beginning(current, machine::presets::names().into_iter().map(described))
}

/// Presets and machine files, as the lab takes them: a path with a `/`, or ending in .toml.
pub fn lab_machines(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_below = current.to_string_lossy().contains('/');
    let is_file = move |path: &Path| is_below || path.is_dir() || path.extension().is_some_and(|end| end == "toml");
    let mut found = presets(current);
    found.extend(PathCompleter::any().filter(is_file).complete(current));
    found
}

/// A program on PATH if it is the first word after `--`, and files.
#[derive(Clone, Copy, Debug)]
pub struct ProgramWords;

impl ValueCompleter for ProgramWords {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, current)
    }

    fn complete_at(&self, index: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        let mut found = if index == 0 { programs(current) } else { Vec::new() };
        found.extend(PathCompleter::any().complete(current));
        found
    }
}

/// The programs on PATH that begin with what has been typed; none for an empty word, as there are thousands.
fn programs(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(path) = env::var_os("PATH").filter(|_| !current.is_empty()) else { return Vec::new() };
    let is_program = |path: &Path| access(path, Access::EXEC_OK).is_ok() && path.is_file();
    let files = env::split_paths(&path).flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let begins = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(current.as_encoded_bytes()));
    let names: BTreeSet<_> =
        begins.filter(|file| is_program(&file.path())).map(|file| file.file_name()).take(MOST_PROGRAMS).collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// A command line whose programs, which follow `--`, are completed, too.
pub fn with_programs(command: clap::Command) -> clap::Command {
    let complete = |arg: clap::Arg| {
        let is_command = arg.is_last_set() || arg.is_trailing_var_arg_set() && arg.get_id() == "command";
        if is_command { arg.add(ArgValueCompleter::new(ProgramWords)) } else { arg }
    };
    command.mut_args(complete).mut_subcommands(with_programs)
}

/// Policies of `nearside place`.
pub fn policies(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(current, POLICIES.into_iter().map(named))
}

/// Policies of `nearside compare`: the last one of a list.
pub fn compared(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let before = text.rsplit_once(',').map_or(String::new(), |(before, _)| format!("{before},"));
    beginning(current, compare::all().map(named).map(|(name, what)| (format!("{before}{name}"), what)))
}

/// Objects of the trace on the command line, the costliest first.
pub fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    of_trace(current, |profile| {
        let objects = profile.view(&Filter::default()).objects().into_iter().take(MOST_OBJECTS);
        objects.filter_map(|(object, _)| Some((object.to_string(), profile.object_summary(object)?.label))).collect()
    })
}

/// Sites of the trace on the command line, the costliest first.
pub fn sites(current: &OsStr) -> Vec<CompletionCandidate> {
    of_trace(current, |profile| {
        let sites = profile.view(&Filter::default()).sites().into_iter().take(MOST_OBJECTS);
        sites.map(|(site, _)| (site.to_string(), profile.site_label(site))).collect()
    })
}

/// A policy's name without its parameters, which stand in brackets or after a colon.
fn named((name, what): (&'static str, &'static str)) -> (String, String) {
    (name.split(['[', ':']).next().unwrap_or(name).to_owned(), what.to_owned())
}

fn of_trace(current: &OsStr, values: impl Fn(&Profile) -> Vec<(String, String)>) -> Vec<CompletionCandidate> {
    let is_trace = |path: &PathBuf| path.join("trace.toml").is_file();
    // The words of the command line follow the shell's own arguments.
    let trace = env::args_os().map(PathBuf::from).find(is_trace).filter(|path| bytes(path) <= LARGEST_TRACE);
    let opened = trace.and_then(|path| Reading::default().read(&path).ok());
    opened.map_or_else(Vec::new, |opened| beginning(current, values(&opened.profile).into_iter()))
}

fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).fold(0, u64::saturating_add)
}

/// Those that begin with what has been typed.
fn beginning(current: &OsStr, values: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let begins = values.filter(|(value, _)| value.starts_with(typed.as_ref()));
    begins.map(|(value, what)| CompletionCandidate::new(value).help(Some(what.into()))).collect()
}
