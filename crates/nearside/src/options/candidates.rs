//! Values that shells complete: machines, policies, objects and sites of a trace.

use crate::open_trace::Reading;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use machine::presets;
use placement::POLICIES;
use profile::{Filter, Profile};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Larger traces would take seconds to read while the shell waits.
const LARGEST_TRACE: u64 = 64 << 20;
/// Most objects that are offered, the costliest first.
const MOST_OBJECTS: usize = 20;

/// Presets, and files.
pub fn machines(current: &OsStr) -> Vec<CompletionCandidate> {
    let described = |name: &str| {
        let about = presets::find(name).map(|machine| machine.description).unwrap_or_default();
        (name.to_owned(), about)
    };
    let mut found = beginning(current, presets::names().into_iter().map(described));
    found.extend(PathCompleter::any().complete(current));
    found
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
