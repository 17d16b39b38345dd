//! Why a trace cannot be read.

use crate::about::FORMAT;
use crate::parquet_file::TableError;
use machine::MachineError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Neither a trace nor a perf.data file.
    #[error(
        "{} is no trace: a trace is a folder with trace.toml, as `nearside record` writes it, or a perf.data file",
        .0.display()
    )]
    Foreign(PathBuf),
    /// `trace.toml` is wrong.
    #[error("{} does not describe a trace: {source}", path.display())]
    About {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<toml::de::Error>,
    },
    /// A trace of another version.
    #[error("{} is of format {found}, and this nearside reads format {FORMAT}: use the nearside that wrote it", path.display())]
    Format {
        /// The trace.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// `machine.toml` is wrong.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A perf.data file that cannot be read.
    #[error("{} cannot be read: {what}", path.display())]
    PerfData {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A table is damaged, or not one of ours.
    #[error("{} is damaged: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Damage,
    },
}

/// What is wrong with a file of a table.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Damage(#[from] TableError);

impl ReadError {
    pub(crate) fn table(path: &Path, error: TableError) -> Self {
        Self::Table { path: path.to_owned(), source: Damage(error) }
    }
}
