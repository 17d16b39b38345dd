//! Why a trace cannot be read or written.

use crate::metadata::{FORMAT, OLDEST_FORMAT};
use crate::parquet_file::TableError;
use machine::MachineError;
use parquet::errors::ParquetError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A system call failed.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is neither a trace nor a perf.data file.
    #[error(
        "{} is not a trace: a trace is a folder with trace.toml, as written by `nearside record`, or a perf.data file",
        .0.display()
    )]
    Foreign(PathBuf),
    /// `trace.toml` is invalid.
    #[error("{} does not describe a trace", path.display())]
    About {
        /// The file.
        path: PathBuf,
        /// The parse error.
        source: Box<toml::de::Error>,
    },
    /// The trace was written by an incompatible version.
    #[error(
        "{} is of format {found}, but this nearside reads formats {OLDEST_FORMAT} to {FORMAT}: record again with this one, \
         or read it with the build that wrote it",
        path.display()
    )]
    Format {
        /// The trace.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// `machine.toml` is invalid.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A perf.data file that cannot be decoded.
    #[error("{} cannot be read: {what}", path.display())]
    PerfData {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: &'static str,
    },
    /// A table is damaged, or not a table of a trace.
    #[error("{} is damaged", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Damage,
    },
}

/// The reason why the file of a table cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Damage(#[from] TableError);

impl ReadError {
    pub(crate) fn table(path: &Path, error: TableError) -> Self {
        Self::Table { path: path.to_owned(), source: Damage(error) }
    }
}

/// Why a trace cannot be written. The part written before can be read.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The folder exists and is not empty, or is a file.
    #[error("{} exists and is not an empty folder: choose another folder for the trace, or remove it", .0.display())]
    Exists(PathBuf),
    /// The folder cannot be made, or cannot be looked into.
    #[error("cannot make the folder {} of the trace: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A system call failed.
    #[error("cannot write {} of the trace: {error}; what was written before it, if anything was, can be read", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Rows could not be encoded.
    #[error("cannot encode {} of the trace: {error}; what was written before it, if anything was, can be read", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: ParquetError,
    },
    /// The machine's description cannot be written as TOML.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The trace was written but could not be read back for its symbols.
    #[error("the trace was written, but cannot be finished")]
    Read(#[source] Box<ReadError>),
    /// The trace's description cannot be written as TOML.
    #[error("cannot describe the trace")]
    About(#[from] toml::ser::Error),
}
