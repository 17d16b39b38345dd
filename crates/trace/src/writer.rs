//! Writes a trace during the recording, as complete files of limited size. Each is put in place atomically, so the
//! trace can be read whatever happens to the recorder.

use crate::error::WriteError;
use crate::private::create_private_folder;
use crate::rows::Frame;
use crate::symbol_rows::write_symbols;
use crate::table::Row;
use crate::table_folder::{put, write_table};
use crate::timestamped::Timestamped;
use crate::{About, Count, Event, Sample, Stacks, Trace};
use machine::Machine;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file that makes a folder a trace.
pub(crate) const ABOUT: &str = "trace.toml";
/// The description of the machine.
pub(crate) const MACHINE: &str = "machine.toml";

/// When rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Write a table once it has this many rows.
    pub rows: usize,
    /// Write, in [`Writer::tick`], once the oldest row has waited this long.
    pub after: Duration,
}

impl Default for Flush {
    /// 65,536 rows need about 8 MB of memory. A crash loses at most 5 seconds.
    fn default() -> Self {
        Self { rows: 1 << 16, after: Duration::from_secs(5) }
    }
}

/// A trace that is being written.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    about: About,
    flush: Flush,
    samples: Pending<Sample>,
    events: Pending<Event>,
    counts: Pending<Count>,
    frames: Pending<Frame>,
    stacks: Stacks,
    stacks_written: usize,
    /// Whether this created the folder.
    made: bool,
}

/// Rows that are not written yet.
#[derive(Debug)]
struct Pending<R> {
    rows: Vec<R>,
    /// When the oldest row was added.
    since: Option<Instant>,
    /// Number of files written.
    files: u32,
}

impl Writer {
    /// Starts a trace in a folder, which has to be empty if it exists. Only its owner may read what this creates.
    pub fn create(folder: &Path, about: About, machine: &Machine, flush: Flush) -> Result<Self, WriteError> {
        let failed = |error| WriteError::Folder { path: folder.to_owned(), error };
        let made = !folder.is_dir();
        if made && folder.exists() {
            return Err(WriteError::Exists(folder.to_owned()));
        }
        create_private_folder(folder).map_err(failed)?;
        if fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(WriteError::Exists(folder.to_owned()));
        }
        let machine = machine.to_toml()?;
        let writer = Self {
            folder: folder.to_owned(),
            about: About { complete: false, ..about },
            flush,
            samples: Pending::default(),
            events: Pending::default(),
            counts: Pending::default(),
            frames: Pending::default(),
            stacks: Stacks::new(),
            stacks_written: 1, // the empty chain has no frame
            made,
        };
        let described = put(&folder.join(MACHINE), machine.as_bytes()).and_then(|()| writer.describe());
        if let Err(error) = described {
            // What is left of it would be in the way of the next trace; the first error says what is wrong.
            let _ = writer.take_back();
            return Err(error);
        }
        Ok(writer)
    }

    /// The call chains of the trace, which assign their IDs.
    pub fn stacks(&mut self) -> &mut Stacks {
        &mut self.stacks
    }

    /// The metadata of the trace, to be completed.
    pub fn about(&mut self) -> &mut About {
        &mut self.about
    }

    /// Adds a sample. Its call chain is one of [`Writer::stacks`].
    pub fn sample(&mut self, sample: Sample) -> Result<(), WriteError> {
        self.samples.add(sample);
        if self.samples.rows.len() >= self.flush.rows { self.write() } else { Ok(()) }
    }

    /// Adds an event. Its call chain is one of [`Writer::stacks`].
    pub fn event(&mut self, event: Event) -> Result<(), WriteError> {
        self.events.add(event);
        if self.events.rows.len() >= self.flush.rows { self.write() } else { Ok(()) }
    }

    /// Adds a counter value.
    pub fn count(&mut self, count: Count) -> Result<(), WriteError> {
        self.counts.add(count);
        if self.counts.rows.len() >= self.flush.rows { self.write() } else { Ok(()) }
    }

    /// Writes rows that have waited long enough. To be called periodically.
    pub fn tick(&mut self) -> Result<(), WriteError> {
        let waited = [self.samples.since, self.events.since, self.counts.since]
            .into_iter()
            .flatten()
            .any(|since| since.elapsed() >= self.flush.after);
        if waited { self.write() } else { Ok(()) }
    }

    /// Removes a trace to which nothing has been written, because there is nothing to record.
    pub fn take_back(self) -> Result<(), WriteError> {
        for file in [ABOUT, MACHINE] {
            let path = self.folder.join(file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(WriteError::Io { path, error }),
                _ => {}
            }
        }
        if self.made {
            fs::remove_dir(&self.folder).map_err(|error| WriteError::Io { path: self.folder, error })?;
        }
        Ok(())
    }

    /// Finishes the trace: looks up the symbols of what occurred while the mapped files still exist.
    pub fn finish(mut self) -> Result<PathBuf, WriteError> {
        self.write()?;
        let trace = Trace::open(&self.folder).map_err(|source| WriteError::Read(Box::new(source)))?;
        let occurred = trace.occurrences().map_err(|source| WriteError::Read(Box::new(source)))?;
        write_symbols(&self.folder, &occurred.resolve(Path::new("/"), self.about.began_unix_s))?;
        self.about.complete = true;
        let Self { frames, events, samples, counts, .. } = &self;
        self.about.files = [frames.written(), events.written(), samples.written(), counts.written()].into();
        self.describe()?;
        Ok(self.folder)
    }

    /// Writes all pending rows. Call chains come first, so that no row refers to a missing one, and events come
    /// before samples, which mean nothing without them.
    fn write(&mut self) -> Result<(), WriteError> {
        let new = self.stacks.iter().skip(self.stacks_written);
        let frames = new.flat_map(|(stack, chain)| {
            let frame = move |(depth, address): (usize, &u64)| Frame { stack, depth: depth as u32, address: *address };
            chain.iter().enumerate().map(frame)
        });
        self.frames.rows.extend(frames);
        self.stacks_written = self.stacks.iter().len();
        self.frames.write(&self.folder, self.flush.rows)?;
        self.events.rows.sort_by_key(Timestamped::time_ns);
        self.events.write(&self.folder, self.flush.rows)?;
        self.samples.rows.sort_by_key(Timestamped::time_ns);
        self.samples.write(&self.folder, self.flush.rows)?;
        self.counts.write(&self.folder, self.flush.rows)?;
        self.describe()
    }

    fn describe(&self) -> Result<(), WriteError> {
        put(&self.folder.join(ABOUT), toml::to_string(&self.about)?.as_bytes())
    }
}

impl<R> Default for Pending<R> {
    fn default() -> Self {
        Self { rows: Vec::new(), since: None, files: 0 }
    }
}

impl<R: Row> Pending<R> {
    fn add(&mut self, row: R) {
        self.since.get_or_insert_with(Instant::now);
        self.rows.push(row);
    }

    /// The table, and its number of files.
    fn written(&self) -> (String, u64) {
        (R::TABLE.to_owned(), self.files.into())
    }

    /// Writes all rows, in files of `rows` each. Rows that could not be written are kept.
    fn write(&mut self, trace: &Path, rows: usize) -> Result<(), WriteError> {
        while !self.rows.is_empty() {
            let rows = self.rows.len().min(rows.max(1));
            write_table(trace, self.files + 1, self.rows.get(..rows).unwrap_or_default())?;
            self.files += 1;
            self.rows.drain(..rows);
        }
        self.since = None;
        Ok(())
    }
}
