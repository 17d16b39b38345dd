//! The files of one table, read as one.

use crate::error::{ReadError, WriteError};
use crate::parquet_file::{TableError, TableFile, encode};
use crate::private::{create_private_file, create_private_folder};
use crate::table::Row;
use crate::timestamped::Timestamped;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::vec;

/// The extension of complete files.
const TABLE_ENDING: &str = "parquet";

/// Maximum number of files that overlap in time. More would mean that a source was minutes late.
const MAX_OPEN: usize = 256;

/// The complete files of a table, sorted by name, which is the order in which they were written. Empty if there is no
/// such table.
pub(crate) fn files<R: Row>(trace: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let folder = trace.join(R::TABLE);
    let failed = |source| ReadError::Io { path: folder.clone(), source };
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == TABLE_ENDING) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Opens a file of a table.
pub(crate) fn open<R: Row>(path: &Path) -> Result<TableFile, ReadError> {
    let file = machine::bounded::open(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })?;
    TableFile::open::<R>(file).map_err(|source| ReadError::table(path, source))
}

/// The columns of a table's files that this version does not know, as `samples.NAME`. Files that cannot be opened are
/// left out: reading the table says why.
pub(crate) fn unknown_columns<R: Row>(trace: &Path) -> Result<BTreeSet<String>, ReadError> {
    let mut unknown = BTreeSet::new();
    for path in files::<R>(trace)? {
        if let Ok(file) = open::<R>(&path) {
            unknown.extend(file.unknown_columns().map(|name| format!("{}.{name:.64}", R::TABLE)));
        }
    }
    Ok(unknown)
}

/// All rows of a table, file by file.
pub(crate) fn all<R: Row>(
    trace: &Path,
    finished: bool,
) -> Result<impl Iterator<Item = Result<Vec<R>, ReadError>>, ReadError> {
    each::<R, _, _>(trace, finished, TableFile::read)
}

/// Reads each file of a table. In an unfinished trace, an unreadable last file is skipped.
pub(crate) fn each<R: Row, T, F: Fn(&TableFile) -> Result<T, TableError>>(
    trace: &Path,
    finished: bool,
    read: F,
) -> Result<impl Iterator<Item = Result<T, ReadError>> + use<R, T, F>, ReadError> {
    let files = files::<R>(trace)?;
    let last = if finished { None } else { files.last().cloned() };
    let read = move |path: PathBuf| {
        let read = open::<R>(&path).and_then(|file| read(&file).map_err(|source| ReadError::table(&path, source)));
        if read.is_err() && Some(path) == last { None } else { Some(read) }
    };
    Ok(files.into_iter().filter_map(read))
}

/// Rows in time order. Each file is sorted, and files overlap a little.
pub(crate) struct Merge<R> {
    /// Files that are not read yet, ordered by their first rows.
    waiting: VecDeque<Waiting>,
    open: Vec<Open<R>>,
}

struct Waiting {
    /// Time of the first row.
    first: u64,
    /// The files are numbered in the order of writing, which decides between equal times.
    number: usize,
    path: PathBuf,
}

struct Open<R> {
    number: usize,
    first: R,
    rest: vec::IntoIter<R>,
}

impl<R: Row + Timestamped> Merge<R> {
    /// Opens all files. In an unfinished trace, an unreadable last file is skipped.
    pub fn new(trace: &Path, finished: bool) -> Result<Self, ReadError> {
        let files = files::<R>(trace)?;
        let mut waiting = Vec::with_capacity(files.len());
        let last = files.len().saturating_sub(1);
        for (number, path) in files.into_iter().enumerate() {
            match open::<R>(&path) {
                // Without a range, the file may start at any time.
                Ok(file) => {
                    let first = file.range_of_first().map_or(0, |range| *range.start());
                    waiting.push(Waiting { first, number, path });
                }
                Err(_) if number == last && !finished => {}
                Err(error) => return Err(error),
            }
        }
        waiting.sort_by_key(|file| file.first);
        Ok(Self { waiting: waiting.into(), open: Vec::new() })
    }

    /// The time of the next row.
    pub fn peek(&mut self) -> Result<Option<u64>, ReadError> {
        loop {
            let next = self.open.iter().map(|file| file.first.time_ns()).min();
            match self.waiting.front() {
                Some(file) if next.is_none_or(|next| file.first <= next) => self.open_next()?,
                _ => return Ok(next),
            }
        }
    }

    /// The next row.
    pub fn next(&mut self) -> Result<Option<R>, ReadError> {
        self.peek()?;
        let times = self.open.iter().enumerate();
        let Some((index, _)) = times.min_by_key(|(_, file)| (file.first.time_ns(), file.number)) else {
            return Ok(None);
        };
        let Some(file) = self.open.get_mut(index) else { return Ok(None) };
        Ok(Some(match file.rest.next() {
            Some(following) => std::mem::replace(&mut file.first, following),
            None => self.open.swap_remove(index).first,
        }))
    }

    fn open_next(&mut self) -> Result<(), ReadError> {
        let Some(Waiting { first, number, path }) = self.waiting.pop_front() else { return Ok(()) };
        if self.open.len() == MAX_OPEN {
            let what = format!("rows of the same time as {MAX_OPEN} other files");
            return Err(ReadError::table(&path, TableError::TooLarge(what)));
        }
        let rows: Vec<R> = open::<R>(&path)?.read().map_err(|source| ReadError::table(&path, source))?;
        let early = rows.first().is_some_and(|row| row.time_ns() < first);
        if early || !rows.is_sorted_by_key(Timestamped::time_ns) {
            return Err(ReadError::table(&path, TableError::Order));
        }
        let mut rest = rows.into_iter();
        if let Some(first) = rest.next() {
            self.open.push(Open { number, first, rest });
        }
        Ok(())
    }
}

/// Writes one file of a table.
pub(crate) fn write_table<R: Row>(trace: &Path, number: u32, rows: &[R]) -> Result<(), WriteError> {
    let folder = trace.join(R::TABLE);
    let path = folder.join(format!("{number:06}.{TABLE_ENDING}"));
    let bytes = encode(rows).map_err(|error| WriteError::Encode { path: path.clone(), error })?;
    create_private_folder(&folder).map_err(|error| WriteError::Io { path: folder, error })?;
    put(&path, &bytes)
}

/// Puts a file in place atomically.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let part = path.with_extension("part");
    // What an earlier recorder left has its own mode.
    let _ = fs::remove_file(&part);
    let written =
        create_private_file(&part).and_then(|mut file| file.write_all(bytes)).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        // The file may not exist; the first error is the one to report.
        let _ = fs::remove_file(&part);
        WriteError::Io { path: path.to_owned(), error }
    })
}
