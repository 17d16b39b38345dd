//! Reads a trace: its description, and the profile of its samples and events.

use crate::options::candidates;
use crate::options::machine_source;
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::verbs::record::folder;
use clap::Args;
use clap_complete::ArgValueCompleter;
use indicatif::{ProgressBar, ProgressStyle};
use machine::{Machine, Node, size, system_words};
use profile::{CodeId, MemoryRange, Profile, Recording, Symbols};
use report::TraceFacts;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::{
    About, HostFiles, ImageState, Loss, MOST_EXPANDED_BYTES, MOST_EXPANSION, ReadError, Record, Records, Stacks,
    TABLES, Trace,
};

/// Number of records between two checks of the clock.
const SHOWN_EVERY: usize = 1 << 14;
/// Maximum ratio of the memory for records to the size of their trace, unless `--max-memory` allows more.
const MOST_EXPANSION_OF_TRACE: u64 = 200;
/// Memory that records may always take by default, in bytes.
const LEAST_BYTES: u64 = 128 << 20;
/// Reading that takes longer shows its progress.
const SOON: Duration = Duration::from_secs(2);

/// Options for reading traces.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// The machine that the trace was recorded on: a machine file, hwloc XML, a preset, or a folder (see nearside
    /// topology --from). Nearside's traces describe theirs; perf.data files only name nodes and CPUs, without latencies
    /// [default: from the trace, or else this host]
    #[arg(long, value_name = "PRESET|FILE", add = ArgValueCompleter::new(candidates::machines))]
    machine: Option<String>,

    /// A function of the program that allocates for others, so that its caller is the allocation site; malloc, operator
    /// new and those of the C++ and Rust libraries are known (may be repeated)
    #[arg(long, value_name = "FUNCTION")]
    wrapper: Vec<String>,

    /// Memory that the samples and events of a trace may take, such as 8G [default: half of the memory that this host
    /// has available, and at most 200 times the trace's own size or 128 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_memory: Option<u64>,
}

/// Why the records of a trace cannot be kept.
#[derive(Debug, thiserror::Error)]
enum FillError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(
        "cannot read the trace {}: {why}; `nearside record -- COMMAND` records one, into the folder {} unless -o names another",
        path.display(), folder::DEFAULT
    )]
    NoTrace { path: PathBuf, why: String },
    #[error(
        "cannot read the trace {}: permission denied. A trace is for its owner only{owner}: read it as that user, or with sudo",
        path.display()
    )]
    Denied { path: PathBuf, owner: String },
    #[error(
        "the samples and events of {} exceed {}, the limit of their memory{}: --max-memory {}G allows more",
        path.display(),
        size::rounded(*most_bytes),
        if *is_default { " for a trace of this size on this host" } else { "" },
        most_bytes.saturating_mul(2).div_ceil(1 << 30).max(1)
    )]
    TooLarge { path: PathBuf, most_bytes: u64, is_default: bool },
    #[error(
        "{} has no sample of a memory access: {lost}. perf samples accesses with `perf mem record -- COMMAND`, where the \
         processor has such samples; `nearside record -- COMMAND` says which sources this machine has, and `nearside lab \
         record` needs none of them",
        path.display()
    )]
    NoAccess { path: PathBuf, lost: String },
}

/// A trace that was read.
pub struct OpenTrace {
    pub profile: Profile,
    pub facts: TraceFacts,
    pub about: About,
}

/// Resolves names of code and data of a trace.
enum Names {
    Kept(trace::Symbols),
    Host(HostFiles),
}

impl OpenTrace {
    /// Notes what the trace lacks, for verbs that do not show its facts.
    pub fn note_losses(&self) {
        for lost in self.facts.losses() {
            note(&format!("{}: lost: {lost}", self.facts.path));
        }
    }
}

impl Reading {
    /// Without options but this one.
    pub fn with_max_memory(max_memory: Option<u64>) -> Self {
        Self { max_memory, ..Self::default() }
    }

    /// Of a trace that was recorded on this machine, if one is named.
    pub fn of_machine(machine: Option<String>) -> Self {
        Self { machine, ..Self::default() }
    }

