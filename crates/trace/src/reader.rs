//! Reads a trace in bounded memory: its metadata, then its samples and events in time order.

use crate::error::ReadError;
use crate::metadata::{FORMAT, OLDEST_FORMAT};
use crate::parquet_file::TableError;
use crate::perf::{self, PerfRecords, RoundPart};
use crate::rows::Frame;
use crate::symbol_rows::read_symbols;
use crate::symbols::{Occurrences, Symbols};
use crate::table::Row;
use crate::table_folder::{Merge, all};
use crate::tables::unknown_in_all_tables;
use crate::writer::{ABOUT, MACHINE};
use crate::{About, Count, Event, Loss, Sample, StackId, Stacks};
use machine::{Machine, NodeId, bounded};
use perf_data::{PerfData, is_perf_data};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

/// Number of records of a folder that are handed over at once.
const BATCH: usize = 1 << 14;
/// Maximum number of rounds or batches that wait for the consumer.
const WAITING: usize = 8;

/// A trace, or a perf.data file read as one.
#[derive(Debug)]
pub struct Trace {
    about: About,
    machine: Option<Machine>,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    Folder(PathBuf),
    PerfData(Box<PerfData>),
}

/// A record of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A memory access.
    Sample(Sample),
    /// An event of a process.
    Event(Event),
}

/// Samples and events in time order; at equal times, events come first. The iterator ends after an error.
pub struct Records {
    stream: Stream,
    failed: bool,
}

enum Stream {
    Folder(Box<Folder>),
    PerfData(Box<PerfRecords>),
}

struct Folder {
    samples: Merge<Sample>,
    events: Merge<Event>,
    stacks: Stacks,
    lost: Vec<Loss>,
}

impl Trace {
    /// Opens a trace or a perf.data file, and reads its metadata.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let trace = Self::open_without_machine(path)?;
        let Kept::Folder(folder) = &trace.kept else { return Ok(trace) };
        let path = folder.join(MACHINE);
        let machine = Machine::from_toml(&read_text(&path)?, &path)?;
        Ok(Self { machine: Some(machine), ..trace })
    }

    /// Opens it without its machine description, which may be missing or damaged, for callers that know the machine.
    pub fn open_without_machine(path: &Path) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let file = bounded::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_dir() {
            if !is_perf_data(&file) {
                return Err(ReadError::Foreign(path.to_owned()));
            }
            let perf = PerfData::open(path)?;
            let (about, machine) = (perf::about(&perf), perf.session().features.machine());
            return Ok(Self { about, machine, kept: Kept::PerfData(Box::new(perf)) });
        }
        let about_path = path.join(ABOUT);
        let text = match read_text(&about_path) {
            Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(ReadError::Foreign(path.to_owned()));
            }
            text => text?,
        };
        let mut about: About =
            toml::from_str(&text).map_err(|source| ReadError::About { path: about_path, source: Box::new(source) })?;
        if !(OLDEST_FORMAT..=FORMAT).contains(&about.format) {
            return Err(ReadError::Format { path: path.to_owned(), found: about.format });
        }
        about.notes.extend(unknown_columns(path, &about.written_by)?);
        Ok(Self { about, machine: None, kept: Kept::Folder(path.to_owned()) })
    }

    /// The metadata. The losses of a perf.data file are known once its records have been read.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The machine of the recording. For perf.data files it has only nodes with their CPUs and memory, and is `None`
    /// if perf did not record these.
    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// The physical memory of each node, by address, if a perf.data file has it; otherwise empty.
    pub fn memory(&self) -> &[(Range<u64>, NodeId)] {
        match &self.kept {
            Kept::Folder(_) => &[],
            Kept::PerfData(perf) => perf.session().features.memory(),
        }
    }

    /// Sets the core frequency of a perf.data file's machine, unless the file has it. Latencies in cycles are then
    /// converted to ns.
    #[must_use]
    pub fn with_core_clock_hz(mut self, hz: f64) -> Self {
        if let Kept::PerfData(perf) = &mut self.kept {
            perf.assume_core_clock(hz);
        }
        self
    }

    /// Whether it is a trace folder of nearside.
    pub fn is_folder(&self) -> bool {
        matches!(self.kept, Kept::Folder(_))
    }

    /// The folder of its tables; `None` for perf.data files.
    #[cfg(feature = "sql")]
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.kept {
            Kept::Folder(folder) => Some(folder),
            Kept::PerfData(_) => None,
        }
    }

    /// Its samples and events, from the start.
    pub fn records(&self) -> Result<Records, ReadError> {
        let finished = self.about.complete;
        let stream = match &self.kept {
            Kept::Folder(folder) => Stream::Folder(Box::new(Folder {
                samples: Merge::new(folder, finished)?,
                events: Merge::new(folder, finished)?,
                stacks: stacks(folder, finished)?,
                lost: self.about.lost.clone(),
            })),
            Kept::PerfData(perf) => Stream::PerfData(Box::new(PerfRecords::new(perf)?)),
        };
        Ok(Records { stream, failed: false })
    }

    /// Its counter values, by time; empty if the source has no counters.
    pub fn counts(&self) -> Result<Vec<Count>, ReadError> {
        let Kept::Folder(folder) = &self.kept else { return Ok(Vec::new()) };
        let mut counts = Vec::new();
        for file in all::<Count>(folder, self.about.complete)? {
            counts.append(&mut file?);
        }
        counts.sort_by_key(|count| count.time_ns);
        Ok(counts)
    }

    /// The symbols of the mapped files. A finished trace contains them. For other traces, they are looked up in the
    /// files of this machine that are identical, after reading all records.
    pub fn symbols(&self) -> Result<Symbols, ReadError> {
        match &self.kept {
            Kept::Folder(folder) if self.about.complete => read_symbols(folder, true),
            _ => Ok(self.occurrences()?.resolve(Path::new("/"), self.about.began_unix_s)),
        }
    }

    pub(crate) fn occurrences(&self) -> Result<Occurrences, ReadError> {
        let mut occurrences = Occurrences::default();
        let mut records = self.records()?;
        while let Some(record) = records.next().transpose()? {
            occurrences.take(&record, records.stacks());
        }
        Ok(occurrences)
    }
}

