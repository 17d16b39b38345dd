//! Why a demo or a benchmark could not be finished.

use std::io;
use std::path::PathBuf;

/// Why a demo or a benchmark could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of nearside's is not where this one is.
    #[error("there is no {name} in {}: build it with `cargo build --release --workspace`", folder.display())]
    NotBuilt {
        /// Its name.
        name: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The system refused something.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// What came back.
        why: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed: {status}\n  | {}", said.trim_end().replace('\n', "\n  | "))]
    Failed {
        /// The command.
        command: String,
        /// Its exit status.
        status: String,
        /// What it printed.
        said: String,
    },
    /// A command printed something else than it was known to.
    #[error("`{command}` printed no {figure}: {said}")]
    NoFigure {
        /// The command.
        command: String,
        /// What was looked for.
        figure: String,
        /// What it printed.
        said: String,
    },
    /// The report of a run in the lab cannot be read.
    #[error("the report of `{command}` is not as expected: {why}")]
    Report {
        /// The command.
        command: String,
        /// What is wrong with it.
        why: serde_json::Error,
    },
    /// A machine file is wrong.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The model refuses a machine.
    #[error(transparent)]
    Model(#[from] model::ModelError),
}

impl Error {
    /// What to call when the system refuses `what`.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::System { what: what.into(), why }
    }
}