    /// Reads a trace of nearside or a perf.data file.
    pub fn read(&self, path: &Path) -> Result<OpenTrace, Box<dyn Error>> {
        let most_bytes = self.max_memory.unwrap_or_else(|| default_bytes(path));
        if accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) == Err(rustix::io::Errno::ACCESS) {
            let owner = path.metadata().map(|file| format!(", user {}", file.uid())).unwrap_or_default();
            return Err(FillError::Denied { path: path.to_owned(), owner }.into());
        }
        if let Err(why) = path.metadata() {
            return Err(FillError::NoTrace { path: path.to_owned(), why: system_words(&why) }.into());
        }
        let trace = if self.machine.is_some() { Trace::open_without_machine(path) } else { Trace::open(path) }?;
        let (machine, from) = self.machine(&trace, path)?;
        let clock = machine.core.as_ref().map(|core| core.clock_hz);
        let trace = if let Some(hz) = clock { trace.with_core_clock_hz(hz) } else { trace };
        let memory = trace.memory().iter();
        let memory = memory.map(|(range, node)| MemoryRange { start: range.start, end: range.end, node: *node });
        let recording = Recording::new(machine).with_memory(memory.collect()).with_wrappers(self.wrapper.clone());
        let mut recording = recording.with_counts(trace.counts()?);
        let (stacks, mut lost, span_ns) =
            fill(&mut recording, trace.records()?, path, (most_bytes, self.max_memory.is_none()))?;
        let is_complete = trace.is_folder() && trace.about().complete;
        let missing = |table: &&str| missing_files(path, table, trace.about());
        let missing: Vec<Loss> = TABLES.iter().filter(|_| is_complete).filter_map(missing).collect();
        let is_whole = missing.is_empty();
        lost.extend(missing);
        // perf.data files and recordings that were killed have no resolved names.
        let names =
            if is_complete { Names::Kept(trace.symbols()?) } else { Names::Host(HostFiles::new(trace.about())) };
        let profile = recording.into_profile(&stacks, names.symbols());
        if !trace.is_folder() && profile.is_empty() && !lost.is_empty() {
            let lost: Vec<String> =
                lost.iter().map(|loss| format!("{} {}", machine::number::count(loss.count), loss.what)).collect();
            return Err(FillError::NoAccess { path: path.to_owned(), lost: lost.join("; ") }.into());
        }
        for wrapper in self.wrapper.iter().filter(|wrapper| !profile.has_function(wrapper)) {
            let path = path.display();
            note(&format!("--wrapper {wrapper} changes nothing: no call chain of {path} has a function of this name"));
        }
        let mut facts = TraceFacts::new(path.display().to_string(), trace.about(), lost, &profile, from);
        facts.unnamed_files = names.unnamed(&profile);
        // Its first or last record may be missing.
        facts.run_ns = facts.run_ns.filter(|_| is_whole);
        if let Some(span_ns) = span_ns.filter(|_| profile.is_empty()) {
            facts = facts.with_records(span_ns);
        }
        Ok(OpenTrace { profile, facts, about: trace.about().clone() })
    }

    /// The machine, and the source of its description.
    fn machine(&self, trace: &Trace, path: &Path) -> Result<(Machine, String), Box<dyn Error>> {
        if let Some(from) = &self.machine {
            let machine = machine_source::read(Some(from))?;
            // The trace's own description may be missing or damaged.
            let whole = trace.is_folder().then(|| Trace::open(path).ok()).flatten();
            if let Some(recorded) = whole.as_ref().and_then(Trace::machine) {
                check_same_nodes(recorded, &machine, from)?;
            }
            return Ok((machine, format!("as --machine {from} describes it")));
        }
        match trace.machine() {
            Some(machine) if trace.is_folder() => Ok((machine.clone(), "as the trace describes it".to_owned())),
            Some(machine) => {
                let from = "as perf.data names its nodes; --machine FILE has latencies, which gains are predicted from";
                Ok((machine.clone(), from.to_owned()))
            }
            None => {
                let from = "this host, as the trace names no machine; --machine FILE names another one";
                Ok((machine_source::read(None)?, from.to_owned()))
            }
        }
    }
}

/// Accesses belong to nodes by their CPUs, so that another machine's description is wrong for them.
fn check_same_nodes(recorded: &Machine, machine: &Machine, from: &str) -> Result<(), Box<dyn Error>> {
    let has = |node: &Node| machine.node(node.id).is_some_and(|other| node.cpus.is_subset(&other.cpus));
    if recorded.nodes.len() == machine.nodes.len() && recorded.nodes.iter().all(has) {
        return Ok(());
    }
    let text = |machine: &Machine| format!("{} nodes with CPUs {}", machine.nodes.len(), machine.cpus());
    let why = format!(
        "the trace was recorded on {} ({}), and --machine {from} has other nodes or CPUs ({}): leave --machine out, or \
         name a file with more of the same machine",
        recorded.name,
        text(recorded),
        text(machine)
    );
    Err(UsageError::boxed(why))
}

impl Names {
    fn symbols(&self) -> &dyn Symbols {
        match self {
            Self::Kept(symbols) => symbols,
            Self::Host(files) => files,
        }
    }

