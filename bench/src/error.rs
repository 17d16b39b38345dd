//! Errors of demos and benchmarks.

use std::io;
use std::path::PathBuf;

/// Why a demo or a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of nearside is not beside this one.
    #[error("there is no {name} in {}: build it with `cargo build --release --workspace`", folder.display())]
    NotBuilt {
        /// Its name.
        name: &'static str,
        /// The folder searched.
        folder: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// The operation.
        what: String,
        /// The error.
        #[source]
        why: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed: {status}\n  | {}", said.trim_end().replace('\n', "\n  | "))]
    Failed {
        /// The command.
        command: String,
        /// Its exit status.
        status: String,
        /// Its output.
        said: String,
    },
    /// A command's output lacks a figure.
    #[error("`{command}` printed no {figure}: {said}")]
    NoFigure {
        /// The command.
        command: String,
        /// The figure.
        figure: String,
        /// Its output.
        said: String,
    },
    /// The report of a run in the lab cannot be read.
    #[error("the report of `{command}` is not as expected")]
    Report {
        /// The command.
        command: String,
        /// The problem.
        #[source]
        why: serde_json::Error,
    },
    /// A machine file is wrong.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The model rejects a machine.
    #[error(transparent)]
    Model(#[from] model::ModelError),
}

impl Error {
    /// For `map_err`: the error of operation `what`.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::System { what: what.into(), why }
    }
}