impl Records {
    /// The call chains that the records refer to so far.
    pub fn stacks(&self) -> &Stacks {
        match &self.stream {
            Stream::Folder(folder) => &folder.stacks,
            Stream::PerfData(perf) => perf.decoded().stacks(),
        }
    }

    /// Data that are missing, as far as the records have been read.
    pub fn lost(&self) -> &[Loss] {
        match &self.stream {
            Stream::Folder(folder) => &folder.lost,
            Stream::PerfData(perf) => perf.decoded().lost(),
        }
    }

    /// Passes all records to `take` until it fails, while another thread reads ahead: for large traces. They are in
    /// the iterator's order, except the first samples of rounds of perf.data that have too many to keep. Returns the
    /// call chains and the losses.
    pub fn read_all<E: From<ReadError>>(
        mut self,
        mut take: impl FnMut(Record) -> Result<(), E>,
    ) -> Result<(Stacks, Vec<Loss>), E> {
        if let Stream::PerfData(perf) = &mut self.stream {
            let (decoded, rounds) = perf.parts();
            ahead::<_, E>(
                |used| decoded.next_or_early(used),
                |RoundPart { round, mut early }| {
                    if !early.is_empty() {
                        early.drain(..).map(Record::Sample).try_for_each(&mut take)?;
                        return Ok(RoundPart { round, early });
                    }
                    let round = rounds.add(round);
                    std::iter::from_fn(|| rounds.next()).try_for_each(&mut take)?;
                    Ok(RoundPart { round, early })
                },
            )?;
        } else {
            let records = &mut self;
            let next = |mut batch: Vec<Record>| {
                for record in records.take(BATCH) {
                    batch.push(record?);
                }
                Ok((!batch.is_empty()).then_some(batch))
            };
            ahead::<_, E>(next, |mut batch| {
                batch.drain(..).try_for_each(&mut take)?;
                Ok(batch)
            })?;
        }
        Ok((self.stacks().clone(), self.lost().to_vec()))
    }

    fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        let (samples, events) = match &mut self.stream {
            Stream::Folder(folder) => (&mut folder.samples, &mut folder.events),
            Stream::PerfData(perf) => return perf.next_record(),
        };
        Ok(match (samples.peek()?, events.peek()?) {
            (Some(sample), Some(event)) if event <= sample => events.next()?.map(Record::Event),
            (None, _) => events.next()?.map(Record::Event),
            (Some(_), _) => samples.next()?.map(Record::Sample),
        })
    }
}

impl Iterator for Records {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_record();
        self.failed = next.is_err();
        next.transpose()
    }
}

/// Produces lists in a thread of its own, a few ahead of the consumer. Consumed lists are reused.
fn ahead<L: Default + Send, E: From<ReadError>>(
    mut next: impl FnMut(L) -> Result<Option<L>, ReadError> + Send,
    mut take: impl FnMut(L) -> Result<L, E>,
) -> Result<(), E> {
    let (to, from) = sync_channel(WAITING);
    let (back, used) = channel();
    thread::scope(|scope| {
        let made = scope.spawn(move || {
            while let Some(list) = next(used.try_recv().unwrap_or_default())? {
                if to.send(list).is_err() {
                    break;
                }
            }
            Ok(())
        });
        // Consumes the receiver, so that after a failure the other thread ends.
        let taken = from.into_iter().try_for_each(|list| {
            // The other thread may have ended.
            let _ = back.send(take(list)?);
            Ok(())
        });
        let made = made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        taken.and(made.map_err(E::from))
    })
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    bounded::text(path).map_err(failed)
}

/// A note about the columns of a trace that this version ignores, if it has any.
fn unknown_columns(trace: &Path, written_by: &str) -> Result<Option<String>, ReadError> {
    /// Names in the note.
    const MOST: usize = 8;
    let all: Vec<String> = unknown_in_all_tables(trace)?.into_iter().flatten().collect();
    let more = all.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("{more} more"));
    let names: Vec<&str> = all.iter().take(MOST).map(String::as_str).chain(more.as_deref()).collect();
    let note = format!(
        "the tables, written by {written_by:.64}, have columns that nearside {} does not know, and ignores: {}",
        env!("CARGO_PKG_VERSION"),
        names.join(", ")
    );
    Ok((!all.is_empty()).then_some(note))
}

/// All call chains, numbered as they were written.
fn stacks(trace: &Path, finished: bool) -> Result<Stacks, ReadError> {
    let mut stacks = Stacks::new();
    let mut chain = Vec::new();
    let mut current = None;
    let wrong = || ReadError::table(&trace.join(Frame::TABLE), TableError::Stacks);
    let mut keep = |chain: &mut Vec<u64>, stack: Option<StackId>| {
        let kept = stack.is_none_or(|stack| stacks.id(chain) == stack);
        chain.clear();
        kept
    };
    for frames in all::<Frame>(trace, finished)? {
        for frame in frames? {
            if current != Some(frame.stack) {
                if !keep(&mut chain, current) {
                    return Err(wrong());
                }
                current = Some(frame.stack);
            }
            if frame.depth as usize != chain.len() {
                return Err(wrong());
            }
            chain.push(frame.address);
        }
    }
    if keep(&mut chain, current) { Ok(stacks) } else { Err(wrong()) }
}