    /// Programs and libraries of the profile's code that could not be read, and why.
    fn unnamed(&self, profile: &Profile) -> Vec<String> {
        let places = (0..).map_while(|number| profile.code(CodeId(number)));
        let of_code: HashSet<&str> = places.filter_map(|code| Some(&*profile.file(code.file?)?.name)).collect();
        let states: Vec<(Arc<str>, ImageState)> = match self {
            Self::Kept(symbols) => symbols.images().iter().map(|image| (image.path.clone(), image.state)).collect(),
            Self::Host(files) => files.states(),
        };
        let why = |(path, state): (Arc<str>, ImageState)| match state {
            ImageState::Read => None,
            // A trace has paths as text.
            ImageState::Missing if path.contains(char::REPLACEMENT_CHARACTER) => {
                Some(format!("in {path}, whose path is not UTF-8"))
            }
            ImageState::Missing => Some(format!("in {path}, which is not there any more")),
            ImageState::Changed => Some(format!("in {path}, which may not be the recorded file")),
            ImageState::Unreadable => Some(format!("in {path}, which cannot be read")),
            ImageState::TooCompressed => Some(format!(
                "of source lines in {path}: its debugging information takes more memory than {} and {MOST_EXPANSION} times \
                 its length; objcopy --decompress-debug-sections makes it longer",
                size::format(MOST_EXPANDED_BYTES)
            )),
        };
        states.into_iter().filter(|(path, _)| of_code.contains(&**path)).filter_map(why).collect()
    }
}

/// Number of missing files in a table of a finished trace. Files are numbered from 1 in the order of writing. Where the trace
/// does not say how many there were, missing ones at the end go unnoticed.
fn missing_files(trace: &Path, table: &str, about: &About) -> Option<Loss> {
    let entries = fs::read_dir(trace.join(table)).into_iter().flatten().flatten();
    let number = |path: &Path| -> Option<u64> { path.file_stem()?.to_str()?.parse().ok() };
    let tables = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "parquet"));
    let numbers: Vec<u64> = tables.filter_map(|path| number(&path)).collect();
    // The folder is created for the first file.
    let is_there = trace.join(table).is_dir();
    let last = numbers.iter().copied().max().unwrap_or(is_there.into());
    let last = about.files.get(table).copied().unwrap_or(0).max(last);
    let count = last.saturating_sub(numbers.len() as u64);
    (count > 0).then(|| Loss { what: format!("of the files in {table}/, with their records"), count })
}

/// The times of the first and the last record, ns.
type Span = (u64, u64);

/// Maximum memory for the records of a trace, or for a query on them, by default, in bytes. Compressed records of real
/// programs take at most some ten times their size in the trace; what exceeds that is damaged, or made to exhaust memory.
pub fn default_bytes(trace: &Path) -> u64 {
    let expanded = bytes_of(trace).saturating_mul(MOST_EXPANSION_OF_TRACE).max(LEAST_BYTES);
    linux::available_memory().map_or(expanded, |available| expanded.min(available / 2))
}

/// Length of a file, or of all files of a trace's tables.
fn bytes_of(trace: &Path) -> u64 {
    let Ok(folder) = fs::read_dir(trace) else { return fs::metadata(trace).map_or(0, |metadata| metadata.len()) };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    };
    folder.flatten().map(of_entry).sum()
}

/// Reads all records.
fn fill(
    recording: &mut Recording,
    records: Records,
    path: &Path,
    (most_bytes, is_default): (u64, bool),
) -> Result<(Stacks, Vec<Loss>, Option<Span>), FillError> {
    let progress = Progress::new();
    let (mut count, mut span): (usize, Option<Span>) = (0, None);
    let (stacks, lost) = records.read_all(|record| {
        count += 1;
        if count % SHOWN_EVERY == 0 {
            progress.show(count);
            if recording.bytes() > most_bytes {
                return Err(FillError::TooLarge { path: path.to_owned(), most_bytes, is_default });
            }
        }
        match record {
            Record::Sample(sample) => recording.add_samples([sample]),
            Record::Event(event) => {
                // perf gives the time 0 to what existed before.
                if event.time_ns > 0 {
                    span = Some((span.map_or(event.time_ns, |(first, _)| first), event.time_ns));
                }
                recording.add_events([event]);
            }
        }
        Ok(())
    })?;
    Ok((stacks, lost, span))
}

/// Progress of reading, on a terminal and after a while.
struct Progress {
    since: Instant,
    line: ProgressBar,
}

impl Progress {
    fn new() -> Self {
        let line = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            line.set_style(style);
        }
        Self { since: Instant::now(), line }
    }

    fn show(&self, count: usize) {
        if self.since.elapsed() > SOON {
            self.line.set_message(format!("{} samples and events", machine::number::count(count as u64)));
            self.line.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
