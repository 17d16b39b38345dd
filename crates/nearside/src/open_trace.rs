//! Reads a trace: its description, and the profile of its samples and events.

use crate::options::machine_source;
use crate::options::policy::note;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use machine::Machine;
use profile::{CodeId, MemoryRange, Profile, Recording, Symbols};
use report::TraceFacts;
use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::{About, HostFiles, ImageState, Loss, ReadError, Record, Records, Stacks, TABLES, Trace};

/// Number of records between two checks of the clock.
const SHOWN_EVERY: usize = 1 << 14;
/// Reading that takes longer shows its progress.
const SOON: Duration = Duration::from_secs(2);

/// Options for reading traces.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// The machine that the trace was recorded on: a machine file, hwloc XML, a preset, or a folder (see nearside
    /// topology --from). Nearside's traces describe theirs; perf.data files only name nodes and CPUs, without latencies
    /// [default: from the trace, or else this host]
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,

    /// A function of the program that allocates for others, so that its caller is the allocation site; malloc, operator
    /// new and those of language runtimes are known (may be repeated)
    #[arg(long, value_name = "FUNCTION")]
    wrapper: Vec<String>,
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

impl Reading {
    /// Reads a trace of nearside or a perf.data file.
    pub fn read(&self, path: &Path) -> Result<OpenTrace, Box<dyn Error>> {
        let trace = if self.machine.is_some() { Trace::open_without_machine(path) } else { Trace::open(path) }?;
        let (machine, from) = self.machine(&trace)?;
        let clock = machine.core.as_ref().map(|core| core.clock_hz);
        let trace = if let Some(hz) = clock { trace.with_core_clock_hz(hz) } else { trace };
        let memory = trace.memory().iter();
        let memory = memory.map(|(range, node)| MemoryRange { start: range.start, end: range.end, node: *node });
        let recording = Recording::new(machine).with_memory(memory.collect()).with_wrappers(self.wrapper.clone());
        let mut recording = recording.with_counts(trace.counts()?);
        let (stacks, mut lost, span_ns) = fill(&mut recording, trace.records()?)?;
        if trace.is_folder() && trace.about().complete {
            lost.extend(TABLES.iter().filter_map(|table| missing_files(path, table)));
        }
        // perf.data files and recordings that were killed have no resolved names.
        let names = if trace.is_folder() && trace.about().complete {
            Names::Kept(trace.symbols()?)
        } else {
            Names::Host(HostFiles::new(trace.about()))
        };
        let profile = recording.into_profile(&stacks, names.symbols());
        for wrapper in self.wrapper.iter().filter(|wrapper| !profile.has_function(wrapper)) {
            let path = path.display();
            note(&format!("--wrapper {wrapper} changes nothing: no call chain of {path} has a function of this name"));
        }
        let mut facts = TraceFacts::new(path.display().to_string(), trace.about(), lost, &profile, from);
        facts.unnamed_files = names.unnamed(&profile);
        if let Some(span_ns) = span_ns.filter(|_| profile.is_empty()) {
            facts = facts.with_records(span_ns);
        }
        Ok(OpenTrace { profile, facts, about: trace.about().clone() })
    }

    /// The machine, and the source of its description.
    fn machine(&self, trace: &Trace) -> Result<(Machine, String), Box<dyn Error>> {
        if let Some(from) = &self.machine {
            return Ok((machine_source::read(Some(from))?, format!("as --machine {from} describes it")));
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
            ImageState::Missing => Some(format!("in {path}, which is not there any more")),
            ImageState::Changed => Some(format!("in {path}, which may not be the recorded file")),
            ImageState::Unreadable => Some(format!("in {path}, which cannot be read")),
        };
        states.into_iter().filter(|(path, _)| of_code.contains(&**path)).filter_map(why).collect()
    }
}

/// Number of missing files in a table of a finished trace. Files are numbered from 1 in the order of writing, so
/// missing ones at the end go unnoticed.
fn missing_files(trace: &Path, table: &str) -> Option<Loss> {
    let entries = fs::read_dir(trace.join(table)).ok()?.flatten();
    let number = |path: &Path| -> Option<u64> { path.file_stem()?.to_str()?.parse().ok() };
    let tables = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "parquet"));
    let numbers: Vec<u64> = tables.filter_map(|path| number(&path)).collect();
    // The folder is created for the first file.
    let last = numbers.iter().copied().max().unwrap_or(1);
    let count = last.saturating_sub(numbers.len() as u64);
    (count > 0).then(|| Loss { what: format!("of the files in {table}/, with their records"), count })
}

/// The times of the first and the last record, ns.
type Span = (u64, u64);

/// Reads all records.
fn fill(recording: &mut Recording, records: Records) -> Result<(Stacks, Vec<Loss>, Option<Span>), ReadError> {
    let progress = Progress::new();
    let (mut count, mut span): (usize, Option<Span>) = (0, None);
    let (stacks, lost) = records.read_all(|record| {
        count += 1;
        if count % SHOWN_EVERY == 0 {
            progress.show(count);
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
            self.line.set_message(format!("{} samples and events", report::count(count as u64)));
            self.line.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
