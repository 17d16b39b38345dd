//! Reads a trace: what it says of itself, then its samples and events in the order of time, in bounded memory.

use crate::about::FORMAT;
use crate::error::ReadError;
use crate::parquet_file::TableError;
use crate::perf_data::{PerfData, PerfRecords, is_perf_data};
use crate::rows::Frame;
use crate::symbol_rows::read_symbols;
use crate::symbols::{Occurrences, Symbols};
use crate::table::Row;
use crate::table_folder::{Merge, all};
use crate::writer::{ABOUT, MACHINE};
use crate::{About, Count, Event, Loss, Sample, StackId, Stacks};
use machine::{Machine, NodeId};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

/// Longer than any text of a trace: that of the largest machine has 20 MB.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// Records of a folder that are handed over at once.
const BATCH: usize = 1 << 14;
/// So many rounds or batches wait at most for who takes them.
const WAITING: usize = 8;

/// A trace, or a perf.data file, which is read as one.
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

/// What a trace has, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An access to memory.
    Sample(Sample),
    /// Something that happened to a process.
    Event(Event),
}

/// Samples and events in the order of time; of the same time, events come first. After an error, there is nothing more.
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
    /// Opens a trace or a perf.data file, and reads what it says of itself.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let trace = Self::open_without_machine(path)?;
        let Kept::Folder(folder) = &trace.kept else { return Ok(trace) };
        let path = folder.join(MACHINE);
        let machine = Machine::from_toml(&read_text(&path)?, &path)?;
        Ok(Self { machine: Some(machine), ..trace })
    }

    /// Likewise, for who knows the machine himself: a trace's own description of it may be missing or damaged.
    pub fn open_without_machine(path: &Path) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_dir() {
            if !is_perf_data(&file) {
                return Err(ReadError::Foreign(path.to_owned()));
            }
            let perf = PerfData::open(path)?;
            let (about, machine) = (perf.about(), perf.machine());
            return Ok(Self { about, machine, kept: Kept::PerfData(Box::new(perf)) });
        }
        let about_path = path.join(ABOUT);
        let text = match read_text(&about_path) {
            Err(ReadError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(ReadError::Foreign(path.to_owned()));
            }
            text => text?,
        };
        let about: About =
            toml::from_str(&text).map_err(|source| ReadError::About { path: about_path, source: Box::new(source) })?;
        if about.format != FORMAT {
            return Err(ReadError::Format { path: path.to_owned(), found: about.format });
        }
        Ok(Self { about, machine: None, kept: Kept::Folder(path.to_owned()) })
    }

    /// What it says of itself. What a perf.data file has lost is known when its records have been read.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The machine that it was recorded on. Of perf.data files it is nodes with their CPUs and memory only; none where
    /// perf has not written these down.
    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// The physical memory of each node, in the order of addresses: of perf.data files that have it, empty of others.
    pub fn memory(&self) -> &[(Range<u64>, NodeId)] {
        match &self.kept {
            Kept::Folder(_) => &[],
            Kept::PerfData(perf) => perf.memory(),
        }
    }

    /// Takes it that the cores of a perf.data file's machine run at this rate, unless the file says otherwise: latencies
    /// that processors tell in cycles are ns then.
    #[must_use]
    pub fn with_core_clock_hz(mut self, hz: f64) -> Self {
        if let Kept::PerfData(perf) = &mut self.kept {
            perf.assume_core_clock(hz);
        }
        self
    }

    /// Whether it is one of nearside's own: a folder.
    pub fn is_folder(&self) -> bool {
        matches!(self.kept, Kept::Folder(_))
    }

    /// The folder of its tables; perf.data files have none.
    #[cfg(feature = "sql")]
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.kept {
            Kept::Folder(folder) => Some(folder),
            Kept::PerfData(_) => None,
        }
    }

    /// Its samples and events, from the first one.
    pub fn records(&self) -> Result<Records, ReadError> {
        let finished = self.about.complete;
        let stream = match &self.kept {
            Kept::Folder(folder) => Stream::Folder(Box::new(Folder {
                samples: Merge::new(folder, finished)?,
                events: Merge::new(folder, finished)?,
                stacks: stacks(folder, finished)?,
                lost: self.about.lost.clone(),
            })),
            Kept::PerfData(perf) => Stream::PerfData(Box::new(perf.records()?)),
        };
        Ok(Records { stream, failed: false })
    }

    /// What was counted beside its samples, moment by moment; nothing where the source counts nothing.
    pub fn counts(&self) -> Result<Vec<Count>, ReadError> {
        let Kept::Folder(folder) = &self.kept else { return Ok(Vec::new()) };
        let mut counts = Vec::new();
        for file in all::<Count>(folder, self.about.complete)? {
            counts.append(&mut file?);
        }
        counts.sort_by_key(|count| count.time_ns);
        Ok(counts)
    }

    /// What is known of the files that were mapped. A trace that was finished has it; of others it is looked up here, in
    /// the files of this machine as far as they are the same, after reading all records.
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
    /// The call chains that the records named so far.
    pub fn stacks(&self) -> &Stacks {
        match &self.stream {
            Stream::Folder(folder) => &folder.stacks,
            Stream::PerfData(perf) => perf.decoded().stacks(),
        }
    }

    /// What should be there and is not, as far as the records have been read.
    pub fn lost(&self) -> &[Loss] {
        match &self.stream {
            Stream::Folder(folder) => &folder.lost,
            Stream::PerfData(perf) => perf.decoded().lost(),
        }
    }

    /// Hands over what iterating does, for those who read all of a large trace: another thread reads ahead. The call
    /// chains that the records named, and what was lost.
    pub fn read_all(mut self, mut take: impl FnMut(Record)) -> Result<(Stacks, Vec<Loss>), ReadError> {
        if let Stream::PerfData(perf) = &mut self.stream {
            let (decoded, rounds) = perf.parts();
            ahead(
                |used| decoded.next_round(used),
                |round| {
                    let used = rounds.add(round);
                    std::iter::from_fn(|| rounds.next()).for_each(&mut take);
                    used
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
            ahead(next, |mut batch| {
                batch.drain(..).for_each(&mut take);
                batch
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

/// Makes one list after another in a thread of its own, a few ahead of who takes them. Lists that were taken are used
/// again.
fn ahead<L: Default + Send>(
    mut next: impl FnMut(L) -> Result<Option<L>, ReadError> + Send,
    mut take: impl FnMut(L) -> L,
) -> Result<(), ReadError> {
    let (to, from) = sync_channel(WAITING);
    let (back, used) = channel();
    thread::scope(|scope| {
        let made = scope.spawn(move || {
            while let Some(list) = next(used.try_recv().unwrap_or_default())? {
                // It is taken, as long as nothing panics.
                let _ = to.send(list);
            }
            Ok(())
        });
        for list in from {
            // The other thread may have come to its end.
            let _ = back.send(take(list));
        }
        made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_TEXT_BYTES {
        let source = TableError::TooLarge(format!("{length} bytes of text"));
        return Err(ReadError::table(path, source));
    }
    fs::read_to_string(path).map_err(failed)
}

/// All call chains. Their numbers are as they were written.
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
